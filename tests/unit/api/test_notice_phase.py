"""The phase of a notice at an instant."""

from datetime import UTC, datetime, timedelta

import pytest

from haulout.api.maintenancenotice import MaintenanceNoticeSpec, NoticePhase, NoticeStage, drain_at, phase_at

START = datetime(2026, 4, 16, 2, tzinfo=UTC)
END = START + timedelta(hours=2)
LEAD = timedelta(minutes=15)


def after(start: timedelta) -> datetime:
    return START + start


@pytest.mark.parametrize(
    ("stage", "since_start", "phase"),
    [
        pytest.param("", timedelta(days=-2), NoticePhase.PLANNED, id="two days ahead"),
        pytest.param("", -LEAD - timedelta(seconds=1), NoticePhase.PLANNED, id="a second before it is due"),
        pytest.param("", -LEAD, NoticePhase.DUE, id="exactly a quarter of an hour ahead"),
        pytest.param("", timedelta(0), NoticePhase.ACTIVE, id="starts by the clock alone"),
        pytest.param("", timedelta(hours=2), NoticePhase.COMPLETED, id="ends by the clock alone"),
        pytest.param(NoticeStage.SCHEDULED, timedelta(days=-2), NoticePhase.PLANNED, id="scheduled ahead"),
        pytest.param(
            NoticeStage.SCHEDULED, timedelta(minutes=30), NoticePhase.DUE, id="source has not reported the start"
        ),
        pytest.param(
            NoticeStage.SCHEDULED, timedelta(hours=2), NoticePhase.MISSED, id="end has passed without a report"
        ),
        pytest.param(NoticeStage.STARTED, timedelta(days=-2), NoticePhase.ACTIVE, id="started early"),
        pytest.param(NoticeStage.STARTED, timedelta(hours=3), NoticePhase.ACTIVE, id="takes longer than planned"),
        pytest.param(NoticeStage.FAILED, timedelta(hours=3), NoticePhase.ACTIVE, id="failed"),
        pytest.param(NoticeStage.ENDED, timedelta(days=-2), NoticePhase.COMPLETED, id="ended early"),
        pytest.param(NoticeStage.CANCELLED, timedelta(minutes=1), NoticePhase.CANCELLED, id="cancelled"),
    ],
)
def test_notice_phase_follows_from_stage_and_times(stage: str, since_start: timedelta, phase: NoticePhase) -> None:
    found = phase_at(MaintenanceNoticeSpec(stage=stage, start=START, end=END), now=after(since_start), lead=LEAD)
    assert found.phase is phase
    assert found.message


@pytest.mark.parametrize("stage", ["", *NoticeStage])
@pytest.mark.parametrize("end", [None, END])
@pytest.mark.parametrize("start", [None, START])
def test_notice_phase_changes_exactly_at_until(stage: str, start: datetime | None, end: datetime | None) -> None:
    spec = MaintenanceNoticeSpec(stage=stage, start=start, end=end)
    now = START - timedelta(days=1)
    for _ in range(5):
        found = phase_at(spec, now=now, lead=LEAD)
        if found.until is None:
            assert phase_at(spec, now=now + timedelta(days=365), lead=LEAD) == found
            return
        assert found.until > now
        assert phase_at(spec, now=found.until - timedelta(microseconds=1), lead=LEAD) == found
        assert phase_at(spec, now=found.until, lead=LEAD) != found
        now = found.until
    pytest.fail("it changes for ever")


def test_notice_without_a_start_is_due_at_once() -> None:
    assert phase_at(MaintenanceNoticeSpec(stage=NoticeStage.SCHEDULED), now=START).phase is NoticePhase.DUE
    assert drain_at(MaintenanceNoticeSpec(), lead=LEAD) is None
    assert drain_at(MaintenanceNoticeSpec(start=START), lead=LEAD) == START - LEAD


def test_notice_with_a_start_in_year_one_is_active() -> None:
    spec = MaintenanceNoticeSpec(start=datetime(1, 1, 1, tzinfo=UTC))
    assert phase_at(spec, now=START).phase is NoticePhase.ACTIVE
    assert drain_at(spec, lead=LEAD) == spec.start
