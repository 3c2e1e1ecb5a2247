"""What a cache makes of single changes, in whatever order they come."""

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
    """Return a cache that was filled by hand, and follows nothing."""
    cache = InformerCluster(clock).informer
    load(cache, *nodes, revision=revision)
    return cache


def load(cache: Informer[Node], *nodes: Node, revision: int) -> None:
    cache.begin_list()
    for node in nodes:
        cache.add_listed(node)
    cache.finish_list(str(revision))


async def test_waiting_for_a_write_does_not_end_with_an_older_one(clock: Clock) -> None:
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


async def test_what_went_while_we_were_away_is_not_brought_back_by_a_late_event(clock: Clock) -> None:
    cache = a_synced_informer(clock, a_state("n1", 3), revision=5)
    load(cache, revision=9)
    cache.apply(watch_event("MODIFIED", a_state("n1", 7)))
    assert cache.get("n1") is None


async def test_a_late_event_about_the_predecessor_of_a_replaced_object_changes_nothing(clock: Clock) -> None:
    cache = a_synced_informer(clock, a_state("n1", 3, uid="first"), revision=5)
    cache.apply(watch_event("ADDED", a_state("n1", 8, uid="second")))
    cache.apply(watch_event("DELETED", a_state("n1", 9, uid="second")))
    cache.apply(watch_event("MODIFIED", a_state("n1", 7, uid="first")))
    assert cache.get("n1") is None


async def test_after_a_restored_backup_events_count_from_there(clock: Clock) -> None:
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


async def test_a_server_must_insist_without_a_break(clock: Clock) -> None:
    cache = a_synced_informer(clock, revision=50)
    for _ in range(3):
        for _ in range(3):
            with pytest.raises(StaleList):
                load(cache, revision=5)
        load(cache, revision=50)


async def test_a_misfit_that_is_deleted_is_no_longer_named_and_moves_the_position(clock: Clock) -> None:
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


def test_a_row_that_moves_is_found_only_where_it_went() -> None:
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


async def test_an_older_misfit_takes_nothing_away(clock: Clock) -> None:
    cache = a_synced_informer(clock, a_state("n1", 9, uid="new"), revision=9)
    cache.apply(watch_event("MODIFIED", an_undecodable_object("n1", 6, uid="new")))
    cache.apply(watch_event("DELETED", an_undecodable_object("n1", 7, uid="old")))
    assert cache.get("n1") is not None


async def test_what_goes_before_a_list_is_complete_is_not_in_it(clock: Clock) -> None:
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


async def test_an_object_that_no_row_can_be_made_of_is_a_misfit(clock: Clock) -> None:
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
async def test_what_has_no_metadata_at_all_is_left_out(clock: Clock, odd: Any) -> None:
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


async def test_who_subscribes_while_others_are_told_is_told_once(clock: Clock) -> None:
    cache = InformerCluster(clock).informer
    told_names: list[str] = []

    def late(_: Node | None, new: Node | None) -> None:
        told_names.append(new.name if new else "-")

    def opens_the_door(_: Node | None, new: Node | None) -> None:
        if new and new.name == "n1":
            cache.subscribe(late)

    cache.subscribe(opens_the_door)
    load(cache, a_state("n1", 1), a_state("n2", 2), a_state("n3", 3), revision=5)
    assert told_names == ["n1", "n2", "n3"]


@pytest.mark.parametrize("version", ["", "abc", "-1", "9" * 5000])
def test_a_resource_version_is_a_number_of_64_bits(version: str) -> None:
    with pytest.raises(MalformedResponse, match="is not a number"):
        revision(version)
