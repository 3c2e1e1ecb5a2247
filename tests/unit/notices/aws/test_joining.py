"""Which notice something that AWS says is about: nothing is lost, and nothing is there twice."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import pytest

from haulout.kinds.notice import Kind, MaintenanceNotice, Spec, Stage
from haulout.kinds.reports import Report, merged, noted
from haulout.kube.objects import Metadata
from haulout.notices.sources.aws.joining import Known, is_over
from haulout.notices.sources.aws.messages import read_message
from haulout.notices.sources.aws.readings import Family, Reading
from haulout.notices.sources.aws.statuses import Status, read_status
from support import aws_messages as aws
from support.aws_messages import ONE, SAID, START

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NAME = f"aws-{aws.EVENT}"


class Desk:
    """Notices without a cluster."""

    def __init__(self) -> None:
        self.notices: dict[str, MaintenanceNotice] = {}

    @property
    def known(self) -> Known:
        """What is known of them."""
        return Known(self.notices.values())

    def hear(self, *readings: Reading) -> None:
        """Take readings, one after another."""
        for reading in readings:
            self._take(self.known.reports(reading))

    def look(self, *events: object, at: datetime, state: str = "running", has_node: bool = True) -> None:
        """Take a whole answer of EC2."""
        status = read_status(aws.status(*events, state=state), at=at) if state else Status(instance=ONE)
        assert status is not None
        self.hear(*status.readings)
        self._take(self.known.leftovers(status, at=at, has_node=has_node))

    def _take(self, reports: Iterable[Report]) -> None:
        for report in reports:
            before = self.notices.get(report.name, MaintenanceNotice())
            annotations = {**before.metadata.annotations, **noted(before.metadata.annotations, report)}
            metadata = Metadata(name=report.name, annotations=annotations)
            self.notices[report.name] = MaintenanceNotice(metadata=metadata, spec=merged(before.spec, report))

    def the(self) -> Spec:
        """Return the only notice."""
        (found,) = self.notices.values()
        return found.spec

    def opened(self) -> list[str]:
        """Return the names of those that are not over."""
        return [name for name, it in self.notices.items() if not is_over(it)]


def health(*, start: datetime = START, at: datetime = SAID, status: str = "upcoming") -> Reading:
    body = aws.health(ONE, start=start, at=at, statusCode=status, eventTypeCode="AWS_EC2_SYSTEM_REBOOT_SCHEDULED")
    return read_message(body, now=at).readings[0]


def said(body: str) -> Reading:
    return read_message(body, now=START + 100 * DAY).readings[0]


def listed(*, start: datetime = START, at: datetime = SAID, description: str = "planned") -> Reading:
    event = aws.event(description=description, NotBefore=start, NotAfter=start + HOUR, NotBeforeDeadline=start + DAY)
    found = read_status(aws.status(event), at=at)
    assert found is not None
    return found.readings[0]


@pytest.mark.parametrize("readings", [[health(), listed()], [listed(), health()]])
def test_what_health_and_ec2_say_about_the_same_maintenance_is_one_notice(readings: list[Reading]) -> None:
    desk = Desk()
    desk.hear(*readings)
    assert desk.the().start == START


def test_health_does_not_make_a_movable_event_immovable() -> None:
    desk = Desk()
    desk.hear(listed(), health(at=SAID + HOUR))
    assert desk.the().reschedulable


def test_health_that_names_the_same_start_changes_nothing_of_what_ec2_said() -> None:
    desk = Desk()
    desk.hear(listed())
    before = desk.the()
    desk.hear(health(at=SAID + HOUR))
    after = desk.the()
    assert (after.start, after.end, after.deadline) == (before.start, before.end, before.deadline)


@pytest.mark.parametrize("late", [START + DAY, START - DAY])
def test_a_move_that_one_of_them_tells_first_moves_the_same_notice(late: datetime) -> None:
    for readings in (
        [
            listed(),
            health(at=SAID + HOUR),
            health(start=late, at=SAID + 2 * HOUR),
            listed(start=late, at=SAID + 3 * HOUR),
        ],
        [
            health(),
            health(start=late, at=SAID + HOUR),
            listed(at=SAID + 2 * HOUR),
            listed(start=late, at=SAID + 3 * HOUR),
        ],
        [listed(), listed(start=late, at=SAID + HOUR), health(at=SAID)],
        [health(), listed(start=late, at=SAID + HOUR), health(start=late, at=SAID + 2 * HOUR)],
    ):
        desk = Desk()
        desk.hear(*readings)
        assert desk.the().start == late


@pytest.mark.parametrize(
    "readings",
    [
        [health(), health(at=SAID + DAY, status="closed")],
        [health(at=SAID + DAY, status="closed"), health()],
        [listed(), health(), health(at=SAID + DAY, status="closed"), listed(at=SAID + DAY + HOUR)],
        [health(at=SAID + DAY, status="closed"), listed(at=SAID + DAY + HOUR)],
        [listed(), health(at=SAID + DAY, status="closed"), health()],
    ],
)
def test_what_health_has_closed_stays_closed_in_any_order_and_though_ec2_is_late(readings: list[Reading]) -> None:
    desk = Desk()
    desk.hear(*readings)
    assert desk.the().stage == Stage.CANCELLED


def test_an_event_that_was_over_before_we_looked_is_no_notice() -> None:
    """MMO weakness 3: EC2 keeps completed events for days."""
    desk = Desk()
    desk.look(aws.event(description="[Completed] planned"), at=START + DAY)
    assert desk.notices == {}


def test_an_event_that_vanishes_before_its_start_is_cancelled_and_later_it_has_ended() -> None:
    for at, stage in ((START - HOUR, Stage.CANCELLED), (START + HOUR, Stage.ENDED)):
        desk = Desk()
        desk.look(aws.event(), at=SAID)
        desk.look(at=at)
        assert desk.the().stage == stage


def test_an_answer_that_makes_no_sense_ends_nothing() -> None:
    desk = Desk()
    desk.look(aws.event(), at=SAID)
    desk.look({"InstanceEventId": aws.EVENT, "NotBefore": "?"}, at=START + HOUR)
    assert desk.opened() == [NAME]


def test_an_event_that_had_begun_and_is_planned_anew_is_another_maintenance() -> None:
    desk = Desk()
    desk.hear(listed(), listed(at=START), listed(start=START + DAY, at=START + HOUR))
    assert desk.notices[NAME].spec.stage == Stage.CANCELLED
    (again,) = desk.opened()
    assert desk.notices[again].spec.start == START + DAY
    desk.hear(listed(start=START + 2 * DAY, at=START + 2 * HOUR))
    assert desk.opened() == [again]
    for day in (3, 4):
        desk.look(aws.event(description="[Completed]", NotBefore=START + 2 * DAY), at=START + day * DAY)
        assert [it.spec.stage for it in desk.notices.values()] == [Stage.CANCELLED, Stage.ENDED]


def test_what_was_said_while_our_clock_was_wrong_does_not_outweigh_what_ec2_says_now() -> None:
    desk = Desk()
    desk.hear(listed(at=SAID + 3 * DAY), listed(start=START + DAY, at=SAID))
    assert desk.the().start == START + DAY
    desk.look(at=SAID + HOUR)
    assert desk.the().stage == Stage.CANCELLED


def test_a_list_that_says_the_same_again_is_no_news() -> None:
    desk = Desk()
    desk.hear(listed())
    assert list(desk.known.reports(listed(at=SAID + HOUR))) == []


def test_an_event_that_only_health_knows_is_waited_for_for_a_while() -> None:
    desk = Desk()
    desk.hear(health())
    desk.look(at=START + HOUR)
    assert len(desk.opened()) == 1
    desk.look(at=START + 5 * HOUR)
    assert desk.the().stage == Stage.ENDED


def test_an_instance_that_is_gone_ends_what_was_about_it_once_its_node_is_gone_too() -> None:
    desk = Desk()
    desk.hear(said(aws.spot()))
    desk.look(at=SAID + HOUR, state="", has_node=True)
    assert len(desk.opened()) == 1
    desk.look(at=SAID + HOUR, state="", has_node=False)
    assert desk.the().stage == Stage.ENDED


def test_a_stop_and_what_follows_is_one_notice_until_the_instance_runs_again() -> None:
    stopping, stopped = said(aws.state()), said(aws.state(state="stopped", at=SAID + HOUR, called="s-2"))
    desk = Desk()
    desk.hear(stopping, stopped)
    assert (desk.the().kind, desk.the().stage) == (Kind.STOP, Stage.STARTED)
    desk.hear(said(aws.state(state="running", at=SAID + 2 * HOUR, called="s-3")), stopping, stopped)
    assert desk.the().stage == Stage.ENDED


def test_an_end_that_came_before_its_beginning_is_found_by_the_next_look() -> None:
    desk = Desk()
    desk.hear(said(aws.state(state="running", at=SAID + HOUR)), said(aws.state()))
    desk.look(at=SAID + 2 * HOUR)
    assert desk.the().stage == Stage.ENDED


def test_an_answer_from_before_a_stop_does_not_end_it() -> None:
    desk = Desk()
    desk.hear(said(aws.state()))
    desk.look(at=SAID - timedelta(seconds=1))
    assert len(desk.opened()) == 1


def test_a_planned_stop_that_comes_early_has_begun() -> None:
    desk = Desk()
    desk.look(aws.event("instance-stop"), at=SAID)
    desk.hear(said(aws.state()))
    assert (desk.the().notice_id, desk.the().stage, desk.the().start) == (aws.EVENT, Stage.STARTED, START)


def test_a_reboot_that_is_planned_has_nothing_to_do_with_a_stop() -> None:
    desk = Desk()
    desk.look(aws.event("system-reboot"), at=SAID)
    desk.hear(said(aws.state()))
    assert len(desk.opened()) == 2


def test_an_instance_that_runs_again_is_no_news_if_nobody_knew_of_a_stop() -> None:
    desk = Desk()
    desk.hear(said(aws.state(state="running")))
    assert desk.notices == {}


def test_a_spot_instance_that_still_runs_long_after_its_time_was_not_taken() -> None:
    desk = Desk()
    desk.hear(said(aws.spot()))
    desk.look(at=SAID + timedelta(minutes=5))
    assert len(desk.opened()) == 1
    desk.look(at=SAID + timedelta(minutes=15))
    assert desk.the().stage == Stage.ENDED


def test_each_notice_knows_by_which_names_it_goes() -> None:
    desk = Desk()
    desk.hear(health(), listed())
    (notice,) = desk.notices.values()
    assert notice.metadata.annotations == {Family.EVENT: aws.EVENT, Family.HEALTH: aws.ARN}
