"""Pending transitions: their slot is taken and their drain runs, and they are completed whatever their checks return.

They are kept in an annotation of Haulout, since the Go controller rejects unknown members in its data annotation:

    {"os":{"next":"in-maintenance","check":"approved","since":"2024-05-01T10:00:00Z","at":"2024-05-02T10:00:00Z"}}

`check` distinguishes the transition from others to the same state. `since` is the time of the profile's last
transition: after any later transition, by whatever controller, the pending one is void. So if the Go controller takes a
node through a whole round meanwhile, a leftover entry does not put the node into maintenance. `at` is when the pending
transition started.
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
    """A transition that has started: its target, its check chain, and when the profile entered its current state."""

    next: State
    check: str
    since: datetime | None
    at: datetime | None = None  # None: written by an earlier version

    def belongs_to(self, entry: ProfileStatus | None) -> bool:
        """Return whether the profile has not changed state since this transition started."""
        return entry is not None and entry.transition == self.since


def read(node: Node) -> dict[str, PendingTransition]:
    """Return the pending transitions by profile. An annotation that cannot be parsed is ignored, and overwritten."""
    raw = node.metadata.annotations.get(ANNOTATION)
    if raw is None:
        return {}
    try:
        return msgspec.json.decode(raw, type=dict[str, PendingTransition])
    except (msgspec.ValidationError, msgspec.DecodeError):
        log.warning("annotation %s of node %s cannot be parsed; it will be replaced", ANNOTATION, node.name)
        return {}


def write(pending: Mapping[str, PendingTransition]) -> str | None:
    """Return the annotation; None if it is empty."""
    return msgspec.json.encode(dict(pending), order="sorted").decode() if pending else None
