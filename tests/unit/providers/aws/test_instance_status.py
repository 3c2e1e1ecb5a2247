"""Parsing the responses of DescribeInstanceStatus."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.api.maintenancenotice import MaintenanceKind, NoticeStage
from haulout.api.notice_reports import MaintenancePlan
from haulout.providers.aws.instance_events import InstanceEvent, parse_instance_id
from haulout.providers.aws.instance_status import InstanceStatus, parse_status
from support.clouds import aws_messages as aws
from support.clouds.aws_messages import END, EVENT, FIRST_INSTANCE, SENT_AT, START


def read(*events: object, state: str = "running") -> InstanceStatus:
    found = parse_status(aws.status(*events, state=state), at=SENT_AT)
    assert found is not None
    return found


def only_event(*events: object) -> InstanceEvent:
    (found,) = read(*events).events
    return found


def test_event_has_its_start_and_is_reschedulable_until_its_deadline() -> None:
    deadline = START + timedelta(days=7)
    found = only_event(aws.event(NotBeforeDeadline=deadline))
    assert (found.notice_id, found.instance, found.stage) == (EVENT, FIRST_INSTANCE, NoticeStage.SCHEDULED)
    assert found.plan == MaintenancePlan(
        kind=MaintenanceKind.REBOOT,
        reason="system-reboot",
        description="planned",
        start=START,
        end=END,
        deadline=deadline,
        reschedulable=True,
    )


@pytest.mark.parametrize(
    ("code", "description", "kind"),
    [
        ("instance-reboot", "", MaintenanceKind.REBOOT),
        ("system-reboot", "", MaintenanceKind.REBOOT),
        ("system-maintenance", "network maintenance", MaintenanceKind.FREEZE),
        ("system-maintenance", "Power maintenance", MaintenanceKind.REBOOT),
        ("system-maintenance", "power and network maintenance", MaintenanceKind.REBOOT),
        ("system-maintenance", "", MaintenanceKind.REBOOT),
        ("instance-stop", "", MaintenanceKind.STOP),
        ("instance-retirement", "", MaintenanceKind.TERMINATE),
        ("instance-levitation", "", MaintenanceKind.UNKNOWN),
    ],
)
def test_maintenance_kind_follows_from_the_event_code(code: str, description: str, kind: MaintenanceKind) -> None:
    found = only_event(aws.event(code, description)).plan
    assert found is not None
    assert (found.kind, found.reason) == (kind, code)


@pytest.mark.parametrize(
    ("description", "stage"),
    [
        ("[Completed] planned", NoticeStage.ENDED),
        ("[Canceled] planned", NoticeStage.CANCELLED),
        ("[Cancelled] planned", NoticeStage.CANCELLED),
        ("  [COMPLETED] planned", NoticeStage.ENDED),
        ("planned [Completed]", NoticeStage.SCHEDULED),
    ],
)
def test_finished_event_is_recognized_by_its_description(description: str, stage: NoticeStage) -> None:
    assert only_event(aws.event(description=description)).stage is stage


def test_event_listed_after_its_start_has_started() -> None:
    found = parse_status(aws.status(aws.event()), at=START)
    assert found is not None
    assert found.events[0].stage is NoticeStage.STARTED


def test_all_events_of_an_instance_are_parsed() -> None:
    """MMO weakness 9: only the first event counted."""
    found = read(aws.event(), aws.event("instance-stop", InstanceEventId="instance-event-2")).events
    assert [item.event_id for item in found] == [EVENT, "instance-event-2"]


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ("boom", "an event that is not an object: 'boom'"),
        ({"Code": "system-reboot"}, "without InstanceEventId"),
        (aws.event(InstanceEventId=7), "without InstanceEventId"),
        (aws.event(InstanceEventId="x" * 2000), "without InstanceEventId"),
        (aws.event(NotBefore=None), "without a valid time as NotBefore: None"),
        (aws.event(NotBefore="soon"), "without a valid time as NotBefore: 'soon'"),
    ],
)
def test_malformed_event_is_reported_and_the_others_are_parsed(event: object, why: str) -> None:
    found = read(event, aws.event())
    assert [item.event_id for item in found.events] == [EVENT]
    assert why in found.unreadable[0]


@pytest.mark.parametrize("odd", [{}, {"InstanceId": None}, {"InstanceId": "m-1"}, {"InstanceId": 7}])
def test_status_without_an_instance_is_none(odd: dict[str, Any]) -> None:
    assert parse_status(odd, at=SENT_AT) is None


@pytest.mark.parametrize("odd", [{"Events": 7}, {"Events": None}, {"InstanceState": "running"}, {"InstanceState": {}}])
def test_malformed_fields_do_not_make_an_instance_terminated(odd: dict[str, Any]) -> None:
    found = parse_status(aws.status() | odd, at=SENT_AT)
    assert found is not None
    assert not found.is_terminated


@pytest.mark.parametrize(("state", "is_terminated"), [("running", False), ("stopped", False), ("terminated", True)])
def test_terminated_instance_is_terminated_and_a_stopped_one_is_not(state: str, *, is_terminated: bool) -> None:
    assert read(state=state).is_terminated is is_terminated


@pytest.mark.parametrize(
    ("written", "instance"),
    [
        ("aws:///eu-west-1a/i-0abc", "i-0abc"),
        ("i-0fedcba9876543210", "i-0fedcba9876543210"),
        ("arn:aws:ec2:eu-west-1:1:instance/i-0abc", "i-0abc"),
        ("aws:///eu-west-1a/1234/fargate-ip-10-0-0-1.ec2.internal", None),
        ("", None),
        (None, None),
        ("i-0ABC", None),
        ("i-0abc;drop", None),
    ],
)
def test_instance_id_is_parsed_from_provider_ids_and_arns(written: object, instance: str | None) -> None:
    assert parse_instance_id(written) == instance
