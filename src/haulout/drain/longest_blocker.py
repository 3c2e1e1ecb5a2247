"""What blocked a drain longest, for the history and metrics after the drain has ended.

    tracker = tracker.observe(progress.blockers, now=now)
    tracker.longest

Several pods that wait for the same object count as one blocker, from the first pod's wait to the end of the last.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from haulout.drain.progress import ActiveBlocker


@dataclass(frozen=True, slots=True)
class LongestBlocker:
    """A blocking object, and how long it blocked."""

    object: str
    duration: timedelta


@dataclass(frozen=True, slots=True)
class LongestBlockerTracker:
    """The current blockers, and the longest so far."""

    longest: LongestBlocker | None = None
    since: Mapping[str, datetime] = field(default_factory=dict)  # current blockers

    def observe(self, blockers: Iterable[ActiveBlocker], *, now: datetime) -> "LongestBlockerTracker":
        """Return the tracker with these current blockers."""
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
