"""The schedule `periodic`."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.profiles.instants import later
from haulout.profiles.options import option
from haulout.profiles.plugin import Due, Entry, Schedule, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Periodic(Schedule):
    """Sends when the state has changed, and then again and again, but not while the node is operational.

    Unless the node is operational, what was never sent is sent at once.
    """

    type = "periodic"
    example = "interval: 24h"

    interval: timedelta = option("How long after the last time it is sent again.", default=timedelta(hours=1))

    def due(self, *, entry: Entry, last: datetime | None, now: datetime) -> Due:
        """Return whether it is due."""
        if entry.current != entry.previous:
            return Due(now=True)
        if entry.previous == State.OPERATIONAL:
            return Due(now=False)
        if last is None or now >= (again := later(last, self.interval)):
            return Due(now=True)
        return Due(now=False, wakes_at=again)
