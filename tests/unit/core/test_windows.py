from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from haulout.core import icalendar, walltime
from haulout.core.walltime import TICK
from haulout.core.windows import HORIZON, BusyPeriod, Closed, Open, Timetable, WeeklyWindow, state_at

ALL_DAYS = frozenset(range(7))
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "America/Havana"]


def weekly(days: str, start: str, end: str, *, next_day: bool = False) -> WeeklyWindow:
    numbers = frozenset(walltime.parse_weekday(day) for day in days.split()) if days else ALL_DAYS
    return WeeklyWindow(
        weekdays=numbers, start=time.fromisoformat(start), end=time.fromisoformat(end), ends_next_day=next_day
    )


def timetable(*windows: WeeklyWindow, zone: str = "UTC", **more: Any) -> Timetable:
    return Timetable(windows=windows, zone=walltime.zone(zone), **more)


def at(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def opens_at(table: Timetable, now: str) -> datetime | None:
    found = state_at(table, at(now))
    assert isinstance(found, Closed)
    return found.opens_at


def until(table: Timetable, now: str) -> datetime | None:
    found = state_at(table, at(now))
    assert isinstance(found, Open)
    return found.until


def reason(table: Timetable, now: str) -> str:
    found = state_at(table, at(now))
    assert isinstance(found, Closed)
    return found.reason


# 2026-03-02 is a Monday.
OFFICE = timetable(weekly("mon tue", "10:30", "15:20"), excluded=frozenset({(3, 9)}))


def test_a_window_is_open_strictly_between_its_start_and_its_end() -> None:
    assert opens_at(OFFICE, "2026-03-02 10:30") == at("2026-03-02 10:30") + TICK
    assert until(OFFICE, "2026-03-02 10:30:00.000001") == at("2026-03-02 15:20")
    assert until(OFFICE, "2026-03-02 15:19:59.999999") == at("2026-03-02 15:20")
    assert opens_at(OFFICE, "2026-03-02 15:20") == at("2026-03-03 10:30") + TICK


def test_last_window_of_a_week_is_followed_by_the_next_window_that_is_not_excluded() -> None:
    assert opens_at(OFFICE, "2026-03-03 16:00") == at("2026-03-10 10:30") + TICK


def test_reason_names_the_closed_part_and_the_next_opening() -> None:
    assert reason(OFFICE, "2026-03-02 09:00") == (
        "09:00:00 is not between 10:30 and 15:20 UTC; it opens Mon 2026-03-02 10:30 UTC"
    )
    assert reason(OFFICE, "2026-03-05 11:00") == (
        "Thursday is not one of the weekdays (Monday, Tuesday); it opens Tue 2026-03-10 10:30 UTC"
    )
    assert reason(OFFICE, "2026-03-09 11:00") == "Mar 9 is an excluded day; it opens Tue 2026-03-10 10:30 UTC"


def test_window_with_equal_start_and_end_never_opens() -> None:
    never = timetable(weekly("", "10:00", "10:00"))
    found = state_at(never, at("2026-03-02 10:00"))
    assert found == Closed(
        "10:00:00 is not between 10:00 and 10:00 UTC; it does not open within 400 days",
        None,
        at("2026-03-02 10:00") + HORIZON,
    )


def test_a_window_across_midnight_belongs_to_the_day_on_which_it_starts() -> None:
    night = timetable(weekly("fri", "22:00", "04:00", next_day=True))
    assert opens_at(night, "2026-03-06 03:00") == at("2026-03-06 22:00") + TICK
    assert until(night, "2026-03-06 23:00") == at("2026-03-07 04:00")
    assert until(night, "2026-03-07 00:00") == at("2026-03-07 04:00")
    assert until(night, "2026-03-07 03:59") == at("2026-03-07 04:00")
    assert opens_at(night, "2026-03-07 23:00") == at("2026-03-13 22:00") + TICK


def test_excluded_day_closes_its_part_of_a_window_across_midnight() -> None:
    night = timetable(weekly("", "22:00", "04:00", next_day=True), excluded=frozenset({(12, 24)}))
    assert until(night, "2026-12-23 23:00") == at("2026-12-24 00:00")
    assert opens_at(night, "2026-12-24 01:00") == at("2026-12-25 00:00")
    assert until(night, "2026-12-25 00:00") == at("2026-12-25 04:00")


def test_overlapping_or_adjacent_windows_are_merged() -> None:
    weekend = timetable(
        weekly("fri", "18:00", "00:00", next_day=True),
        weekly("sat sun", "00:00", "00:00", next_day=True),
        weekly("mon", "00:00", "06:00"),
        weekly("sat", "12:00", "13:00"),
    )
    assert until(weekend, "2026-03-06 19:00") == at("2026-03-09 06:00")
    assert until(weekend, "2026-03-08 00:00") == at("2026-03-09 06:00")
    assert until(weekend, "2026-03-09 00:00") == at("2026-03-09 06:00")


def test_timetable_that_is_always_open_is_rechecked_after_the_horizon() -> None:
    always = timetable(weekly("", "00:00", "00:00", next_day=True))
    assert state_at(always, at("2026-03-02 00:00")) == Open(None, at("2026-03-02 00:00") + HORIZON)


def test_windows_that_fill_the_week_are_always_open() -> None:
    always = timetable(
        weekly("mon wed fri sun", "00:00", "00:00", next_day=True),
        weekly("tue thu sat", "00:00", "00:00", next_day=True),
    )
    assert until(always, "2026-03-02 00:00") is None


def test_a_blackout_closes_from_its_first_instant_and_opens_at_its_end() -> None:
    freeze = BusyPeriod(at("2026-03-02 12:00"), at("2026-03-02 13:00"), "release")
    table = timetable(weekly("mon tue", "10:30", "15:20"), blackouts=(freeze,))
    assert until(table, "2026-03-02 11:59") == at("2026-03-02 12:00")
    assert opens_at(table, "2026-03-02 12:00") == at("2026-03-02 13:00")
    assert until(table, "2026-03-02 13:00") == at("2026-03-02 15:20")
    assert reason(table, "2026-03-02 12:30") == "blackout: release; it opens Mon 2026-03-02 13:00 UTC"


def test_reason_names_the_longest_of_overlapping_blackouts() -> None:
    short, long = (BusyPeriod(at("2026-03-02"), at(f"2026-03-{day:02}"), f"until {day}") for day in (4, 20))
    table = timetable(
        weekly("", "10:00", "11:00"), blackouts=(short, long, BusyPeriod(at("2026-03-19"), at("2026-03-22"), ""))
    )
    assert reason(table, "2026-03-03") == "blackout: until 20; it opens Sun 2026-03-22 10:00 UTC"


def test_blackout_beyond_the_horizon_is_rechecked() -> None:
    forever = BusyPeriod(at("2020-01-01"), at("2199-01-01"), "frozen")
    table = timetable(weekly("", "10:00", "11:00"), blackouts=(forever,))
    now = at("2026-03-02")
    assert state_at(table, now) == Closed(
        "blackout: frozen; it does not open within 400 days", None, now + HORIZON, is_day_closed=True
    )


def test_calendar_event_is_a_blackout_in_the_time_zone_of_the_windows() -> None:
    calendar = icalendar.parse(
        b"BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20201224\nRRULE:FREQ=YEARLY\nSUMMARY:Christmas Eve\n"
        b"END:VEVENT\nEND:VCALENDAR\n",
        file="h.ics",
    )
    table = timetable(weekly("", "00:00", "00:00", next_day=True), zone="America/New_York", calendars=(calendar,))
    assert until(table, "2026-03-02") == at("2026-12-24 00:00-05:00")
    assert opens_at(table, "2027-12-24 12:00") == at("2027-12-25 00:00-05:00")
    assert reason(table, "2026-12-24 12:00").startswith(
        "blackout: Christmas Eve; it opens Fri 2026-12-25 00:00 America"
    )


# DST changes. Berlin: 2026-03-29 02:00 becomes 03:00, 2026-10-25 03:00 becomes 02:00, both at 01:00 UTC.


@pytest.mark.parametrize(
    ("start", "end", "opens", "closes"),
    [
        ("01:00", "02:30", "2026-03-29 00:00", "2026-03-29 01:00"),  # closes when clocks jump over its end
        ("02:30", "04:00", "2026-03-29 01:00", "2026-03-29 02:00"),  # opens when they jump over its start
        ("01:00", "04:00", "2026-03-29 00:00", "2026-03-29 02:00"),  # an hour shorter
    ],
)
def test_window_follows_a_dst_change_forward(start: str, end: str, opens: str, closes: str) -> None:
    table = timetable(weekly("sun", start, end), zone="Europe/Berlin")
    assert opens_at(table, "2026-03-28 12:00") == at(opens) + TICK
    assert until(table, (at(opens) + TICK).isoformat()) == at(closes)


def test_window_in_the_skipped_dst_hour_does_not_open_that_day() -> None:
    table = timetable(weekly("sun", "02:10", "02:50"), zone="Europe/Berlin")
    assert opens_at(table, "2026-03-28 12:00") == at("2026-04-05 02:10+02:00") + TICK


@pytest.mark.parametrize(
    ("start", "end", "opens", "closes"),
    [
        ("02:10", "02:50", "2026-10-25 00:10", "2026-10-25 00:50"),  # once, and the first time
        ("01:00", "02:30", "2026-10-24 23:00", "2026-10-25 00:30"),
        ("02:30", "04:00", "2026-10-25 00:30", "2026-10-25 03:00"),  # an hour longer
    ],
)
def test_window_opens_once_at_a_dst_change_back(start: str, end: str, opens: str, closes: str) -> None:
    table = timetable(weekly("sun", start, end), zone="Europe/Berlin")
    assert opens_at(table, "2026-10-24 12:00") == at(opens) + TICK
    assert until(table, (at(opens) + TICK).isoformat()) == at(closes)
    after = opens_at(table, closes)
    assert after is not None
    assert after > at("2026-10-31")


def test_window_across_a_dst_change_is_shorter_or_longer() -> None:
    night = timetable(weekly("sat", "22:00", "06:00", next_day=True), zone="Europe/Berlin")
    assert until(night, "2026-03-28 22:00") == at("2026-03-29 04:00")
    assert until(night, "2026-10-24 22:00") == at("2026-10-25 05:00")


def test_excluded_day_may_have_23_or_25_hours() -> None:
    table = timetable(
        weekly("", "00:00", "00:00", next_day=True), zone="Europe/Berlin", excluded=frozenset({(3, 29), (10, 25)})
    )
    assert until(table, "2026-03-28 12:00") == at("2026-03-28 23:00")
    assert opens_at(table, "2026-03-29 12:00") == at("2026-03-29 22:00")
    assert until(table, "2026-10-24 12:00") == at("2026-10-24 22:00")
    assert opens_at(table, "2026-10-25 12:00") == at("2026-10-25 23:00")


def test_an_excluded_leap_day_closes_leap_years_only() -> None:
    table = timetable(weekly("", "00:00", "00:00", next_day=True), excluded=frozenset({(2, 29)}))
    assert until(table, "2026-03-01") is None
    assert until(table, "2027-03-01") == at("2028-02-29")


# Properties of all timetables


def naive_is_open(table: Timetable, now: datetime) -> bool:
    """Return the same in another way: from each blackout and each window of the adjacent days."""
    wall = walltime.wall_clock(now, table.zone)
    if (wall.month, wall.day) in table.excluded:
        return False
    if any(each.start <= now < each.end for each in table.blackouts):
        return False
    days = [wall.date() + timedelta(days=days) for days in range(-3, 2)]
    spans = [span for day in days for window in table.windows if (span := window.window_starting_on(day, table.zone))]
    if any(span.start < now < span.end for span in spans):
        return True
    return any(span.start == now for span in spans) and any(span.end == now for span in spans)


times = st.times().map(lambda each: each.replace(minute=each.minute // 15 * 15, second=0, microsecond=0))
windows = st.builds(
    WeeklyWindow,
    weekdays=st.frozensets(st.integers(0, 6), max_size=7),
    start=times,
    end=times,
    ends_next_day=st.booleans(),
)
# About half of them around the DST changes of the zones above in 2026.
instants = st.one_of(
    st.datetimes(datetime(2025, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - with `timezones`
    st.builds(
        lambda day, hours: at(day) + hours,
        st.sampled_from(
            ["2026-03-29", "2026-10-25", "2026-03-08", "2026-11-01", "2026-04-05", "2026-10-04", "2026-09-06"]
        ),
        st.timedeltas(timedelta(hours=-30), timedelta(hours=30)),
    ),
)


@st.composite
def blackouts(draw: st.DrawFn) -> BusyPeriod:
    start = draw(instants).replace(minute=0, second=0, microsecond=0)
    return BusyPeriod(start, start + timedelta(hours=draw(st.integers(1, 24 * 20))), "freeze")


timetables = st.builds(
    Timetable,
    windows=st.lists(windows, max_size=3).map(tuple),
    zone=st.sampled_from(ZONES).map(walltime.zone),
    excluded=st.frozensets(st.sampled_from([(1, 1), (3, 29), (10, 25), (2, 29)]), max_size=3),
    blackouts=st.lists(blackouts(), max_size=3).map(tuple),
)


@settings(deadline=None, max_examples=200)
@given(table=timetables, now=instants, samples=st.lists(st.floats(0, 1), max_size=20))
@example(table=OFFICE, now=at("2026-03-02 10:30"), samples=[])
@example(table=OFFICE, now=at("2026-03-02 15:20"), samples=[])
def test_state_is_constant_until_its_recheck_at_and_changes_there(
    table: Timetable, now: datetime, samples: list[float]
) -> None:
    found = state_at(table, now)
    is_open = isinstance(found, Open)
    changes_at = found.until if isinstance(found, Open) else found.opens_at
    assert naive_is_open(table, now) is is_open
    assert found.recheck_at == (changes_at or now + HORIZON)
    assert found.recheck_at > now
    constant = found.recheck_at - TICK - now
    for moment in [now + constant * share for share in samples] + [found.recheck_at - TICK]:
        assert isinstance(state_at(table, moment), Open) is is_open
        assert naive_is_open(table, moment) is is_open
    if changes_at is not None:
        assert isinstance(state_at(table, changes_at), Open) is not is_open
