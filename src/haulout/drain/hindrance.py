"""What stood in a drain's way longest: told when it is over, when nobody can see it any more.

    hindrances = hindrances.seeing(progress.blockers, now=now)
    hindrances.longest

Several pods that wait for the same thing are one hindrance, from the first that had to wait to the last.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from haulout.drain.progress import Standing


@dataclass(frozen=True, slots=True)
class Hindrance:
    """A thing that stood in the way, and for how long."""

    what: str
    lasted: timedelta


@dataclass(frozen=True, slots=True)
class Hindrances:
    """What stands in the way, and what did so longest."""

    longest: Hindrance | None = None
    since: Mapping[str, datetime] = field(default_factory=dict)  # of those that are there now

    def seeing(self, standing: Iterable[Standing], *, now: datetime) -> "Hindrances":
        """Return it after a look at what stands in the way."""
        there: dict[str, datetime] = {}
        for it in standing:
            if it.blocker.is_progress:
                continue
            what = it.blocker.object or it.blocker.kind
            there[what] = min(it.since, there.get(what, it.since), self.since.get(what, it.since))
        lasted = [Hindrance(what, now - since) for what, since in {**self.since, **there}.items()]
        known = [] if self.longest is None else [self.longest]
        return Hindrances(max((*known, *lasted), key=lambda it: it.lasted, default=None), there)
