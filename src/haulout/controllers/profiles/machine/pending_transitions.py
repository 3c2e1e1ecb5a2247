"""Transitions that have begun: their slot is taken, their drain runs, and they are brought to their end.

They stand in an annotation of our own, as the Go controller refuses members that it does not know in its data:

    {"os":{"next":"in-maintenance","check":"approved","since":"2024-05-01T10:00:00Z","at":"2024-05-02T10:00:00Z"}}

`check` tells the transition from others to the same state. `since` is the profile's last transition: once there was
another, whoever made it, what had begun is over. So a node that the Go controller has led through a whole round
meanwhile does not slip into maintenance by a word that was left from before. `at` is when the transition began.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from haulout.api.objects import Node
from haulout.budget import unavailable_nodes
from haulout.controllers.profiles.plugin import ProfileStatus, State

log = logging.getLogger(__name__)

ANNOTATION = unavailable_nodes.TRANSITIONS_ANNOTATION


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTransition:
    """A transition under way: where it leads to, by which check chain, and since when its profile was where it is."""

    next: State
    check: str
    since: datetime | None
    at: datetime | None = None  # None: an earlier version has written it

    def belongs_to(self, entry: ProfileStatus | None) -> bool:
        """Tell whether a profile is still where it was when this began."""
        return entry is not None and entry.transition == self.since


def read(node: Node) -> dict[str, PendingTransition]:
    """Return the transitions under way by profile; what cannot be read counts for nothing, and is written anew."""
    raw = node.metadata.annotations.get(ANNOTATION)
    if raw is None:
        return {}
    try:
        return msgspec.json.decode(raw, type=dict[str, PendingTransition])
    except (msgspec.ValidationError, msgspec.DecodeError):
        log.warning("annotation %s of node %s cannot be read, and is written anew", ANNOTATION, node.name)
        return {}


def write(pending: Mapping[str, PendingTransition]) -> str | None:
    """Return the annotation; None if there is nothing to remember."""
    return msgspec.json.encode(dict(pending), order="sorted").decode() if pending else None
