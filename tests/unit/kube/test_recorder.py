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
        """Record an event, about the node n1 unless told otherwise."""
        self.recorder.event(regarding, **{"reason": "Cordoned", "action": "Cordon", "note": note} | more)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        await self.clock.sleep(timedelta(seconds=seconds))

    def events(self) -> list[dict[str, Any]]:
        """Return all events in the order in which they happened."""
        return sorted(self.cluster.objects("events.events.k8s.io"), key=lambda event: str(event["eventTime"]))

    def counts(self) -> list[int]:
        """Return how often each event happened, as far as the server knows."""
        return [event.get("series", {}).get("count", 1) for event in self.events()]

    def notes(self) -> list[str]:
        """Return what the events say, in alphabetical order."""
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


async def test_an_event_about_a_cluster_scoped_object_lands_in_default(world: World) -> None:
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


async def test_an_event_about_a_namespaced_object_lands_beside_it(world: World) -> None:
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
async def test_an_events_name_is_one_that_the_server_takes(world: World, name: str, beginning: str) -> None:
    world.record(regarding=ObjectReference(kind="Any", name=name))
    await world.pass_time(1)
    (event,) = world.events()
    assert event["metadata"]["name"].rpartition(".")[0] == beginning
    assert len(event["metadata"]["name"]) <= 253


@given(text=st.text(st.characters(), max_size=600))
def test_a_long_note_is_cut_between_characters(text: str) -> None:
    cut = _truncate(text, 1024)
    assert len(cut.encode()) <= 1024
    if cut.endswith("…") and not text.endswith("…"):
        assert len(cut.encode()) + 4 > 1020
        assert text.encode(errors="replace").decode().startswith(cut[:-1])
    else:
        assert cut == text.encode(errors="replace").decode()


async def test_texts_that_are_too_long_are_cut_to_what_the_server_takes(clock: Clock) -> None:
    async with a_world(clock) as world:
        world.recorder = EventRecorder(world.recorder._client, instance="i" * 200)
        world.record("ä" * 1000, reason="r" * 200, action="a" * 200)
        await world.recorder.flush(timedelta(seconds=1))
        (event,) = world.events()
        assert event["note"] == "ä" * 510 + "…"
        for field in ("reason", "action", "reportingInstance"):
            assert len(event[field].encode()) == 128


# Series


async def test_what_repeats_becomes_a_series_of_the_first_event(world: World) -> None:
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


async def test_what_repeats_before_it_was_sent_is_one_write(world: World) -> None:
    for _ in range(3):
        world.record()
    await world.pass_time(60)
    assert world.counts() == [3]
    assert len(world.transport.sent_requests(path="events")) == 1


async def test_what_repeats_after_more_than_six_minutes_is_a_new_event(world: World) -> None:
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
async def test_what_differs_is_another_event(world: World, change: dict[str, Any]) -> None:
    world.record()
    world.record(**change)
    await world.pass_time(60)
    assert world.counts() == [1, 1]


async def test_an_object_that_changed_meanwhile_stays_in_its_series(world: World) -> None:
    world.record(regarding=NODE)
    world.record(
        regarding=object_reference(NODES, Node(metadata=ObjectMeta(name="n1", uid="1234", resource_version="8")))
    )
    await world.pass_time(60)
    assert world.counts() == [2]


async def test_a_series_whose_event_expired_is_created_anew(world: World) -> None:
    world.record()
    await world.pass_time(60)
    (event,) = world.events()
    world.cluster.remove("events.events.k8s.io", event["metadata"]["name"])
    world.record()
    await world.pass_time(60)
    assert world.counts() == [2]


async def test_only_so_many_series_are_remembered(clock: Clock) -> None:
    async with a_world(clock, capacity=3) as world:
        for note in "abcda":
            world.record(note)
            await world.pass_time(20)
        assert len(world.events()) == 5, "the first was forgotten, so it began anew"
        assert len(world.recorder._series) == 3


# Once per something


async def test_an_event_that_another_process_records_again_is_kept_once(world: World) -> None:
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
async def test_an_event_that_is_recorded_once_has_no_count(world: World, seconds: int) -> None:
    for _ in range(3):
        world.record(dedup_key="first cordon")
        await world.pass_time(seconds)
    (event,) = world.events()
    assert "series" not in event


# What can go wrong


async def test_a_full_queue_forgets_the_oldest_and_counts(clock: Clock) -> None:
    world = World(clock, capacity=3)
    for note in "abcde":
        world.record(note)
    await world.recorder.flush(timedelta(seconds=10))
    assert world.notes() == ["c", "d", "e"]
    assert world.recorder.dropped == 2


async def test_while_much_happens_events_give_way_and_are_all_sent_when_it_is_quiet(world: World) -> None:
    for number in range(200):
        world.record(f"{number}")
        await world.pass_time(0.01)
        assert number or len(world.events()) == 1, "the first is sent at once"
    assert 30 <= len(world.events()) <= 60
    await world.pass_time(0.1 + 0.2)
    assert len(world.events()) == 200


async def test_after_many_were_sent_at_once_they_give_way_as_before(clock: Clock) -> None:
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
async def test_events_do_not_give_way_if_many_wait_or_nobody_is_to_be_spared(
    clock: Clock, settings: dict[str, Any], sent: int
) -> None:
    """Each takes a millisecond."""
    async with a_world(clock, **settings) as world:
        for number in range(100):
            world.record(f"{number}")
        await world.pass_time(0.06)
        assert len(world.events()) == pytest.approx(sent, abs=1)


async def test_trouble_that_passes_loses_nothing(world: World) -> None:
    world.transport.faults.fail_before_effect(path="events", response=503, times=2)
    world.transport.faults.fail_before_effect(path="events", skip=2, times=2)
    for note in "abc":
        world.record(note)
    await world.pass_time(120)
    assert world.notes() == ["a", "b", "c"]
    assert world.recorder.dropped == 0


async def test_an_event_created_unheard_is_not_created_twice(world: World) -> None:
    unheard = world.transport.faults.fail_after_effect(method="POST", path="events")
    world.record()
    await world.pass_time(0.5)
    world.record()
    await world.pass_time(60)
    assert unheard.hits == 1
    assert world.counts() == [2]
    assert world.recorder.dropped == 0


async def test_a_server_that_stays_away_costs_events_but_no_more(
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


async def test_events_that_are_forbidden_are_dropped_with_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.transport.faults.fail_before_effect(path="events", response=403, times=20)
    for number in range(20):
        world.record(str(number))
    await world.pass_time(60)
    assert world.recorder.dropped == 20
    assert len(world.transport.sent_requests(path="events")) == 20, "none was tried again"
    assert len(warnings(caplog)) == 1
    assert "events are dropped, 1 so far: creating events.events.k8s.io default/n1." in warnings(caplog)[0]


async def test_events_in_a_namespace_that_goes_are_dropped_quietly(
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


async def test_an_event_that_the_server_finds_wrong_does_not_hold_up_the_next(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.transport.faults.fail_before_effect(path="events", response=422)
    world.record("wrong")
    world.record("right")
    await world.pass_time(1)
    assert world.notes() == ["right"]
    assert len(warnings(caplog)) == 1


async def test_an_event_that_cannot_even_be_encoded_does_not_stop_the_recorder(world: World) -> None:
    world.record(regarding=ObjectReference(name="\ud800"))
    world.record("right")
    await world.pass_time(1)
    assert world.notes() == ["right"]
    assert world.recorder.dropped == 1


# The end of a process


async def test_a_flush_sends_counts_that_are_not_due_yet(world: World) -> None:
    world.record()
    await world.pass_time(1)
    world.record()
    world.record("another")
    await world.recorder.flush(timedelta(seconds=5))
    assert sorted(world.counts()) == [1, 2]


async def test_a_flush_sends_what_a_cancelled_recorder_was_about_to_send(clock: Clock) -> None:
    async with a_world(clock) as world:
        world.transport.faults.fail_before_effect(path="events", response=500)
        world.record("a")
        world.record("b")
        await world.pass_time(0.1)
    await world.recorder.flush(timedelta(seconds=5))
    assert world.notes() == ["a", "b"]
    assert world.recorder.dropped == 0


async def test_a_flush_ends_in_time_also_in_a_task_that_is_being_cancelled(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
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
