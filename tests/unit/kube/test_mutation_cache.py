"""The mutation cache returns our own writes until the watch has delivered them."""

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
    """Run a cache of nodes that receives each watch event ten seconds late."""
    world = InformerCluster(clock)
    world.put_node("n1")
    async with world.running():
        world.transport.faults.delay_event(timedelta(seconds=10), path="/nodes", times=None)
        yield world, MutationCache(world.informer)


async def label_node(world: InformerCluster, value: str) -> Node:
    return await world.client.patch(NODES, "n1", merge_patch({"metadata": {"labels": {"a": value}}}))


def label(node: Node | None) -> str | None:
    return None if node is None else node.metadata.labels.get("a")


async def test_own_write_is_readable_at_once_and_later_foreign_writes_replace_it(clock: Clock) -> None:
    async with a_slow_watch(clock) as (world, nodes):
        nodes.record_write(await label_node(world, "1"))
        assert label(world.informer.get("n1")) is None
        assert label(nodes.get("n1")) == "1"
        world.put_node("n1", a="2")
        await world.settle(30)
        assert label(nodes.get("n1")) == "2"


async def test_responses_out_of_order_do_not_restore_an_older_version(clock: Clock) -> None:
    async with a_slow_watch(clock) as (world, nodes):
        first, second = await label_node(world, "1"), await label_node(world, "2")
        assert nodes.record_write(second) is second
        assert nodes.record_write(first) is second
        assert label(nodes.get("n1")) == "2"


async def test_own_delete_hides_the_object_at_once_but_not_its_successor(clock: Clock) -> None:
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


async def test_object_read_again_after_a_recorded_delete_is_visible(clock: Clock) -> None:
    async with a_slow_watch(clock) as (world, nodes):
        node = nodes.get("n1")
        assert node is not None
        nodes.record_delete(node)
        nodes.record_write(await world.client.get(NODES, "n1"))
        assert nodes.get("n1") == node
        await world.settle(30)
        assert nodes.get("n1") == node


async def test_unknown_object_is_none(clock: Clock) -> None:
    async with a_slow_watch(clock) as (_, nodes):
        assert nodes.get("n2") is None
