"""Events: what happens from when to when, how it is repeated, and where it is different.

All blackouts err on the side of being longer, and so do events: one that may mean two instants begins at the first of
them and ends at the last. How long an event lasts is kept as clocks show it, as calendars do: what ends at 06:00 ends
at 06:00, also in the night in which the clocks are changed. The first time of a series belongs to it, whether or not
its rule would choose it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo

from haulout.core.busy import Busy
from haulout.core.icalendar.lines import Component, Misread, Property, reading, shown
from haulout.core.icalendar.recurrence import Rule, rule
from haulout.core.icalendar.values import Length, Stamp, between, length, period, stamp
from haulout.core.icalendar.zones import Zones

_LONGEST_REPEATED = timedelta(days=366)
_LONGEST_TEXT = 200
# What a wall time and its instant may be apart, and a day more.
_APART = timedelta(days=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A VEVENT."""

    line: int
    uid: str
    title: str
    start: Stamp
    length: Length
    rules: tuple[Rule, ...] = ()
    more: tuple[tuple[Stamp, Length], ...] = ()
    left_out: frozenset[Stamp] = frozenset()
    replaces: Stamp | None = None  # one time of the series with the same UID
    is_cancelled: bool = False

    def busy(self, first: datetime, last: datetime, reader: tzinfo) -> Iterator[Busy]:
        """Yield when it goes on between two instants, to a reader in a zone."""
        left_out = _Absences(self.left_out, reader)
        for start, lasting in self._times(first, last, reader):
            begins = start.instant(reader)
            ends = lasting.end_of(start, reader)
            if begins < ends and begins < last and ends > first and not left_out.has(start, begins):
                yield Busy(begins, ends, self.title)

    def _times(self, first: datetime, last: datetime, reader: tzinfo) -> Iterator[tuple[Stamp, Length]]:
        yield self.start, self.length
        yield from self.more
        begin = self.start.wall.date()
        first_day = (first - self.length.rough - _APART).date()
        for each in self.rules:
            for day in each.days(begin, first=first_day, last=(last + _APART).date()):
                start = self.start.on(day)
                if day != begin and _is_within(start, each.until, reader):
                    yield start, self.length


class _Absences:
    """The times that are left out of a series: instants, or whole days."""

    def __init__(self, stamps: Iterable[Stamp], reader: tzinfo) -> None:
        self._days = {each.wall.date() for each in stamps if each.is_day}
        self._instants = {each.instant(reader) for each in stamps if not each.is_day}

    def has(self, start: Stamp, at: datetime) -> bool:
        return at in self._instants or start.wall.date() in self._days


def event(part: Component, zones: Zones) -> Event:
    """Return what a VEVENT says; raises a ValueError with what is wrong or not understood."""
    line = part.one("DTSTART")
    if line is None:
        raise ValueError("expected DTSTART, found none")
    if without := part.one("EXRULE"):
        raise Misread("it is not understood; expected EXDATE instead", without)
    start = _stamp(line, zones)
    lasting = _length(part, start, zones)
    rules = tuple(_rule(each) for each in part.all("RRULE"))
    if rules and lasting.rough > _LONGEST_REPEATED:
        raise ValueError("expected an event that is repeated to last at most 366 days")
    return Event(
        line=part.line,
        uid=_text(part, "UID"),
        title=_text(part, "SUMMARY") or "an event without a title",
        start=start,
        length=lasting,
        rules=rules,
        more=tuple(more for each in part.all("RDATE") for more in _more(each, lasting, zones)),
        left_out=frozenset(out for each in part.all("EXDATE") for out in _stamps(each, zones)),
        replaces=_replaced(part.one("RECURRENCE-ID"), zones),
        is_cancelled=_text(part, "STATUS").upper() == "CANCELLED",
    )


def with_replacements(events: Iterable[Event]) -> list[Event]:
    """Return the events; a series leaves out the times that another event replaces, or cancels."""
    listed = list(events)
    replaced: dict[str, set[Stamp]] = {}
    for each in listed:
        if each.replaces is not None and each.uid:
            replaced.setdefault(each.uid, set()).add(each.replaces)
    return [
        each
        if each.replaces is not None or each.uid not in replaced
        else replace(each, left_out=each.left_out | replaced[each.uid])
        for each in listed
        if not each.is_cancelled
    ]


def _is_within(start: Stamp, until: Stamp | None, reader: tzinfo) -> bool:
    if until is None:
        return True
    if until.is_day or start.is_day:
        return start.wall.date() <= until.wall.date()
    # The end of a series should be told in UTC. Without a zone, it is in that of the series.
    return start.instant(reader) <= until.instant(start.zone or reader)


def _rule(line: Property) -> Rule:
    with reading(line):
        return rule(line.value)


def _length(part: Component, start: Stamp, zones: Zones) -> Length:
    end, duration = part.one("DTEND"), part.one("DURATION")
    if end is not None and duration is not None:
        raise Misread("expected DTEND or DURATION, found both", duration)
    if end is not None:
        with reading(end):
            return _whole_days(between(start, _stamp(end, zones)), start)
    if duration is not None:
        with reading(duration):
            return length(duration.value)
    return Length(timedelta(days=1) if start.is_day else timedelta())


def _whole_days(lasting: Length, start: Stamp) -> Length:
    # The end of a day's event is the day after it; some write the day itself.
    return Length(timedelta(days=1)) if start.is_day and not lasting.shown else lasting


def _replaced(line: Property | None, zones: Zones) -> Stamp | None:
    if line is None:
        return None
    if line.parameters.get("RANGE"):
        raise Misread(f"RANGE={shown(line.parameters['RANGE'])} is not understood", line)
    return _stamp(line, zones)


def _more(line: Property, lasting: Length, zones: Zones) -> Iterator[tuple[Stamp, Length]]:
    if line.parameters.get("VALUE", "").upper() != "PERIOD":
        yield from ((each, lasting) for each in _stamps(line, zones))
        return
    with reading(line):
        zone = zones.of(line)
        yield from [period(each, zone) for each in line.value.split(",")]


def _stamps(line: Property, zones: Zones) -> list[Stamp]:
    with reading(line):
        zone = zones.of(line)
        return [stamp(each, zone) for each in line.value.split(",") if each.strip()]


def _stamp(line: Property, zones: Zones) -> Stamp:
    with reading(line):
        return stamp(line.value, zones.of(line))


def _text(part: Component, name: str) -> str:
    line = part.one(name)
    return " ".join(line.text.split())[:_LONGEST_TEXT] if line else ""
