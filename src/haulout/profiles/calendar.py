"""When a maintenance that was announced suits the profiles of its node: by their time windows. Pure.

    suitable_start(node, notice, configuration.profiles, answer=answers.get, now=now)

A maintenance suits a profile if the profile can take the node out of service in time: on a way from operational to in
maintenance that goes by this notice, no check chain is closed by a time window, neither when the node is to be emptied
(the lead time before the start, or as long as that is predicted to take) nor at the start itself. All other checks are
taken to pass: whether they will, nobody can tell. If one of several profiles can do it, that is enough.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.core.windows import Open, Timetable, openness
from haulout.kinds.notice import MaintenanceNotice
from haulout.kube.objects import Node
from haulout.profiles.model import CheckChain, Profile
from haulout.profiles.plugin import DEFAULT_PROFILE, PROFILE_LABEL, SEPARATOR, Answer, Check, Question, State
from haulout.profiles.plugins.checks.notice import Notice, When
from haulout.profiles.plugins.checks.time_window import CalendarFile, TimeWindow

FURTHEST = timedelta(days=30)  # however far the deadline is
_MOST_STEPS = 2000  # openings and closings
_MINUTE = timedelta(minutes=1)

Ask = Callable[[Question], Answer | None]


def suitable_start(
    node: Node, notice: MaintenanceNotice, profiles: Mapping[str, Profile], *, answer: Ask, now: datetime
) -> datetime | None:
    """Return the first start that suits, from the planned one on, which is the planned one if that suits.

    None: nobody minds, nobody can tell, or nothing suits before the deadline. `answer` knows what is in calendar files.
    """
    start = notice.spec.start
    if start is None:
        return None
    until = min(notice.spec.deadline or start + FURTHEST, start + FURTHEST)
    found: list[datetime] = []
    for profile in _on(node, profiles):
        for chains in _ways(profile, notice):
            way = _way(chains, notice, answer=answer, now=now)
            if way is None:
                return None
            first = _first(way, start, until)
            found += [] if first is None else [first]
    return min(found, default=None)


def lead_time(node: Node, notice: MaintenanceNotice, profiles: Mapping[str, Profile]) -> timedelta | None:
    """Return how long before its start a profile takes the node out of service for it; None: none goes by it.

    On each way all checks have to pass, so the shortest lead time counts; of several ways the one that is taken first.
    """
    ways = (way for profile in _on(node, profiles) for way in _ways(profile, notice))
    return max((_shortest(way, notice) for way in ways), default=None)


def _shortest(way: tuple[CheckChain, ...], notice: MaintenanceNotice) -> timedelta:
    checks = [it.plugin for chain in way for it in chain.members]
    about = [it for it in checks if isinstance(it, Notice) and _is_about(it, notice)]
    return min(it.lead_time if it.when is When.DUE else timedelta() for it in about)


@dataclass(frozen=True, slots=True)
class _Way:
    """Chains that have to pass, one after the other, and the windows in them."""

    chains: tuple[CheckChain, ...]
    notice: MaintenanceNotice
    timetables: Mapping[TimeWindow, Timetable]
    lead: timedelta
    now: datetime

    def suits(self, start: datetime) -> bool:
        return self._is_open(self._emptied_at(start)) and self._is_open(start)

    def next_after(self, start: datetime) -> datetime:
        """Return the next start of which something else may be true, in whole minutes, as clouds and people like them.

        A window is open strictly after its beginning, so that the full minute itself is closed.
        """
        changes = [self._next_change(start)]
        if start - self.lead > self.now:
            changes.append(self._next_change(start - self.lead) + self.lead)
        else:
            changes.append(self.now + self.lead)
        first = min((it for it in changes if it > start), default=start + _MINUTE)
        whole = first.replace(second=0, microsecond=0)
        return whole if whole == first else whole + _MINUTE

    def _emptied_at(self, start: datetime) -> datetime:
        return max(start - self.lead, self.now)

    def _next_change(self, at: datetime) -> datetime:
        return min(openness(it, at).looks_again_at for it in self.timetables.values())

    def _is_open(self, at: datetime) -> bool:
        return all(it.evaluate(dict(self._values(it, at))) is not False for it in self.chains)

    def _values(self, chain: CheckChain, at: datetime) -> Iterator[tuple[str, bool | None]]:
        for member in chain.members:
            match member.plugin:
                case TimeWindow() as window:
                    yield member.name, isinstance(openness(self.timetables[window], at), Open)
                case Notice() as check:
                    yield member.name, _is_about(check, self.notice)
                case _:
                    yield member.name, None


def _first(way: _Way, start: datetime, until: datetime) -> datetime | None:
    for _ in range(_MOST_STEPS):
        if start > until:
            return None
        if way.suits(start):
            return start
        if not way.timetables:
            return None  # it is not a matter of time
        start = way.next_after(start)
    return None


def _way(chains: tuple[CheckChain, ...], notice: MaintenanceNotice, *, answer: Ask, now: datetime) -> _Way | None:
    """Return the windows on a way; None if somebody's calendar is not known."""
    checks = [member.plugin for chain in chains for member in chain.members]
    timetables: dict[TimeWindow, Timetable] = {}
    for check in checks:
        if isinstance(check, TimeWindow):
            found = [answer(CalendarFile(path)) for path in check.calendars]
            if any(it is None or it.problem for it in found):
                return None
            timetables[check] = check.timetable(tuple(it.value for it in found if it is not None))
    leads = [it.lead_time for it in checks if isinstance(it, Notice) and _is_about(it, notice)]
    lead = max(*leads, timedelta(seconds=notice.status.predicted_drain_seconds))
    return _Way(chains, notice, timetables, lead, now)


def _ways(profile: Profile, notice: MaintenanceNotice) -> Iterator[tuple[CheckChain, ...]]:
    """Return the ways into maintenance that go by this notice."""
    return (way for way in profile.ways_to(State.IN_MAINTENANCE) if _goes_by(way, notice))


def _goes_by(chains: tuple[CheckChain, ...], notice: MaintenanceNotice) -> bool:
    checks: list[Check] = [member.plugin for chain in chains for member in chain.members]
    return any(isinstance(it, Notice) and _is_about(it, notice) for it in checks)


def _is_about(check: Notice, notice: MaintenanceNotice) -> bool:
    """Tell whether a check passes once this maintenance is due or has begun."""
    spec = notice.spec
    is_meant = spec.kind in check.kinds and (not check.sources or spec.source in check.sources)
    return is_meant and check.when is not When.OVER


def _on(node: Node, profiles: Mapping[str, Profile]) -> Iterator[Profile]:
    """Yield the profiles of a node for which something is announced."""
    label = node.metadata.labels.get(PROFILE_LABEL, "")
    named = label.split(SEPARATOR) if label else []
    found = [it for it in profiles.values() if it.name in named or _comes(it, node)]
    default = profiles.get(DEFAULT_PROFILE)
    yield from found or ([] if default is None else [default])


def _comes(profile: Profile, node: Node) -> bool:
    if profile.selector is None:
        return profile.on_notice
    return profile.selector.matches(node.metadata.labels)
