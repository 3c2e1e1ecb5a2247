from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.controllers.profiles.plugins.checks.wait_exclude import elapsed_without, elapses_at
from haulout.core import walltime
from haulout.core.walltime import TICK

HOUR = timedelta(hours=1)


def march(day: int, clock: str) -> datetime:
    return datetime.fromisoformat(f"2022-03-{day:02} {clock}").replace(tzinfo=UTC)


def days(text: str) -> frozenset[int]:
    return frozenset(map(walltime.parse_weekday, text.split()))


@pytest.mark.parametrize(
    ("since", "now", "excluded", "hours"),
    [
        (march(15, "10:00"), march(15, "10:30"), "", 0.5),
        (march(15, "10:00"), march(15, "11:30"), "", 1.5),
        (march(6, "12:00"), march(8, "17:00"), "mon wed", 29),
        (march(6, "12:00"), march(8, "18:10"), "mon wed", 30 + 1 / 6),
        (march(7, "12:00"), march(10, "05:00"), "mon wed", 29),
        (march(7, "12:00"), march(10, "06:10"), "mon wed", 30 + 1 / 6),
        (march(5, "22:00"), march(7, "17:00"), "mon wed", 26),
        (march(5, "22:00"), march(7, "21:00"), "mon", 26),
        (march(5, "22:00"), march(8, "01:00"), "mon", 27),
        (march(7, "12:00"), march(7, "20:00"), "mon", -4),
    ],
)
def test_excluded_days_do_not_count_as_elapsed_time(
    since: datetime, now: datetime, excluded: str, hours: float
) -> None:
    """I20: the vectors of the contract."""
    assert elapsed_without(days(excluded), since=since, now=now) == timedelta(hours=hours)


def test_excluded_day_is_subtracted_once_after_the_time_of_day_of_the_start() -> None:
    """The predecessor returned 2 hours here: it subtracted Monday twice, from 22:00 until midnight."""
    assert elapsed_without(days("mon"), since=march(5, "22:00"), now=march(7, "23:00")) == 26 * HOUR


def test_excluded_days_are_days_in_utc_for_any_time_zone() -> None:
    since = datetime.fromisoformat("2022-03-07T01:00:00+03:00")  # in UTC still Sunday
    assert elapsed_without(days("sun"), since=since, now=march(7, "02:00")) == 2 * HOUR


def test_duration_never_elapses_if_all_days_are_excluded() -> None:
    week = frozenset(range(7))
    assert elapses_at(week, since=march(5, "22:00"), duration=HOUR) is None
    assert elapsed_without(week, since=march(5, "22:00"), now=march(30, "13:00")) == timedelta()


def test_duration_beyond_the_last_datetime_never_elapses() -> None:
    assert elapses_at(days("mon"), since=march(5, "22:00"), duration=timedelta(days=106_751 * 50)) is None


instants = st.datetimes(datetime(2022, 1, 1), datetime(2023, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - `timezones`
lengths = st.timedeltas(timedelta(days=-3), timedelta(days=40)) | st.integers(-48, 900).map(lambda hours: hours * HOUR)
exclusions = st.frozensets(st.integers(0, 6), max_size=6)


@given(excluded=exclusions, since=instants, later=st.timedeltas(timedelta(), timedelta(days=30)))
def test_elapsed_time_equals_the_sum_over_single_days(
    excluded: frozenset[int], since: datetime, later: timedelta
) -> None:
    counted, at = timedelta(), since
    midnight = since.replace(hour=0, minute=0, second=0, microsecond=0)
    if since.weekday() in excluded:
        counted = since - midnight - walltime.DAY
    while at < since + later:
        midnight += walltime.DAY
        end = min(midnight, since + later)
        counted += end - at if at.weekday() not in excluded or at == since else timedelta()
        at = end
    assert elapsed_without(excluded, since=since, now=since + later) == counted


@given(excluded=exclusions, since=instants, step=st.timedeltas(timedelta(), timedelta(days=9)), at=lengths)
def test_elapsed_time_never_decreases(
    excluded: frozenset[int], since: datetime, step: timedelta, at: timedelta
) -> None:
    now = since + max(at, timedelta())
    before = elapsed_without(excluded, since=since, now=now)
    assert before <= elapsed_without(excluded, since=since, now=now + step)


@given(excluded=exclusions, since=instants, duration=lengths)
def test_duration_elapses_exactly_at_the_returned_instant(
    excluded: frozenset[int], since: datetime, duration: timedelta
) -> None:
    at = elapses_at(excluded, since=since, duration=duration)
    assert at is not None
    if at < since:
        return  # it elapsed before the start
    assert elapsed_without(excluded, since=since, now=at) > duration
    if at > since:
        assert elapsed_without(excluded, since=since, now=at - TICK) <= duration
