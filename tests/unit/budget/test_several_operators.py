"""Several operators fail over at random, or all believe that they lead, while nodes fail.

At no revision does an operator cordon a node beyond the budget.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from haulout.core.clock import Clock
from haulout.errors import NotFound
from support.builders.objects import a_namespace
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.faults.named_faults import fault_mixture
from support.invariants import NodeBudget
from support.operators.nodemaintenance import PLURAL, create_maintenance, delete_maintenance, with_nodemaintenance_crd
from support.operators.profiles import annotate, operator_with_profiles, set_profiles
from support.operators.shared_budget import (
    FILE,
    always_leading_operator,
    is_unavailable,
    unavailable_nodes,
    within_budget,
)

OPERATORS = ("a", "b", "c")
ZONE = "topology.kubernetes.io/zone"
TEXT = FILE + f"budget: [{{max: 3}}, {{max: 2, groupBy: [{ZONE}]}}]\n"
BUDGETS = (NodeBudget(name="in all", at_most=3), NodeBudget(name="in a zone", at_most=2, group_by=(ZONE,)))
NODES = [f"n{number}" for number in range(1, 9)]
LATER = timedelta(minutes=30)


@asynccontextmanager
async def a_budgeted_cluster(clock: Clock, seed: int) -> AsyncIterator[SandboxCluster]:
    """Run a cluster of eight nodes in two zones; half of them have a profile."""
    plan = with_nodemaintenance_crd(a_cluster(clock)).with_nodes(len(NODES), zones=2).with_seed(seed)
    held = within_budget(*BUDGETS, operators=(*OPERATORS, *(f"{operator}-2" for operator in OPERATORS)))
    async with plan.with_objects(a_namespace("haulout")).with_invariants(held).on_the_sandbox() as cluster:
        for node in NODES[::2]:
            await set_profiles(cluster, node, "os")
        yield cluster


async def do_something_at_random(cluster: SandboxCluster, random: Random) -> None:
    """Create or delete a NodeMaintenance, request or end a profile's maintenance, or reboot a node."""
    node = random.choice(NODES)
    ordered = sorted(cluster.by_key(PLURAL))
    match random.randrange(6):
        case 0 | 1 if f"on-{node}" not in ordered:
            await create_maintenance(cluster, node, name=f"on-{node}")
        case 2 if ordered:
            with suppress(NotFound):
                await delete_maintenance(cluster, random.choice(ordered))
        case 3:
            await annotate(cluster, node, "wanted", "")
        case 4:
            await annotate(cluster, node, "wanted", None)
        case 5:
            cluster.reboot(node, duration=timedelta(seconds=random.uniform(10, 300)))


async def end_all_maintenance(cluster: SandboxCluster) -> None:
    """End all maintenance, and wait until every node is available."""
    for node in NODES:
        await annotate(cluster, node, "wanted", None)
    for name in sorted(cluster.by_key(PLURAL)):
        with suppress(NotFound):  # it was deleted meanwhile
            await delete_maintenance(cluster, name)
    await cluster.eventually(lambda: not unavailable_nodes(cluster) and not cluster.by_key(PLURAL), within=LATER)
    were_out = {
        write.key
        for write in cluster.history
        if write.kind.plural == "nodes" and write.after and is_unavailable(write.after)
    }
    assert len(were_out) > 1


@pytest.mark.parametrize("seed", range(4))
async def test_budget_holds_while_replicas_fail_over_at_random(clock: Clock, seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    file = tmp_path / "maintenance.yaml"
    file.write_text(TEXT)
    async with a_budgeted_cluster(clock, seed) as cluster:
        for name in OPERATORS:
            cluster.run(operator_with_profiles(file, identity=name), name=name)
        for _ in range(30):
            await cluster.pass_time(seconds=random.uniform(0, 12))
            await do_something_at_random(cluster, random)
            process = cluster.processes[random.choice(OPERATORS)]
            if random.random() < 0.3:
                process.kill()
                await cluster.pass_time(seconds=random.uniform(0, 3))
                process.start()
            elif random.random() < 0.3:
                process.transport.cut()
                await cluster.pass_time(seconds=random.uniform(5, 25))
                process.transport.mend()
        await end_all_maintenance(cluster)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 34, 50, 217])
async def test_budget_holds_although_two_leaders_have_different_caches(clock: Clock, seed: int) -> None:
    random = Random(seed)
    async with a_budgeted_cluster(clock, seed) as cluster:
        for name in OPERATORS[:2]:
            cluster.run(always_leading_operator(TEXT), name=name)
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.inject_fault(fault_mixture(seed, count=6), process="a", seed=seed))
            for _ in range(40):
                await cluster.pass_time(seconds=random.uniform(0, 6))
                await do_something_at_random(cluster, random)
        await end_all_maintenance(cluster)
