"""The checks timeWindow, wait and waitExclude."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haulout.api.objects import Node
from haulout.controllers.profiles.plugin import (
    Check,
    CheckResult,
    ClusterView,
    PluginContext,
    ProfileStatus,
    QueryResult,
    State,
)
from haulout.controllers.profiles.plugins.checks.time_window import Blackout, CalendarFileQuery, TimeWindow, Window
from haulout.controllers.profiles.plugins.checks.wait import WaitCheck
from haulout.controllers.profiles.plugins.checks.wait_exclude import WaitExclude
from haulout.core.walltime import TICK
from haulout.core.windows import HORIZON
from haulout.errors import ExternalError

HOLIDAYS = b"BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20260303\nSUMMARY:Carnival\nEND:VEVENT\nEND:VCALENDAR\n"
NODE = msgspec.convert({"metadata": {"name": "n1"}}, Node)


def at(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def evaluate(
    check: Check, now: str, *, since: str | None = None, answers: Mapping[Any, QueryResult] | None = None
) -> CheckResult:
    cluster = cast("ClusterView", SimpleNamespace(query_result=(answers or {}).get))
    transition = at(since) if since else None
    context = PluginContext(
        now=at(now),
        node=NODE,
        profile="os",
        state=State.REQUIRED,
        status=ProfileStatus(current=State.REQUIRED, previous=State.REQUIRED, transition=transition),
        is_in_maintenance=False,
        logs_details=False,
        cluster=cluster,
        requeue=timedelta(minutes=1),
    )
    return check.evaluate(context)


def passed(check: Check, now: str, **more: Any) -> bool | None:
    return evaluate(check, now, **more).passed


# timeWindow. 2026-03-02 is a Monday.

OFFICE = TimeWindow(weekdays=("monday", "tue"), start="10:30", end="15:20", exclude=("Feb 2",))


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-03-02 11:00", True),
        ("2026-03-03 15:00", True),
        ("2026-03-03 15:30", False),
        ("2026-03-02 10:29", False),
        ("2026-03-05 11:00", False),
        ("2026-03-05 15:00", False),
        ("2026-02-02 11:00", False),
        ("2026-02-09 11:00", True),
        ("2026-03-02 10:30", False),
        ("2026-03-02 10:30:00.000001", True),
        ("2026-03-02 15:20", False),
    ],
)
def test_window_is_open_on_its_weekdays_between_its_times_except_on_excluded_days(now: str, expected: bool) -> None:  # noqa: FBT001 - a table
    """I19."""
    assert not list(OFFICE.problems())
    assert passed(OFFICE, now) is expected


def test_window_states_when_it_closes_and_opens() -> None:
    inside = evaluate(OFFICE, "2026-03-02 11:00")
    assert (inside.reason, inside.requeue_at) == (
        "the window is open until Mon 2026-03-02 15:20 UTC",
        at("2026-03-02 15:20"),
    )
    assert evaluate(OFFICE, "2026-03-02 10:00").requeue_at == at("2026-03-02 10:30") + TICK


def test_info_contains_the_reason_if_the_day_is_the_cause() -> None:
    by_day = evaluate(OFFICE, "2026-03-05 11:00")
    assert by_day.info == {"reason": by_day.reason}
    assert by_day.reason.startswith("Thursday is not one of the weekdays (Monday, Tuesday)")
    assert "Feb 2 is an excluded day" in evaluate(OFFICE, "2026-02-02 11:00").info["reason"]
    assert evaluate(OFFICE, "2026-03-02 10:00").info == {}


def test_window_may_use_another_time_zone_and_cross_midnight() -> None:
    night = TimeWindow(weekdays=("sat",), start="22:00", end="04:00", across_midnight=True, timezone="Europe/Berlin")
    assert not list(night.problems())
    assert evaluate(night, "2026-03-28 22:00").requeue_at == at("2026-03-29 04:00+02:00")
    assert not passed(night, "2026-03-28 21:00")


def test_check_may_have_several_windows() -> None:
    windows = (
        Window(weekdays=("mon",), start="10:00", end="12:00"),
        Window(weekdays=("tue",), start="8:00", end="9:00"),
    )
    check = TimeWindow(windows=windows)
    assert not list(check.problems())
    assert [passed(check, now) for now in ("2026-03-02 11:00", "2026-03-03 08:30", "2026-03-03 11:00")] == [
        *(True, True, False)
    ]
    both = TimeWindow(weekdays=("wed",), start="1:00", end="2:00", windows=windows)
    assert passed(both, "2026-03-04 01:30")
    assert passed(both, "2026-03-03 08:30")


def test_blackouts_alone_leave_all_other_times_open() -> None:
    check = TimeWindow(
        blackouts=(Blackout(start="2026-12-24", end="2027-01-01", reason="year end"),), timezone="Asia/Tokyo"
    )
    assert not list(check.problems())
    assert evaluate(check, "2026-12-01 00:00").requeue_at == at("2026-12-24 00:00+09:00")
    closed = evaluate(check, "2026-12-24 00:00")
    assert (closed.passed, closed.requeue_at) == (False, at("2027-01-02 00:00+09:00"))
    assert closed.reason == "blackout: year end; it opens Sat 2027-01-02 00:00 Asia/Tokyo"
    assert evaluate(check, "2027-06-01 00:00").requeue_at == at("2027-06-01 00:00") + HORIZON


def test_blackout_may_start_and_end_at_any_instant_and_covers_ambiguous_times() -> None:
    blackout = Blackout(start="2026-10-25 02:15", end="2026-10-25 02:45")
    check = TimeWindow(blackouts=(blackout, Blackout(start="2026-11-01T10:00:00Z", end="2026-11-01T10:00:01+00:00")))
    berlin = TimeWindow(blackouts=check.blackouts, timezone="Europe/Berlin")
    assert not list(berlin.problems())
    assert not list(blackout.problems())
    assert evaluate(berlin, "2026-10-25 00:00").requeue_at == at("2026-10-25 00:15")
    assert evaluate(berlin, "2026-10-25 00:15").requeue_at == at("2026-10-25 01:45")
    assert evaluate(berlin, "2026-11-01 10:00").requeue_at == at("2026-11-01 10:00:01")


def problems(check: TimeWindow) -> dict[str, str]:
    return dict(check.problems())


def test_window_requires_weekdays_start_and_end() -> None:
    assert problems(TimeWindow()) == {
        "weekdays": "expected at least one weekday such as monday or mon, found none",
        "start": "expected a time of day from 00:00 to 23:59, such as 9:30 or 22:00, found nothing",
        "end": "expected a time of day from 00:00 to 23:59, such as 9:30 or 22:00, found nothing",
    }
    assert list(problems(TimeWindow(exclude=("Dec 24",), start="9:00", end="10:00"))) == ["weekdays"]


def test_start_after_the_end_is_refused_with_a_hint() -> None:
    late = TimeWindow(weekdays=("mon",), start="22:00", end="04:00")
    assert problems(late) == {
        "start": "expected a time before the end, 04:00, found 22:00; "
        "if the window ends on the next day, set acrossMidnight: true"
    }


def test_invalid_weekday_does_not_hide_an_invalid_time() -> None:
    assert set(problems(TimeWindow(weekdays=("foo",), start="19:00", end="11:00"))) == {"weekdays[0]", "start"}


def test_window_with_equal_start_and_end_never_passes() -> None:
    never = TimeWindow(weekdays=("mon",), start="10:00", end="10:00")
    assert not list(never.problems())
    assert not passed(never, "2026-03-02 10:00")


def test_all_problems_of_a_window_are_reported() -> None:
    wrong = TimeWindow(
        weekdays=("mon", "funday"), start="24:00", end="9", exclude=("Feb 30",), timezone="Berlin", calendars=(" ",)
    )
    assert set(problems(wrong)) == {"weekdays[1]", "start", "end", "exclude[0]", "timezone", "calendars[0]"}
    assert dict(Blackout(start="soon", end="").problems()).keys() == {"start", "end"}
    assert dict(Blackout(start="2026-12-24", end="2026-12-23").problems()) == {
        "end": "expected a time after the start, 2026-12-24, found 2026-12-23"
    }
    assert not list(Blackout(start="2026-12-24", end="2026-12-24").problems())


class Files:
    """An external client with files only."""

    def __init__(self, **files: bytes) -> None:
        self._files = files

    async def read_file(self, path: str) -> bytes:
        """Return a file."""
        try:
            return self._files[path]
        except KeyError:
            raise ExternalError(f"{path}: there is no such file") from None


async def query_results(path: str, **files: bytes) -> dict[Any, QueryResult]:
    query = CalendarFileQuery(path)
    try:
        return {query: QueryResult(at("2026-03-02"), value=await query.fetch(cast("Any", Files(**files))))}
    except ExternalError as error:
        return {query: QueryResult(at("2026-03-02"), problem=str(error))}


async def test_calendar_event_is_a_blackout() -> None:
    check = TimeWindow(weekdays=("mon", "tue", "wed"), start="10:00", end="12:00", calendars=("holidays",))
    answers = await query_results("holidays", holidays=HOLIDAYS)
    assert passed(check, "2026-03-02 11:00", answers=answers)
    closed = evaluate(check, "2026-03-03 11:00", answers=answers)
    assert (closed.passed, closed.requeue_at) == (False, at("2026-03-04 10:00") + TICK)
    assert closed.info["reason"] == "blackout: Carnival; it opens Wed 2026-03-04 10:00 UTC"


def test_busy_periods_of_a_calendar_are_computed_once_for_all_nodes() -> None:
    requested = []

    class Calendar:
        def busy_periods(self, *when: object) -> tuple[()]:
            requested.append(when)
            return ()

    answers = {CalendarFileQuery("holidays"): QueryResult(at("2026-03-02"), value=Calendar())}
    check = TimeWindow(weekdays=("mon", "tue"), start="10:00", end="12:00", calendars=("holidays",))
    for minute in range(60):
        assert passed(check, f"2026-03-02 11:{minute:02}", answers=answers)
    assert len(requested) == 1


async def test_unavailable_calendar_is_unknown() -> None:
    check = TimeWindow(calendars=("holidays",))
    assert not list(check.problems())
    assert evaluate(check, "2026-03-02 11:00") == CheckResult(None, "calendar holidays is being read")
    missing = evaluate(check, "2026-03-02 11:00", answers=await query_results("holidays"))
    assert (missing.passed, missing.reason) == (
        None,
        "the calendars are not available: holidays: there is no such file",
    )
    broken = evaluate(check, "2026-03-02 11:00", answers=await query_results("holidays", holidays=b"<html>"))
    assert broken.passed is None
    assert "holidays:1: expected a line such as SUMMARY:Freeze, found '<html>'" in broken.reason


texts = st.text(max_size=12) | st.sampled_from(
    ["mon", "9:00", "22:00", "Dec 24", "UTC", "2026-12-24", "0001-01-01", "1h"]
)
lists = st.lists(texts, max_size=2).map(tuple)
configured = st.one_of(
    st.builds(
        TimeWindow,
        start=texts,
        end=texts,
        weekdays=lists,
        exclude=lists,
        timezone=texts | st.just("UTC"),
        windows=st.lists(st.builds(Window, weekdays=lists, start=texts, end=texts), max_size=1).map(tuple),
        blackouts=st.lists(st.builds(Blackout, start=texts, end=texts), max_size=1).map(tuple),
    ),
    st.builds(WaitCheck, duration=texts),
    st.builds(WaitExclude, duration=texts, exclude=lists),
)


@example(
    check=TimeWindow(blackouts=(Blackout(start="1900-01-01", end="2199-12-31"),), timezone="Asia/Tokyo"), since=None
)
@example(check=TimeWindow(blackouts=(Blackout(start="1900-01-01 01:00", end="2199-12-31 23:00"),)), since=None)
@example(check=TimeWindow(blackouts=(Blackout(start="0001-01-01T00:00:00+23:00", end="2026-12-31"),)), since=None)
@given(check=configured, since=st.none() | st.just("0001-01-01") | st.just("2026-03-01"))
def test_any_configuration_is_refused_or_evaluated(check: Check, since: str | None) -> None:
    wrong = list(check.problems())
    if isinstance(check, TimeWindow):
        wrong += [problem for window in check.windows for problem in window.problems()]
        wrong += [problem for blackout in check.blackouts for problem in blackout.problems()]
    if not wrong:
        evaluate(check, "2026-03-02 11:00", since=since)


# wait


@pytest.mark.parametrize(("duration", "expected"), [("10m", True), ("0h12m", False), ("15m", False), ("-1h", True)])
def test_wait_passes_after_its_duration(duration: str, expected: bool) -> None:  # noqa: FBT001 - a table
    """I20."""
    assert passed(WaitCheck(duration=duration), "2026-03-02 11:12", since="2026-03-02 11:00") is expected


def test_wait_passes_strictly_after_its_duration() -> None:
    wait = WaitCheck(duration="12m")
    waiting = evaluate(wait, "2026-03-02 11:02", since="2026-03-02 11:00")
    assert waiting.info == {"remaining_seconds": 600}
    assert waiting.reason == "waiting 10m0s more of 12m"
    assert waiting.requeue_at == at("2026-03-02 11:12") + TICK
    assert evaluate(wait, "2026-03-02 11:12", since="2026-03-02 11:00").info == {"remaining_seconds": 0}
    over = evaluate(wait, waiting.requeue_at.isoformat(), since="2026-03-02 11:00")
    assert (over.passed, over.info, over.requeue_at) == (True, {}, None)


def test_wait_without_a_transition_time_passes() -> None:
    assert passed(WaitCheck(duration="1h"), "2026-03-02 11:00")
    assert passed(WaitExclude(duration="1h", exclude=("mon",)), "2026-03-02 11:00")


def test_wait_beyond_the_calendar_does_not_pass() -> None:
    assert passed(WaitCheck(duration="2562047h"), "2026-03-02 11:00", since="9990-01-01") is False
    assert passed(WaitExclude(duration="2562047h", exclude=("mon",)), "2026-03-02 11:00", since="9990-01-01") is False


@pytest.mark.parametrize("duration", ["60", "", "1d", "soon"])
def test_wait_requires_a_duration_with_a_unit(duration: str) -> None:
    assert [key for key, _ in WaitCheck(duration=duration).problems()] == ["duration"]
    assert [key for key, _ in WaitExclude(duration=duration, exclude=("mon",)).problems()] == ["duration"]


# waitExclude: what counts is tested in test_waiting.py


def test_wait_exclude_states_exactly_when_it_ends() -> None:
    wait = WaitExclude(duration="26h", exclude=("mon",))
    assert not list(wait.problems())
    since = "2022-03-05 22:00"  # a Saturday
    waiting = evaluate(wait, "2022-03-06 23:00", since=since)
    assert (waiting.passed, waiting.info) == (False, {"remaining_seconds": 3600})
    assert waiting.reason == ("waiting 1h0m0s more of 26h without Monday, until 2022-03-08 00:00:00 UTC")
    assert waiting.requeue_at == at("2022-03-08 00:00") + TICK
    assert passed(wait, "2022-03-07 23:00", since=since) is False
    over = evaluate(wait, waiting.requeue_at.isoformat(), since=since)
    assert (over.passed, over.requeue_at) == (True, None)


def test_finished_wait_exclude_stays_finished_on_an_excluded_day() -> None:
    wait = WaitExclude(duration="25h", exclude=("mon",))
    assert all(passed(wait, f"2022-03-07 {hour}:00", since="2022-03-05 22:00") for hour in ("00", "21", "23"))


def test_wait_exclude_of_all_days_never_passes_and_does_not_requeue() -> None:
    wait = WaitExclude(duration="1h", exclude=("mon", "tue", "wed", "thu", "fri", "sat", "sun"))
    never = evaluate(wait, "2022-03-07 23:00", since="2022-03-05 22:00")
    assert (never.passed, never.requeue_at) == (False, None)
    assert "which never ends" in never.reason


def test_wait_exclude_requires_weekdays() -> None:
    assert [key for key, _ in WaitExclude(duration="1h", exclude=()).problems()] == ["exclude"]
    assert [key for key, _ in WaitExclude(duration="1h", exclude=("mon", "x")).problems()] == ["exclude[1]"]
