"""The informer's cache on a server that misbehaves."""

import json
import logging

import pytest

from haulout.api.objects import Node
from haulout.core.clock import Clock
from haulout.kube.indexer import IndexedStore
from support.builders.objects import a_node
from support.clusters.informer_cluster import InformerCluster


async def test_initial_list_is_paged_on_servers_without_watch_lists(clock: Clock) -> None:
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


async def test_list_that_expires_between_pages_is_repeated_without_a_limit(clock: Clock) -> None:
    world = InformerCluster(clock, watch_lists=False, page_size=2)
    for number in range(5):
        world.put_node(f"n{number}")
    world.transport.faults.fail_before_effect(
        response=410, where=lambda request: "continue" in dict(request.query), times=2
    )
    async with world.running():
        assert world.node_names() == ["n0", "n1", "n2", "n3", "n4"]


async def test_duplicate_watch_events_are_delivered_once(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.transport.faults.duplicate(times=None)
        first = world.put_node("n1")
        second = world.put_node("n1", pool="a")
        await world.settle()
        world.cluster.remove("nodes", "n1")
        await world.settle()
    assert world.changes == [("-", first), (first, second), (second, "-")]


async def test_watch_event_older_than_the_deletion_does_not_bring_the_object_back(clock: Clock) -> None:
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


async def test_late_delete_event_does_not_remove_the_successor_of_the_same_name(clock: Clock) -> None:
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


async def test_object_replaced_under_its_name_is_reported_as_delete_and_add(clock: Clock) -> None:
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


async def test_list_from_an_older_resource_version_is_rejected(clock: Clock) -> None:
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
    assert all(new != "-" for _, new in world.changes), "no deletion was ever reported"


async def test_repeated_older_lists_are_accepted_as_a_restore_from_backup(
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


async def test_watch_truncated_in_the_middle_of_a_line_is_resumed(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.transport.faults.truncate()
        world.put_node("n1")
        await world.settle(10)
        assert world.node_names() == ["n1"]


async def test_undecodable_object_is_left_out_and_reported_in_health(
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


async def test_failing_event_handler_does_not_stop_other_handlers(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
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


async def test_late_subscriber_receives_existing_objects_and_can_unsubscribe(clock: Clock) -> None:
    world = InformerCluster(clock)
    world.put_node("n1")
    async with world.running():
        names: list[str] = []
        unsubscribe = world.informer.subscribe(lambda _, new: names.append(new.name if new else "-"))
        world.put_node("n2")
        await world.settle()
        unsubscribe()
        world.put_node("n3")
        await world.settle()
    assert names == ["n1", "n2"]


async def test_idle_informer_sends_only_watch_requests(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        before = len(world.transport.requests)
        await world.settle(3600)
        requests = world.transport.requests[before:]
    assert len(requests) <= 25, "a watch is reopened when nothing was received for 150 s"
    assert all(dict(one.request.query).get("watch") == "true" for one in requests)


async def test_watch_retries_back_off_while_the_server_fails(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
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


async def test_retry_after_delays_the_next_attempt(clock: Clock) -> None:
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


async def test_silent_watch_is_reopened_and_an_unreachable_server_shows_in_health(clock: Clock) -> None:
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


async def test_health_reports_when_the_last_data_was_received(clock: Clock) -> None:
    world = InformerCluster(clock)
    assert world.informer.health().last_received_at is None
    async with world.running():
        world.put_node("n1")
        await world.settle()
        world.transport.silence()
        last_received_at = world.informer.health().last_received_at
        await world.settle(100)
        assert world.informer.health().last_received_at == last_received_at
        assert world.informer.health().has_synced


async def test_wait_for_resource_version_returns_at_the_bookmark_that_reaches_it(clock: Clock) -> None:
    world = InformerCluster(clock)
    async with world.running():
        world.cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
        started = clock.monotonic()
        await world.informer.wait_for_resource_version(str(world.cluster.revision))
        assert clock.monotonic() - started < 90


async def test_non_numeric_resource_version_is_reported_in_health(clock: Clock) -> None:
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


def test_indexed_store_removes_dropped_objects_from_its_indexes() -> None:
    store: IndexedStore[Node] = IndexedStore({"name": lambda node: (node.name, "all")})
    node = Node()
    store.put(node)
    assert (len(store), len(store.by_index("name", "all"))) == (1, 1)
    store.drop("")
    assert (len(store), len(store.by_index("name", "all")), "" in store) == (0, 0, False)
    assert store._indexes == {"name": {}}


async def test_informers_of_several_clusters_in_one_process_are_independent(clock: Clock) -> None:
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
