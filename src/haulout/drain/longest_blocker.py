"""What stood in a drain's way longest: told when it is over, when nobody can see it any more.

    hindrances = hindrances.seeing(progress.blockers, now=now)
    hindrances.longest

Several pods that wait for the same thing are one hindrance, from the first that had to wait to the last.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from haulout.drain.progress import ActiveBlocker


@dataclass(frozen=True, slots=True)
class LongestBlocker:
    """A thing that stood in the way, and for how long."""

    object: str
    duration: timedelta


@dataclass(frozen=True, slots=True)
class LongestBlockerTracker:
    """What stands in the way, and what did so longest."""

    longest: LongestBlocker | None = None
    since: Mapping[str, datetime] = field(default_factory=dict)  # of those that are there now

    def observe(self, blockers: Iterable[ActiveBlocker], *, now: datetime) -> "LongestBlockerTracker":
        """Return it after a look at what stands in the way."""
        current: dict[str, datetime] = {}
        for active in blockers:
            if active.blocker.is_progress:
                continue
            blocking_object = active.blocker.object or active.blocker.kind
            current[blocking_object] = min(
                active.since, current.get(blocking_object, active.since), self.since.get(blocking_object, active.since)
            )
        durations = [
            LongestBlocker(blocking_object, now - since) for blocking_object, since in {**self.since, **current}.items()
        ]
        known = [] if self.longest is None else [self.longest]
        return LongestBlockerTracker(
            max((*known, *durations), key=lambda active: active.duration, default=None), current
        )
