"""From the order to the end the operator is stopped at each write and each call, and its successor comes to the same.

However many operators there are, and however old what they see is: no server goes but the one that was ordered.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.drain.cordon import MARK
from haulout.errors import LeadershipLost
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kubernikus.keys import DELETE_NODE, NEEDS_UPDATE, SERVER
from haulout_sandbox.apiserver import Write
from haulout_sandbox.nodes import Delays
from support.clusters import ClusterPlan, a_cluster
from support.crashes import Stage, survives_crashes
from support.faults import Fault, mixture
from support.kubernikus import SETTINGS, is_cordoned, kubernikus_on_the_sandbox, names, needs_update, order, seeing_to
from support.live import SandboxCluster
from support.openstack import OpenStackCloud

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


class Lately:
    """The cloud of the cluster that runs right now: a story is told many times, each time with another one."""

    cloud: OpenStackCloud

    async def servers(self, name: str) -> Sequence[dict[str, Any]]:
        """Ask it."""
        return await self.cloud.servers(name)

    async def delete(self, server: str) -> None:
        """Have it delete."""
        await self.cloud.delete(server)


LATELY = Lately()


def a_shop(clock: Clock) -> ClusterPlan:
    return a_cluster(clock).with_deployment("shop/cart", replicas=3, budget=2).with_delays(Delays.none())


def nodes_of(history: Sequence[Write]) -> Any:
    """Return which nodes came and went, and what of ours those have that stay."""
    there = {it.key: it.after for it in history if it.kind.plural == "nodes"}
    return {name: None if node is None else _ours(node) for name, node in there.items()}


def _ours(node: RawObject) -> Any:
    metadata = {**node["metadata"].get("annotations", {}), **node["metadata"]["labels"]}
    return [metadata.get(key) for key in (NEEDS_UPDATE, DELETE_NODE, SERVER, MARK)], node["spec"].get("unschedulable")


async def deleted(stage: Stage) -> None:
    """Delete one of three nodes."""
    async with kubernikus_on_the_sandbox(a_shop(stage.clock), nodes=3) as (cluster, cloud):
        LATELY.cloud = cloud
        stage.begin(cluster.cluster)
        await order(cluster, "pool-1")
        await settled(cluster, cloud, without=["pool-1"])
        await cluster.eventually(lambda: all(needs_update(cluster, it) == "false" for it in cluster.all("nodes")))


async def withdrawn(stage: Stage) -> None:
    """Withdraw an order that a budget holds up."""
    plan = a_cluster(stage.clock).with_deployment("shop/cart", replicas=1, budget=1).with_delays(Delays.none())
    async with kubernikus_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
        LATELY.cloud = cloud
        stage.begin(cluster.cluster)
        await order(cluster, "pool-1")
        await cluster.eventually(lambda: is_cordoned(cluster, "pool-1"))
        await cluster.pass_time(seconds=10)
        await order(cluster, "pool-1", value=None)
        await cluster.pass_time(seconds=10)
        await cluster.eventually(lambda: not cluster.get("nodes", "pool-1")["spec"].get("unschedulable"))
        await cluster.eventually(lambda: needs_update(cluster, "pool-1"), becomes="false")
        assert names(cloud) == ["pool-1"]


async def settled(cluster: SandboxCluster, cloud: OpenStackCloud, *, without: list[str], count: int = 3) -> None:
    await cluster.eventually(lambda: not set(without) & set(cluster.all("nodes")), within=15 * MINUTE)
    await cluster.eventually(lambda: len(cluster.all("nodes")), becomes=count, within=5 * MINUTE)
    await cluster.pass_time(seconds=30)
    stay = {f"pool-{number}" for number in range(1, count + 1)} - set(without)
    assert stay <= set(names(cloud)), "a server went that nobody ordered to go"
    assert len(cluster.all("nodes")) == count


@pytest.mark.parametrize(("story", "writes"), [(deleted, 7), (withdrawn, 3)], ids=["deleted", "withdrawn"])
def test_an_order_survives_a_crash_at_any_write(story: Any, writes: int) -> None:
    found = survives_crashes(story, operator=seeing_to(LATELY), compare=nodes_of)
    assert found >= writes


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("operation", ["ListServers", "DeleteServer"])
async def test_an_order_survives_a_crash_at_any_call_of_nova(clock: Clock, operation: str, *, after: bool) -> None:
    async with kubernikus_on_the_sandbox(a_shop(clock), nodes=3) as (cluster, cloud):
        process = cluster.run(seeing_to(cloud))
        struck: list[str] = []

        async def watcher(called: str, is_after: bool) -> None:  # noqa: FBT001 - as the cloud calls it
            if (called, is_after) == (operation, after) and not struck:
                struck.append(called)
                process.kill()
                await asyncio.Event().wait()

        cloud.faults.watcher = watcher
        await order(cluster, "pool-1")
        await cluster.eventually(lambda: struck)
        await cluster.pass_time(seconds=2)
        process.start()
        await settled(cluster, cloud, without=["pool-1"])


async def test_two_that_both_believe_they_lead_delete_what_was_ordered_and_nothing_else(clock: Clock) -> None:
    async with kubernikus_on_the_sandbox(a_shop(clock), nodes=4) as (cluster, cloud):
        for name in ("one", "two"):
            cluster.run(seeing_to(cloud), name=name)
        for node in ("pool-1", "pool-2"):
            await order(cluster, node)
        await settled(cluster, cloud, without=["pool-1", "pool-2"], count=4)


async def test_who_sees_an_old_order_does_not_delete_a_server_that_may_stay(clock: Clock) -> None:
    """It has not heard that the order was withdrawn: what it writes first is refused."""
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=1, budget=1)
    async with kubernikus_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
        cluster.run(seeing_to(cloud), name="stale")
        await order(cluster, "pool-1")
        await cluster.eventually(lambda: is_cordoned(cluster, "pool-1"))
        late = cluster.line("stale").faults.late(5 * MINUTE, path="/api/v1/nodes", times=None)
        await order(cluster, "pool-1", value=None)
        await cluster.delete("poddisruptionbudgets", "shop/cart")
        await cluster.eventually(lambda: cloud.faults.calls.count("ListServers"))  # it believes that it may
        await cluster.pass_time(minutes=10)
        assert "DeleteServer" not in cloud.faults.calls
        assert names(cloud) == ["pool-1"]
        cluster.line("stale").faults.lift(late)
        free = lambda: not cluster.get("nodes", "pool-1")["spec"].get("unschedulable")  # noqa: E731 - a word for it
        await cluster.eventually(free, within=30 * MINUTE)


async def test_who_noted_the_server_asks_the_node_once_more_before_it_deletes(clock: Clock) -> None:
    async with kubernikus_on_the_sandbox(a_cluster(clock), nodes=1) as (cluster, cloud):
        rule = cloud.faults.fail("DeleteServer", status=503, times=None)
        cluster.run(seeing_to(cloud), name="stale")
        await order(cluster, "pool-1")
        await cluster.eventually(lambda: "DeleteServer" in cloud.faults.calls)
        cluster.line("stale").faults.late(10 * MINUTE, path="/api/v1/nodes", times=None)
        await order(cluster, "pool-1", value=None)
        cloud.faults.lift(rule)
        cloud.faults.calls.clear()
        await cluster.pass_time(minutes=9)
        assert "ListServers" in cloud.faults.calls
        assert "DeleteServer" not in cloud.faults.calls


async def test_a_deposed_leader_changes_nothing_any_more(clock: Clock) -> None:
    def refuse() -> None:
        raise LeadershipLost("another leads")

    async def deposed(client: Client) -> None:
        await seeing_to(LATELY, SETTINGS)(client.fenced(refuse))

    async with kubernikus_on_the_sandbox(a_cluster(clock), nodes=1) as (cluster, cloud):
        LATELY.cloud = cloud
        cluster.run(deposed)
        await order(cluster, "pool-1")
        await cluster.pass_time(minutes=10)
        assert not [it for it in cluster.history if it.who == "operator"]
        assert not cloud.faults.calls


@pytest.mark.parametrize("fault", list(map(mixture, range(6))), ids=str)
async def test_an_order_comes_through_faults_of_all_kinds(clock: Clock, fault: Fault) -> None:
    async with kubernikus_on_the_sandbox(a_shop(clock), nodes=3) as (cluster, cloud):
        cluster.run(seeing_to(cloud))
        await order(cluster, "pool-1")
        await cluster.pass_time(seconds=0.004)
        await cluster.suffer(fault)
        await settled(cluster, cloud, without=["pool-1"])
