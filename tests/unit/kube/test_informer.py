"""What a cache makes of a server that misbehaves."""

import json
import logging

import pytest

from haulout.api.objects import Node
from haulout.core.clock import Clock
from haulout.kube.indexer import IndexedStore
from support.builders.objects import a_node
from support.clusters.informer_cluster import InformerCluster


async def test_an_older_server_is_loaded_by_pages(clock: Clock) -> None:
    world = InformerCluster(clock, watch_lists=False, page_size=2)
    for number in range(5):
        world.put_node(f"n{number}")
    async with world.running():
        assert world.node_names() == ["n0", "n1", "n2", "n3", "n4"]
        world.put_node("n5")
        await world.settle()
        assert "n5" in world.node_names()
    lists = [request for request in world.transport.sent_requests(path="/nodes") if "limit" in dict(request.query)]
    assert len(lists) == 3


async def test_a_list_that_expires_between_its_pages_is_taken_in_one_piece(clock: Clock) -> None:
    world = InformerCluster(clock, watch_lists=False, page_size=2)
    for number in range(5):
        world.put_node(f"n{number}")
    world.transport.faults.fail_before_effect(
        response=410, where=lambda request: "continue" in dict(request.query), times=2
    )
    async with world.running():
        assert world.node_names() == ["n0", "n1", "n2", "n3", "n4"]


async def test_repeated_events_are_told_once(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.transport.faults.duplicate(times=None)
        first = world.put_node("n1")
        second = world.put_node("n1", pool="a")
        await world.settle()
        world.cluster.remove("nodes", "n1")
        await world.settle()
    assert world.changes == [("-", first), (first, second), (second, "-")]


async def test_an_event_that_comes_too_late_brings_nothing_back(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.put_node("n1")
        await world.settle()
        world.transport.faults.reorder()
        world.put_node("n1", pool="a")  # delivered after the deletion
        world.cluster.remove("nodes", "n1")
        await world.settle()
        assert world.node_names() == []
        world.transport.faults.reorder()
        world.cluster.put(a_node("n2"))
        newest = world.put_node("n2", pool="b")
        await world.settle()
        shown = world.informer.get("n2")
        assert shown is not None
        assert shown.resource_version == newest
        assert [node.name for node in world.informer.by_index("pool", "b")] == ["n2"]
        assert not world.informer.by_index("pool", "")


async def test_a_late_deletion_does_not_take_the_successor_of_the_same_name(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.put_node("n1")
        await world.settle()
        world.transport.faults.reorder()
        world.cluster.remove("nodes", "n1")
        successor = world.put_node("n1")
        await world.settle()
        shown = world.informer.get("n1")
    assert shown is not None
    assert shown.resource_version == successor


async def test_an_object_replaced_under_its_name_is_seen_to_go_and_to_come(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        first = world.put_node("n1")
        await world.settle()
        world.transport.cut()
        world.cluster.remove("nodes", "n1")
        second = world.put_node("n1")
        world.cluster.compact()
        world.transport.mend()
        await world.settle(60)
    assert world.changes == [("-", first), (first, "-"), ("-", second)]


async def test_a_list_from_an_older_revision_is_not_believed(clock: Clock) -> None:
    world = InformerCluster(clock)
    old = world.cluster.revision
    async with world.running():
        world.put_node("n1")
        await world.settle()
        world.transport.cut()
        world.put_node("n2")
        world.cluster.compact()
        world.transport.faults.stale(old, times=2)
        world.transport.mend()
        await world.settle(60)
        assert world.node_names() == ["n1", "n2"]
    assert ("-", "-") not in world.changes
    assert all(new != "-" for _, new in world.changes), "nothing was ever told to be gone"


async def test_a_server_that_insists_on_an_older_state_was_restored_from_a_backup(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    world = InformerCluster(clock)
    world.put_node("kept")
    old = world.cluster.revision
    async with world.running():
        lost = world.put_node("lost")
        await world.settle()
        world.transport.cut()
        world.put_node("unseen")
        world.cluster.compact()
        world.transport.faults.stale(old, times=None)
        world.transport.mend()
        await world.settle(600)
    assert (lost, "-") in world.changes
    assert "restored from a backup" in caplog.text


async def test_a_watch_cut_in_the_middle_of_a_line_is_resumed(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.transport.faults.truncate()
        world.put_node("n1")
        await world.settle(10)
        assert world.node_names() == ["n1"]


async def test_an_object_that_does_not_fit_its_kind_is_left_out_and_named(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    world = InformerCluster(clock)
    world.put_node("good")
    world.cluster.put({**a_node("bad"), "spec": {"taints": "none"}})
    async with world.running():
        assert world.node_names() == ["good"]
        assert "Expected `array`" in world.informer.health().undecodable["bad"]
        world.cluster.put({**a_node("good"), "spec": {"taints": 7}})
        await world.settle()
        assert world.node_names() == []
        world.put_node("bad")
        world.put_node("good")
        await world.settle()
        assert world.node_names() == ["bad", "good"]
        assert world.informer.health().undecodable == {}
    assert caplog.text.count("ignoring nodes bad") == 1


async def test_a_handler_that_fails_stops_nobody(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    world = InformerCluster(clock)

    def careless(_old: Node | None, _new: Node | None) -> None:
        raise RuntimeError("careless")

    world.informer.subscribe(careless)
    late: list[str] = []
    world.informer.subscribe(lambda _, new: late.append(new.name if new else "-"))
    async with world.running():
        world.put_node("n1")
        await world.settle()
    assert late == ["n1"]
    assert "a handler for nodes failed" in caplog.text


async def test_who_subscribes_later_is_told_what_there_is_and_can_leave(clock: Clock) -> None:
    world = InformerCluster(clock)
    world.put_node("n1")
    async with world.running():
        seen: list[str] = []
        leave = world.informer.subscribe(lambda _, new: seen.append(new.name if new else "-"))
        world.put_node("n2")
        await world.settle()
        leave()
        world.put_node("n3")
        await world.settle()
    assert seen == ["n1", "n2"]


async def test_an_idle_cache_asks_for_nothing_but_its_watch(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        before = len(world.transport.requests)
        await world.settle(3600)
        asked = world.transport.requests[before:]
    assert len(asked) <= 25, "a watch is opened anew when nothing was heard for 150 s"
    assert all(dict(one.request.query).get("watch") == "true" for one in asked)


async def test_a_server_in_trouble_is_asked_less_and_less_often(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.transport.faults.fail_before_effect(response=503, times=None)
        world.transport.cut()
        world.transport.mend()
        before = len(world.transport.requests)
        await world.settle(600)
        assert len(world.transport.requests) - before < 45
        assert "watching nodes" in (world.informer.health().problem or "")
        world.transport.faults.clear()
        world.put_node("n1")
        await world.settle(31)
        assert world.node_names() == ["n1"]
        assert world.informer.health().problem is None
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) <= 2, "trouble is logged when it begins and changes, not on every try"


async def test_a_server_that_asks_for_patience_gets_it(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.transport.faults.fail_before_effect(response=429, retry_after=20)
        world.transport.cut()
        world.transport.mend()
        await world.settle(1)
        before = len(world.transport.requests)
        await world.settle(18)
        assert len(world.transport.requests) == before
        await world.settle(3)
        assert len(world.transport.requests) == before + 1


async def test_silence_ends_a_connection_and_shows_if_nobody_is_there(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.transport.silence()
        world.put_node("n1")
        await world.settle(149)
        assert world.informer.health().problem is None
        await world.settle(35)
        assert "no answer within 30 s" in (world.informer.health().problem or "")
        world.transport.mend()
        await world.settle(35)
        assert world.node_names() == ["n1"]


async def test_health_tells_when_the_server_was_last_heard(clock: Clock) -> None:
    world = InformerCluster(clock)
    assert world.informer.health().last_received_at is None
    async with world.running():
        world.put_node("n1")
        await world.settle()
        world.transport.silence()
        heard = world.informer.health().last_received_at
        await world.settle(100)
        assert world.informer.health().last_received_at == heard
        assert world.informer.health().has_synced


async def test_waiting_for_a_write_ends_with_the_bookmark_that_passes_it(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
        begun = clock.monotonic()
        await world.informer.wait_for_resource_version(str(world.cluster.revision))
        assert clock.monotonic() - begun < 90


async def test_a_resource_version_that_is_no_number_is_said_to_be_none(clock: Clock) -> None:
    world = InformerCluster(clock)

    def strange(line: bytes) -> list[bytes]:
        event = json.loads(line)
        event["object"]["metadata"]["resourceVersion"] = "abc"
        return [json.dumps(event).encode()]

    async with world.running():
        world.transport.faults.transform_event(strange)
        world.put_node("n1")
        await world.settle(0.1)
        assert "'abc' is not a number" in (world.informer.health().problem or "")
        await world.settle(5)
        assert world.node_names() == ["n1"]


def test_a_store_forgets_what_its_indexes_knew() -> None:
    store: IndexedStore[Node] = IndexedStore({"name": lambda node: (node.name, "all")})
    node = Node()
    store.put(node)
    assert (len(store), len(store.by_index("name", "all"))) == (1, 1)
    store.drop("")
    assert (len(store), len(store.by_index("name", "all")), "" in store) == (0, 0, False)
    assert store._indexes == {"name": {}}


async def test_one_process_follows_several_clusters(clock: Clock) -> None:
    east, west = InformerCluster(clock), InformerCluster(clock)
    east.put_node("n1")
    west.put_node("n1", pool="west")
    async with east.running(), west.running():
        west.put_node("n2")
        east.transport.cut()
        east.put_node("n3")
        await east.settle()
        assert (east.node_names(), west.node_names()) == (["n1"], ["n1", "n2"])
        assert [node.name for node in west.informer.by_index("pool", "west")] == ["n1"]
        assert not east.informer.by_index("pool", "west")
