from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.controllers.profiles.plugin import ProfileStatus, Schedule, SendDecision, State
from haulout.controllers.profiles.plugins.schedules.oneshot import Oneshot
from haulout.controllers.profiles.plugins.schedules.periodic import Periodic
from haulout.controllers.profiles.plugins.schedules.scheduled import Scheduled
from haulout.core.walltime import TICK

NOW = SendDecision(is_due=True)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def not_before(text: str) -> SendDecision:
    return SendDecision(is_due=False, requeue_at=at(text))


def evaluate(
    schedule: Schedule,
    now: str,
    *,
    last: str | None = None,
    current: str = State.REQUIRED,
    previous: str = State.REQUIRED,
    since: str | None = None,
) -> SendDecision:
    entry = ProfileStatus(current=current, previous=previous, transition=at(since) if since else None)
    return schedule.due(status=entry, last_sent=at(last) if last else None, now=at(now))


# periodic


def test_periodic_notification_is_due_when_the_state_changed() -> None:
    for previous, current in [(State.OPERATIONAL, State.REQUIRED), (State.IN_MAINTENANCE, State.OPERATIONAL)]:
        assert (
            evaluate(Periodic(), "2026-03-02 11:00", last="2026-03-02 10:59", previous=previous, current=current) == NOW
        )


def test_periodic_notification_is_due_again_after_its_interval() -> None:
    """S08."""
    periodic = Periodic(interval=timedelta(minutes=5))
    assert evaluate(periodic, "2026-03-02 11:04:59", last="2026-03-02 11:00") == not_before("2026-03-02 11:05")
    assert evaluate(periodic, "2026-03-02 11:05", last="2026-03-02 11:00") == NOW
    assert evaluate(Periodic(), "2026-03-02 11:05", last="2026-03-02 11:00") == not_before("2026-03-02 12:00")


def test_periodic_notification_is_due_if_never_sent() -> None:
    assert evaluate(Periodic(), "2026-03-02 11:00") == NOW


def test_periodic_notification_is_never_due_by_interval_while_operational() -> None:
    operational = {"current": State.OPERATIONAL, "previous": State.OPERATIONAL}
    assert evaluate(Periodic(), "2026-03-02 11:00", last="2020-01-01", **operational) == SendDecision(is_due=False)
    assert evaluate(Periodic(), "2026-03-02 11:00", **operational) == SendDecision(is_due=False)


def test_interval_beyond_the_calendar_never_elapses() -> None:
    assert not evaluate(Periodic(interval=timedelta.max), "2026-03-02 11:00", last="2026-03-02 10:00").is_due


# scheduled. 2026-03-02 is a Monday.

MONDAYS = Scheduled(instant="12:00", weekdays=("monday",))


@pytest.mark.parametrize(
    ("now", "last", "expected"),
    [
        ("2026-03-03 11:00", "2026-02-23 12:00", not_before("2026-03-09 12:00")),
        ("2026-03-03 13:00", "2026-02-23 12:00", not_before("2026-03-09 12:00")),
        ("2026-03-02 11:00", "2026-02-23 12:00", not_before("2026-03-02 12:00")),
        ("2026-03-02 12:00", "2026-02-23 12:00", NOW),
        ("2026-03-02 13:00", "2026-02-23 12:00", NOW),
        ("2026-03-02 13:00", None, NOW),
        ("2026-03-02 13:00", "2026-03-02 12:00", not_before("2026-03-09 12:00")),
        ("2026-03-02 13:00", "2026-03-02 08:00", not_before("2026-03-09 12:00")),
    ],
)
def test_scheduled_notification_is_due_once_on_its_weekdays(now: str, last: str | None, expected: SendDecision) -> None:
    """P16."""
    assert not list(MONDAYS.problems())
    assert evaluate(MONDAYS, now, last=last) == expected


def test_scheduled_notification_distinguishes_the_same_day_of_another_month() -> None:
    """The system that this replaces compared the number of the day only, and was silent here."""
    assert evaluate(MONDAYS, "2026-03-02 13:00", last="2026-02-02 12:00") == NOW


def test_scheduled_notification_never_sent_is_due_on_the_first_of_a_month() -> None:
    """The system that this replaces took "never" for the first day of a year, and was silent here."""
    assert evaluate(MONDAYS, "2026-06-01 13:00") == NOW
    assert evaluate(MONDAYS, "2026-06-01 13:00", last="0001-01-01") == NOW


def test_scheduled_notification_may_use_another_time_zone() -> None:
    berlin = Scheduled(instant="2:30", weekdays=("sun", "mon"), timezone="Europe/Berlin")
    assert not list(berlin.problems())
    assert evaluate(berlin, "2026-03-28 22:59") == not_before("2026-03-29 01:00")  # when clocks are put forward
    assert evaluate(berlin, "2026-03-29 01:00") == NOW
    assert evaluate(berlin, "2026-10-25 00:00") == not_before("2026-10-25 00:30")  # the first of two
    assert evaluate(berlin, "2026-10-25 01:30", last="2026-10-25 00:30") == not_before("2026-10-26 01:30")


def test_invalid_scheduled_options_are_reported() -> None:
    wrong = Scheduled(instant="25:00", weekdays=("mon", "x"), timezone="Mars")
    assert [key for key, _ in wrong.problems()] == ["instant", "weekdays[1]", "timezone"]
    assert [key for key, _ in Scheduled(instant="9:00", weekdays=()).problems()] == ["weekdays"]


# oneshot


@pytest.mark.parametrize(
    ("now", "last", "expected"),
    [
        ("2026-03-02 11:00", None, not_before("2026-03-02 11:10")),
        ("2026-03-02 11:10", None, NOW),
        ("2026-03-02 12:00", "2026-03-01 11:10", NOW),
        ("2026-03-02 12:00", "2026-03-02 11:00", NOW),
        ("2026-03-02 12:00", "2026-03-02 11:00:00.000001", SendDecision(is_due=False)),
        ("2026-03-02 12:00", "2026-03-02 11:10", SendDecision(is_due=False)),
    ],
)
def test_oneshot_notification_is_due_once_after_a_transition(
    now: str, last: str | None, expected: SendDecision
) -> None:
    """P18."""
    assert evaluate(Oneshot(delay=timedelta(minutes=10)), now, last=last, since="2026-03-02 11:00") == expected


def test_oneshot_notification_waits_one_minute_by_default() -> None:
    assert evaluate(Oneshot(), "2026-03-02 11:00", since="2026-03-02 11:00") == not_before("2026-03-02 11:01")
    assert evaluate(Oneshot(delay=timedelta()), "2026-03-02 11:00", since="2026-03-02 11:00") == NOW


def test_oneshot_notification_is_not_due_without_a_transition() -> None:
    """P18."""
    assert evaluate(Oneshot(), "2026-03-02 11:00") == SendDecision(is_due=False)


# Properties of all schedules

instants = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - `timezones`
schedules: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(Periodic, interval=st.timedeltas(timedelta(seconds=1), timedelta(days=9))),
    st.builds(Oneshot, delay=st.timedeltas(timedelta(), timedelta(days=9))),
    st.builds(
        Scheduled,
        instant=st.times().map(lambda each: f"{each:%H:%M}"),
        weekdays=st.lists(st.sampled_from(["mon", "wed", "sun"]), min_size=1).map(tuple),
        timezone=st.sampled_from(["UTC", "Europe/Berlin", "America/Santiago"]),
    ),
)
states = st.sampled_from(list(State))


@given(
    schedule=schedules,
    entry=st.builds(ProfileStatus, current=states, previous=states, transition=st.none() | instants),
    last=st.none() | instants,
    now=instants,
)
def test_schedule_is_due_exactly_at_its_requeue_time(
    schedule: Schedule, entry: ProfileStatus, last: datetime | None, now: datetime
) -> None:
    found = schedule.due(status=entry, last_sent=last, now=now)
    if found.is_due:
        return
    if found.requeue_at is None:
        assert not schedule.due(status=entry, last_sent=last, now=now + timedelta(days=40)).is_due
    else:
        assert found.requeue_at > now
        assert not schedule.due(status=entry, last_sent=last, now=found.requeue_at - TICK).is_due
        assert schedule.due(status=entry, last_sent=last, now=found.requeue_at).is_due
