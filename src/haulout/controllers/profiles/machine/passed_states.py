"""States that a profile has passed, and that are not written down in the history of its node yet.

The data of a node says where a profile stands, and not how it came there. Profiles often go on at once: who dies before
the first of two transitions is written down would leave no trace of it. So the write of the second carries the first,
in an annotation of our own. The next transition that comes later removes it. If there is none, it is removed when the
node is operational and its history is written:

    {"os":[{"to":"maintenance-required","at":"2024-05-01T10:00:00Z"}]}

Without a history, or with transitions that are a second apart, there is no such annotation.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from haulout.api.objects import Base, Node

ANNOTATION = "haulout.dev/passed"
MAX_STATES = 20  # of one profile: profiles that go on and on are stopped at about as many


class PassedState(Base, frozen=True):
    """A state that a profile came to, and when."""

    to: str
    at: datetime


def read(node: Node) -> dict[str, tuple[PassedState, ...]]:
    """Return the states that profiles have passed; what cannot be read counts for nothing."""
    try:
        return msgspec.json.decode(
            node.metadata.annotations.get(ANNOTATION, "{}"), type=dict[str, tuple[PassedState, ...]]
        )
    except (msgspec.ValidationError, msgspec.DecodeError):
        return {}


def write(passed: Mapping[str, Sequence[PassedState]]) -> str | None:
    """Return the annotation; None if there is nothing to remember."""
    trimmed = {name: list(states)[-MAX_STATES:] for name, states in passed.items() if states}
    return msgspec.json.encode(trimmed, order="sorted").decode() if trimmed else None
