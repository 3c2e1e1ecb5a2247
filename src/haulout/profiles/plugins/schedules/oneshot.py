"""The schedule `oneshot`."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.profiles.instants import later
from haulout.profiles.options import option
from haulout.profiles.plugin import Due, Entry, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Oneshot(Schedule):
    """Sends once, some time after the state has changed.

    A profile that the node has just got counts as a change, too.
    """

    type = "oneshot"
    example = "delay: 10m"

    delay: timedelta = option("How long after the change of the state it is sent.", default=timedelta(minutes=1))

    def due(self, *, entry: Entry, last: datetime | None, now: datetime) -> Due:
        """Return whether it is due."""
        changed = entry.transition
        if changed is None or (last is not None and last > changed):
            return Due(now=False)
        at = later(changed, self.delay)
        return Due(now=True) if now >= at else Due(now=False, wakes_at=at)
