"""One watch for the pods of many nodes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.drain import manager
from haulout.drain.eviction_requests import RequestOwner
from haulout.drain.manager import DrainManager
from haulout.drain.pod_informers import SharedPodInformer
from haulout.drain.policy import DrainPolicy
from support.clusters.drain_cluster import DrainCluster, a_drain_cluster, a_pod

POLICY = DrainPolicy.like_nmo()


@asynccontextmanager
async def a_pool(cluster: DrainCluster) -> AsyncIterator[SharedPodInformer]:
    """Run a shared informer with its own connection."""
    pool = SharedPodInformer(cluster.cluster.client("pool"))
    async with asyncio.TaskGroup() as group:
        following = group.create_task(pool.run())
        yield pool
        following.cancel()


def watches(cluster: DrainCluster) -> int:
    """Return how many pod watches drains opened."""
    return sum(
        ("watch", "true") in it.query and it.path.endswith("/pods")
        for it in cluster.transport.sent_requests(method="GET")
    )


async def test_drains_share_one_watch_and_keep_no_pods_of_other_nodes(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3") as cluster, a_pool(cluster) as pool:
        for node in ("n1", "n2", "n3"):
            await cluster.run_pods(f"on-{node}", 5, on=node, grace=5)
        drains = [cluster.start_drain(cluster.new_drain(node, pods=pool.for_node(node))) for node in ("n1", "n2")]
        await cluster.wait_until(lambda: len(pool) > 0)
        assert len(pool) <= 10
        assert [it.is_drained for it in await asyncio.gather(*drains)] == [True, True]
        assert len(cluster.pod_names(on="n3")) == len(cluster.pod_names()) == 5
        assert watches(cluster) == 0
        assert len(pool) == 0


async def test_late_subscriber_gets_the_existing_pods(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster, a_pool(cluster) as pool:
        for node in ("n1", "n2"):
            await cluster.run_pods(f"on-{node}", 3, on=node)
        assert (await cluster.drain("n1", pods=pool.for_node("n1"))).is_drained
        source = pool.for_node("n2")
        async with asyncio.TaskGroup() as group:
            following = group.create_task(source.run())
            await source.wait_synced()
            assert len(list(source.pods())) == len(pool) == 3
            following.cancel()
        assert len(pool) == 0


async def test_pod_created_later_is_observed(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster, a_pool(cluster) as pool:
        await cluster.run_pods("slow", 1, on="n1", stop=20, grace=60)
        drain = cluster.start_drain(cluster.new_drain("n1", pods=pool.for_node("n1")))
        await cluster.wait_until(lambda: bool(cluster.evicted_pods()))
        cluster.put(a_pod("late", on="n1"))
        assert (await drain).is_drained
        assert cluster.evicted_pods()[-1] == "late"


async def test_stale_shared_informer_delays_a_drain_but_does_not_mislead_it(clock: Clock) -> None:
    """For example, its connection is lost while other connections of the operator work."""
    async with a_drain_cluster(clock, "n1") as cluster, a_pool(cluster) as pool:
        await cluster.run_pods("web", 3, on="n1", grace=5)
        drain = cluster.start_drain(cluster.new_drain("n1", pods=pool.for_node("n1")))
        await cluster.wait_until(lambda: len(pool) == 3)
        cluster.cluster.transport("pool").silence()
        outcome = await asyncio.wait_for(drain, 60)
        assert outcome.is_drained
        assert cluster.pod_names() == []


async def test_unreachable_server_is_awaited_and_reported(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster, a_pool(cluster) as pool:
        await cluster.run_pods("web", 1, on="n1")
        await clock.sleep(timedelta(seconds=1))
        cluster.cluster.transport("pool").cut()
        source = pool.for_node("n1")
        drain = cluster.start_drain(cluster.new_drain("n1", pods=source))
        await cluster.wait_until(lambda: bool(source.stale_reason))
        assert cluster.evicted_pods() == []
        cluster.cluster.transport("pool").mend()
        assert (await drain).is_drained
        assert source.stale_reason == ""


async def test_only_a_few_of_many_drains_have_their_own_watch(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "_APART", 2)
    nodes = [f"n{number}" for number in range(6)]
    async with a_drain_cluster(clock, *nodes) as cluster:
        for node in nodes:
            await cluster.run_pods(f"on-{node}", 2, on=node, stop=5, grace=30)
        drains = DrainManager(cluster.client, on_change=lambda _: None)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(drains.run())
            await clock.sleep(timedelta())
            for node in nodes:
                drains.start(node, await found(cluster, node), POLICY, owner=RequestOwner(name=node))
            await cluster.wait_until(lambda: all(map(drains.has_ended, nodes)))
            assert cluster.pod_names() == []
            assert watches(cluster) == 3
            await cluster.run_pods("again", 1, on="n0")
            await drains.stop("n0")
            drains.start("n0", await found(cluster, "n0"), POLICY, owner=RequestOwner(name="n0"))
            await cluster.wait_until(lambda: drains.has_ended("n0"))
            assert cluster.pod_names() == []
            assert watches(cluster) == 4
            running.cancel()


async def found(cluster: DrainCluster, name: str) -> Node:
    """Return a node."""
    return await cluster.cluster.client("admin").get(NODES, name)
