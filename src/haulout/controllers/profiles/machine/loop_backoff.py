"""Slows down profiles that loop, so that a node is not drained and returned every few seconds.

Checks may contradict each other: the chain into maintenance passes, and so does the chain out of it. This cannot be
ruled out when the configuration is loaded. A profile that goes towards maintenance from the same state again and again
within minutes must wait before the next time, longer each time, up to five minutes. A profile that does so at a
reasonable rate, or a few times in a row, is not delayed.

The counts are kept in memory only: after a restart a profile gets a few more undelayed rounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.controllers.profiles.observation import Deferral, ProfileReport
from haulout.controllers.profiles.plugin import State
from haulout.core import duration

FREE_ROUNDS = 3  # without delay
_FIRST_DELAY, _MAX_DELAY = timedelta(seconds=10), timedelta(minutes=5)
_MAX_DOUBLINGS = 5
_RESET_AFTER = 2 * _MAX_DELAY  # a later departure starts a new count
_TOWARDS_MAINTENANCE = {
    State.OPERATIONAL: (State.REQUIRED, State.IN_MAINTENANCE),
    State.REQUIRED: (State.IN_MAINTENANCE,),
}

# A profile, and the state from which it goes towards maintenance.
Departure = tuple[str, State]


def is_towards_maintenance(state: str, next_state: str) -> bool:
    """Return whether a transition leads towards maintenance."""
    return next_state in _TOWARDS_MAINTENANCE.get(State(state), ())


@dataclass(frozen=True, slots=True)
class _Departures:
    count: int
    first: datetime
    last: datetime


class LoopBackoff:
    """Counts recent departures towards maintenance, by node and profile."""

    def __init__(self) -> None:
        self._departures: dict[str, dict[Departure, _Departures]] = {}

    def record(self, node: str, report: ProfileReport, now: datetime) -> None:
        """Count a departure if a reconcile moved a profile towards maintenance."""
        if report.next == report.state or not is_towards_maintenance(report.state, report.next):
            return
        departures = self._departures.setdefault(node, {})
        key = report.name, State(report.state)
        previous = departures.get(key)
        # A clock that was set back starts a new count, so that no profile waits for a time far in the future.
        if previous is None or not timedelta() <= now - previous.last <= _RESET_AFTER:
            departures[key] = _Departures(1, now, now)
        else:
            departures[key] = _Departures(previous.count + 1, previous.first, now)

    def throttled(self, node: str, now: datetime) -> Mapping[Departure, Deferral]:
        """Return which profiles must wait in which state, and until when. Forget old departures."""
        departures = self._departures.get(node)
        if departures is None:
            return {}
        for key in [key for key, entry in departures.items() if not timedelta() <= now - entry.last <= _RESET_AFTER]:
            del departures[key]
        if not departures:
            del self._departures[node]
        found = [(key, _deferral(key, entry)) for key, entry in departures.items() if entry.count > FREE_ROUNDS]
        throttled = {key: entry for key, entry in found if entry.retry_at is not None and now < entry.retry_at}
        # Delay only once per round, and preferably in operational, where the node is still untouched.
        leaving_operational = {profile for (profile, state), _ in found if state is State.OPERATIONAL}
        return {
            key: entry
            for key, entry in throttled.items()
            if key[1] is State.OPERATIONAL or key[0] not in leaving_operational
        }

    def forget(self, node: str) -> None:
        self._departures.pop(node, None)


def _deferral(departure: Departure, departures: _Departures) -> Deferral:
    _, state = departure
    delay = min(_FIRST_DELAY * 2 ** min(departures.count - FREE_ROUNDS - 1, _MAX_DOUBLINGS), _MAX_DELAY)
    period = duration.format_short(departures.last - departures.first)
    reason = (
        f"the profile loops: it left {state.value} {departures.count} times within {period}, so it waits "
        f"{duration.format_short(delay)}. Do its checks contradict each other?"
    )
    return Deferral(reason, departures.last + delay)
