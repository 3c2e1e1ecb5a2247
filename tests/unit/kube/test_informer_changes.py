"""How the informer's cache applies single changes, in any order."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.objects import Node, ObjectMeta, UndecodableObject, WatchEvent
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.errors import MalformedResponse
from haulout.kube.indexer import IndexedStore
from haulout.kube.informer import Informer, StaleList, revision
from haulout.kube.reflector import ListWatch
from support.clusters.informer_cluster import InformerCluster


def a_state(name: str, revision: int, *, uid: str = "") -> Node:
    return Node(metadata=ObjectMeta(name=name, uid=uid or f"uid-{name}", resource_version=str(revision)))


def an_undecodable_object(name: str, revision: int, *, uid: str = "") -> UndecodableObject:
    return UndecodableObject(metadata=a_state(name, revision, uid=uid).metadata, problem="odd")


def watch_event(change: str, thing: Any) -> WatchEvent[Any]:
    return WatchEvent(type=change, object=thing)


def a_synced_informer(clock: Clock, *nodes: Node, revision: int) -> Informer[Node]:
    """Return a cache that was filled by hand and has no watch."""
    cache = InformerCluster(clock).informer
    load(cache, *nodes, revision=revision)
    return cache


def load(cache: Informer[Node], *nodes: Node, revision: int) -> None:
    cache.begin_list()
    for node in nodes:
        cache.add_listed(node)
    cache.finish_list(str(revision))


async def test_wait_for_resource_version_does_not_return_at_an_older_version(clock: Clock) -> None:
    cache = a_synced_informer(clock, revision=5)
    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(cache.wait_for_resource_version("8"))
        await clock.sleep(timedelta(seconds=1))
        cache.advance("7")
        await clock.sleep(timedelta(seconds=1))
        assert not reader.done()
        cache.advance("8")
        cache.advance("9")  # before the reader had its turn
    await asyncio.wait_for(cache.wait_for_resource_version("9"), 1)
    assert cache._waiters == []


async def test_late_watch_event_does_not_restore_an_object_missing_from_the_relist(clock: Clock) -> None:
    cache = a_synced_informer(clock, a_state("n1", 3), revision=5)
    load(cache, revision=9)
    cache.apply(watch_event("MODIFIED", a_state("n1", 7)))
    assert cache.get("n1") is None


async def test_late_event_about_an_object_replaced_under_its_name_is_ignored(clock: Clock) -> None:
    cache = a_synced_informer(clock, a_state("n1", 3, uid="first"), revision=5)
    cache.apply(watch_event("ADDED", a_state("n1", 8, uid="second")))
    cache.apply(watch_event("DELETED", a_state("n1", 9, uid="second")))
    cache.apply(watch_event("MODIFIED", a_state("n1", 7, uid="first")))
    assert cache.get("n1") is None


async def test_events_after_a_restore_from_backup_are_compared_with_the_restored_version(clock: Clock) -> None:
    cache = a_synced_informer(clock, a_state("n1", 3), revision=5)
    cache.apply(watch_event("DELETED", a_state("n1", 100)))
    for _ in range(4):
        with pytest.raises(StaleList):
            load(cache, a_state("n1", 3), revision=5)
    load(cache, a_state("n1", 3), revision=5)
    assert cache.last_resource_version == "5"
    cache.apply(watch_event("MODIFIED", a_state("n1", 6)))
    shown = cache.get("n1")
    assert shown is not None
    assert shown.resource_version == "6"


async def test_only_consecutive_stale_lists_are_accepted_as_a_restore(clock: Clock) -> None:
    cache = a_synced_informer(clock, revision=50)
    for _ in range(3):
        for _ in range(3):
            with pytest.raises(StaleList):
                load(cache, revision=5)
        load(cache, revision=50)


async def test_deleted_undecodable_object_leaves_health_and_advances_the_resource_version(clock: Clock) -> None:
    cache = a_synced_informer(clock, revision=5)
    metadata = ObjectMeta(name="bad", uid="u", resource_version="6")
    cache.apply(watch_event("ADDED", UndecodableObject(metadata=metadata, problem="odd")))
    assert (dict(cache.undecodable), cache.last_resource_version) == ({"bad": "odd"}, "6")
    cache.apply(
        watch_event(
            "DELETED",
            UndecodableObject(metadata=msgspec.structs.replace(metadata, resource_version="7"), problem="odd"),
        )
    )
    assert (dict(cache.undecodable), cache.last_resource_version) == ({}, "7")


def test_object_with_a_changed_index_key_is_found_only_under_the_new_key() -> None:
    store: IndexedStore[Node] = IndexedStore(
        {"pool": lambda node: (node.metadata.labels["pool"], node.metadata.labels["pool"])}
    )
    before, after, moved = (
        Node(metadata=ObjectMeta(name="n1", resource_version=version, labels={"pool": pool}))
        for version, pool in (("1", "a"), ("2", "a"), ("3", "b"))
    )
    store.put(before)
    store.put(after)
    assert list(store.by_index("pool", "a")) == [after]
    store.put(moved)
    assert (list(store.by_index("pool", "a")), list(store.by_index("pool", "b"))) == ([], [moved])


async def test_older_undecodable_event_does_not_remove_a_newer_object(clock: Clock) -> None:
    cache = a_synced_informer(clock, a_state("n1", 9, uid="new"), revision=9)
    cache.apply(watch_event("MODIFIED", an_undecodable_object("n1", 6, uid="new")))
    cache.apply(watch_event("DELETED", an_undecodable_object("n1", 7, uid="old")))
    assert cache.get("n1") is not None


async def test_object_deleted_before_the_list_is_complete_is_not_in_it(clock: Clock) -> None:
    cache = InformerCluster(clock).informer
    cache.begin_list()
    for thing in (
        a_state("n1", 3),
        an_undecodable_object("n2", 4),
        a_state("n3", 5),
        an_undecodable_object("n3", 6),
        an_undecodable_object("n4", 6),
    ):
        cache.add_listed(thing)
    cache.add_listed(a_state("n4", 7))
    cache.discard_listed(a_state("n1", 8))
    cache.discard_listed(an_undecodable_object("n2", 8))
    cache.finish_list("9")
    assert ([row.name for row in cache.all()], list(cache.undecodable)) == (["n4"], ["n3"])


async def test_object_that_cannot_be_transformed_is_undecodable(clock: Clock) -> None:
    def by_size(node: Node) -> Node:
        int(node.metadata.annotations.get("size", "1"))
        return node

    world = InformerCluster(clock)
    cache: Informer[Node] = Informer(world.client, ListWatch(NODES), transform=by_size)
    odd = Node(metadata=ObjectMeta(name="odd", uid="o", resource_version="3", annotations={"size": "big"}))
    load(cache, odd, a_state("n1", 4), revision=5)
    assert [row.name for row in cache.all()] == ["n1"]
    assert "it cannot be transformed: ValueError" in cache.undecodable["odd"]


@pytest.mark.parametrize("odd", [{}, {"metadata": None}, {"metadata": {"name": 7}}, [], None])
async def test_object_without_metadata_is_left_out(clock: Clock, odd: Any) -> None:
    def by_name(thing: Any) -> Node:
        return Node(metadata=ObjectMeta(name=thing["metadata"]["name"].lower(), resource_version="4"))

    cache: Informer[Node] = Informer(
        InformerCluster(clock).client, ListWatch(NODES.with_model(object)), transform=by_name
    )
    cache.begin_list()
    cache.add_listed(odd)
    cache.add_listed({"metadata": {"name": "n1"}})
    cache.finish_list("5")
    cache.apply(watch_event("ADDED", odd))
    assert [row.name for row in cache.all()] == ["n1"]


async def test_subscriber_added_during_delivery_receives_each_object_once(clock: Clock) -> None:
    cache = InformerCluster(clock).informer
    received_names: list[str] = []

    def late(_: Node | None, new: Node | None) -> None:
        received_names.append(new.name if new else "-")

    def subscribe_late(_: Node | None, new: Node | None) -> None:
        if new and new.name == "n1":
            cache.subscribe(late)

    cache.subscribe(subscribe_late)
    load(cache, a_state("n1", 1), a_state("n2", 2), a_state("n3", 3), revision=5)
    assert received_names == ["n1", "n2", "n3"]


@pytest.mark.parametrize("version", ["", "abc", "-1", "9" * 5000])
def test_a_resource_version_is_a_number_of_64_bits(version: str) -> None:
    with pytest.raises(MalformedResponse, match="is not a number"):
        revision(version)
