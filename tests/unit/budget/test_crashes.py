"""Orders and a profile share one budget, and the operator is stopped at each write, or befallen by faults.

At no revision more nodes are out of service than the budget allows, and all get their turn.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout_sandbox.apiserver import Write
from haulout_sandbox.nodes import Delays
from support.budgeted import FILE, leading, out, slots, within
from support.builders import a_namespace, a_pod
from support.clusters import ClusterPlan, a_cluster
from support.crashes import Stage, survives_crashes
from support.endings import USUALLY_LEFT_OUT, end_state
from support.faults import Fault, mixture
from support.invariants import NodeBudget
from support.live import SandboxCluster
from support.maintaining import (
    DEFINITION,
    countermand,
    is_given_back,
    is_gone,
    is_taken,
    order,
    over,
    phase,
)
from support.profiled import annotate, attach, state
from support.suffered import faults_for

HOME = "haulout"
ONE = FILE + "budget: [{max: 1}]\n"
HELD = within(NodeBudget(name="the file", at_most=1))
LATER = timedelta(minutes=20)


def a_plan(clock: Clock) -> ClusterPlan:
    pods = [a_pod(f"shop/p{number}", on="n1", act={"stop-seconds": "3"}) for number in range(2)]
    return a_cluster(clock).with_definition(DEFINITION).with_nodes(3).with_objects(a_namespace(HOME), *pods)


async def a_day(cluster: SandboxCluster) -> None:
    """Have one order after the other done, a profile in between, and an order that is withdrawn while it waits."""
    await order(cluster, "n1", name="first")
    await cluster.eventually(lambda: phase(cluster, "first"), becomes="Succeeded", within=LATER)
    await attach(cluster, "n2", "os")
    await annotate(cluster, "n2", "wanted", "")
    await order(cluster, "n3", name="withdrawn")
    await cluster.eventually(lambda: bool(phase(cluster, "withdrawn")), within=LATER)
    await cluster.pass_time(seconds=5)
    await countermand(cluster, "withdrawn")
    await cluster.eventually(lambda: is_gone(cluster, "withdrawn"), within=LATER)
    await over(cluster, "first")
    await cluster.eventually(lambda: state(cluster, "n2"), becomes="in-maintenance", within=LATER)
    await order(cluster, "n1", name="last")
    await cluster.pass_time(seconds=5)
    assert out(cluster) == ["n2"]
    await annotate(cluster, "n2", "wanted", None)
    await cluster.eventually(lambda: phase(cluster, "last"), becomes="Succeeded", within=LATER)
    assert is_taken(cluster, "n1")
    await over(cluster, "last")
    await cluster.eventually(lambda: not out(cluster), within=LATER)
    assert is_given_back(cluster, "n1")


def test_whichever_write_is_the_last_the_budget_holds_and_all_get_their_turn() -> None:
    async def story(stage: Stage) -> None:
        async with a_plan(stage.clock).with_delays(Delays.none()).on_the_sandbox() as cluster:
            stage.begin(cluster.cluster)
            await a_day(cluster)
            if stage.crash is None:
                assert not slots(cluster)

    assert survives_crashes(story, operator=leading(ONE), invariants=(HELD,), compare=_ends, inward=True) >= 20


def _ends(history: Sequence[Write]) -> dict[str, Any]:
    """Return how things end; a slot that nobody could give back is proved to be free by the next who needs it."""
    return end_state(history, without={*USUALLY_LEFT_OUT, "configmaps"})


@pytest.mark.parametrize("fault", [*faults_for(1), *map(mixture, range(2))], ids=str)
async def test_the_budget_holds_under_any_fault(clock: Clock, fault: Fault) -> None:
    held = within(NodeBudget(name="the file", at_most=1), operators=("operator", "operator-2"))
    async with a_plan(clock).upholding(held).on_the_sandbox() as cluster:
        cluster.run(leading(ONE))
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.suffer(fault))
            for node in ("n1", "n2"):
                await order(cluster, node, name=f"on-{node}")
        left = {"on-n1", "on-n2"}
        while left:
            await cluster.eventually(lambda: done(cluster, left), within=LATER)
            name = done(cluster, left)[0]
            await over(cluster, name)
            left.remove(name)
        await cluster.eventually(lambda: not out(cluster), within=LATER)


def done(cluster: SandboxCluster, names: set[str]) -> list[str]:
    return [it for it in sorted(names) if phase(cluster, it) == "Succeeded"]


async def test_a_slot_that_nobody_used_is_free_soon(clock: Clock) -> None:
    """The process dies between slot and node, and the order is withdrawn: nobody comes back to that node."""
    async with a_plan(clock).upholding(HELD).on_the_sandbox() as cluster:
        process = cluster.run(leading(ONE))
        process.transport.faults.before(method="PATCH", path="/nodes/n1", times=None)
        await order(cluster, "n1", name="first")
        await cluster.eventually(lambda: cluster.has("configmaps", f"{HOME}/haulout-budget-nodes-in-maintenance"))
        process.kill()
        process.transport.faults.clear()
        await countermand(cluster, "first")
        await cluster.pass_time(seconds=1)
        process.start()
        await order(cluster, "n2", name="second")
        await cluster.eventually(lambda: is_taken(cluster, "n2"), within=timedelta(seconds=40))
        assert not is_taken(cluster, "n1")
