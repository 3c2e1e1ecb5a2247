"""Tiles that are kept up to date, on caches that nobody but the test writes to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from random import Random

import pytest

from haulout.budget.limits import NO_BUDGET, Budget, BudgetLimit
from haulout.budget.line import Line
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.objects import RawObject
from haulout.kube.resources import NODES
from haulout.kube.timestamps import micro_time
from haulout.maintenance.resource import NODE_MAINTENANCES, definition
from haulout.maintenance.sight import BY_NODE, node_cache
from haulout.web.api.heading import Heading
from haulout.web.api.leader import Leader
from haulout.web.api.sight import Sight
from haulout.web.api.source import Unanswerable
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.event_loops.virtual import VirtualClock
from support.builders import a_node

ZONE = "topology.kubernetes.io/zone"


@asynccontextmanager
async def leading(
    clock: VirtualClock, *objects: RawObject, budget: Budget = NO_BUDGET
) -> AsyncIterator[tuple[ApiServer, Leader]]:
    """Yield a server, and a leader that only looks."""
    api = ApiServer(clock)
    for obj in (definition(), *objects):
        api.put(obj)
    client = Client(api.transport("leader"), clock=clock, random=Random(0))
    nodes = node_cache(client)
    orders = Cache(client, Selection(NODE_MAINTENANCES), row=as_is, indexes={BY_NODE: lambda it: (it.node,)})
    sight = Sight(
        clock=clock,
        nodes=nodes,
        maintenances=orders,
        line=Line(),
        profiles=lambda: None,
        notices=lambda: None,
        budget=lambda: budget,
    )
    leader = Leader(client, sight, heading=Heading(identity="me", since=clock.now()))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(it) for it in (nodes.run(), orders.run(), leader.run())]
        await orders.wait_synced()
        yield api, leader
        for task in tasks:
            task.cancel()


def an_order(*, blocked_since: datetime) -> RawObject:
    blocker = {"kind": "DisruptionBudget", "pod": "shop/cart-0", "reason": "no", "since": micro_time(blocked_since)}
    status = {"phase": "Running", "conditions": [{"type": "Cordoned", "status": "True"}], "blockers": [blocker]}
    return {
        "apiVersion": NODE_MAINTENANCES.api_version,
        "kind": NODE_MAINTENANCES.kind,
        "metadata": {"name": "patch"},
        "spec": {"nodeName": "n1"},
        "status": status,
    }


async def test_a_drain_that_stays_blocked_is_told_though_nothing_happens(clock: VirtualClock) -> None:
    async with leading(clock, a_node("n1"), an_order(blocked_since=clock.now())) as (_, leader):
        assert (await leader.fleet()).nodes[0].state == "draining"
        async with leader.looking() as viewer:
            told, began = b"", clock.monotonic()
            while b"event: nodes" not in told and clock.monotonic() < began + 33:
                told += await viewer.next() or b""
        assert b'"state":"blocked"' in told


async def test_nodes_come_and_go(clock: VirtualClock) -> None:
    async with leading(clock, a_node("n1"), a_node("n2")) as (api, leader):
        assert (await leader.summary()).counts == {"idle": 2}
        api.put(a_node("n3"))
        await Client(api.transport("me"), clock=clock, random=Random(1)).delete(NODES, "n1")
        await clock.sleep(timedelta(seconds=1))
        fleet = await leader.fleet()
        assert ([it.name for it in fleet.nodes], fleet.total) == (["n2", "n3"], 2)
        assert (await leader.summary()).counts == {"idle": 2}
        assert await leader.detail("n1") is None


async def test_a_tile_that_came_out_as_it_was_is_not_told(clock: VirtualClock) -> None:
    async with leading(clock, a_node("n1")) as (api, leader):
        revision = (await leader.fleet()).revision
        api.put(a_node("n1", labels={"somebody": "else"}))
        await clock.sleep(timedelta(seconds=1))
        assert (await leader.fleet()).revision == revision
        assert leader.board.computed == 2


async def test_each_group_of_a_budget_is_told_with_who_uses_it(clock: VirtualClock) -> None:
    nodes = [a_node(f"n{number}", labels={ZONE: f"z{number % 2}"}) for number in range(4)]
    taken = a_node("n4", labels={ZONE: "z0", "cloud.sap/maintenance-state": "in-maintenance"})
    budget = Budget((BudgetLimit(most="40%"), BudgetLimit(most=1, group_by=(ZONE,))))
    async with leading(clock, *nodes, taken, budget=budget) as (_, leader):
        found = [(it.name, it.used, it.limit, it.holders) for it in (await leader.summary()).budgets]
        assert found == [
            ("the whole cluster", 1, 2, ("n4",)),
            (f"{ZONE}=z0", 1, 1, ("n4",)),
            (f"{ZONE}=z1", 0, 1, ()),
        ]


async def test_while_nodes_cannot_be_read_that_is_said(clock: VirtualClock) -> None:
    client = Client(ApiServer(clock).transport("leader"), clock=clock, random=Random(0))
    sight = Sight(
        clock=clock,
        nodes=node_cache(client),
        maintenances=Cache(client, Selection(NODE_MAINTENANCES), row=as_is, indexes={BY_NODE: lambda it: (it.node,)}),
        line=Line(),
        profiles=lambda: None,
        notices=lambda: None,
        budget=lambda: NO_BUDGET,
    )
    leader = Leader(client, sight, heading=Heading(identity="me", since=clock.now()))
    with pytest.raises(Unanswerable, match="nodes are not known yet: they are being read"):
        await leader.fleet()
