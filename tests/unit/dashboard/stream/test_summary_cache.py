"""The tile cache, on informers of an API server that only the test writes to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from random import Random

import pytest

from haulout.api.nodemaintenance import NODE_MAINTENANCES, custom_resource_definition
from haulout.api.objects import RawObject
from haulout.api.resources import NODES
from haulout.budget.budget_check import WaitingList
from haulout.budget.limits import NO_BUDGET, Budget, BudgetLimit
from haulout.controllers.nodemaintenance.informers import BY_NODE, node_cache
from haulout.core.timestamps import micro_time
from haulout.dashboard.api.backend import HttpError
from haulout.dashboard.api.health import OperatorInfo
from haulout.dashboard.api.node_backend import NodeBackend
from haulout.dashboard.api.nodes.informers import Informers
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.builders.objects import a_node

ZONE = "topology.kubernetes.io/zone"


@asynccontextmanager
async def a_leading_backend(
    clock: VirtualClock, *objects: RawObject, budget: Budget = NO_BUDGET
) -> AsyncIterator[tuple[ApiServer, NodeBackend]]:
    """Yield a server, and the backend of a leader that writes nothing."""
    api = ApiServer(clock)
    for obj in (custom_resource_definition(), *objects):
        api.put(obj)
    client = Client(api.transport("leader"), clock=clock, random=Random(0))
    nodes = node_cache(client)
    orders = Informer(
        client, ListWatch(NODE_MAINTENANCES), transform=as_is, indexes={BY_NODE: lambda item: (item.node,)}
    )
    informers = Informers(
        clock=clock,
        nodes=nodes,
        maintenances=orders,
        waiting_list=WaitingList(),
        profiles=lambda: None,
        notices=lambda: None,
        budget=lambda: budget,
    )
    backend = NodeBackend(client, informers, operator_info=OperatorInfo(identity="me", since=clock.now()))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(item) for item in (nodes.run(), orders.run(), backend.run())]
        await orders.wait_synced()
        yield api, backend
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


async def test_blocked_drain_updates_its_tile_after_the_threshold(clock: VirtualClock) -> None:
    async with a_leading_backend(clock, a_node("n1"), an_order(blocked_since=clock.now())) as (_, leader):
        assert (await leader.fleet()).nodes[0].state == "draining"
        async with leader.subscribe() as viewer:
            received, began = b"", clock.monotonic()
            while b"event: nodes" not in received and clock.monotonic() < began + 33:
                received += await viewer.next() or b""
        assert b'"state":"blocked"' in received


async def test_created_and_deleted_nodes_update_the_fleet(clock: VirtualClock) -> None:
    async with a_leading_backend(clock, a_node("n1"), a_node("n2")) as (api, leader):
        assert (await leader.summary()).counts == {"idle": 2}
        api.put(a_node("n3"))
        await Client(api.transport("me"), clock=clock, random=Random(1)).delete(NODES, "n1")
        await clock.sleep(timedelta(seconds=1))
        fleet = await leader.fleet()
        assert ([node.name for node in fleet.nodes], fleet.total) == (["n2", "n3"], 2)
        assert (await leader.summary()).counts == {"idle": 2}
        assert await leader.detail("n1") is None


async def test_unchanged_tile_is_not_published(clock: VirtualClock) -> None:
    async with a_leading_backend(clock, a_node("n1")) as (api, leader):
        revision = (await leader.fleet()).revision
        api.put(a_node("n1", labels={"somebody": "else"}))
        await clock.sleep(timedelta(seconds=1))
        assert (await leader.fleet()).revision == revision
        assert leader.summary_cache.computed == 2


async def test_each_budget_group_is_listed_with_its_holders(clock: VirtualClock) -> None:
    nodes = [a_node(f"n{number}", labels={ZONE: f"z{number % 2}"}) for number in range(4)]
    taken = a_node("n4", labels={ZONE: "z0", "cloud.sap/maintenance-state": "in-maintenance"})
    budget = Budget((BudgetLimit(max_unavailable="40%"), BudgetLimit(max_unavailable=1, group_by=(ZONE,))))
    async with a_leading_backend(clock, *nodes, taken, budget=budget) as (_, leader):
        found = [(item.name, item.used, item.limit, item.holders) for item in (await leader.summary()).budgets]
        assert found == [
            ("the whole cluster", 1, 2, ("n4",)),
            (f"{ZONE}=z0", 1, 1, ("n4",)),
            (f"{ZONE}=z1", 0, 1, ()),
        ]


async def test_unsynced_nodes_are_an_error(clock: VirtualClock) -> None:
    client = Client(ApiServer(clock).transport("leader"), clock=clock, random=Random(0))
    informers = Informers(
        clock=clock,
        nodes=node_cache(client),
        maintenances=Informer(
            client, ListWatch(NODE_MAINTENANCES), transform=as_is, indexes={BY_NODE: lambda item: (item.node,)}
        ),
        waiting_list=WaitingList(),
        profiles=lambda: None,
        notices=lambda: None,
        budget=lambda: NO_BUDGET,
    )
    leader = NodeBackend(client, informers, operator_info=OperatorInfo(identity="me", since=clock.now()))
    with pytest.raises(HttpError, match="nodes are not known yet: they are being read"):
        await leader.fleet()
