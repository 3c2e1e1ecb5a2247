"""NodeMaintenances and a profile share one budget while the operator crashes at each write or suffers faults.

At no revision more nodes are unavailable than the budget allows, and every maintenance completes.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout_sandbox.apiserver import Write
from haulout_sandbox.nodes import Delays
from support.builders.objects import a_namespace, a_pod
from support.clusters.cluster_plan import ClusterPlan, a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.expectations.end_state import IGNORED_KINDS, end_state
from support.faults.crash_test import CrashRun, assert_survives_crashes
from support.faults.named_faults import Fault, fault_mixture
from support.faults.selection import faults_for_turn
from support.invariants import NodeBudget
from support.operators.nodemaintenance import (
    CRD,
    create_maintenance,
    delete_maintenance,
    end_maintenance,
    has_maintenance_marks,
    is_gone,
    is_released,
    phase,
)
from support.operators.profiles import annotate, set_profiles, state
from support.operators.shared_budget import FILE, always_leading_operator, slots, unavailable_nodes, within_budget

HOME = "haulout"
ONE = FILE + "budget: [{max: 1}]\n"
HELD = within_budget(NodeBudget(name="the file", at_most=1))
LATER = timedelta(minutes=20)


def a_plan(clock: Clock) -> ClusterPlan:
    pods = [a_pod(f"shop/p{number}", on="n1", behaviour={"stop-seconds": "3"}) for number in range(2)]
    return a_cluster(clock).with_crd(CRD).with_nodes(3).with_objects(a_namespace(HOME), *pods)


async def run_two_orders_and_a_profile(cluster: SandboxCluster) -> None:
    """Run two NodeMaintenances, a profile in between, and one NodeMaintenance that is deleted while it waits."""
    await create_maintenance(cluster, "n1", name="first")
    await cluster.eventually(lambda: phase(cluster, "first"), becomes="Succeeded", within=LATER)
    await set_profiles(cluster, "n2", "os")
    await annotate(cluster, "n2", "wanted", "")
    await create_maintenance(cluster, "n3", name="withdrawn")
    await cluster.eventually(lambda: bool(phase(cluster, "withdrawn")), within=LATER)
    await cluster.pass_time(seconds=5)
    await delete_maintenance(cluster, "withdrawn")
    await cluster.eventually(lambda: is_gone(cluster, "withdrawn"), within=LATER)
    await end_maintenance(cluster, "first")
    await cluster.eventually(lambda: state(cluster, "n2"), becomes="in-maintenance", within=LATER)
    await create_maintenance(cluster, "n1", name="last")
    await cluster.pass_time(seconds=5)
    assert unavailable_nodes(cluster) == ["n2"]
    await annotate(cluster, "n2", "wanted", None)
    await cluster.eventually(lambda: phase(cluster, "last"), becomes="Succeeded", within=LATER)
    assert has_maintenance_marks(cluster, "n1")
    await end_maintenance(cluster, "last")
    await cluster.eventually(lambda: not unavailable_nodes(cluster), within=LATER)
    assert is_released(cluster, "n1")


def test_budget_holds_and_every_maintenance_finishes_after_a_crash_at_any_write() -> None:
    async def story(stage: CrashRun) -> None:
        async with a_plan(stage.clock).with_delays(Delays.zero()).on_the_sandbox() as cluster:
            stage.start_operator(cluster.cluster)
            await run_two_orders_and_a_profile(cluster)
            if stage.crash is None:
                assert not slots(cluster)

    assert (
        assert_survives_crashes(
            story, operator=always_leading_operator(ONE), invariants=(HELD,), compare=_ends, writes_only_to_api=True
        )
        >= 20
    )


def _ends(history: Sequence[Write]) -> dict[str, Any]:
    """Return the end state without ConfigMaps: an unreleased slot is verified as free by the next acquirer."""
    return end_state(history, ignored={*IGNORED_KINDS, "configmaps"})


@pytest.mark.parametrize("fault", [*faults_for_turn(1), *map(fault_mixture, range(2))], ids=str)
async def test_budget_holds_under_any_fault(clock: Clock, fault: Fault) -> None:
    held = within_budget(NodeBudget(name="the file", at_most=1), operators=("operator", "operator-2"))
    async with a_plan(clock).with_invariants(held).on_the_sandbox() as cluster:
        cluster.run(always_leading_operator(ONE))
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.inject_fault(fault))
            for node in ("n1", "n2"):
                await create_maintenance(cluster, node, name=f"on-{node}")
        left = {"on-n1", "on-n2"}
        while left:
            await cluster.eventually(lambda: succeeded(cluster, left), within=LATER)
            name = succeeded(cluster, left)[0]
            await end_maintenance(cluster, name)
            left.remove(name)
        await cluster.eventually(lambda: not unavailable_nodes(cluster), within=LATER)


def succeeded(cluster: SandboxCluster, names: set[str]) -> list[str]:
    return [name for name in sorted(names) if phase(cluster, name) == "Succeeded"]


async def test_unused_slot_is_released_soon(clock: Clock) -> None:
    """The process dies between acquiring the slot and cordoning the node, and the NodeMaintenance is deleted."""
    async with a_plan(clock).with_invariants(HELD).on_the_sandbox() as cluster:
        process = cluster.run(always_leading_operator(ONE))
        process.transport.faults.fail_before_effect(method="PATCH", path="/nodes/n1", times=None)
        await create_maintenance(cluster, "n1", name="first")
        await cluster.eventually(lambda: cluster.has("configmaps", f"{HOME}/haulout-budget-nodes-in-maintenance"))
        process.kill()
        process.transport.faults.clear()
        await delete_maintenance(cluster, "first")
        await cluster.pass_time(seconds=1)
        process.start()
        await create_maintenance(cluster, "n2", name="second")
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n2"), within=timedelta(seconds=40))
        assert not has_maintenance_marks(cluster, "n1")
