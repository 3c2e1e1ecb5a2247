"""States that a profile has passed and that are not in the history of its node yet.

The data annotation contains the current state of a profile, not how it got there. Profiles often change state twice in
a row. A crash before the first of two transitions reaches the history would lose it. So the write of the second
transition carries the first in an annotation of Haulout. The next later transition removes the annotation; if there is
none, it is removed when the node is operational and its history is written:

    {"os":[{"to":"maintenance-required","at":"2024-05-01T10:00:00Z"}]}

Without a history, or with transitions that are at least a second apart, there is no such annotation.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from haulout.api.objects import Base, Node

ANNOTATION = "haulout.dev/passed"
MAX_STATES = 20  # per profile; a profile that loops is stopped at about as many


class PassedState(Base, frozen=True):
    """A state that a profile entered, and when."""

    to: str
    at: datetime


def read(node: Node) -> dict[str, tuple[PassedState, ...]]:
    """Return the states that profiles have passed; empty if the annotation cannot be parsed."""
    try:
        return msgspec.json.decode(
            node.metadata.annotations.get(ANNOTATION, "{}"), type=dict[str, tuple[PassedState, ...]]
        )
    except (msgspec.ValidationError, msgspec.DecodeError):
        return {}


def write(passed: Mapping[str, Sequence[PassedState]]) -> str | None:
    """Return the annotation; None if it is empty."""
    trimmed = {name: list(states)[-MAX_STATES:] for name, states in passed.items() if states}
    return msgspec.json.encode(trimmed, order="sorted").decode() if trimmed else None
