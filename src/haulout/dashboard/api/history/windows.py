"""Bands of a timeline: when the time windows of profiles allow maintenance to begin. Pure.

Only windows on transitions out of operational count: those on the way back say when a node may return. There is a band
per window and blackout, up to a limit.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import islice

from haulout.controllers.profiles.config.model import Profile
from haulout.controllers.profiles.plugin import ExternalQuery, QueryResult, State
from haulout.controllers.profiles.plugins.checks.time_window import CalendarFileQuery, TimeWindow
from haulout.core.windows import Timetable, blackouts_between, open_spans
from haulout.dashboard.api.types import Span, SpanKind

MAX_BANDS = 100  # per kind and check
_MAX_CHECKS = 20

AnswerLookup = Callable[[ExternalQuery], QueryResult | None]


def time_windows(profiles: Mapping[str, Profile]) -> list[tuple[str, TimeWindow]]:
    """Return the windows that delay maintenance, each with its title; equal windows of a profile once."""
    found: dict[tuple[str, TimeWindow], str] = {}
    for profile in profiles.values():
        for state, config in profile.states.items():
            for transition in config.transitions:
                if state is State.IN_MAINTENANCE or transition.next is State.OPERATIONAL:
                    continue
                for member in transition.check.members:
                    if isinstance(member.plugin, TimeWindow):
                        found.setdefault((profile.name, member.plugin), f"{profile.name}: {member.name}")
    return [(title, window) for (_, window), title in islice(found.items(), _MAX_CHECKS)]


def window_spans(
    title: str, window: TimeWindow, *, start: datetime, end: datetime, lookup: AnswerLookup
) -> tuple[tuple[Span, ...], str]:
    """Return the open and closed spans of a window in a time range, and what is unknown.

    `lookup` returns cached calendar files.
    """
    calendars, problem = [], ""
    for path in window.calendars:
        found = lookup(CalendarFileQuery(path))
        if found is None or found.problem:
            problem = f"{title}: {'it has not been read yet' if found is None else found.problem}"
        else:
            calendars.append(found.value)
    timetable = window.timetable(tuple(calendars))
    return (*_window_spans(title, timetable, start, end), *_blackout_spans(title, timetable, start, end)), problem


def _window_spans(title: str, timetable: Timetable, start: datetime, end: datetime) -> Iterator[Span]:
    for opening in islice(open_spans(timetable, start, end), MAX_BANDS):
        # A window is open strictly after its start; do not show the microsecond.
        yield Span(kind=SpanKind.WINDOW, title=title, start=opening.start.replace(microsecond=0), end=opening.end)


def _blackout_spans(title: str, timetable: Timetable, start: datetime, end: datetime) -> Iterator[Span]:
    for closing in islice(blackouts_between(timetable, start, end), MAX_BANDS):
        why = closing.reason.removeprefix("blackout: ")
        yield Span(
            kind=SpanKind.BLACKOUT, title=title, start=max(closing.start, start), end=min(closing.end, end), message=why
        )
