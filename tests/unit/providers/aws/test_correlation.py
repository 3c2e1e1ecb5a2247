"""Which notice something that AWS says is about: nothing is lost, and nothing is there twice."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import pytest

from haulout.api.maintenancenotice import MaintenanceKind, MaintenanceNotice, MaintenanceNoticeSpec, NoticeStage
from haulout.api.notice_reports import NoticeReport, merge_report, missing_annotations
from haulout.api.objects import ObjectMeta
from haulout.providers.aws.correlation import KnownNotices, is_finished
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
        """What is known of them."""
        return KnownNotices(self.notices.values())

    def apply(self, *events: InstanceEvent) -> None:
        """Take readings, one after another."""
        for reading in events:
            self._take(self.known.new_reports(reading))

    def poll(self, *events: object, at: datetime, state: str = "running", has_node: bool = True) -> None:
        """Take a whole answer of EC2."""
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
        """Return the names of those that are not over."""
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
def test_what_health_and_ec2_say_about_the_same_maintenance_is_one_notice(readings: list[InstanceEvent]) -> None:
    desk = FakeNotices()
    desk.apply(*readings)
    assert desk.only_spec().start == START


def test_health_does_not_make_a_movable_event_immovable() -> None:
    desk = FakeNotices()
    desk.apply(scheduled_event(), health_event(at=SENT_AT + HOUR))
    assert desk.only_spec().reschedulable


def test_health_that_names_the_same_start_changes_nothing_of_what_ec2_said() -> None:
    desk = FakeNotices()
    desk.apply(scheduled_event())
    before = desk.only_spec()
    desk.apply(health_event(at=SENT_AT + HOUR))
    after = desk.only_spec()
    assert (after.start, after.end, after.deadline) == (before.start, before.end, before.deadline)


@pytest.mark.parametrize("late", [START + DAY, START - DAY])
def test_a_move_that_one_of_them_tells_first_moves_the_same_notice(late: datetime) -> None:
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
        desk = FakeNotices()
        desk.apply(*readings)
        assert desk.only_spec().start == late


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
def test_what_health_has_closed_stays_closed_in_any_order_and_though_ec2_is_late(readings: list[InstanceEvent]) -> None:
    desk = FakeNotices()
    desk.apply(*readings)
    assert desk.only_spec().stage == NoticeStage.CANCELLED


def test_an_event_that_was_over_before_we_looked_is_no_notice() -> None:
    """MMO weakness 3: EC2 keeps completed events for days."""
    desk = FakeNotices()
    desk.poll(aws.event(description="[Completed] planned"), at=START + DAY)
    assert desk.notices == {}


def test_an_event_that_vanishes_before_its_start_is_cancelled_and_later_it_has_ended() -> None:
    for at, stage in ((START - HOUR, NoticeStage.CANCELLED), (START + HOUR, NoticeStage.ENDED)):
        desk = FakeNotices()
        desk.poll(aws.event(), at=SENT_AT)
        desk.poll(at=at)
        assert desk.only_spec().stage == stage


def test_an_answer_that_makes_no_sense_ends_nothing() -> None:
    desk = FakeNotices()
    desk.poll(aws.event(), at=SENT_AT)
    desk.poll({"InstanceEventId": aws.EVENT, "NotBefore": "?"}, at=START + HOUR)
    assert desk.open_names() == [NAME]


def test_an_event_that_had_begun_and_is_planned_anew_is_another_maintenance() -> None:
    desk = FakeNotices()
    desk.apply(scheduled_event(), scheduled_event(at=START), scheduled_event(start=START + DAY, at=START + HOUR))
    assert desk.notices[NAME].spec.stage == NoticeStage.CANCELLED
    (again,) = desk.open_names()
    assert desk.notices[again].spec.start == START + DAY
    desk.apply(scheduled_event(start=START + 2 * DAY, at=START + 2 * HOUR))
    assert desk.open_names() == [again]
    for day in (3, 4):
        desk.poll(aws.event(description="[Completed]", NotBefore=START + 2 * DAY), at=START + day * DAY)
        assert [notice.spec.stage for notice in desk.notices.values()] == [NoticeStage.CANCELLED, NoticeStage.ENDED]


def test_what_was_said_while_our_clock_was_wrong_does_not_outweigh_what_ec2_says_now() -> None:
    desk = FakeNotices()
    desk.apply(scheduled_event(at=SENT_AT + 3 * DAY), scheduled_event(start=START + DAY, at=SENT_AT))
    assert desk.only_spec().start == START + DAY
    desk.poll(at=SENT_AT + HOUR)
    assert desk.only_spec().stage == NoticeStage.CANCELLED


def test_a_list_that_says_the_same_again_is_no_news() -> None:
    desk = FakeNotices()
    desk.apply(scheduled_event())
    assert list(desk.known.new_reports(scheduled_event(at=SENT_AT + HOUR))) == []


def test_an_event_that_only_health_knows_is_waited_for_for_a_while() -> None:
    desk = FakeNotices()
    desk.apply(health_event())
    desk.poll(at=START + HOUR)
    assert len(desk.open_names()) == 1
    desk.poll(at=START + 5 * HOUR)
    assert desk.only_spec().stage == NoticeStage.ENDED


def test_an_instance_that_is_gone_ends_what_was_about_it_once_its_node_is_gone_too() -> None:
    desk = FakeNotices()
    desk.apply(parsed_event(aws.spot()))
    desk.poll(at=SENT_AT + HOUR, state="", has_node=True)
    assert len(desk.open_names()) == 1
    desk.poll(at=SENT_AT + HOUR, state="", has_node=False)
    assert desk.only_spec().stage == NoticeStage.ENDED


def test_a_stop_and_what_follows_is_one_notice_until_the_instance_runs_again() -> None:
    stopping, stopped = (
        parsed_event(aws.state()),
        parsed_event(aws.state(state="stopped", at=SENT_AT + HOUR, event_id="s-2")),
    )
    desk = FakeNotices()
    desk.apply(stopping, stopped)
    assert (desk.only_spec().kind, desk.only_spec().stage) == (MaintenanceKind.STOP, NoticeStage.STARTED)
    desk.apply(parsed_event(aws.state(state="running", at=SENT_AT + 2 * HOUR, event_id="s-3")), stopping, stopped)
    assert desk.only_spec().stage == NoticeStage.ENDED


def test_an_end_that_came_before_its_beginning_is_found_by_the_next_look() -> None:
    desk = FakeNotices()
    desk.apply(parsed_event(aws.state(state="running", at=SENT_AT + HOUR)), parsed_event(aws.state()))
    desk.poll(at=SENT_AT + 2 * HOUR)
    assert desk.only_spec().stage == NoticeStage.ENDED


def test_an_answer_from_before_a_stop_does_not_end_it() -> None:
    desk = FakeNotices()
    desk.apply(parsed_event(aws.state()))
    desk.poll(at=SENT_AT - timedelta(seconds=1))
    assert len(desk.open_names()) == 1


def test_a_planned_stop_that_comes_early_has_started() -> None:
    desk = FakeNotices()
    desk.poll(aws.event("instance-stop"), at=SENT_AT)
    desk.apply(parsed_event(aws.state()))
    assert (desk.only_spec().notice_id, desk.only_spec().stage, desk.only_spec().start) == (
        aws.EVENT,
        NoticeStage.STARTED,
        START,
    )


def test_a_reboot_that_is_planned_has_nothing_to_do_with_a_stop() -> None:
    desk = FakeNotices()
    desk.poll(aws.event("system-reboot"), at=SENT_AT)
    desk.apply(parsed_event(aws.state()))
    assert len(desk.open_names()) == 2


def test_an_instance_that_runs_again_is_no_news_if_nobody_knew_of_a_stop() -> None:
    desk = FakeNotices()
    desk.apply(parsed_event(aws.state(state="running")))
    assert desk.notices == {}


def test_a_spot_instance_that_still_runs_long_after_its_time_was_not_taken() -> None:
    desk = FakeNotices()
    desk.apply(parsed_event(aws.spot()))
    desk.poll(at=SENT_AT + timedelta(minutes=5))
    assert len(desk.open_names()) == 1
    desk.poll(at=SENT_AT + timedelta(minutes=15))
    assert desk.only_spec().stage == NoticeStage.ENDED


def test_each_notice_knows_by_which_names_it_goes() -> None:
    desk = FakeNotices()
    desk.apply(health_event(), scheduled_event())
    (notice,) = desk.notices.values()
    assert notice.metadata.annotations == {EventType.SCHEDULED_EVENT: aws.EVENT, EventType.HEALTH: aws.ARN}
