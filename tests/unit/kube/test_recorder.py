import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.objects import Node, ObjectMeta, Pod
from haulout.api.resources import NODES, PODS
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder, ObjectReference, _truncate, object_reference
from haulout_sandbox.apiserver import ApiServer
from support.fakes.scripted_transport import status_response

NODE = object_reference(NODES, Node(metadata=ObjectMeta(name="n1", uid="1234", resource_version="7")))
POD = object_reference(PODS, Pod(metadata=ObjectMeta(name="cart-0", namespace="shop", uid="5678")))


class World:
    """A cluster and a recorder of events in it."""

    def __init__(self, clock: Clock, **settings: Any) -> None:
        self.clock = clock
        self.cluster = ApiServer(clock, namespaces=["shop"])
        self.transport = self.cluster.transport()
        client = Client(self.transport, clock=clock, random=Random(7))
        self.recorder = EventRecorder(client, instance="haulout-0", **settings)

    def record(self, note: str = "Cordon node", *, regarding: ObjectReference = NODE, **more: Any) -> None:
        """Record an event, by default about the node n1."""
        self.recorder.event(regarding, **{"reason": "Cordoned", "action": "Cordon", "note": note} | more)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        await self.clock.sleep(timedelta(seconds=seconds))

    def events(self) -> list[dict[str, Any]]:
        """Return all events in the order in which they happened."""
        return sorted(self.cluster.objects("events.events.k8s.io"), key=lambda event: str(event["eventTime"]))

    def counts(self) -> list[int]:
        """Return the series count of each event on the server."""
        return [event.get("series", {}).get("count", 1) for event in self.events()]

    def notes(self) -> list[str]:
        """Return the notes of the events in alphabetical order."""
        return sorted(event["note"] for event in self.events())


@asynccontextmanager
async def a_world(clock: Clock, **settings: Any) -> AsyncIterator[World]:
    world = World(clock, **settings)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(world.recorder.run())
        yield world
        running.cancel()


@pytest.fixture
async def world(clock: Clock) -> AsyncIterator[World]:
    async with a_world(clock) as world:
        yield world


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# One event


async def test_event_about_a_cluster_scoped_object_is_created_in_the_default_namespace(world: World) -> None:
    world.record(type="Warning", related=POD)
    await world.pass_time(1)
    (event,) = world.events()
    assert event["metadata"]["namespace"] == "default"
    name, _, unique = event["metadata"]["name"].partition(".")
    assert (name, len(unique)) == ("n1", 16)
    del event["metadata"]
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2026-01-05T09:00:00.000000Z",
        "reportingController": "haulout.dev/operator",
        "reportingInstance": "haulout-0",
        "type": "Warning",
        "reason": "Cordoned",
        "action": "Cordon",
        "note": "Cordon node",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "1234"},
        "related": {"apiVersion": "v1", "kind": "Pod", "name": "cart-0", "namespace": "shop", "uid": "5678"},
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    }


async def test_event_about_a_namespaced_object_is_created_in_its_namespace(world: World) -> None:
    world.record(regarding=POD)
    await world.pass_time(1)
    (event,) = world.events()
    assert event["metadata"]["namespace"] == event["regarding"]["namespace"] == "shop"
    assert event["type"] == "Normal"
    assert "related" not in event


@pytest.mark.parametrize(
    ("name", "beginning"),
    [
        ("n1", "n1"),
        ("node.example.com", "node.example.com"),
        ("x" * 253, "x" * 236),
        ("x" * 235 + "-y" + "z" * 10, "x" * 235),
        ("system:node", "event"),
        ("Upper", "event"),
        ("", "event"),
    ],
)
async def test_event_name_is_valid_for_any_object_name(world: World, name: str, beginning: str) -> None:
    world.record(regarding=ObjectReference(kind="Any", name=name))
    await world.pass_time(1)
    (event,) = world.events()
    assert event["metadata"]["name"].rpartition(".")[0] == beginning
    assert len(event["metadata"]["name"]) <= 253


@given(text=st.text(st.characters(), max_size=600))
def test_truncate_cuts_a_long_note_between_characters(text: str) -> None:
    cut = _truncate(text, 1024)
    assert len(cut.encode()) <= 1024
    if cut.endswith("…") and not text.endswith("…"):
        assert len(cut.encode()) + 4 > 1020
        assert text.encode(errors="replace").decode().startswith(cut[:-1])
    else:
        assert cut == text.encode(errors="replace").decode()


async def test_event_fields_are_truncated_to_the_limits_of_the_server(clock: Clock) -> None:
    async with a_world(clock) as world:
        world.recorder = EventRecorder(world.recorder._client, instance="i" * 200)
        world.record("ä" * 1000, reason="r" * 200, action="a" * 200)
        await world.recorder.flush(timedelta(seconds=1))
        (event,) = world.events()
        assert event["note"] == "ä" * 510 + "…"
        for field in ("reason", "action", "reportingInstance"):
            assert len(event[field].encode()) == 128


# Series


async def test_repeated_event_becomes_a_series_of_the_first_event(world: World) -> None:
    for _ in range(5):
        world.record()
        await world.pass_time(20)
    assert world.counts() == [5]
    (event,) = world.events()
    assert event["eventTime"] == "2026-01-05T09:00:00.000000Z"
    assert event["series"]["lastObservedTime"] == "2026-01-05T09:01:20.000000Z"


async def test_a_series_is_written_at_most_every_ten_seconds_and_in_the_end(world: World) -> None:
    for _ in range(250):
        world.record()
        await world.pass_time(0.1)
    assert len(world.transport.sent_requests(path="events")) == 3
    await world.pass_time(10)
    assert world.counts() == [250]


async def test_event_repeated_before_it_is_sent_is_one_write(world: World) -> None:
    for _ in range(3):
        world.record()
    await world.pass_time(60)
    assert world.counts() == [3]
    assert len(world.transport.sent_requests(path="events")) == 1


async def test_event_repeated_after_more_than_six_minutes_is_a_new_event(world: World) -> None:
    world.record()
    await world.pass_time(360)
    world.record()
    await world.pass_time(361)
    world.record()
    await world.pass_time(60)
    assert world.counts() == [2, 1]


@pytest.mark.parametrize(
    "change",
    [
        {"note": "Cordon node again"},
        {"reason": "Drained"},
        {"action": "Drain"},
        {"type": "Warning"},
        {"related": POD},
        {"regarding": ObjectReference(api_version="v1", kind="Node", name="n1", uid="another")},
    ],
)
async def test_event_with_a_different_field_is_a_separate_event(world: World, change: dict[str, Any]) -> None:
    world.record()
    world.record(**change)
    await world.pass_time(60)
    assert world.counts() == [1, 1]


async def test_events_about_a_newer_resource_version_stay_in_the_series(world: World) -> None:
    world.record(regarding=NODE)
    world.record(
        regarding=object_reference(NODES, Node(metadata=ObjectMeta(name="n1", uid="1234", resource_version="8")))
    )
    await world.pass_time(60)
    assert world.counts() == [2]


async def test_series_of_a_deleted_event_is_created_again(world: World) -> None:
    world.record()
    await world.pass_time(60)
    (event,) = world.events()
    world.cluster.remove("events.events.k8s.io", event["metadata"]["name"])
    world.record()
    await world.pass_time(60)
    assert world.counts() == [2]


async def test_number_of_cached_series_is_bounded(clock: Clock) -> None:
    async with a_world(clock, capacity=3) as world:
        for note in "abcda":
            world.record(note)
            await world.pass_time(20)
        assert len(world.events()) == 5, "the first series was evicted, so a new one is created"
        assert len(world.recorder._series) == 3


# Deduplication


async def test_event_with_the_same_dedup_key_from_another_process_is_stored_once(world: World) -> None:
    world.record(regarding=POD, dedup_key="first cordon")
    await world.pass_time(1)
    successor = EventRecorder(Client(world.transport, clock=world.clock, random=Random(8)), instance="haulout-1")
    world.recorder, predecessor = successor, world.recorder
    world.record(regarding=POD, dedup_key="first cordon")
    await successor.flush(timedelta(seconds=10))
    assert world.counts() == [1]
    assert (predecessor.dropped, successor.dropped) == (0, 0)
    world.record(regarding=POD, dedup_key="second cordon")
    await successor.flush(timedelta(seconds=10))
    assert world.counts() == [1, 1]


@pytest.mark.parametrize("seconds", [1, 60, 400])
async def test_event_with_a_dedup_key_has_no_series(world: World, seconds: int) -> None:
    for _ in range(3):
        world.record(dedup_key="first cordon")
        await world.pass_time(seconds)
    (event,) = world.events()
    assert "series" not in event


# Failures


async def test_full_queue_drops_the_oldest_events_and_counts_them(clock: Clock) -> None:
    world = World(clock, capacity=3)
    for note in "abcde":
        world.record(note)
    await world.recorder.flush(timedelta(seconds=10))
    assert world.notes() == ["c", "d", "e"]
    assert world.recorder.dropped == 2


async def test_events_are_throttled_under_load_and_all_sent_afterwards(world: World) -> None:
    for number in range(200):
        world.record(f"{number}")
        await world.pass_time(0.01)
        assert number or len(world.events()) == 1, "the first is sent at once"
    assert 30 <= len(world.events()) <= 60
    await world.pass_time(0.1 + 0.2)
    assert len(world.events()) == 200


async def test_throttling_resumes_after_a_burst_was_sent(clock: Clock) -> None:
    async with a_world(clock, capacity=100) as world:
        for number in range(100):
            world.record(f"many {number}")
        for number in range(100):
            await world.pass_time(0.01)
            world.record(f"then {number}")
        assert 80 <= len(world.events()) <= 180


@pytest.mark.parametrize(
    ("settings", "sent"),
    [({}, 12), ({"capacity": 100}, 51), ({"is_throttled": False}, 60)],
    ids=["usual", "many", "all"],
)
async def test_events_are_not_throttled_with_a_long_queue_or_when_throttling_is_off(
    clock: Clock, settings: dict[str, Any], sent: int
) -> None:
    """Each takes a millisecond."""
    async with a_world(clock, **settings) as world:
        for number in range(100):
            world.record(f"{number}")
        await world.pass_time(0.06)
        assert len(world.events()) == pytest.approx(sent, abs=1)


async def test_transient_errors_lose_no_events(world: World) -> None:
    world.transport.faults.fail_before_effect(path="events", response=503, times=2)
    world.transport.faults.fail_before_effect(path="events", skip=2, times=2)
    for note in "abc":
        world.record(note)
    await world.pass_time(120)
    assert world.notes() == ["a", "b", "c"]
    assert world.recorder.dropped == 0


async def test_event_created_without_a_response_is_not_created_twice(world: World) -> None:
    lost_response = world.transport.faults.fail_after_effect(method="POST", path="events")
    world.record()
    await world.pass_time(0.5)
    world.record()
    await world.pass_time(60)
    assert lost_response.hits == 1
    assert world.counts() == [2]
    assert world.recorder.dropped == 0


async def test_unreachable_server_drops_events_and_logs_one_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.transport.cut()
    for note in "abc":
        world.record(note)
    await world.pass_time(600)
    assert world.recorder.dropped == 3
    assert len(warnings(caplog)) == 1
    world.transport.mend()
    world.record("back")
    await world.pass_time(10)
    assert world.notes() == ["back"]


async def test_forbidden_events_are_dropped_with_one_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.transport.faults.fail_before_effect(path="events", response=403, times=20)
    for number in range(20):
        world.record(str(number))
    await world.pass_time(60)
    assert world.recorder.dropped == 20
    assert len(world.transport.sent_requests(path="events")) == 20, "none was tried again"
    assert len(warnings(caplog)) == 1
    assert "events are dropped, 1 so far: creating events.events.k8s.io default/n1." in warnings(caplog)[0]


async def test_events_in_a_terminating_namespace_are_dropped_without_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    causes = [{"reason": "NamespaceTerminating", "message": "namespace shop is being terminated"}]
    world.transport.faults.fail_before_effect(path="events", response=status_response(403, "Forbidden", causes=causes))
    world.transport.faults.fail_before_effect(path="events", response=404, skip=1)
    world.record("a", regarding=POD)
    world.record("b", regarding=POD)
    await world.pass_time(60)
    assert world.recorder.dropped == 2
    assert warnings(caplog) == []


async def test_invalid_event_does_not_delay_the_next(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.transport.faults.fail_before_effect(path="events", response=422)
    world.record("wrong")
    world.record("right")
    await world.pass_time(1)
    assert world.notes() == ["right"]
    assert len(warnings(caplog)) == 1


async def test_event_that_cannot_be_encoded_does_not_stop_the_recorder(world: World) -> None:
    world.record(regarding=ObjectReference(name="\ud800"))
    world.record("right")
    await world.pass_time(1)
    assert world.notes() == ["right"]
    assert world.recorder.dropped == 1


# Shutdown


async def test_flush_sends_series_counts_that_are_not_due_yet(world: World) -> None:
    world.record()
    await world.pass_time(1)
    world.record()
    world.record("another")
    await world.recorder.flush(timedelta(seconds=5))
    assert sorted(world.counts()) == [1, 2]


async def test_flush_sends_events_of_a_cancelled_recorder(clock: Clock) -> None:
    async with a_world(clock) as world:
        world.transport.faults.fail_before_effect(path="events", response=500)
        world.record("a")
        world.record("b")
        await world.pass_time(0.1)
    await world.recorder.flush(timedelta(seconds=5))
    assert world.notes() == ["a", "b"]
    assert world.recorder.dropped == 0


async def test_flush_keeps_its_timeout_in_a_cancelled_task(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with a_world(clock) as world:
        world.transport.silence()
        world.record()
        ended: list[float] = []

        async def process() -> None:
            try:
                await clock.sleep(timedelta(days=1))
            finally:
                await world.recorder.flush(timedelta(seconds=5))
                ended.append(clock.monotonic())

        async with asyncio.TaskGroup() as group:
            task = group.create_task(process())
            await world.pass_time(1)
            task.cancel()
        assert ended == [6]
    assert warnings(caplog) == ["stopped sending events after 0:00:05: 1 were not sent"]
