"""Guards of the NodeMaintenance controller against stale caches, hot loops and deleted objects."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from haulout.api.hold import ANNOTATION as HOLD
from haulout.api.nodemaintenance import FINALIZER, NODE_MAINTENANCES
from haulout.api.objects import RawObject
from haulout.budget.limits import NO_BUDGET, Budget, BudgetLimit
from haulout.controllers.nodemaintenance.controller import NodeMaintenanceController
from haulout.controllers.nodemaintenance.settings import NodeMaintenanceSettings
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.recorder import EventRecorder
from haulout.runtime.flapping_guard import INTERVAL, MAX_CHANGES
from haulout.runtime.journal import Journal
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.operators.nodemaintenance import (
    LEASE_NAMESPACE,
    NAME,
    PLURAL,
    a_controller,
    a_lease,
    create_maintenance,
    delete_maintenance,
    end_maintenance,
    invariants,
    last_error,
    phase,
    run_controller,
    run_with_informers,
    wait_for_success,
    with_nodemaintenance_crd,
)

OTHER = "NodeHealthCheck-workers"
A_WHILE = timedelta(minutes=1)
ONE_AT_A_TIME = Budget((BudgetLimit(max_unavailable=1),))


@asynccontextmanager
async def a_still_cluster(clock: Clock, *nodes: str) -> AsyncIterator[SandboxCluster]:
    """Run a cluster without kubelets."""
    async with with_nodemaintenance_crd(a_cluster(clock)).with_invariants(*invariants()).on_the_sandbox() as cluster:
        for name in nodes:
            node: RawObject = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            cluster.api.put(node)
        yield cluster


def written_by_operator(cluster: SandboxCluster, plural: str) -> list[Any]:
    return [it for it in cluster.history if it.username == "operator" and it.kind.plural == plural]


async def test_free_lease_is_not_acquired_for_a_maintenance_deleted_unnoticed(clock: Clock) -> None:
    """The cached NodeMaintenance is stale: it was deleted by another process or a user."""
    async with a_still_cluster(clock, "n1") as cluster:
        operator = cluster.run(run_controller)
        await cluster.create(a_lease("n1", holder=OTHER, now=clock.now(), duration=timedelta(hours=1)))
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: "held by" in last_error(cluster))
        await cluster.pass_time(seconds=30)  # the response to the last write is outdated by now
        operator.transport.faults.delay_event(A_WHILE, path="/nodemaintenances", times=None)
        await delete_maintenance(cluster)
        await cluster.delete("leases", f"{LEASE_NAMESPACE}/node-n1")
        await cluster.pass_time(seconds=A_WHILE.total_seconds() / 2)
        assert written_by_operator(cluster, "leases") == []


async def test_deleted_maintenance_is_read_every_ten_seconds_until_the_watch_reports_it(clock: Clock) -> None:
    async with a_still_cluster(clock, "n1") as cluster:
        operator = cluster.run(run_controller)
        await cluster.create(a_lease("n1", holder=OTHER, now=clock.now(), duration=timedelta(hours=1)))
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: "held by" in last_error(cluster))
        await cluster.pass_time(seconds=30)
        operator.transport.faults.delay_event(A_WHILE, path="/nodemaintenances", times=None)
        await cluster.patch(PLURAL, NAME, metadata={"finalizers": None})
        await delete_maintenance(cluster)
        before = len(operator.transport.sent_requests(method="GET", path=f"/nodemaintenances/{NAME}"))
        await cluster.delete("leases", f"{LEASE_NAMESPACE}/node-n1")
        await cluster.pass_time(seconds=35)
        read_count = len(operator.transport.sent_requests(method="GET", path=f"/nodemaintenances/{NAME}")) - before
        assert 3 <= read_count <= 5


def operating_with_budget(
    controllers: list[NodeMaintenanceController], budget: Budget = ONE_AT_A_TIME
) -> Callable[[Client], Coroutine[Any, Any, None]]:
    """Return an operator with this budget; its controller is appended to the list."""

    async def operate_with_budget(client: Client) -> None:
        events = EventRecorder(client, instance="test", controller="NodeMaintenance")
        journal = Journal("NodeMaintenance", events, metrics=client.metrics)
        controller = a_controller(client, journal, settings=NodeMaintenanceSettings(namespace="default"))
        controller.set_budget(budget)
        controllers.append(controller)
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(events.run())
            try:
                await run_with_informers(controller)
            finally:
                sending.cancel()

    return operate_with_budget


async def test_maintenance_on_hold_joins_the_waiting_list_when_the_hold_ends(clock: Clock) -> None:
    controllers: list[NodeMaintenanceController] = []
    async with with_nodemaintenance_crd(a_cluster(clock)).with_nodes(2).on_the_sandbox() as cluster:
        cluster.run(operating_with_budget(controllers))
        await create_maintenance(cluster, "n1", name="first")
        await wait_for_success(cluster, "first")
        await cluster.patch("nodes", "n2", metadata={"annotations": {HOLD: "by=alice"}})
        await create_maintenance(cluster, "n2", name="second")
        await cluster.eventually(lambda: "held by alice" in last_error(cluster, "second"))
        await cluster.eventually(lambda: controllers[0].waiting_count, becomes=0)
        await cluster.patch("nodes", "n2", metadata={"annotations": {HOLD: None}})
        await cluster.eventually(lambda: controllers[0].waiting_count, becomes=1)
        await end_maintenance(cluster, "first")
        await wait_for_success(cluster, "second")


async def test_maintenance_with_a_slot_does_not_count_as_waiting(clock: Clock) -> None:
    controllers: list[NodeMaintenanceController] = []
    async with with_nodemaintenance_crd(a_cluster(clock)).with_nodes(2).on_the_sandbox() as cluster:
        cluster.run(operating_with_budget(controllers))
        await create_maintenance(cluster, "n1", name="first")
        await wait_for_success(cluster, "first")
        await create_maintenance(cluster, "n2", name="second")
        await cluster.eventually(lambda: controllers[0].waiting_count, becomes=1)
        await cluster.pass_time(seconds=10)
        assert controllers[0].waiting_count == 1
        await end_maintenance(cluster, "first")
        await wait_for_success(cluster, "second")
        assert controllers[0].waiting_count == 0


async def test_no_maintenance_waits_for_a_slot_without_a_budget(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    controllers: list[NodeMaintenanceController] = []
    async with with_nodemaintenance_crd(a_cluster(clock)).with_nodes(2).on_the_sandbox() as cluster:
        cluster.run(operating_with_budget(controllers, NO_BUDGET))
        await create_maintenance(cluster, "n1", name="first")
        await wait_for_success(cluster, "first")
        assert controllers[0].waiting_count == 0
        await end_maintenance(cluster, "first")
        assert controllers[0].waiting_count == 0
        assert [it.getMessage() for it in caplog.records if it.levelname == "ERROR"] == []


async def test_maintenance_whose_finalizer_others_keep_removing_is_paused(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Each change is correct by itself, and triggers the next one of the other process."""
    async with a_still_cluster(clock, "n1") as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        removed = 0
        for _ in range(5 * MAX_CHANGES):
            if finalizers(cluster):
                await cluster.patch(PLURAL, NAME, metadata={"finalizers": None})
                removed += 1
            await cluster.pass_time(seconds=0.1)
        assert MAX_CHANGES / 2 < removed <= MAX_CHANGES
        assert "changes too often; its reconciliation is paused until" in caplog.text
        assert finalizers(cluster) == []
        await cluster.pass_time(seconds=INTERVAL.total_seconds())
        assert finalizers(cluster) == [FINALIZER], "it continues after the pause"


async def test_maintenance_whose_phase_others_keep_changing_is_paused(clock: Clock) -> None:
    async with a_still_cluster(clock, "n1") as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        changed = 0
        for _ in range(5 * MAX_CHANGES):
            if phase(cluster) == "Succeeded":
                running = merge_patch({"status": {"phase": "Running"}})
                await cluster.admin.patch(NODE_MAINTENANCES, NAME, running, subresource="status")
                changed += 1
            await cluster.pass_time(seconds=0.1)
        assert MAX_CHANGES / 2 < changed <= MAX_CHANGES
        assert phase(cluster) == "Running"
        await cluster.pass_time(seconds=INTERVAL.total_seconds())
        assert phase(cluster) == "Succeeded", "it continues after the pause"


def finalizers(cluster: SandboxCluster) -> list[str]:
    found: list[str] = cluster.get(PLURAL, NAME)["metadata"].get("finalizers", [])
    return found
