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
async def a_pool(town: DrainCluster) -> AsyncIterator[SharedPodInformer]:
    """Yield a pool that runs, over a connection of its own."""
    pool = SharedPodInformer(town.cluster.client("pool"))
    async with asyncio.TaskGroup() as group:
        following = group.create_task(pool.run())
        yield pool
        following.cancel()


def watches(town: DrainCluster) -> int:
    """Return how many watches of pods were opened on behalf of drains."""
    return sum(
        ("watch", "true") in it.query and it.path.endswith("/pods") for it in town.transport.sent_requests(method="GET")
    )


async def test_members_share_one_watch_and_nothing_is_kept_of_other_nodes(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3") as town, a_pool(town) as pool:
        for node in ("n1", "n2", "n3"):
            await town.run_pods(f"on-{node}", 5, on=node, grace=5)
        drains = [town.start_drain(town.new_drain(node, pods=pool.for_node(node))) for node in ("n1", "n2")]
        await town.wait_until(lambda: len(pool) > 0)
        assert len(pool) <= 10
        assert [it.is_drained for it in await asyncio.gather(*drains)] == [True, True]
        assert len(town.pod_names(on="n3")) == len(town.pod_names()) == 5
        assert watches(town) == 0
        assert len(pool) == 0


async def test_who_joins_later_sees_what_was_there_before(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town, a_pool(town) as pool:
        for node in ("n1", "n2"):
            await town.run_pods(f"on-{node}", 3, on=node)
        assert (await town.drain("n1", pods=pool.for_node("n1"))).is_drained
        source = pool.for_node("n2")
        async with asyncio.TaskGroup() as group:
            following = group.create_task(source.run())
            await source.wait_synced()
            assert len(list(source.pods())) == len(pool) == 3
            following.cancel()
        assert len(pool) == 0


async def test_a_pod_that_comes_late_is_seen(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town, a_pool(town) as pool:
        await town.run_pods("slow", 1, on="n1", stop=20, grace=60)
        drain = town.start_drain(town.new_drain("n1", pods=pool.for_node("n1")))
        await town.wait_until(lambda: bool(town.evicted_pods()))
        town.put(a_pod("late", on="n1"))
        assert (await drain).is_drained
        assert town.evicted_pods()[-1] == "late"


async def test_a_pool_that_is_old_delays_a_drain_and_does_not_mislead_it(clock: Clock) -> None:
    """As that of an operator which is cut off from the server while its other connections work."""
    async with a_drain_cluster(clock, "n1") as town, a_pool(town) as pool:
        await town.run_pods("web", 3, on="n1", grace=5)
        drain = town.start_drain(town.new_drain("n1", pods=pool.for_node("n1")))
        await town.wait_until(lambda: len(pool) == 3)
        town.cluster.transport("pool").silence()
        outcome = await asyncio.wait_for(drain, 60)
        assert outcome.is_drained
        assert town.pod_names() == []


async def test_a_server_that_is_away_is_waited_for_and_told(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town, a_pool(town) as pool:
        await town.run_pods("web", 1, on="n1")
        await clock.sleep(timedelta(seconds=1))
        town.cluster.transport("pool").cut()
        source = pool.for_node("n1")
        drain = town.start_drain(town.new_drain("n1", pods=source))
        await town.wait_until(lambda: bool(source.stale_reason))
        assert town.evicted_pods() == []
        town.cluster.transport("pool").mend()
        assert (await drain).is_drained
        assert source.stale_reason == ""


async def test_of_many_drains_a_few_have_watches_of_their_own(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "_APART", 2)
    nodes = [f"n{number}" for number in range(6)]
    async with a_drain_cluster(clock, *nodes) as town:
        for node in nodes:
            await town.run_pods(f"on-{node}", 2, on=node, stop=5, grace=30)
        drains = DrainManager(town.client, on_change=lambda _: None)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(drains.run())
            await clock.sleep(timedelta())
            for node in nodes:
                drains.start(node, await found(town, node), POLICY, owner=RequestOwner(name=node))
            await town.wait_until(lambda: all(map(drains.has_ended, nodes)))
            assert town.pod_names() == []
            assert watches(town) == 3
            await town.run_pods("again", 1, on="n0")
            await drains.stop("n0")
            drains.start("n0", await found(town, "n0"), POLICY, owner=RequestOwner(name="n0"))
            await town.wait_until(lambda: drains.has_ended("n0"))
            assert town.pod_names() == []
            assert watches(town) == 4
            running.cancel()


async def found(town: DrainCluster, name: str) -> Node:
    """Return a node."""
    return await town.cluster.client("admin").get(NODES, name)
