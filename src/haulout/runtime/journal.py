"""Tells each transition once: as a Kubernetes Event, a log line, an entry of the node's history, and a count.

    journal.record(Transition(regarding=(node_reference,), subject="node n1", reason="Cordoned", message="..."))
    journal.record_once(("n1", "order"), transition)        # not again until it changes, or `clear` is called
    journal.record_first(("n1", "blocked"), transition)     # not again until `clear` is called

A controller names a transition in one place. Call this only after the write that made the transition has succeeded:
what is told must be true, and a successor that repeats the write must not tell it twice.

A `topic` is a key and what about it, such as `("n1", "order")`. The journal remembers the last transition of each
topic. Those that are warnings are the problems that the status page and `/readyz?verbose` show.
"""

import logging
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from haulout.api.maintenancerecord import NewEntry
from haulout.api.objects import Node
from haulout.core.metrics import counter
from haulout.history.interface import History, NoHistory
from haulout.kube.metrics import KubeMetrics
from haulout.kube.recorder import EventRecorder, ObjectReference

TRANSITIONS = counter(
    "haulout_transitions_total",
    "How many transitions of objects were recorded.",
    "controller",
    "reason",
    details="`reason` is that of the Kubernetes Event, or of a condition if there is no Event",
)

Topic = tuple[Hashable, str]  # key, and what about it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEntry:
    """An entry for the history of a node."""

    node: Node
    entry: NewEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """What happened to an object."""

    regarding: tuple[ObjectReference, ...]  # objects that get an Event
    subject: str  # the object in the log line: `node n1`
    reason: str  # CamelCase, of the Event and the metric
    message: str
    action: str  # what was attempted, of the Event
    is_warning: bool = False
    details: str = ""  # of the log line only, where the text of the Event is fixed
    history: tuple[NodeEntry, ...] = ()
    log_fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def _identity(self) -> tuple[str, str, bool]:
        return self.reason, self.message, self.is_warning


def emit_events(transition: Transition, recorder: EventRecorder) -> None:
    """Emit only the Events of a transition: again, so that they do not expire, or in another cluster."""
    for regarding in transition.regarding:
        recorder.event(
            regarding,
            type="Warning" if transition.is_warning else "Normal",
            reason=transition.reason,
            note=transition.message,
            action=transition.action,
        )


class Journal:
    """Records the transitions of one controller."""

    def __init__(
        self, controller: str, events: EventRecorder, history: History | None = None, *, metrics: KubeMetrics
    ) -> None:
        self.controller = controller
        self.events = events
        self.history = history or NoHistory()
        self.transitions = metrics.counter(TRANSITIONS)
        self._log = logging.getLogger(f"haulout.{controller}")
        self._last: dict[Topic, Transition] = {}

    def record(self, transition: Transition) -> None:
        """Tell a transition."""
        level = logging.WARNING if transition.is_warning else logging.INFO
        self._log.log(
            level,
            "%s: %s: %s%s",
            transition.subject,
            transition.reason,
            transition.message,
            transition.details and f": {transition.details}",
            extra={"controller": self.controller, "reason": transition.reason, **transition.log_fields},
        )
        emit_events(transition, self.events)
        for item in transition.history:
            self.history.add(item.node, item.entry)
        self.transitions.add(self.controller, transition.reason)

    def record_once(self, topic: Topic, transition: Transition) -> bool:
        """Tell a transition unless it is the last one of its topic; return whether it was told."""
        last = self._last.get(topic)
        if last is not None and last._identity == transition._identity:  # noqa: SLF001 - the same class
            return False
        self._last[topic] = transition
        self.record(transition)
        return True

    def record_first(self, topic: Topic, transition: Transition) -> bool:
        """Tell a transition unless its topic has one already, even with another message; return whether it was told."""
        return topic not in self._last and self.record_once(topic, transition)

    def clear(self, topic: Topic) -> Transition | None:
        """Forget the last transition of a topic, so that the next one is told; return it."""
        return self._last.pop(topic, None)

    def last(self, topic: Topic) -> Transition | None:
        """Return the last transition of a topic."""
        return self._last.get(topic)

    def forget(self, key: Hashable) -> None:
        """Forget all topics of a key whose object was deleted."""
        for topic in [topic for topic in self._last if topic[0] == key]:
            del self._last[topic]

    def topics(self, about: str) -> Iterator[Transition]:
        """Yield the last transition of each key in one kind of topic."""
        yield from (transition for topic, transition in self._last.items() if topic[1] == about)

    def problems(self) -> Iterator[str]:
        """Yield the last transitions that are warnings, one line each."""
        for transition in sorted(self._last.values(), key=lambda item: item.subject):
            if transition.is_warning:
                yield f"{transition.subject}: {transition.message}"
