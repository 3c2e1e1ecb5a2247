"""When an announced maintenance suits the profiles of its node, by their time windows. Pure.

    preferred_start(node, notice, configuration.profiles, look_up=results.get, now=now)

A maintenance suits a profile if the profile can take the node out of service in time. That is, on a path from
operational to in maintenance that depends on this notice, no check chain is closed by a time window: neither when the
drain has to start (the lead time before the start, or the predicted duration of the drain if that is longer) nor at the
start itself. All other checks are assumed to pass, since their results cannot be predicted. One suitable profile of
several is enough.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.objects import Node
from haulout.controllers.profiles.config.model import CheckChain, Profile
from haulout.controllers.profiles.plugin import (
    DEFAULT_PROFILE,
    PROFILE_LABEL,
    PROFILE_SEPARATOR,
    Check,
    ExternalQuery,
    QueryResult,
    State,
)
from haulout.controllers.profiles.plugins.checks.notice import NoticeCheck, When
from haulout.controllers.profiles.plugins.checks.time_window import CalendarFileQuery, TimeWindow
from haulout.core.windows import Open, Timetable, state_at

HORIZON = timedelta(days=30)  # limit of the search, even if the deadline is later
_MAX_STEPS = 2000  # each is an opening or closing of a window
_MINUTE = timedelta(minutes=1)

LookUp = Callable[[ExternalQuery], QueryResult | None]


def preferred_start(
    node: Node, notice: MaintenanceNotice, profiles: Mapping[str, Profile], *, look_up: LookUp, now: datetime
) -> datetime | None:
    """Return the first suitable start, not before the planned one; the planned one itself if it is suitable.

    None if no profile depends on the notice, a calendar is not available, or nothing is suitable before the deadline.
    `look_up` returns the content of calendar files.
    """
    start = notice.spec.start
    if start is None:
        return None
    until = min(notice.spec.deadline or start + HORIZON, start + HORIZON)
    candidates: list[datetime] = []
    for profile in _profiles_of(node, profiles):
        for chains in _paths(profile, notice):
            path = _path(chains, notice, look_up=look_up, now=now)
            # Without the calendar any answer could be wrong, and maintenance could be rescheduled because of it.
            if path is None:
                return None
            candidate = _first_suitable(path, start, until)
            candidates += [] if candidate is None else [candidate]
    return min(candidates, default=None)


def lead_time(node: Node, notice: MaintenanceNotice, profiles: Mapping[str, Profile]) -> timedelta | None:
    """Return how long before its start a profile takes the node out of service; None if no profile depends on it.

    On one path all checks must pass, so its shortest lead time counts. Of several paths the earliest counts.
    """
    paths = (path for profile in _profiles_of(node, profiles) for path in _paths(profile, notice))
    return max((_shortest_lead_time(path, notice) for path in paths), default=None)


def _shortest_lead_time(path: tuple[CheckChain, ...], notice: MaintenanceNotice) -> timedelta:
    checks = [check.plugin for chain in path for check in chain.members]
    matching = [check for check in checks if isinstance(check, NoticeCheck) and _matches(check, notice)]
    return min(check.lead_time if check.when is When.DUE else timedelta() for check in matching)


@dataclass(frozen=True, slots=True)
class _Path:
    """Chains that must pass in order, and the time windows in them."""

    chains: tuple[CheckChain, ...]
    notice: MaintenanceNotice
    timetables: Mapping[TimeWindow, Timetable]
    lead_time: timedelta
    now: datetime

    def suits(self, start: datetime) -> bool:
        return self._is_open(self._drain_start(start)) and self._is_open(start)

    def next_after(self, start: datetime) -> datetime:
        """Return the next start for which the result may differ, in whole minutes, as clouds and people use them.

        A window is open strictly after its beginning, so at the full minute itself it is closed.
        """
        changes = [self._next_change(start)]
        if start - self.lead_time > self.now:
            changes.append(self._next_change(start - self.lead_time) + self.lead_time)
        else:
            changes.append(self.now + self.lead_time)
        earliest = min((change for change in changes if change > start), default=start + _MINUTE)
        full_minute = earliest.replace(second=0, microsecond=0)
        return full_minute if full_minute == earliest else full_minute + _MINUTE

    def _drain_start(self, start: datetime) -> datetime:
        return max(start - self.lead_time, self.now)

    def _next_change(self, at: datetime) -> datetime:
        return min(state_at(timetable, at).recheck_at for timetable in self.timetables.values())

    def _is_open(self, at: datetime) -> bool:
        # Three-valued logic: an unknown check is None. Only a chain that is False whatever the unknown checks return
        # is closed.
        return all(chain.evaluate(dict(self._values(chain, at))) is not False for chain in self.chains)

    def _values(self, chain: CheckChain, at: datetime) -> Iterator[tuple[str, bool | None]]:
        for member in chain.members:
            match member.plugin:
                case TimeWindow() as window:
                    yield member.name, isinstance(state_at(self.timetables[window], at), Open)
                case NoticeCheck() as check:
                    yield member.name, _matches(check, self.notice)
                case _:
                    yield member.name, None


def _first_suitable(path: _Path, start: datetime, until: datetime) -> datetime | None:
    # Bounded: a calendar with a window per minute must not keep the event loop busy.
    for _ in range(_MAX_STEPS):
        if start > until:
            return None
        if path.suits(start):
            return start
        if not path.timetables:
            return None  # no time window closes the path, so a later start does not help
        start = path.next_after(start)
    return None


def _path(chains: tuple[CheckChain, ...], notice: MaintenanceNotice, *, look_up: LookUp, now: datetime) -> _Path | None:
    """Return the time windows on a path; None if one of their calendars is not available."""
    checks = [member.plugin for chain in chains for member in chain.members]
    timetables: dict[TimeWindow, Timetable] = {}
    for check in checks:
        if isinstance(check, TimeWindow):
            results = [look_up(CalendarFileQuery(path)) for path in check.calendars]
            if any(item is None or item.problem for item in results):
                return None
            timetables[check] = check.timetable(tuple(item.value for item in results if item is not None))
    lead_times = [item.lead_time for item in checks if isinstance(item, NoticeCheck) and _matches(item, notice)]
    lead_time = max(*lead_times, timedelta(seconds=notice.status.predicted_drain_seconds))
    return _Path(chains, notice, timetables, lead_time, now)


def _paths(profile: Profile, notice: MaintenanceNotice) -> Iterator[tuple[CheckChain, ...]]:
    """Return the paths into maintenance that depend on this notice."""
    return (path for path in profile.paths_to(State.IN_MAINTENANCE) if _depends_on(path, notice))


def _depends_on(chains: tuple[CheckChain, ...], notice: MaintenanceNotice) -> bool:
    checks: list[Check] = [member.plugin for chain in chains for member in chain.members]
    return any(isinstance(check, NoticeCheck) and _matches(check, notice) for check in checks)


def _matches(check: NoticeCheck, notice: MaintenanceNotice) -> bool:
    """Return whether a check passes when this maintenance is due or has started."""
    spec = notice.spec
    is_selected = spec.kind in check.kinds and (not check.sources or spec.source in check.sources)
    return is_selected and check.when is not When.OVER


def _profiles_of(node: Node, profiles: Mapping[str, Profile]) -> Iterator[Profile]:
    """Yield the profiles of a node that has a maintenance notice."""
    label = node.metadata.labels.get(PROFILE_LABEL, "")
    labelled = label.split(PROFILE_SEPARATOR) if label else []
    found = [profile for profile in profiles.values() if profile.name in labelled or _attaches_itself(profile, node)]
    default = profiles.get(DEFAULT_PROFILE)
    yield from found or ([] if default is None else [default])


def _attaches_itself(profile: Profile, node: Node) -> bool:
    if profile.selector is None:
        return profile.on_notice
    return profile.selector.matches(node.metadata.labels)
