from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.core import walltime
from haulout.core.walltime import TICK

ZONES = [
    *("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca"),
    *("Asia/Kathmandu", "Pacific/Apia", "Atlantic/Azores", "America/Havana", "UTC"),
]
walls = st.datetimes(datetime(2009, 1, 1), datetime(2037, 1, 1))  # noqa: DTZ001 - wall times have no zone


def instant(zone: str, wall: str, *, last: bool = False) -> str:
    found = walltime.instant(datetime.fromisoformat(wall), walltime.zone(zone), last=last)
    return found.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("zone", "wall", "meant"),
    [
        ("Europe/Berlin", "2026-03-29 02:00", "2026-03-29 01:00"),
        ("Europe/Berlin", "2026-03-29 02:30", "2026-03-29 01:00"),
        ("Europe/Berlin", "2026-03-29 03:00", "2026-03-29 01:00"),
        ("America/New_York", "2026-03-08 02:59", "2026-03-08 07:00"),
        ("Australia/Lord_Howe", "2026-10-04 02:15", "2026-10-03 15:30"),  # half an hour
        ("America/Santiago", "2026-09-06 00:00", "2026-09-06 04:00"),  # a day that begins at 01:00
        ("Pacific/Apia", "2011-12-30 12:00", "2011-12-30 10:00"),  # a day that did not exist
    ],
)
def test_nonexistent_wall_time_is_the_instant_of_the_dst_change(zone: str, wall: str, meant: str) -> None:
    assert instant(zone, wall) == meant


@pytest.mark.parametrize(
    ("zone", "wall", "first", "second"),
    [
        ("Europe/Berlin", "2026-10-25 02:30", "2026-10-25 00:30", "2026-10-25 01:30"),
        ("America/New_York", "2026-11-01 01:00", "2026-11-01 05:00", "2026-11-01 06:00"),
        ("Australia/Lord_Howe", "2026-04-05 01:45", "2026-04-04 14:45", "2026-04-04 15:15"),
    ],
)
def test_ambiguous_wall_time_is_the_first_instant_unless_last_is_set(
    zone: str, wall: str, first: str, second: str
) -> None:
    assert (instant(zone, wall), instant(zone, wall, last=True)) == (first, second)


def test_last_instant_of_a_nonexistent_wall_time_uses_the_offset_before_the_change() -> None:
    assert instant("Europe/Berlin", "2026-03-29 02:30", last=True) == "2026-03-29 01:30"


@given(zone=st.sampled_from(ZONES), wall=walls, step=st.timedeltas(timedelta(), timedelta(hours=30)))
def test_later_wall_time_is_never_an_earlier_instant(zone: str, wall: datetime, step: timedelta) -> None:
    there = walltime.zone(zone)
    assert walltime.instant(wall, there) <= walltime.instant(wall + step, there)
    assert walltime.instant(wall, there) <= walltime.instant(wall, there, last=True)


@given(zone=st.sampled_from(ZONES), wall=walls)
def test_wall_clock_at_an_instant_is_not_before_its_wall_time(zone: str, wall: datetime) -> None:
    there = walltime.zone(zone)
    meant = walltime.instant(wall, there)
    assert walltime.wall_clock(meant, there) >= wall
    assert walltime.wall_clock(meant - TICK, there) < wall


@pytest.mark.parametrize("text", ["00:00", "0:00", "9:05", "09:05", "23:59", " 9:05 "])
def test_hour_of_a_time_of_day_may_have_one_digit(text: str) -> None:
    assert f"{walltime.parse_time_of_day(text):%H:%M}" == text.strip().rjust(5, "0")


@pytest.mark.parametrize("text", ["", "24:00", "9", "9:5", "9:60", "09:05:00", "-1:00", "9.30", "009:00"])
def test_malformed_times_of_day_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time of day from 00:00 to 23:59"):
        walltime.parse_time_of_day(text)


def test_weekdays_are_parsed_from_names_or_three_letters() -> None:
    """K02."""
    assert [walltime.parse_weekday(text) for text in ("monday", "wed", "SUN", "Saturday")] == [0, 2, 6, 5]


@pytest.mark.parametrize("text", ["abcde", "", "mo", "mond", "1"])
def test_malformed_weekdays_are_rejected(text: str) -> None:
    """K02."""
    with pytest.raises(ValueError, match="expected a weekday such as monday or mon"):
        walltime.parse_weekday(text)


def test_days_of_the_year_are_parsed_from_month_and_number() -> None:
    texts = ("Dec 24", "Feb 29", "Jan 05", "dec 1", "FEB 2")
    assert [walltime.parse_day_of_year(text) for text in texts] == [(12, 24), (2, 29), (1, 5), (12, 1), (2, 2)]


@pytest.mark.parametrize("text", ["Feb 30", "Jun 31", "Dec 0", "Dezember 24", "Foo 1", "24 Dec", "Dec", "Dec24"])
def test_malformed_days_of_the_year_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a day such as Dec 24"):
        walltime.parse_day_of_year(text)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("Europe/Berln", "Europe/Berlin"), ("europe/berlin", "Europe/Berlin"), ("New York", "America/New_York")],
)
def test_unknown_time_zone_is_rejected_with_a_suggestion(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean {meant}"):
        walltime.zone(name)


@pytest.mark.parametrize("name", ["", "Europe", "../../etc/passwd", "/etc/localtime", "localtime", "a\0b", "x" * 9999])
def test_malformed_time_zone_name_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="expected the name of a time zone"):
        walltime.zone(name)


def test_dates_and_times_are_parsed_with_or_without_a_zone() -> None:
    assert walltime.parse_date_or_time("2026-12-24") == date(2026, 12, 24)
    assert walltime.parse_date_or_time("2026-12-24 18:00").isoformat() == "2026-12-24T18:00:00"
    assert walltime.parse_date_or_time("2026-12-24T18:00:00+01:00").isoformat() == "2026-12-24T18:00:00+01:00"
    assert walltime.parse_date_or_time("2026-12-24T18:00:00Z").isoformat() == "2026-12-24T18:00:00+00:00"


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "24.12.2026", "2026-02-30", "20261224", "2026-W01-1", "2026-12-24 25:00", "9999-12-31"]
)
def test_malformed_dates_and_times_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a date or a time"):
        walltime.parse_date_or_time(text)
