"""Each transition is told once: as Event, log line, history entry and count."""

import logging
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from haulout.api.maintenancerecord import Entry, NewEntry
from haulout.api.objects import Node, ObjectMeta
from haulout.history.interface import NoHistory
from haulout.kube.metrics import KubeMetrics
from haulout.kube.recorder import ObjectReference
from haulout.runtime.journal import Journal, NodeEntry, Transition, emit_events
from support.fakes.recorded_events import RecordedEvents

NODE = Node(metadata=ObjectMeta(name="n1", uid="u1"))
REFERENCE = ObjectReference(kind="Node", name="n1")
ENTRY = NewEntry(entry=Entry(time=datetime(2026, 1, 1, tzinfo=UTC), object="toy"))
TOPIC = ("n1", "order")


class RecordedHistory(NoHistory):
    """Keeps what is added."""

    def __init__(self) -> None:
        self.entries: list[tuple[Node, NewEntry]] = []

    def add(self, node: Node, *notes: NewEntry) -> None:
        self.entries += [(node, note) for note in notes]


@pytest.fixture
def events() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
def history() -> RecordedHistory:
    return RecordedHistory()


@pytest.fixture
def journal(events: RecordedEvents, history: RecordedHistory) -> Journal:
    return Journal("toy", events, history, metrics=KubeMetrics())  # type: ignore[arg-type]  # what a journal uses of it


def a_transition(message: str = "cordoned", *, reason: str = "Cordoned", is_warning: bool = False) -> Transition:
    return Transition(
        regarding=(REFERENCE,),
        subject="node n1",
        reason=reason,
        message=message,
        action="Cordon",
        is_warning=is_warning,
        history=(NodeEntry(node=NODE, entry=ENTRY),),
    )


def test_transition_becomes_event_history_entry_count_and_log_line(
    journal: Journal, events: RecordedEvents, history: RecordedHistory, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        journal.record(a_transition())
    assert events.events == [("n1", "Normal", "Cordoned")]
    assert history.entries == [(NODE, ENTRY)]
    assert [(sample.labels, sample.number) for sample in journal.transitions.samples()] == [
        ((("controller", "toy"), ("reason", "Cordoned")), 1)
    ]
    assert caplog.messages == ["node n1: Cordoned: cordoned"]


def test_unchanged_transition_of_a_topic_is_recorded_once(journal: Journal, events: RecordedEvents) -> None:
    assert journal.record_once(TOPIC, a_transition())
    assert not journal.record_once(TOPIC, a_transition())
    assert len(events.events) == 1


def test_first_transition_of_a_topic_is_the_only_one_although_its_message_changes(
    journal: Journal, events: RecordedEvents
) -> None:
    assert journal.record_first(TOPIC, a_transition())
    assert not journal.record_first(TOPIC, a_transition("still cordoned"))
    assert len(events.events) == 1
    journal.clear(TOPIC)
    assert journal.record_first(TOPIC, a_transition("still cordoned"))


def test_details_are_in_the_log_only(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        journal.record(replace(a_transition(), details="for a new kernel"))
        journal.record_once(TOPIC, replace(a_transition(), details="for a new kernel"))
    assert caplog.messages == ["node n1: Cordoned: cordoned: for a new kernel"] * 2
    assert not journal.record_once(TOPIC, replace(a_transition(), details="for a new disk"))


def test_repeated_event_of_a_transition_is_neither_logged_nor_counted(
    journal: Journal, events: RecordedEvents, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        emit_events(a_transition(is_warning=True), journal.events)
    assert events.events == [("n1", "Warning", "Cordoned")]
    assert caplog.messages == []
    assert list(journal.transitions.samples()) == []


def test_changed_transition_of_a_topic_is_recorded_again(journal: Journal, events: RecordedEvents) -> None:
    journal.record_once(TOPIC, a_transition())
    assert journal.record_once(TOPIC, a_transition("still cordoned"))
    assert journal.record_once(TOPIC, a_transition("still cordoned", is_warning=True))
    assert len(events.events) == 3


def test_transition_is_recorded_again_after_its_topic_was_cleared(journal: Journal, events: RecordedEvents) -> None:
    journal.record_once(TOPIC, a_transition())
    journal.clear(TOPIC)
    assert journal.record_once(TOPIC, a_transition())
    assert len(events.events) == 2


def test_problems_are_the_last_transitions_that_are_warnings(journal: Journal) -> None:
    journal.record_once(TOPIC, a_transition("no server", is_warning=True))
    assert list(journal.problems()) == ["node n1: no server"]
    journal.record_once(TOPIC, a_transition())
    assert list(journal.problems()) == []


def test_forgotten_object_has_no_problem(journal: Journal) -> None:
    journal.record_once(TOPIC, a_transition("no server", is_warning=True))
    journal.forget("n1")
    assert list(journal.problems()) == []
