"""The Kubernikus component of the operator: its file, its permissions, its status, together with profiles."""

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from haulout.api import maintenancerecord
from haulout.api.leases import PROFILES_LEASE
from haulout.api.objects import RawObject
from haulout.app.manifests import operator_manifests
from haulout.app.manifests.operator_manifests import Installation
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.operator_status import OperatorStatus
from haulout.compat.openstack_config import OpenStackSettings
from haulout.controllers.kubernikus.component import Credentials, Kubernikus
from haulout.controllers.kubernikus.controller import KubernikusController
from haulout.controllers.kubernikus.labels import CORDON_OWNER
from haulout.controllers.kubernikus.nova import ServerDocument
from haulout.controllers.kubernikus.settings_file import KubernikusFile, read
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.core.clock import Clock
from haulout.httpserver.metrics import Exposition
from haulout.kube import leases
from haulout.kube.client import Client
from support.builders.objects import a_namespace
from support.clouds.openstack import OpenStackCloud
from support.clusters.cluster_plan import SERVICE_ACCOUNT, ClusterPlan, a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.clusters.process import Program
from support.expectations.history_entries import transition_texts
from support.fakes.external_client import FakeExternalClient
from support.operators.profiles import ANNOTATION_CONFIGURATION
from support.platforms.kubernikus import (
    a_kubernikus_cluster_on_the_sandbox,
    event_notes,
    needs_update,
    request_deletion,
    server_names,
)

HOME = SERVICE_ACCOUNT[0]
LASTS = timedelta(seconds=15)
FILE = "intervals: {requeue: 5s, podDeletion: {period: 5s, timeout: 2m}, podEviction: {period: 20s, timeout: 5m}}\n"
BY_SECRET = FILE + "cloudProviderSecret: {name: cloud, namespace: kube-system}\n"
CONF = """
[Global]
auth-url = "https://identity.example/v3"
username = "kubernikus"
password = "s3\\"cret#;"
region = "qa-de-1"
domain-name = "kubernikus"
tenant-id = "p1"
"""
READ = OpenStackSettings(
    auth_url="https://identity.example/v3",
    username="kubernikus",
    password='s3"cret#;',
    region="qa-de-1",
    domain_name="kubernikus",
    tenant_id="p1",
)


@dataclass
class NovaWithCredentials:
    """Nova with credentials that are read for each call, as in the SDK."""

    cloud: OpenStackCloud
    credentials: Credentials | None
    used_credentials: list[OpenStackSettings] = field(default_factory=list)

    async def servers(self, name: str) -> Sequence[ServerDocument]:
        """Return servers."""
        await self._show()
        return await self.cloud.servers(name)

    async def delete(self, server: str) -> None:
        """Delete a server."""
        await self._show()
        await self.cloud.delete(server)

    async def _show(self) -> None:
        if self.credentials is not None:
            self.used_credentials.append(await self.credentials())


@dataclass
class World:
    """The parts of an operator."""

    cloud: OpenStackCloud
    folder: Path
    text: str = FILE
    needs_credentials: bool = False
    vitals: OperatorStatus = field(default_factory=OperatorStatus)
    nova: NovaWithCredentials | None = None

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.folder / "kubernikus.yaml"

    def make(self, credentials: Credentials) -> NovaWithCredentials:
        """Create the Nova client."""
        self.nova = NovaWithCredentials(self.cloud, credentials if self.needs_credentials else None)
        return self.nova

    def operator(self, *, profiles: str = "", identity: str = "one", node: str = "") -> Program:
        """Return the whole operator as a program."""
        self.path.write_text(self.text)

        async def program(client: Client) -> None:
            kubernikus = Kubernikus(KubernikusFile(self.path, environ={}, clock=client.clock), connect_nova=self.make)
            settings = OperatorSettings(namespace=HOME, identity=identity, node=node)
            file = self.folder / "maintenance.yaml"
            if profiles:
                file.write_text(profiles)
            configured = ProfilesFile(file, environ={}, clock=client.clock, is_optional=True)
            beside = ProfilesComponent(configured, FakeExternalClient())
            await run_operator(client, settings, profiles=beside, components=[kubernikus], status=self.vitals)

        return program


def role_objects(text: str) -> list[RawObject]:
    settings = read(text, file="", environ={}).configuration
    return operator_manifests.role_objects(Installation(image="example/haulout", components={Kubernikus: settings}))


@asynccontextmanager
async def a_site(plan: ClusterPlan, *, nodes: int) -> AsyncIterator[tuple[SandboxCluster, OpenStackCloud]]:
    """Run a cluster of Kubernikus, with the namespace in which the operator lives."""
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=nodes) as (cluster, cloud):
        if not cluster.has("namespaces", HOME):
            await cluster.create(a_namespace(HOME))
        yield cluster, cloud


async def wait_for_node_deletion(cluster: SandboxCluster, node: str) -> None:
    await cluster.eventually(lambda: not cluster.has("nodes", node))


async def test_kubernikus_component_works_with_the_shipped_rbac_rules(
    clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=2).with_rbac(*role_objects(BY_SECRET))
    async with a_site(plan, nodes=2) as (cluster, cloud):
        world = World(cloud, tmp_path, BY_SECRET, needs_credentials=True)
        await cluster.create(a_secret())
        cluster.run(world.operator())
        await cluster.eventually(lambda: needs_update(cluster, "pool-2"), becomes="false")
        await request_deletion(cluster, "pool-1")
        await wait_for_node_deletion(cluster, "pool-1")
        assert "forbidden" not in caplog.text
        reasons = {it["reason"] for it in cluster.by_key("events").values()}
        assert {"DeletionOrdered", "ServerDeleted", "Evicting"} <= reasons


@pytest.mark.real_time
async def test_u05_credentials_are_read_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "provider").mkdir()
    (tmp_path / "provider" / "cloudprovider.conf").write_text(CONF)
    async with a_site(a_cluster(clock), nodes=1) as (cluster, cloud):
        world = World(cloud, tmp_path, needs_credentials=True)
        cluster.run(world.operator())
        await request_deletion(cluster, "pool-1")
        await wait_for_node_deletion(cluster, "pool-1")
        assert world.nova is not None
        assert set(world.nova.used_credentials) == {READ}


async def test_u06_credentials_are_read_from_a_secret_each_time(tmp_path: Path, clock: Clock) -> None:
    async with a_site(a_cluster(clock), nodes=2) as (cluster, cloud):
        world = World(cloud, tmp_path, BY_SECRET, needs_credentials=True)
        cluster.run(world.operator())
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(
            lambda: "Secret kube-system/cloud" in event_notes(cluster, "pool-1").get("CloudRequestFailed", "")
        )
        await cluster.create(a_secret())
        await wait_for_node_deletion(cluster, "pool-1")
        assert world.nova is not None
        assert set(world.nova.used_credentials) == {READ}


def a_secret() -> RawObject:
    data = {"cloudprovider.conf": base64.b64encode(CONF.encode()).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "cloud", "namespace": "kube-system"},
        "data": data,
    }


async def test_kubernikus_component_runs_together_with_profiles(tmp_path: Path, clock: Clock) -> None:
    async with a_site(a_cluster(clock), nodes=2) as (cluster, cloud):
        world = World(cloud, tmp_path)
        cluster.run(world.operator(profiles=ANNOTATION_CONFIGURATION))
        await request_deletion(cluster, "pool-1")
        await wait_for_node_deletion(cluster, "pool-1")
        await cluster.eventually(
            lambda: cluster.get("nodes", "pool-2")["metadata"]["labels"].get("cloud.sap/maintenance-state")
        )


async def test_kubernikus_component_is_idle_beside_a_sap_maintenance_controller(tmp_path: Path, clock: Clock) -> None:
    """Both would drain and delete at the same time; both use one lease."""
    async with a_site(a_cluster(clock), nodes=1) as (cluster, cloud):

        async def old(client: Client) -> None:
            while True:
                await leases.acquire(
                    client, PROFILES_LEASE, namespace=HOME, holder="maintenance-controller-x_1", duration=LASTS
                )
                await client.clock.sleep(LASTS / 3)

        other = cluster.run(old, name="old")
        world = World(cloud, tmp_path)
        cluster.run(world.operator())
        await request_deletion(cluster, "pool-1")
        await cluster.pass_time(minutes=5)
        assert needs_update(cluster, "pool-1") is None
        assert server_names(cloud) == ["pool-1"]
        assert any("not running on this replica" in it for it in world.vitals.status_lines())
        other.kill()
        await wait_for_node_deletion(cluster, "pool-1")


async def test_kubernikus_file_edits_are_applied_and_invalid_ones_are_reported(tmp_path: Path, clock: Clock) -> None:
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=1, budget=1)
    async with a_site(plan, nodes=1) as (cluster, cloud):
        world = World(cloud, tmp_path)
        cluster.run(world.operator())
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: "DrainBlocked" in event_notes(cluster, "pool-1"))
        assert any("PodDisruptionBudget shop/cart" in it for it in world.vitals.troubles())
        world.path.write_text(FILE.replace("5s, podDel", "soon, podDel"))
        await cluster.eventually(lambda: any("intervals.requeue" in it for it in world.vitals.troubles()))
        world.path.write_text(FILE.replace("timeout: 5m", "timeout: 1m, force: true"))
        await wait_for_node_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: list(world.vitals.troubles()), becomes=[])


async def test_kubernikus_status_is_reported_in_status_lines_and_metrics(tmp_path: Path, clock: Clock) -> None:
    plan = a_cluster(clock).with_crd(maintenancerecord.custom_resource_definition())
    async with a_site(plan, nodes=3) as (cluster, cloud):
        world = World(cloud, tmp_path)
        cloud.faults.fail("ListServers", status=503, times=None)
        cluster.run(world.operator())
        await cluster.eventually(
            lambda: "[+] Kubernikus: running on this replica; to be deleted: 0 nodes" in status_lines(world)
        )
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: numbers(world), becomes={"true": 1.0, "false": 0.0})
        assert any(
            it.startswith("[-] Kubernikus: node pool-1: its server cannot be deleted") for it in status_lines(world)
        )
        await cluster.eventually(lambda: transition_texts(cluster, "pool-1", CORDON_OWNER), becomes=["→ Running"])


def status_lines(world: World) -> Sequence[str]:
    return world.vitals.status_lines()


def numbers(world: World) -> dict[str, float]:
    lines = Exposition(world.vitals.collect_metrics).text().decode().splitlines()
    ours = [it for it in lines if it.startswith("haulout_kubernikus_deletions{")]
    return {it.split('"')[1]: float(it.rsplit(" ", 1)[1]) for it in ours}


async def test_failed_kubernikus_component_restarts_and_others_continue(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, broken = KubernikusController.run, [True]

    async def run(self: KubernikusController, **more: Any) -> None:
        if broken:
            broken.clear()
            raise RuntimeError("a defect")
        await work(self, **more)

    monkeypatch.setattr(KubernikusController, "run", run)
    async with a_site(a_cluster(clock), nodes=1) as (cluster, cloud):
        world = World(cloud, tmp_path)
        cluster.run(world.operator())
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: any("Kubernikus failed" in it for it in world.vitals.troubles()))
        await wait_for_node_deletion(cluster, "pool-1")


async def test_leader_hands_over_before_its_own_node_is_deleted(tmp_path: Path, clock: Clock) -> None:
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=2)
    async with a_site(plan, nodes=2) as (cluster, cloud):
        world = World(cloud, tmp_path)
        cluster.run(world.operator(identity="one", node="pool-1"))
        await cluster.eventually(lambda: needs_update(cluster, "pool-1"), becomes="false")
        cluster.run(world.operator(identity="two", node="pool-2"), name="two")
        await request_deletion(cluster, "pool-1")
        await wait_for_node_deletion(cluster, "pool-1")
        evicting = {
            it.username for it in cluster.history if it.kind.plural == "pods" and it.username in ("operator", "two")
        }
        assert evicting == {"two"}
