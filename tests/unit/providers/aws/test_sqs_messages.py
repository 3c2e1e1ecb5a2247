"""Parsing messages of EventBridge and Auto Scaling from a queue."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.maintenancenotice import MaintenanceKind, NoticeStage
from haulout.api.notice_reports import MaintenancePlan
from haulout.providers.aws.instance_events import (
    LIFECYCLE_GROUP,
    LIFECYCLE_HOOK,
    EventType,
    InstanceEvent,
    UnreadableEvent,
)
from haulout.providers.aws.sqs_messages import SqsMessage, parse_message
from support.clouds import aws_messages as aws
from support.clouds.aws_messages import ARN, END, FIRST_INSTANCE, SECOND_INSTANCE, SENT_AT, START, TOKEN

NOW = SENT_AT + timedelta(seconds=3)


def read(body: str) -> SqsMessage:
    return parse_message(body, now=NOW)


def only_event(body: str) -> InstanceEvent:
    (found,) = read(body).events
    return found


def plan(body: str) -> MaintenancePlan:
    found = only_event(body).plan
    assert found is not None
    return found


def test_health_event_has_the_start_of_its_message() -> None:
    found = only_event(aws.health(FIRST_INSTANCE))
    assert (found.event_type, found.event_id, found.instance) == (EventType.HEALTH, ARN, FIRST_INSTANCE)
    assert (found.stage, found.at) == (NoticeStage.SCHEDULED, SENT_AT)
    assert found.plan == MaintenancePlan(
        kind=MaintenanceKind.TERMINATE, reason=aws.CODE, description="the host is failing", start=START, end=END
    )


def test_each_instance_of_a_health_event_is_reported() -> None:
    """Weakness 2 of aws-node-termination-handler: only the first was ever drained."""
    found = read(aws.health(FIRST_INSTANCE, SECOND_INSTANCE, FIRST_INSTANCE)).events
    assert [item.instance for item in found] == [FIRST_INSTANCE, SECOND_INSTANCE]
    assert len({item.notice_id for item in found}) == 2


def test_instances_are_read_from_resources_without_affected_entities() -> None:
    body = aws.envelope(
        "aws.health", "AWS Health Event", {}, resources=[f"arn:aws:ec2:eu-west-1:1:instance/{FIRST_INSTANCE}"]
    )
    whole = json.loads(body) | {"detail": json.loads(aws.health())["detail"]}
    assert only_event(json.dumps(whole)).instance == FIRST_INSTANCE


@pytest.mark.parametrize(
    ("reported_at", "stage"),
    [(SENT_AT, NoticeStage.CANCELLED), (START, NoticeStage.ENDED), (START + timedelta(days=2), NoticeStage.ENDED)],
)
def test_closed_health_event_is_cancelled_or_ended(reported_at: datetime, stage: NoticeStage) -> None:
    """Weakness 3 of aws-node-termination-handler: a completion notice drained again."""
    (found,) = parse_message(aws.health(FIRST_INSTANCE, at=reported_at, statusCode="closed"), now=reported_at).events
    assert found.stage is stage


def test_resolved_entity_is_cancelled_while_others_are_scheduled() -> None:
    entities = [
        {"entityValue": FIRST_INSTANCE, "status": "RESOLVED"},
        {"entityValue": SECOND_INSTANCE, "status": "PENDING"},
    ]
    found = read(aws.health(affectedEntities=entities)).events
    assert [item.stage for item in found] == [NoticeStage.CANCELLED, NoticeStage.SCHEDULED]


def test_open_health_event_has_started_after_its_start() -> None:
    (found,) = parse_message(aws.health(FIRST_INSTANCE, at=END, statusCode="open"), now=END).events
    assert found.stage is NoticeStage.STARTED


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED", MaintenanceKind.REBOOT),
        ("AWS_EC2_INSTANCE_REBOOT_FLEXIBLE_MAINTENANCE_SCHEDULED", MaintenanceKind.REBOOT),
        ("AWS_EC2_SYSTEM_REBOOT_MAINTENANCE_SCHEDULED", MaintenanceKind.REBOOT),
        ("AWS_EC2_INSTANCE_NETWORK_MAINTENANCE_SCHEDULED", MaintenanceKind.FREEZE),
        ("AWS_EC2_INSTANCE_POWER_MAINTENANCE_SCHEDULED", MaintenanceKind.REBOOT),
        ("AWS_EC2_PERSISTENT_INSTANCE_POWER_MAINTENANCE_SCHEDULED", MaintenanceKind.REBOOT),
        ("AWS_EC2_INSTANCE_STOP_SCHEDULED", MaintenanceKind.STOP),
        ("AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED", MaintenanceKind.TERMINATE),
        ("AWS_EC2_INSTANCE_RETIREMENT_EXPEDITED", MaintenanceKind.TERMINATE),
        ("AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED", MaintenanceKind.TERMINATE),
        ("AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_EXPEDITED", MaintenanceKind.TERMINATE),
        ("AWS_EC2_INSTANCE_TERMINATION_SCHEDULED", MaintenanceKind.TERMINATE),
        ("AWS_EC2_MAINTENANCE_SCHEDULED", MaintenanceKind.REBOOT),
        ("AWS_EC2_DEDICATED_HOST_MAINTENANCE_SCHEDULED", MaintenanceKind.REBOOT),
        ("AWS_EC2_DEDICATED_HOST_NETWORK_MAINTENANCE_SCHEDULED", MaintenanceKind.FREEZE),
        ("AWS_EC2_DEDICATED_HOST_POWER_MAINTENANCE_SCHEDULED", MaintenanceKind.REBOOT),
        ("AWS_EC2_DEDICATED_HOST_RETIREMENT_SCHEDULED", MaintenanceKind.TERMINATE),
        ("AWS_EC2_ULTRASERVER_MAINTENANCE_INITIATED", MaintenanceKind.UNKNOWN),
    ],
)
def test_maintenance_kind_follows_from_the_event_type_code(code: str, kind: MaintenanceKind) -> None:
    assert plan(aws.health(FIRST_INSTANCE, eventTypeCode=code)).kind is kind


def test_kind_of_unspecific_maintenance_follows_from_its_description() -> None:
    descriptions = [{"latestDescription": "Network maintenance: connectivity is lost for a moment"}]
    assert (
        plan(
            aws.health(FIRST_INSTANCE, eventTypeCode="AWS_EC2_MAINTENANCE_SCHEDULED", eventDescription=descriptions)
        ).kind
        is MaintenanceKind.FREEZE
    )


@pytest.mark.parametrize(
    ("action", "kind"),
    [("terminate", MaintenanceKind.TERMINATE), ("stop", MaintenanceKind.STOP), ("hibernate", MaintenanceKind.STOP)],
)
def test_spot_interruption_starts_in_two_minutes(action: str, kind: MaintenanceKind) -> None:
    found = only_event(aws.spot(action=action))
    assert (found.event_type, found.instance, found.stage) == (EventType.SPOT, FIRST_INSTANCE, NoticeStage.SCHEDULED)
    assert found.plan is not None
    assert (found.plan.kind, found.plan.start) == (kind, SENT_AT + timedelta(minutes=2))


def test_rebalance_recommendation_has_no_start() -> None:
    found = plan(aws.rebalance())
    assert (found.kind, found.reason, found.start) == (MaintenanceKind.TERMINATE, "rebalance-recommendation", None)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("stopping", MaintenanceKind.STOP),
        ("stopped", MaintenanceKind.STOP),
        ("shutting-down", MaintenanceKind.TERMINATE),
        ("terminated", MaintenanceKind.TERMINATE),
    ],
)
def test_state_change_to_stopping_or_terminating_has_started(state: str, kind: MaintenanceKind) -> None:
    found = only_event(aws.state(state=state))
    assert found.stage is NoticeStage.STARTED
    assert found.plan is not None
    assert found.plan.kind is kind


def test_state_change_to_running_has_ended() -> None:
    found = only_event(aws.state(state="running"))
    assert (found.event_type, found.stage, found.plan) == (EventType.STATE_CHANGE, NoticeStage.ENDED, None)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(aws.lifecycle(), id="EventBridge"),
        pytest.param(
            json.dumps(aws.action(RequestId="r", Time="2026-05-02T10:00:00.000Z")), id="straight to the queue"
        ),
        pytest.param(aws.in_sns_notification(json.dumps(aws.action(Time="2026-05-02T10:00:00.000Z"))), id="by SNS"),
        pytest.param(aws.in_sns_notification(aws.lifecycle()), id="EventBridge by SNS"),
    ],
)
def test_lifecycle_action_is_parsed_from_each_message_format(body: str) -> None:
    found = only_event(body)
    assert (found.event_type, found.event_id, found.instance, found.at) == (
        EventType.LIFECYCLE,
        TOKEN,
        FIRST_INSTANCE,
        SENT_AT,
    )
    assert found.annotations == {LIFECYCLE_GROUP: "workers", LIFECYCLE_HOOK: "drain"}


def test_launch_action_is_no_event() -> None:
    found = read(aws.lifecycle(transition="LAUNCHING"))
    assert found.events == ()
    assert found.launch is not None
    assert (found.launch.instance, found.launch.group, found.launch.hook) == (FIRST_INSTANCE, "workers", "drain")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            json.dumps({"Event": "autoscaling:TEST_NOTIFICATION", "AutoScalingGroupName": "workers"}),
            "a test notification",
        ),
        (json.dumps({"LifecycleTransition": "autoscaling:TEST_NOTIFICATION"}), "a test notification"),
        (aws.in_sns_notification(json.dumps({"Event": "autoscaling:TEST_NOTIFICATION"})), "a test notification"),
        (aws.health(FIRST_INSTANCE, service="RDS"), "about 'RDS', not about EC2"),
        (aws.health(FIRST_INSTANCE, eventTypeCategory="issue"), "category 'issue'"),
        (aws.health("h-0123456789abcdef0"), "names no instance: 'h-0123456789abcdef0'"),
        (aws.health(), "names no instance"),
        (aws.state(state="pending"), "an instance that is 'pending'"),
        (aws.envelope("aws.ec2", "EC2 Fleet Spot Instance Request Change", {}), "nothing to do about"),
        (aws.envelope("com.example", "Order Placed", {"n": 1}), "nothing to do about 'Order Placed'"),
        (json.dumps(aws.action(LifecycleTransition="autoscaling:OTHER")), "nothing to do about 'autoscaling:OTHER'"),
    ],
)
def test_irrelevant_message_is_ignored_with_a_reason(body: str, why: str) -> None:
    found = read(body)
    assert why in found.ignored_reason
    assert (found.events, found.launch) == ((), None)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "not a message of AWS"),
        ("hello", "not a message of AWS"),
        ("[]", "Expected `object`, got `array`"),
        ("null", "Expected `object`, got `null`"),
        ("{}", "found neither source nor detail-type"),
        ('{"a":' * 100_000, "not a message of AWS"),
        ('{"source": 7}', "Expected `str`, got `int` - at `$.source`"),
        (json.dumps({"Type": "Notification", "Message": "what?"}), "not a message of AWS"),
        (
            aws.in_sns_notification(
                aws.in_sns_notification(aws.in_sns_notification(aws.in_sns_notification(aws.spot())))
            ),
            "nested more than 3 times",
        ),
        (aws.health(FIRST_INSTANCE, affectedEntities="all"), "at `$.affectedEntities`"),
        (aws.spot("../../etc/passwd"), "expected an instance ID, found '../../etc/passwd'"),
        (aws.spot(""), "expected an instance ID"),
        (aws.envelope("aws.ec2", "EC2 Spot Instance Interruption Warning", [1]), "Expected `object`, got `array`"),
        (
            aws.envelope("aws.ec2", "EC2 Spot Instance Interruption Warning", {"instance-id": FIRST_INSTANCE}, id=""),
            "expected an id",
        ),
        (
            json.dumps(aws.action(transition="LAUNCHING", AutoScalingGroupName="")),
            "expected LifecycleActionToken, AutoScalingGroupName",
        ),
        (aws.state(state=" "), "expected a state"),
        (json.dumps(aws.action(instance="i-")), "expected an instance ID"),
    ],
)
def test_unreadable_message_is_rejected_with_a_reason(body: str, why: str) -> None:
    with pytest.raises(UnreadableEvent) as caught:
        read(body)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 500


def test_report_time_in_the_future_is_capped_at_now() -> None:
    far = datetime(9999, 1, 1, tzinfo=UTC)
    assert only_event(aws.health(FIRST_INSTANCE, at=far)).at == NOW
    assert only_event(aws.rebalance(at=far)).at == NOW


def test_description_and_reason_are_truncated_to_the_limits_of_a_notice() -> None:
    descriptions = [{"latestDescription": "x" * 100_000}]
    found = plan(aws.health(FIRST_INSTANCE, eventDescription=descriptions, eventTypeCode="AWS_EC2_REBOOT" + "Y" * 9000))
    assert (len(found.description), len(found.reason)) == (4096, 1024)


@pytest.mark.parametrize("written", [None, "", "whenever", "Sat, 16 May 99999 10:00:00 GMT", 1234, ["x"]])
def test_health_event_with_an_unreadable_start_has_no_start(written: object) -> None:
    found = only_event(aws.health(FIRST_INSTANCE, startTime=written))
    assert found.plan is not None
    assert (found.stage, found.plan.start) == (NoticeStage.SCHEDULED, None)


def test_event_without_an_id_has_the_message_id() -> None:
    for body in (aws.health(FIRST_INSTANCE, eventArn=None), aws.health(FIRST_INSTANCE, eventArn="a\nb"), aws.spot()):
        whole = json.dumps(json.loads(body) | {"id": None})
        (found,) = parse_message(whole, now=NOW, message_id="m-7").events
        assert (found.event_id, found.instance) == ("m-7", FIRST_INSTANCE)


def test_lifecycle_action_without_a_hook_is_reported_without_annotations() -> None:
    body = json.dumps(aws.action(LifecycleHookName=None, Time="2026-05-02T10:00:00Z"))
    (found,) = parse_message(body, now=NOW, message_id="m-7").events
    assert (found.instance, found.event_id, found.annotations) == (FIRST_INSTANCE, "m-7", {})


@pytest.mark.parametrize("state", ["Stopping", "STOPPED", " shutting-down ", "Terminated"])
def test_instance_state_is_case_insensitive(state: str) -> None:
    assert only_event(aws.state(state=state)).stage is NoticeStage.STARTED


@pytest.mark.parametrize("kind", [None, "Anything"])
@pytest.mark.parametrize("body", [aws.lifecycle(), json.dumps(aws.action()), aws.spot(), aws.health(FIRST_INSTANCE)])
def test_wrapped_message_is_parsed_for_any_type(body: str, kind: str | None) -> None:
    assert only_event(json.dumps({"Type": kind, "Message": body})).instance == FIRST_INSTANCE


@pytest.mark.parametrize(
    "body", [aws.lifecycle(), json.dumps(aws.action()), aws.spot(), aws.state(), aws.health(FIRST_INSTANCE)]
)
def test_optional_null_fields_are_ignored(body: str) -> None:
    whole = json.loads(body)
    needed = ("source", "detail-type", "detail", "LifecycleTransition", "EC2InstanceId")
    nulls = {key: None for key in whole if key not in needed}
    (found,) = parse_message(json.dumps(whole | nulls), now=NOW, message_id="m-7").events
    assert found.instance == FIRST_INSTANCE


def test_end_before_the_start_is_ignored() -> None:
    assert plan(aws.health(FIRST_INSTANCE, endTime="Sat, 02 May 2026 10:00:00 GMT")).end is None


_KEYS = [
    *("source", "detail-type", "detail", "time", "id", "Type", "Message", "Event", "LifecycleTransition"),
    *("eventArn", "service", "affectedEntities", "entityValue", "instance-id", "startTime", "EC2InstanceId"),
]
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=9)
    | st.sampled_from([FIRST_INSTANCE, ARN, "EC2", "closed"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=6),
    max_leaves=12,
)


@given(_JSON)
def test_any_json_is_parsed_or_raises_unreadable_event(found: object) -> None:
    try:
        read(json.dumps(found))
    except UnreadableEvent:
        return


@given(st.sampled_from(["startTime", "endTime", "lastUpdatedTime"]), st.text(max_size=40))
def test_instance_is_reported_for_any_text_as_time(key: str, written: str) -> None:
    other: dict[str, Any] = {key: written}
    assert only_event(aws.health(FIRST_INSTANCE, **other)).instance == FIRST_INSTANCE
