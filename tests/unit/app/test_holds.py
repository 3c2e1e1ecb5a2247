"""Holds and the whole operator: set in the middle of anything, a node is either taken before or not at all.

And announced maintenance, which comes nevertheless: its notice says that the node will not be empty.
"""

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from haulout.api import hold
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticeCondition
from haulout.api.objects import RawObject
from haulout.api.resources import NODES
from haulout.controllers.profiles.plugin import PROFILE_LABEL, STATE_LABEL
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout_sandbox.apiserver import Write
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.clusters.process import Program
from support.faults.named_faults import fault_mixture
from support.operators.announced_maintenance import AnnouncedMaintenance, with_notices
from support.operators.announced_maintenance import notice_operator as by_default
from support.operators.nodemaintenance import create_maintenance, with_operator_rbac
from support.operators.profiles import annotate, operator_with_profiles

FILE = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: wanted, type: hasAnnotation, config: {key: wanted}}
  - {name: ready, type: condition, config: {type: Ready, status: "True"}}
  trigger:
  - {name: drain, type: eviction, config: {action: drain}}
profiles:
- name: os
  selector: os=yes
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: wanted && ready, next: in-maintenance, trigger: drain}]
"""
_WRITES = ("POST", "PUT", "PATCH", "DELETE")


class HoldInjector:
    """Sets a hold right before a chosen write of the operator, which then relies on a stale node."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.client: Client | None = None  # no hold is set before there is a client

    def before(self, program: Program) -> Program:
        """Return the program with intercepted requests."""

        async def run(client: Client) -> None:
            await program(
                Client(_InterceptedTransport(client.transport, self), clock=client.clock, random=client.random)
            )

        return run

    async def note(self, request: Request) -> None:
        """Count a write, and hold the node if it is time."""
        is_about_it = request.method in _WRITES and "/leases/" not in request.path and "events" not in request.path
        if self.client is None or not is_about_it:
            return
        self.at -= 1
        if self.at == 0:
            value = hold.format_annotation(reason="stop", by="alice")
            await self.client.patch(NODES, "n1", merge_patch({"metadata": {"annotations": {hold.ANNOTATION: value}}}))


class _InterceptedTransport:
    def __init__(self, transport: Transport, injector: HoldInjector) -> None:
        self.server = transport.server
        self._transport = transport
        self._injector = injector

    async def send(self, request: Request) -> Response:
        await self._injector.note(request)
        return await self._transport.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


def is_taken(node: RawObject) -> bool:
    """Return whether a node is cordoned or has a cordon owner."""
    annotations = node["metadata"].get("annotations", {})
    return bool(node["spec"].get("unschedulable")) or "haulout.dev/cordon" in annotations


def on_node(write: Write) -> bool:
    return write.kind.plural == "nodes" and write.key == "n1" and write.after is not None


def taken_while_held(cluster: SandboxCluster) -> list[int]:
    """Return the writes that took the node though it was held."""
    found = [it for it in cluster.history if on_node(it)]
    return [
        at
        for at, (before, now) in enumerate(pairwise(found))
        if now.after and is_taken(now.after) and before.after and not is_taken(before.after)
        and hold.ANNOTATION in before.after["metadata"].get("annotations", {})
    ]  # fmt: skip


@pytest.mark.parametrize("by", ["profile", "order"])
@pytest.mark.parametrize("at", range(1, 9))
async def test_hold_before_any_write_protects_the_node_or_a_started_maintenance_finishes(
    clock: VirtualClock, tmp_path: Path, by: str, at: int
) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(FILE)
    injector = HoldInjector(at)
    async with with_operator_rbac(a_cluster(clock).with_nodes(2)).on_the_sandbox() as cluster:
        cluster.run(injector.before(operator_with_profiles(file)))
        await clock.sleep(timedelta(seconds=5))
        injector.client = cluster.admin
        if by == "order":
            await create_maintenance(cluster, "n1")
        else:
            await cluster.patch("nodes", "n1", metadata={"labels": {"os": "yes", PROFILE_LABEL: "os"}})
            await annotate(cluster, "n1", "wanted", "")
        await clock.sleep(timedelta(minutes=2))
        node = cluster.get("nodes", "n1")
        was_held = hold.ANNOTATION in node["metadata"].get("annotations", {})
        assert taken_while_held(cluster) == []
        if is_taken(node):  # then the maintenance finishes
            done = node["metadata"].get("labels", {}).get(STATE_LABEL) == "in-maintenance"
            assert done or cluster.get("nodemaintenances", "patch")["status"]["phase"] == "Succeeded"
        else:
            assert was_held
            await annotate(cluster, "n1", hold.ANNOTATION, None)
            await cluster.eventually(lambda: is_taken(cluster.get("nodes", "n1")), within=timedelta(seconds=2))


async def test_announced_maintenance_ignores_a_hold_and_its_notice_names_the_holder(clock: VirtualClock) -> None:
    on_n1 = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    plan = a_cluster(clock).with_nodes(2).with_deployment("shop/cart", replicas=1, pods=on_n1)
    async with with_notices(plan).on_the_sandbox() as cluster:
        cluster.run(by_default())
        value = hold.format_annotation(reason="migration", by="alice")
        await annotate(cluster, "n1", hold.ANNOTATION, value)
        cloud = AnnouncedMaintenance(cluster, "n1")
        await cloud.report(start=30, end=50)
        await cloud.wait_until_minute(1)
        message = "node n1 is held by alice: migration; the maintenance begins anyway, at "
        assert on_time(cluster)[:2] == ("False", "Held")
        assert on_time(cluster)[2].startswith(message)
        await cloud.wait_until_minute(25)
        assert cloud.out_of_service() == []
        assert on_time(cluster)[:2] == ("False", "Held")
        await annotate(cluster, "n1", hold.ANNOTATION, None)
        await cloud.wait_until_minute(60)
        assert cloud.out_of_service() == [(25, 50)]


async def test_hold_that_expires_before_the_drain_delays_nothing(clock: VirtualClock) -> None:
    async with with_notices(a_cluster(clock).with_nodes(2)).on_the_sandbox() as cluster:
        cluster.run(by_default())
        cloud = AnnouncedMaintenance(cluster, "n1")
        until = cloud.started_at + timedelta(minutes=20, seconds=1)
        await annotate(cluster, "n1", hold.ANNOTATION, hold.format_annotation(until=until))
        await cloud.report(start=30, end=50)
        await cloud.wait_until_minute(10)
        assert on_time(cluster)[:2] == ("True", "Planned")
        await cloud.wait_until_minute(60)
        assert cloud.out_of_service() == [(20, 50)]


def on_time(cluster: SandboxCluster) -> tuple[str, str, str]:
    """Return the OnTime condition of the only notice."""
    (notice,) = cluster.by_key(MAINTENANCE_NOTICES.plural).values()
    found = next(it for it in notice["status"]["conditions"] if it["type"] == NoticeCondition.ON_TIME)
    return found["status"], found["reason"], found["message"]


@pytest.mark.parametrize("seed", range(4))
async def test_held_node_is_not_modified_under_faults_and_is_maintained_after_release(
    clock: VirtualClock, tmp_path: Path, seed: int
) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(FILE)
    async with with_operator_rbac(a_cluster(clock).with_nodes(2)).on_the_sandbox() as cluster:
        await annotate(cluster, "n1", hold.ANNOTATION, "by=alice; tests")
        await cluster.patch("nodes", "n1", metadata={"labels": {"os": "yes", PROFILE_LABEL: "os"}})
        await annotate(cluster, "n1", "wanted", "")
        cluster.run(operator_with_profiles(file))
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.inject_fault(fault_mixture(seed), seed=seed))
            await create_maintenance(cluster, "n1")
        assert not is_taken(cluster.get("nodes", "n1"))
        assert taken_while_held(cluster) == []
        await annotate(cluster, "n1", hold.ANNOTATION, None)
        await cluster.eventually(lambda: is_taken(cluster.get("nodes", "n1")), within=timedelta(minutes=2))
