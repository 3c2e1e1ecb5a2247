"""What keeps the controller of NodeMaintenances from acting on old copies, in circles, or on behalf of who is done."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from haulout.budget.limits import Budget, BudgetLimit
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.objects import RawObject
from haulout.maintenance.controller import Controller, Settings
from support.clusters import a_cluster
from support.live import SandboxCluster
from support.maintaining import (
    LEASES,
    a_lease,
    countermand,
    invariants,
    last_error,
    maintained,
    operate,
    order,
    over,
    succeeded,
)

OTHER = "NodeHealthCheck-workers"
A_WHILE = timedelta(minutes=1)


@asynccontextmanager
async def a_still_cluster(clock: Clock, *nodes: str) -> AsyncIterator[SandboxCluster]:
    """Run a cluster without kubelets."""
    async with maintained(a_cluster(clock)).upholding(*invariants()).on_the_sandbox() as cluster:
        for name in nodes:
            node: RawObject = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            cluster.api.put(node)
        yield cluster


def written_by_operator(cluster: SandboxCluster, plural: str) -> list[Any]:
    return [it for it in cluster.history if it.who == "operator" and it.kind.plural == plural]


async def test_a_free_lease_is_not_taken_for_an_order_that_was_deleted_unseen(clock: Clock) -> None:
    """The copy of the order is old: another process, or a person, has ended it."""
    async with a_still_cluster(clock, "n1") as cluster:
        operator = cluster.run(operate)
        await cluster.create(a_lease("n1", holder=OTHER, now=clock.now(), lasting=timedelta(hours=1)))
        await order(cluster, "n1")
        await cluster.eventually(lambda: "held by" in last_error(cluster))
        await cluster.pass_time(seconds=30)  # what the server answered to the last write is old by now
        operator.transport.faults.late(A_WHILE, path="/nodemaintenances", times=None)
        await countermand(cluster)
        await cluster.delete("leases", f"{LEASES}/node-n1")
        await cluster.pass_time(seconds=A_WHILE.total_seconds() / 2)
        assert written_by_operator(cluster, "leases") == []


async def test_an_order_that_got_its_slot_does_not_count_as_waiting(clock: Clock) -> None:
    controllers: list[Controller] = []

    async def operate_with_budget(client: Client) -> None:
        events = EventRecorder(client, instance="test", controller="NodeMaintenance")
        controller = Controller(client, events=events, settings=Settings(namespace="default"))
        controller.use(Budget((BudgetLimit(most=1),)))
        controllers.append(controller)
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(events.run())
            try:
                await controller.run()
            finally:
                sending.cancel()

    async with maintained(a_cluster(clock)).with_nodes(2).on_the_sandbox() as cluster:
        cluster.run(operate_with_budget)
        await order(cluster, "n1", name="first")
        await succeeded(cluster, "first")
        await order(cluster, "n2", name="second")
        await cluster.eventually(lambda: controllers[0].in_line, becomes=1)
        await cluster.pass_time(seconds=10)
        assert controllers[0].in_line == 1
        await over(cluster, "first")
        await succeeded(cluster, "second")
        assert controllers[0].in_line == 0
