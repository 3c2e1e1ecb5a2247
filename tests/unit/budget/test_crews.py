"""Several operators: they fail over at random, or all believe that they lead; nodes go down by themselves meanwhile.

At no revision does anybody take a node beyond the budget.
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
from support.budgeted import FILE, is_out, leading, out, within
from support.builders import a_namespace
from support.clusters import a_cluster
from support.faults import mixture
from support.invariants import NodeBudget
from support.live import SandboxCluster
from support.maintaining import PLURAL, countermand, maintained, order
from support.profiled import annotate, attach, operating

CREW = ("a", "b", "c")
ZONE = "topology.kubernetes.io/zone"
TEXT = FILE + f"budget: [{{max: 3}}, {{max: 2, groupBy: [{ZONE}]}}]\n"
BUDGETS = (NodeBudget(name="in all", at_most=3), NodeBudget(name="in a zone", at_most=2, group_by=(ZONE,)))
NODES = [f"n{number}" for number in range(1, 9)]
LATER = timedelta(minutes=30)


@asynccontextmanager
async def a_place(clock: Clock, seed: int) -> AsyncIterator[SandboxCluster]:
    """Run a cluster of eight nodes in two zones; half of them have a profile."""
    plan = maintained(a_cluster(clock)).with_nodes(len(NODES), zones=2).seeded(seed)
    held = within(*BUDGETS, operators=(*CREW, *(f"{it}-2" for it in CREW)))
    async with plan.with_objects(a_namespace("haulout")).upholding(held).on_the_sandbox() as cluster:
        for node in NODES[::2]:
            await attach(cluster, node, "os")
        yield cluster


async def something(cluster: SandboxCluster, random: Random) -> None:
    """Do what people and machines do."""
    node = random.choice(NODES)
    ordered = sorted(cluster.all(PLURAL))
    match random.randrange(6):
        case 0 | 1 if f"on-{node}" not in ordered:
            await order(cluster, node, name=f"on-{node}")
        case 2 if ordered:
            with suppress(NotFound):
                await countermand(cluster, random.choice(ordered))
        case 3:
            await annotate(cluster, node, "wanted", "")
        case 4:
            await annotate(cluster, node, "wanted", None)
        case 5:
            cluster.reboot(node, lasting=timedelta(seconds=random.uniform(10, 300)))


async def all_over(cluster: SandboxCluster) -> None:
    """Let everything end; see that it does."""
    for node in NODES:
        await annotate(cluster, node, "wanted", None)
    for name in sorted(cluster.all(PLURAL)):
        with suppress(NotFound):  # it has just gone
            await countermand(cluster, name)
    await cluster.eventually(lambda: not out(cluster) and not cluster.all(PLURAL), within=LATER)
    were_out = {it.key for it in cluster.history if it.kind.plural == "nodes" and it.after and is_out(it.after)}
    assert len(were_out) > 1


@pytest.mark.parametrize("seed", range(4))
async def test_the_budget_holds_while_replicas_fail_over_at_random(clock: Clock, seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    file = tmp_path / "maintenance.yaml"
    file.write_text(TEXT)
    async with a_place(clock, seed) as cluster:
        for name in CREW:
            cluster.run(operating(file, identity=name), name=name)
        for _ in range(30):
            await cluster.pass_time(seconds=random.uniform(0, 12))
            await something(cluster, random)
            process = cluster.processes[random.choice(CREW)]
            if random.random() < 0.3:
                process.kill()
                await cluster.pass_time(seconds=random.uniform(0, 3))
                process.start()
            elif random.random() < 0.3:
                process.transport.cut()
                await cluster.pass_time(seconds=random.uniform(5, 25))
                process.transport.mend()
        await all_over(cluster)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 34, 50, 217])
async def test_the_budget_holds_though_two_lead_and_see_different_things(clock: Clock, seed: int) -> None:
    random = Random(seed)
    async with a_place(clock, seed) as cluster:
        for name in CREW[:2]:
            cluster.run(leading(TEXT), name=name)
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.suffer(mixture(seed, count=6), process="a", seed=seed))
            for _ in range(40):
                await cluster.pass_time(seconds=random.uniform(0, 6))
                await something(cluster, random)
        await all_over(cluster)
