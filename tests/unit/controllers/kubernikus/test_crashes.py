"""The operator crashes at each write and each Nova call, and its successor reaches the same end state.

Whatever the number of operators and the age of their caches, only the ordered server is deleted.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from haulout.api.objects import RawObject
from haulout.controllers.kubernikus.labels import DELETE_NODE, NEEDS_UPDATE, SERVER_ANNOTATION
from haulout.core.clock import Clock
from haulout.drain.cordon import CORDON_ANNOTATION
from haulout.errors import LeadershipLost
from haulout.kube.client import Client
from haulout_sandbox.apiserver import Write
from haulout_sandbox.nodes import Delays
from support.clouds.openstack import OpenStackCloud
from support.clusters.cluster_plan import ClusterPlan, a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.faults.crash_test import CrashRun, assert_survives_crashes
from support.faults.named_faults import Fault, fault_mixture
from support.platforms.kubernikus import (
    SETTINGS,
    a_kubernikus_cluster_on_the_sandbox,
    is_cordoned,
    kubernikus_controller,
    needs_update,
    request_deletion,
    server_names,
)

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


class CurrentCloud:
    """The cloud of the current run: a scenario runs many times, each time with another cloud."""

    cloud: OpenStackCloud

    async def servers(self, name: str) -> Sequence[dict[str, Any]]:
        """Ask it."""
        return await self.cloud.servers(name)

    async def delete(self, server: str) -> None:
        """Have it delete."""
        await self.cloud.delete(server)


CURRENT_CLOUD = CurrentCloud()


def a_shop(clock: Clock) -> ClusterPlan:
    return a_cluster(clock).with_deployment("shop/cart", replicas=3, budget=2).with_delays(Delays.zero())


def nodes_of(history: Sequence[Write]) -> Any:
    """Return which nodes exist, with the labels, annotations and cordon of Haulout."""
    there = {write.key: write.after for write in history if write.kind.plural == "nodes"}
    return {name: None if node is None else _ours(node) for name, node in there.items()}


def _ours(node: RawObject) -> Any:
    metadata = {**node["metadata"].get("annotations", {}), **node["metadata"]["labels"]}
    return [metadata.get(key) for key in (NEEDS_UPDATE, DELETE_NODE, SERVER_ANNOTATION, CORDON_ANNOTATION)], node[
        "spec"
    ].get("unschedulable")


async def deleted(run: CrashRun) -> None:
    """Delete one of three nodes."""
    async with a_kubernikus_cluster_on_the_sandbox(a_shop(run.clock), nodes=3) as (cluster, cloud):
        CURRENT_CLOUD.cloud = cloud
        run.start_operator(cluster.cluster)
        await request_deletion(cluster, "pool-1")
        await wait_until_settled(cluster, cloud, without=["pool-1"])
        await cluster.eventually(
            lambda: all(needs_update(cluster, node) == "false" for node in cluster.by_key("nodes"))
        )


async def withdrawn(run: CrashRun) -> None:
    """Withdraw an order that a budget holds up."""
    plan = a_cluster(run.clock).with_deployment("shop/cart", replicas=1, budget=1).with_delays(Delays.zero())
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
        CURRENT_CLOUD.cloud = cloud
        run.start_operator(cluster.cluster)
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: is_cordoned(cluster, "pool-1"))
        await cluster.pass_time(seconds=10)
        await request_deletion(cluster, "pool-1", value=None)
        await cluster.pass_time(seconds=10)
        await cluster.eventually(lambda: not cluster.get("nodes", "pool-1")["spec"].get("unschedulable"))
        await cluster.eventually(lambda: needs_update(cluster, "pool-1"), becomes="false")
        assert server_names(cloud) == ["pool-1"]


async def wait_until_settled(
    cluster: SandboxCluster, cloud: OpenStackCloud, *, without: list[str], count: int = 3
) -> None:
    await cluster.eventually(lambda: not set(without) & set(cluster.by_key("nodes")), within=15 * MINUTE)
    await cluster.eventually(lambda: len(cluster.by_key("nodes")), becomes=count, within=5 * MINUTE)
    await cluster.pass_time(seconds=30)
    stay = {f"pool-{number}" for number in range(1, count + 1)} - set(without)
    assert stay <= set(server_names(cloud)), "a server was deleted without an order"
    assert len(cluster.by_key("nodes")) == count


@pytest.mark.parametrize(("story", "writes"), [(deleted, 7), (withdrawn, 3)], ids=["deleted", "withdrawn"])
def test_deletion_order_survives_a_crash_at_any_write(story: Any, writes: int) -> None:
    found = assert_survives_crashes(story, operator=kubernikus_controller(CURRENT_CLOUD), compare=nodes_of)
    assert found >= writes


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("operation", ["ListServers", "DeleteServer"])
async def test_deletion_order_survives_a_crash_at_any_nova_call(clock: Clock, operation: str, *, after: bool) -> None:
    async with a_kubernikus_cluster_on_the_sandbox(a_shop(clock), nodes=3) as (cluster, cloud):
        process = cluster.run(kubernikus_controller(cloud))
        killed: list[str] = []

        async def watcher(called: str, is_after: bool) -> None:  # noqa: FBT001 - as the cloud calls it
            if (called, is_after) == (operation, after) and not killed:
                killed.append(called)
                process.kill()
                await asyncio.Event().wait()

        cloud.faults.on_call = watcher
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: killed)
        await cluster.pass_time(seconds=2)
        process.start()
        await wait_until_settled(cluster, cloud, without=["pool-1"])


async def test_two_leaders_delete_only_the_ordered_servers(clock: Clock) -> None:
    async with a_kubernikus_cluster_on_the_sandbox(a_shop(clock), nodes=4) as (cluster, cloud):
        for name in ("one", "two"):
            cluster.run(kubernikus_controller(cloud), name=name)
        for node in ("pool-1", "pool-2"):
            await request_deletion(cluster, node)
        await wait_until_settled(cluster, cloud, without=["pool-1", "pool-2"], count=4)


async def test_controller_with_a_stale_order_does_not_delete_the_server(clock: Clock) -> None:
    """Its cache misses the withdrawal, so its first patch is refused."""
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=1, budget=1)
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud), name="stale")
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: is_cordoned(cluster, "pool-1"))
        late = cluster.transport("stale").faults.delay_event(5 * MINUTE, path="/api/v1/nodes", times=None)
        await request_deletion(cluster, "pool-1", value=None)
        await cluster.delete("poddisruptionbudgets", "shop/cart")
        await cluster.eventually(lambda: cloud.faults.calls.count("ListServers"))  # it believes that it may
        await cluster.pass_time(minutes=10)
        assert "DeleteServer" not in cloud.faults.calls
        assert server_names(cloud) == ["pool-1"]
        cluster.transport("stale").faults.remove(late)
        free = lambda: not cluster.get("nodes", "pool-1")["spec"].get("unschedulable")  # noqa: E731 - a word for it
        await cluster.eventually(free, within=30 * MINUTE)


async def test_controller_with_a_recorded_server_reads_the_node_again_before_deletion(clock: Clock) -> None:
    async with a_kubernikus_cluster_on_the_sandbox(a_cluster(clock), nodes=1) as (cluster, cloud):
        rule = cloud.faults.fail("DeleteServer", status=503, times=None)
        cluster.run(kubernikus_controller(cloud), name="stale")
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: "DeleteServer" in cloud.faults.calls)
        cluster.transport("stale").faults.delay_event(10 * MINUTE, path="/api/v1/nodes", times=None)
        await request_deletion(cluster, "pool-1", value=None)
        cloud.faults.remove(rule)
        cloud.faults.calls.clear()
        await cluster.pass_time(minutes=9)
        assert "ListServers" in cloud.faults.calls
        assert "DeleteServer" not in cloud.faults.calls


async def test_deposed_leader_changes_nothing(clock: Clock) -> None:
    def refuse() -> None:
        raise LeadershipLost("another leads")

    async def deposed(client: Client) -> None:
        await kubernikus_controller(CURRENT_CLOUD, SETTINGS)(client.with_fence(refuse))

    async with a_kubernikus_cluster_on_the_sandbox(a_cluster(clock), nodes=1) as (cluster, cloud):
        CURRENT_CLOUD.cloud = cloud
        cluster.run(deposed)
        await request_deletion(cluster, "pool-1")
        await cluster.pass_time(minutes=10)
        assert not [write for write in cluster.history if write.username == "operator"]
        assert not cloud.faults.calls


@pytest.mark.parametrize("fault", list(map(fault_mixture, range(6))), ids=str)
async def test_deletion_order_completes_despite_faults(clock: Clock, fault: Fault) -> None:
    async with a_kubernikus_cluster_on_the_sandbox(a_shop(clock), nodes=3) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        await request_deletion(cluster, "pool-1")
        await cluster.pass_time(seconds=0.004)
        await cluster.inject_fault(fault)
        await wait_until_settled(cluster, cloud, without=["pool-1"])
