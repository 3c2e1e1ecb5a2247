"""Correlation of AWS events with notices: no event is lost and no notice is duplicated."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import pytest

from haulout.api.maintenancenotice import (
    MaintenanceKind,
    MaintenanceNotice,
    MaintenanceNoticeSpec,
    NoticeStage,
    is_finished,
)
from haulout.api.notice_reports import NoticeReport, merge_report, missing_annotations
from haulout.api.objects import ObjectMeta
from haulout.providers.aws.correlation import KnownNotices
from haulout.providers.aws.instance_events import EventType, InstanceEvent
from haulout.providers.aws.instance_status import InstanceStatus, parse_status
from haulout.providers.aws.sqs_messages import parse_message
from support.clouds import aws_messages as aws
from support.clouds.aws_messages import FIRST_INSTANCE, SENT_AT, START

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NAME = f"aws-{aws.EVENT}"


class FakeNotices:
    """Notices without a cluster."""

    def __init__(self) -> None:
        self.notices: dict[str, MaintenanceNotice] = {}

    @property
    def known(self) -> KnownNotices:
        """The index of the notices."""
        return KnownNotices(self.notices.values())

    def apply(self, *events: InstanceEvent) -> None:
        """Apply events, one after another."""
        for reading in events:
            self._take(self.known.new_reports(reading))

    def poll(self, *events: object, at: datetime, state: str = "running", has_node: bool = True) -> None:
        """Apply a whole response of EC2."""
        status = (
            parse_status(aws.status(*events, state=state), at=at) if state else InstanceStatus(instance=FIRST_INSTANCE)
        )
        assert status is not None
        self.apply(*status.events)
        self._take(self.known.stale_reports(status, at=at, has_node=has_node))

    def _take(self, reports: Iterable[NoticeReport]) -> None:
        for report in reports:
            before = self.notices.get(report.name, MaintenanceNotice())
            annotations = {**before.metadata.annotations, **missing_annotations(before.metadata.annotations, report)}
            metadata = ObjectMeta(name=report.name, annotations=annotations)
            self.notices[report.name] = MaintenanceNotice(metadata=metadata, spec=merge_report(before.spec, report))

    def only_spec(self) -> MaintenanceNoticeSpec:
        """Return the only notice."""
        (found,) = self.notices.values()
        return found.spec

    def open_names(self) -> list[str]:
        """Return the names of the notices that are not finished."""
        return [name for name, notice in self.notices.items() if not is_finished(notice)]


def health_event(*, start: datetime = START, at: datetime = SENT_AT, status: str = "upcoming") -> InstanceEvent:
    body = aws.health(
        FIRST_INSTANCE, start=start, at=at, statusCode=status, eventTypeCode="AWS_EC2_SYSTEM_REBOOT_SCHEDULED"
    )
    return parse_message(body, now=at).events[0]


def parsed_event(body: str) -> InstanceEvent:
    return parse_message(body, now=START + 100 * DAY).events[0]


def scheduled_event(*, start: datetime = START, at: datetime = SENT_AT, description: str = "planned") -> InstanceEvent:
    event = aws.event(description=description, NotBefore=start, NotAfter=start + HOUR, NotBeforeDeadline=start + DAY)
    found = parse_status(aws.status(event), at=at)
    assert found is not None
    return found.events[0]


@pytest.mark.parametrize("readings", [[health_event(), scheduled_event()], [scheduled_event(), health_event()]])
def test_health_event_and_scheduled_event_of_one_maintenance_are_one_notice(readings: list[InstanceEvent]) -> None:
    fake_notices = FakeNotices()
    fake_notices.apply(*readings)
    assert fake_notices.only_spec().start == START


def test_health_event_does_not_clear_reschedulable() -> None:
    fake_notices = FakeNotices()
    fake_notices.apply(scheduled_event(), health_event(at=SENT_AT + HOUR))
    assert fake_notices.only_spec().reschedulable


def test_health_event_with_the_same_start_does_not_change_times() -> None:
    fake_notices = FakeNotices()
    fake_notices.apply(scheduled_event())
    before = fake_notices.only_spec()
    fake_notices.apply(health_event(at=SENT_AT + HOUR))
    after = fake_notices.only_spec()
    assert (after.start, after.end, after.deadline) == (before.start, before.end, before.deadline)


@pytest.mark.parametrize("late", [START + DAY, START - DAY])
def test_rescheduled_start_from_either_source_moves_the_same_notice(late: datetime) -> None:
    for readings in (
        [
            scheduled_event(),
            health_event(at=SENT_AT + HOUR),
            health_event(start=late, at=SENT_AT + 2 * HOUR),
            scheduled_event(start=late, at=SENT_AT + 3 * HOUR),
        ],
        [
            health_event(),
            health_event(start=late, at=SENT_AT + HOUR),
            scheduled_event(at=SENT_AT + 2 * HOUR),
            scheduled_event(start=late, at=SENT_AT + 3 * HOUR),
        ],
        [scheduled_event(), scheduled_event(start=late, at=SENT_AT + HOUR), health_event(at=SENT_AT)],
        [
            health_event(),
            scheduled_event(start=late, at=SENT_AT + HOUR),
            health_event(start=late, at=SENT_AT + 2 * HOUR),
        ],
    ):
        fake_notices = FakeNotices()
        fake_notices.apply(*readings)
        assert fake_notices.only_spec().start == late


@pytest.mark.parametrize(
    "readings",
    [
        [health_event(), health_event(at=SENT_AT + DAY, status="closed")],
        [health_event(at=SENT_AT + DAY, status="closed"), health_event()],
        [
            scheduled_event(),
            health_event(),
            health_event(at=SENT_AT + DAY, status="closed"),
            scheduled_event(at=SENT_AT + DAY + HOUR),
        ],
        [health_event(at=SENT_AT + DAY, status="closed"), scheduled_event(at=SENT_AT + DAY + HOUR)],
        [scheduled_event(), health_event(at=SENT_AT + DAY, status="closed"), health_event()],
    ],
)
def test_notice_closed_by_health_stays_cancelled_in_any_order(readings: list[InstanceEvent]) -> None:
    fake_notices = FakeNotices()
    fake_notices.apply(*readings)
    assert fake_notices.only_spec().stage == NoticeStage.CANCELLED


def test_event_completed_before_the_first_poll_is_no_notice() -> None:
    """MMO weakness 3: EC2 keeps completed events for days."""
    fake_notices = FakeNotices()
    fake_notices.poll(aws.event(description="[Completed] planned"), at=START + DAY)
    assert fake_notices.notices == {}


def test_missing_event_is_cancelled_before_its_start_and_ended_after_it() -> None:
    for at, stage in ((START - HOUR, NoticeStage.CANCELLED), (START + HOUR, NoticeStage.ENDED)):
        fake_notices = FakeNotices()
        fake_notices.poll(aws.event(), at=SENT_AT)
        fake_notices.poll(at=at)
        assert fake_notices.only_spec().stage == stage


def test_malformed_event_does_not_end_the_notice() -> None:
    fake_notices = FakeNotices()
    fake_notices.poll(aws.event(), at=SENT_AT)
    fake_notices.poll({"InstanceEventId": aws.EVENT, "NotBefore": "?"}, at=START + HOUR)
    assert fake_notices.open_names() == [NAME]


def test_started_event_that_is_scheduled_again_is_a_new_notice() -> None:
    fake_notices = FakeNotices()
    fake_notices.apply(
        scheduled_event(), scheduled_event(at=START), scheduled_event(start=START + DAY, at=START + HOUR)
    )
    assert fake_notices.notices[NAME].spec.stage == NoticeStage.CANCELLED
    (again,) = fake_notices.open_names()
    assert fake_notices.notices[again].spec.start == START + DAY
    fake_notices.apply(scheduled_event(start=START + 2 * DAY, at=START + 2 * HOUR))
    assert fake_notices.open_names() == [again]
    for day in (3, 4):
        fake_notices.poll(aws.event(description="[Completed]", NotBefore=START + 2 * DAY), at=START + day * DAY)
        assert [notice.spec.stage for notice in fake_notices.notices.values()] == [
            NoticeStage.CANCELLED,
            NoticeStage.ENDED,
        ]


def test_poll_result_takes_precedence_over_a_report_from_the_future() -> None:
    fake_notices = FakeNotices()
    fake_notices.apply(scheduled_event(at=SENT_AT + 3 * DAY), scheduled_event(start=START + DAY, at=SENT_AT))
    assert fake_notices.only_spec().start == START + DAY
    fake_notices.poll(at=SENT_AT + HOUR)
    assert fake_notices.only_spec().stage == NoticeStage.CANCELLED


def test_repeated_poll_result_produces_no_report() -> None:
    fake_notices = FakeNotices()
    fake_notices.apply(scheduled_event())
    assert list(fake_notices.known.new_reports(scheduled_event(at=SENT_AT + HOUR))) == []


def test_event_known_only_to_health_ends_after_a_grace_period() -> None:
    fake_notices = FakeNotices()
    fake_notices.apply(health_event())
    fake_notices.poll(at=START + HOUR)
    assert len(fake_notices.open_names()) == 1
    fake_notices.poll(at=START + 5 * HOUR)
    assert fake_notices.only_spec().stage == NoticeStage.ENDED


def test_notice_ends_once_instance_and_node_are_deleted() -> None:
    fake_notices = FakeNotices()
    fake_notices.apply(parsed_event(aws.spot()))
    fake_notices.poll(at=SENT_AT + HOUR, state="", has_node=True)
    assert len(fake_notices.open_names()) == 1
    fake_notices.poll(at=SENT_AT + HOUR, state="", has_node=False)
    assert fake_notices.only_spec().stage == NoticeStage.ENDED


def test_stop_is_one_notice_until_the_instance_runs_again() -> None:
    stopping, stopped = (
        parsed_event(aws.state()),
        parsed_event(aws.state(state="stopped", at=SENT_AT + HOUR, event_id="s-2")),
    )
    fake_notices = FakeNotices()
    fake_notices.apply(stopping, stopped)
    assert (fake_notices.only_spec().kind, fake_notices.only_spec().stage) == (
        MaintenanceKind.STOP,
        NoticeStage.STARTED,
    )
    fake_notices.apply(
        parsed_event(aws.state(state="running", at=SENT_AT + 2 * HOUR, event_id="s-3")), stopping, stopped
    )
    assert fake_notices.only_spec().stage == NoticeStage.ENDED


def test_next_poll_ends_a_notice_whose_end_arrived_before_its_start() -> None:
    fake_notices = FakeNotices()
    fake_notices.apply(parsed_event(aws.state(state="running", at=SENT_AT + HOUR)), parsed_event(aws.state()))
    fake_notices.poll(at=SENT_AT + 2 * HOUR)
    assert fake_notices.only_spec().stage == NoticeStage.ENDED


def test_poll_result_from_before_a_stop_does_not_end_its_notice() -> None:
    fake_notices = FakeNotices()
    fake_notices.apply(parsed_event(aws.state()))
    fake_notices.poll(at=SENT_AT - timedelta(seconds=1))
    assert len(fake_notices.open_names()) == 1


def test_early_state_change_starts_the_notice_of_a_scheduled_stop() -> None:
    fake_notices = FakeNotices()
    fake_notices.poll(aws.event("instance-stop"), at=SENT_AT)
    fake_notices.apply(parsed_event(aws.state()))
    assert (fake_notices.only_spec().notice_id, fake_notices.only_spec().stage, fake_notices.only_spec().start) == (
        aws.EVENT,
        NoticeStage.STARTED,
        START,
    )


def test_stop_is_a_separate_notice_from_a_scheduled_reboot() -> None:
    fake_notices = FakeNotices()
    fake_notices.poll(aws.event("system-reboot"), at=SENT_AT)
    fake_notices.apply(parsed_event(aws.state()))
    assert len(fake_notices.open_names()) == 2


def test_running_state_without_a_known_stop_is_no_notice() -> None:
    fake_notices = FakeNotices()
    fake_notices.apply(parsed_event(aws.state(state="running")))
    assert fake_notices.notices == {}


def test_spot_notice_ends_if_the_instance_still_runs_long_after_its_time() -> None:
    fake_notices = FakeNotices()
    fake_notices.apply(parsed_event(aws.spot()))
    fake_notices.poll(at=SENT_AT + timedelta(minutes=5))
    assert len(fake_notices.open_names()) == 1
    fake_notices.poll(at=SENT_AT + timedelta(minutes=15))
    assert fake_notices.only_spec().stage == NoticeStage.ENDED


def test_notice_is_annotated_with_its_event_ids() -> None:
    fake_notices = FakeNotices()
    fake_notices.apply(health_event(), scheduled_event())
    (notice,) = fake_notices.notices.values()
    assert notice.metadata.annotations == {EventType.SCHEDULED_EVENT: aws.EVENT, EventType.HEALTH: aws.ARN}
