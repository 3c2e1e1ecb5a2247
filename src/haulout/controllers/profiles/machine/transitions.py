"""Pending transitions, and states that are not in the history yet: what the data annotation cannot keep.

The Go controller rejects unknown members in its data annotation, so both have an annotation of Haulout.

A pending transition has taken its slot and its drain runs. It is completed whatever its checks return:

    {"os":{"next":"in-maintenance","check":"approved","since":"2024-05-01T10:00:00Z","at":"2024-05-02T10:00:00Z"}}

`check` distinguishes the transition from others to the same state. `since` is the time of the profile's last
transition: after any later transition, by whatever controller, the pending one is void. So if the Go controller takes a
node through a whole round meanwhile, a leftover entry does not put the node into maintenance. `at` is when the pending
transition started.

Unrecorded states are those that a profile had and that are not in the history of its node yet. The data annotation
contains the current state of a profile, not how it got there. Profiles often change state twice in a row. A crash
before the first of two transitions reaches the history would lose it. So the write of the second transition carries the
first. The next later transition removes the annotation; if there is none, it is removed when the node is operational
and its history is written:

    {"os":[{"to":"maintenance-required","at":"2024-05-01T10:00:00Z"}]}

Without a history, or with transitions that are at least a second apart, there is no such annotation.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from haulout.api import annotations
from haulout.api.objects import Base, Node
from haulout.budget import unavailable_nodes
from haulout.controllers.profiles.plugin import ProfileStatus, State

log = logging.getLogger(__name__)

PENDING_ANNOTATION = unavailable_nodes.TRANSITIONS_ANNOTATION

PASSED_ANNOTATION = annotations.UNRECORDED_STATES
MAX_STATES = 20  # per profile; a profile that loops is stopped at about as many


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTransition:
    """A transition that has started: its target, its check chain, and when the profile entered its current state."""

    next: State
    check: str
    since: datetime | None
    at: datetime | None = None  # None: written by an earlier version

    def belongs_to(self, entry: ProfileStatus | None) -> bool:
        """Return whether the profile has not changed state since this transition started."""
        return entry is not None and entry.transition == self.since


def read_pending(node: Node) -> dict[str, PendingTransition]:
    """Return the pending transitions by profile. An annotation that cannot be parsed is ignored, and overwritten."""
    raw = node.metadata.annotations.get(PENDING_ANNOTATION)
    if raw is None:
        return {}
    try:
        return msgspec.json.decode(raw, type=dict[str, PendingTransition])
    except (msgspec.ValidationError, msgspec.DecodeError):
        log.warning("annotation %s of node %s cannot be parsed; it will be replaced", PENDING_ANNOTATION, node.name)
        return {}


def encode_pending(pending: Mapping[str, PendingTransition]) -> str | None:
    """Return the annotation; None if it is empty."""
    return msgspec.json.encode(dict(pending), order="sorted").decode() if pending else None


class UnrecordedState(Base, frozen=True):
    """A state that a profile entered, and when."""

    to: str
    at: datetime


def read_unrecorded(node: Node) -> dict[str, tuple[UnrecordedState, ...]]:
    """Return the unrecorded states by profile; empty if the annotation cannot be parsed."""
    try:
        return msgspec.json.decode(
            node.metadata.annotations.get(PASSED_ANNOTATION, "{}"), type=dict[str, tuple[UnrecordedState, ...]]
        )
    except (msgspec.ValidationError, msgspec.DecodeError):
        return {}


def encode_unrecorded(unrecorded: Mapping[str, Sequence[UnrecordedState]]) -> str | None:
    """Return the annotation; None if it is empty."""
    trimmed = {name: list(states)[-MAX_STATES:] for name, states in unrecorded.items() if states}
    return msgspec.json.encode(trimmed, order="sorted").decode() if trimmed else None
