"""When maintenance may begin, by the time windows of profiles, and when it may not: bands behind a timeline. Pure.

Windows count that stand in a way out of operational service: those on the way back say when a node may return. There
is a band for each window and each blackout, as many as can be told apart on a screen.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import islice

from haulout.core.windows import Timetable, closings, openings
from haulout.profiles.model import Profile
from haulout.profiles.plugin import Answer, Question, State
from haulout.profiles.plugins.checks.time_window import CalendarFile, TimeWindow
from haulout.web.api.shapes import Span, SpanKind

MOST_BANDS = 100  # of one kind, for one check
_MOST_CHECKS = 20

Ask = Callable[[Question], Answer | None]


def windows_of(profiles: Mapping[str, Profile]) -> list[tuple[str, TimeWindow]]:
    """Return the windows that keep maintenance from beginning, each with its title; equal ones of a profile once."""
    found: dict[tuple[str, TimeWindow], str] = {}
    for profile in profiles.values():
        for state, config in profile.states.items():
            for way in config.transitions:
                if state is State.IN_MAINTENANCE or way.next is State.OPERATIONAL:
                    continue
                for member in way.check.members:
                    if isinstance(member.plugin, TimeWindow):
                        found.setdefault((profile.name, member.plugin), f"{profile.name}: {member.name}")
    return [(title, window) for (_, window), title in islice(found.items(), _MOST_CHECKS)]


def bands(
    title: str, window: TimeWindow, *, start: datetime, end: datetime, answer: Ask
) -> tuple[tuple[Span, ...], str]:
    """Return when a window is open and closed between two instants, and what is not known of it.

    `answer` knows what is in calendar files.
    """
    calendars, problem = [], ""
    for path in window.calendars:
        found = answer(CalendarFile(path))
        if found is None or found.problem:
            problem = f"{title}: {'it has not been read yet' if found is None else found.problem}"
        else:
            calendars.append(found.value)
    timetable = window.timetable(tuple(calendars))
    return (*_open(title, timetable, start, end), *_closed(title, timetable, start, end)), problem


def _open(title: str, timetable: Timetable, start: datetime, end: datetime) -> Iterator[Span]:
    for it in islice(openings(timetable, start, end), MOST_BANDS):
        # It is open strictly after its beginning, which nobody can see.
        yield Span(kind=SpanKind.WINDOW, title=title, start=it.start.replace(microsecond=0), end=it.end)


def _closed(title: str, timetable: Timetable, start: datetime, end: datetime) -> Iterator[Span]:
    for it in islice(closings(timetable, start, end), MOST_BANDS):
        why = it.reason.removeprefix("blackout: ")
        yield Span(kind=SpanKind.BLACKOUT, title=title, start=max(it.start, start), end=min(it.end, end), why=why)
