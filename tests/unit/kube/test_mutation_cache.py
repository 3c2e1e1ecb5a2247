"""Our own writes count before the watch tells of them, and no longer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.patches import merge_patch
from support.clusters.informer_cluster import InformerCluster


@asynccontextmanager
async def a_slow_watch(clock: Clock) -> AsyncIterator[tuple[InformerCluster, MutationCache[Node]]]:
    """Run a cache of nodes that hears of everything ten seconds late."""
    world = InformerCluster(clock)
    world.put_node("n1")
    async with world.running():
        world.transport.faults.delay_event(timedelta(seconds=10), path="/nodes", times=None)
        yield world, MutationCache(world.informer)


async def label_node(world: InformerCluster, value: str) -> Node:
    return await world.client.patch(NODES, "n1", merge_patch({"metadata": {"labels": {"a": value}}}))


def label(node: Node | None) -> str | None:
    return None if node is None else node.metadata.labels.get("a")


async def test_what_was_written_is_seen_at_once_and_what_others_write_after_it_too(clock: Clock) -> None:
    async with a_slow_watch(clock) as (world, nodes):
        nodes.record_write(await label_node(world, "1"))
        assert label(world.informer.get("n1")) is None
        assert label(nodes.get("n1")) == "1"
        world.put_node("n1", a="2")
        await world.settle(30)
        assert label(nodes.get("n1")) == "2"


async def test_answers_that_overtake_each_other_do_not_lead_back(clock: Clock) -> None:
    async with a_slow_watch(clock) as (world, nodes):
        first, second = await label_node(world, "1"), await label_node(world, "2")
        assert nodes.record_write(second) is second
        assert nodes.record_write(first) is second
        assert label(nodes.get("n1")) == "2"


async def test_what_we_deleted_is_gone_at_once_and_its_successor_is_not(clock: Clock) -> None:
    async with a_slow_watch(clock) as (world, nodes):
        node = nodes.get("n1")
        assert node is not None
        await world.client.delete(NODES, "n1")
        nodes.record_delete(node)
        assert world.informer.get("n1") is not None
        assert nodes.get("n1") is None
        world.put_node("n1", a="new")
        await world.settle(30)
        assert label(nodes.get("n1")) == "new"


async def test_what_proved_to_be_there_after_all_is_seen_again(clock: Clock) -> None:
    async with a_slow_watch(clock) as (world, nodes):
        node = nodes.get("n1")
        assert node is not None
        nodes.record_delete(node)
        nodes.record_write(await world.client.get(NODES, "n1"))
        assert nodes.get("n1") == node
        await world.settle(30)
        assert nodes.get("n1") == node


async def test_what_nobody_knows_is_nothing(clock: Clock) -> None:
    async with a_slow_watch(clock) as (_, nodes):
        assert nodes.get("n2") is None
