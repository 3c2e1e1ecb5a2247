"""Keeps profiles from going in circles at full speed: nodes are not drained and given back every few seconds.

Checks may contradict each other: what leads a node into maintenance passes, and so does what leads it out. Nobody can
rule that out beforehand, but nobody wants it sixty times a minute either. A profile that goes towards maintenance from
the same state again and again within minutes waits before the next time, and longer each time, up to five minutes. Who
goes round at a sane pace, or a few times in a row because there is much to do, never notices.

It is memory that does not matter: after a restart a profile has a few rounds more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.core import duration
from haulout.profiles.plugin import State
from haulout.profiles.steps import ProfileReport, Refusal

FREE = 3  # times in a row
_FIRST, _LONGEST = timedelta(seconds=10), timedelta(minutes=5)
_MOST_DOUBLINGS = 5
_CALM = 2 * _LONGEST  # after so long it is a matter of its own
_TOWARDS = {State.OPERATIONAL: (State.REQUIRED, State.IN_MAINTENANCE), State.REQUIRED: (State.IN_MAINTENANCE,)}

Departure = tuple[str, State]
"""A profile, and the state from which it goes towards maintenance."""


def is_towards_maintenance(state: str, following: str) -> bool:
    """Tell whether a transition leads towards maintenance."""
    return following in _TOWARDS.get(State(state), ())


@dataclass(frozen=True, slots=True)
class _Went:
    times: int
    first: datetime
    last: datetime


class Pace:
    """Remembers how often profiles have set out of late, by node."""

    def __init__(self) -> None:
        self._went: dict[str, dict[Departure, _Went]] = {}

    def note(self, node: str, report: ProfileReport, now: datetime) -> None:
        """Note what a step did to a profile."""
        if report.next == report.state or not is_towards_maintenance(report.state, report.next):
            return
        ways = self._went.setdefault(node, {})
        key = report.name, State(report.state)
        before = ways.get(key)
        if before is None or not timedelta() <= now - before.last <= _CALM:
            ways[key] = _Went(1, now, now)
        else:
            ways[key] = _Went(before.times + 1, before.first, now)

    def slowed(self, node: str, now: datetime) -> Mapping[Departure, Refusal]:
        """Return what has to wait, and until when; what is long ago is forgotten."""
        ways = self._went.get(node)
        if ways is None:
            return {}
        for key in [key for key, it in ways.items() if not timedelta() <= now - it.last <= _CALM]:
            del ways[key]
        if not ways:
            del self._went[node]
        found = [(key, _refusal(key, it)) for key, it in ways.items() if it.times > FREE]
        slowed = {key: it for key, it in found if it.again_at is not None and now < it.again_at}
        # Once in each round is enough, and best where nothing was done to the node yet.
        at_first = {profile for (profile, state), _ in found if state is State.OPERATIONAL}
        return {key: it for key, it in slowed.items() if key[1] is State.OPERATIONAL or key[0] not in at_first}

    def forget(self, node: str) -> None:
        """Forget a node."""
        self._went.pop(node, None)


def _refusal(departure: Departure, went: _Went) -> Refusal:
    _, state = departure
    wait = min(_FIRST * 2 ** min(went.times - FREE - 1, _MOST_DOUBLINGS), _LONGEST)
    took = duration.short(went.last - went.first)
    why = (
        f"it goes in circles: it left {state.value} {went.times} times within {took}, so it waits "
        f"{duration.short(wait)}. Do its checks contradict each other?"
    )
    return Refusal(why, went.last + wait)
