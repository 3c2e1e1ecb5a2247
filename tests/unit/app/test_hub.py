"""The hub as a whole: leader election, failover, status, metrics and permissions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

import pytest
import yaml

from haulout.api.clusterapi import EXTENSION_LEASE
from haulout.api.objects import RawObject
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from haulout.app.hub import HubReplicaSettings, run_hub
from haulout.app.manifests.hub_manifests import HubInstallation, hub_objects, hub_permissions
from haulout.app.replica import ReplicaStatus
from haulout.cli import main
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.core.clock import Clock
from haulout.httpserver.metrics import Exposition
from haulout.kube.client import Client
from support.platforms.hub import HubClusters, WorkloadCluster, a_cluster_api_crd

HOME = "haulout"


@pytest.fixture
async def world(clock: Clock) -> HubClusters:
    world = await HubClusters(clock).install_crds()
    world.api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
    return world


@asynccontextmanager
async def replica(
    world: HubClusters, name: str, *, elects: bool = True, hub: ClusterApiSettings | None = None
) -> AsyncIterator[ReplicaStatus]:
    """Run a replica while the context lasts."""
    vitals = ReplicaStatus()
    client = Client(world.api.transport(name), clock=world.clock, random=Random(name))
    operation = HubReplicaSettings(namespace=HOME, identity=name, elects_leader=elects, hub=hub or ClusterApiSettings())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run_hub(client, operation, connect=world.connect(1), status=vitals))
        try:
            yield vitals
        finally:
            task.cancel()


def holder(world: HubClusters) -> str:
    lease = world.api.get("leases", EXTENSION_LEASE, HOME)
    return str(lease["spec"].get("holderIdentity") or "")


async def test_standby_hub_takes_over_when_the_leader_stops(world: HubClusters) -> None:
    prod = await world.add_cluster("team-a", "prod")
    async with replica(world, "two") as two:
        async with replica(world, "one") as one:
            await world.eventually(lambda: one.is_leader or two.is_leader)
            first = await world.add_machine(prod, "m1")
            await world.eventually(lambda: world.has_hook(first))
            assert sum(it.is_leader for it in (one, two)) == 1
            assert prod.open_connections == 1
        second = await world.add_machine(prod, "m2")
        await world.eventually(lambda: world.has_hook(second), seconds=40)
        assert two.is_leader
        assert holder(world) == "two"


async def test_hub_without_leader_election_works_at_once_without_a_lease(world: HubClusters) -> None:
    prod = await world.add_cluster("team-a", "prod")
    async with replica(world, "one", elects=False):
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine), seconds=3)
    assert not world.api.has("leases", EXTENSION_LEASE, HOME)


async def test_hub_reports_status_problems_and_metrics(world: HubClusters) -> None:
    prod, test = await world.add_cluster("a", "prod"), await world.add_cluster("a", "test")
    async with replica(world, "one") as vitals:
        machines = [await world.add_machine(it, f"m-{it.key.name}") for it in (prod, test)]
        await world.eventually(lambda: all(map(world.has_hook, machines)))
        assert vitals.status_lines()[1] == "[+] hub: 2 of 2 clusters are connected, maintenance is active in 0"
        await world.delete_machine(machines[0])
        test.become_unreachable()
        await world.clock.sleep(timedelta(minutes=2))
        assert vitals.status_lines()[1] == "[-] hub: 1 of 2 clusters are connected, maintenance is active in 1"
        assert vitals.unready() == []
        [problem] = vitals.troubles()
        assert problem.startswith("cluster a/test cannot be reached: ")
        text = metrics_text(vitals)
        assert 'haulout_hub_clusters{connection="unreachable"} 1' in text
        assert 'haulout_hub_clusters_by_state{state="in-maintenance"} 1' in text
        assert 'haulout_hub_clusters_by_state{state="idle"} 1' in text
        assert 'haulout_hub_machines{request="deletion",approved="false"} 1' in text
        assert 'haulout_hub_longest_wait_seconds{request="deletion"} 120' in text
        assert 'haulout_hub_events_total{reason="DeletionRequested"} 1' in text
        assert f'leader_election_master_status{{name="{EXTENSION_LEASE}"}} 1' in text
    text = metrics_text(vitals)
    assert 'haulout_hub_events_total{reason="DeletionRequested"} 1' in text, "a counter is not reset"
    assert "haulout_hub_clusters" not in text, "a standby exposes no cluster gauges"


async def test_hub_metrics_count_used_slots_and_waiting_clusters_of_the_budget(world: HubClusters) -> None:
    prod, test = await world.add_cluster("a", "prod"), await world.add_cluster("a", "test")
    async with replica(world, "one", hub=ClusterApiSettings(cluster_budget=("1",))) as vitals:
        first, second = [await world.add_machine(it, f"m-{it.key.name}") for it in (prod, test)]
        await world.eventually(lambda: world.has_hook(first) and world.has_hook(second))
        assert budget_in(vitals) == (0, 1, 0)
        await world.delete_machine(first)
        await world.eventually(lambda: budget_in(vitals) == (1, 1, 0))
        await world.delete_machine(second)
        await world.eventually(lambda: budget_in(vitals) == (1, 1, 1))
        await world.label_node(prod, first, approve_deletion="true")
        await world.eventually(lambda: not world.has_hook(first))
        await world.finish_deletion(first)
        await world.eventually(lambda: budget_in(vitals) == (1, 1, 0), seconds=60)


def metrics_text(vitals: ReplicaStatus) -> str:
    return Exposition(vitals.collect_metrics).text().decode()


def budget_in(vitals: ReplicaStatus) -> tuple[int, ...]:
    """Return the used slots, the limit and the number of waiting clusters."""
    lines = dict(line.rsplit(" ", 1) for line in metrics_text(vitals).splitlines() if not line.startswith("#"))
    names = ("used", "limit", "waiting")
    return tuple(int(lines[f'haulout_hub_budget_{it}{{limit="at most 1 cluster"}}']) for it in names)


async def test_cluster_api_may_be_installed_after_the_hub(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    world = HubClusters(clock)
    world.api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
    async with replica(world, "one") as vitals:
        await clock.sleep(timedelta(minutes=5))
        assert vitals.status_lines()[1] == "[-] hub: Cluster API is not discovered yet"
        await world.install_crds()
        prod = await world.add_cluster("team-a", "prod")
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine), seconds=120)
    warnings = [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]
    problem = "Cluster API is not installed in this cluster: there are no machines.cluster.x-k8s.io; retrying"
    assert warnings.count(problem) == 1


async def test_hub_switches_to_another_api_version_when_one_is_no_longer_served(clock: Clock) -> None:
    world = await HubClusters(clock, versions=("v1beta1",)).install_crds()
    world.api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
    prod = await world.add_cluster("team-a", "prod")
    async with replica(world, "one"):
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await _serve_v1beta2_only(world)
        await world.label_node(prod, machine, managed=None)
        await world.eventually(lambda: world.hook_annotation(machine) is None, seconds=900)


async def _serve_v1beta2_only(world: HubClusters) -> None:
    for kind in ("Machine", "Cluster"):
        name = f"{kind.lower()}s.cluster.x-k8s.io"
        found = await world.admin.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        both = a_cluster_api_crd(kind, "v1beta2", "v1beta1")["spec"]["versions"]
        both[1]["served"] = False
        await world.admin.update(CUSTOM_RESOURCE_DEFINITIONS, {**found, "spec": {**found["spec"], "versions": both}})


# Permissions


def rules(objects: list[RawObject]) -> set[tuple[str | None, str, str, str]]:
    return {
        (it["metadata"].get("namespace"), rule["apiGroups"][0], rule["resources"][0], verb)
        for it in objects
        if it["kind"].endswith("Role")
        for rule in it["rules"]
        for verb in rule["verbs"]
    }


def test_hub_roles_grant_exactly_the_required_permissions() -> None:
    granted = rules(hub_objects(HubInstallation(image="x", namespace="ops")))
    assert granted == {
        (it.namespace, it.group, it.resource, verb) for it in hub_permissions("ops") for verb in it.verbs
    }
    assert {verb for _, _, resource, verb in granted if resource == "secrets"} == {"get", "watch"}
    assert not any("*" in part for rule in granted for part in rule if part)


async def test_hub_sends_only_requests_that_its_roles_allow(clock: Clock) -> None:
    """The requested permissions cover all requests that the hub sends."""
    requested = await _requested_permissions(clock)
    allowed = {(it.group, it.resource, verb) for it in hub_permissions(HOME) for verb in it.verbs}
    assert requested <= allowed


async def _requested_permissions(clock: Clock) -> set[tuple[str, str, str]]:
    world = await HubClusters(clock).install_crds()
    world.api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
    prod: WorkloadCluster = await world.add_cluster("team-a", "prod")
    client = Client(world.api.transport("one"), clock=clock, random=Random("one"))
    transport = client.transport
    async with asyncio.TaskGroup() as group:
        running = run_hub(client, HubReplicaSettings(namespace=HOME, identity="one"), connect=world.connect(1))
        task = group.create_task(running)
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine), seconds=30)
        await world.label_node(prod, machine, approve_maintenance="true")
        await world.eventually(lambda: world.maintenance_label(machine), becomes="approved")
        await clock.sleep(timedelta(seconds=10))
        task.cancel()
    verbs = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
    found = set()
    for it in transport.requests:  # type: ignore[attr-defined]  # of the sandbox
        parts = it.request.path.strip("/").split("/")
        group_name = parts[1] if parts[0] == "apis" and len(parts) > 2 else ""
        rest = parts[3 if parts[0] == "apis" else 2 :]
        if not rest:
            continue  # discovery
        rest = rest[2:] if rest[0] == "namespaces" and len(rest) > 2 else rest
        is_watch = ("watch", "true") in it.request.query
        verb = verbs.get(it.request.method) or ("get" if len(rest) > 1 else "watch" if is_watch else "list")
        found.add((group_name, rest[0], verb))
    return found


def test_hub_manifests_contain_the_given_flags(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["manifests", "--mode", "management", "--image", "x", "--hub-flag", "--approval-timeout=4h", "-n", "ops"])
    assert exited.value.code == 0
    objects = list(yaml.safe_load_all(capsys.readouterr().out))
    [deployment] = [it for it in objects if it["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["run", "--mode=management", "--approval-timeout=4h"]
    assert {it["metadata"].get("namespace", "ops") for it in objects} == {"ops"}


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--mode", "management"], "--image: expected the hub's image"),
        (["--mode", "management", "--image", "x", "--machines"], "--machines: not with --mode management"),
        (["--image", "x", "--hub-flag", "--x"], "--hub-flag: only with --mode management"),
    ],
)
def test_invalid_hub_flags_are_rejected(capsys: pytest.CaptureFixture[str], args: list[str], problem: str) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["manifests", *args])
    assert exited.value.code == 2
    assert problem in capsys.readouterr().err
