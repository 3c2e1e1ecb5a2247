"""What is read out of the messages of a queue that EventBridge and Auto Scaling write to."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.kinds.notice import Kind, Stage
from haulout.kinds.reports import Plan
from haulout.notices.sources.aws.messages import Message, read_message
from haulout.notices.sources.aws.readings import GROUP, HOOK, Family, Nonsense, Reading
from support import aws_messages as aws
from support.aws_messages import ARN, END, ONE, SAID, START, TOKEN, TWO

NOW = SAID + timedelta(seconds=3)


def read(body: str) -> Message:
    return read_message(body, now=NOW)


def the(body: str) -> Reading:
    (found,) = read(body).readings
    return found


def plan(body: str) -> Plan:
    found = the(body).plan
    assert found is not None
    return found


def test_a_scheduled_change_is_planned_for_the_time_that_health_says() -> None:
    found = the(aws.health(ONE))
    assert (found.family, found.called, found.instance) == (Family.HEALTH, ARN, ONE)
    assert (found.stage, found.at) == (Stage.SCHEDULED, SAID)
    assert found.plan == Plan(
        kind=Kind.TERMINATE, reason=aws.CODE, description="the host is failing", start=START, end=END
    )


def test_each_instance_of_a_health_event_is_reported() -> None:
    """Weakness 2 of aws-node-termination-handler: only the first was ever drained."""
    found = read(aws.health(ONE, TWO, ONE)).readings
    assert [it.instance for it in found] == [ONE, TWO]
    assert len({it.notice_id for it in found}) == 2


def test_instances_are_read_from_the_resources_if_no_entity_is_named() -> None:
    body = aws.envelope("aws.health", "AWS Health Event", {}, resources=[f"arn:aws:ec2:eu-west-1:1:instance/{ONE}"])
    whole = json.loads(body) | {"detail": json.loads(aws.health())["detail"]}
    assert the(json.dumps(whole)).instance == ONE


@pytest.mark.parametrize(
    ("said", "stage"), [(SAID, Stage.CANCELLED), (START, Stage.ENDED), (START + timedelta(days=2), Stage.ENDED)]
)
def test_a_closed_event_is_over_and_never_a_reason_to_drain(said: datetime, stage: Stage) -> None:
    """Weakness 3 of aws-node-termination-handler: a completion notice drained again."""
    (found,) = read_message(aws.health(ONE, at=said, statusCode="closed"), now=said).readings
    assert found.stage is stage


def test_an_instance_that_is_resolved_is_done_with_while_others_are_not() -> None:
    entities = [{"entityValue": ONE, "status": "RESOLVED"}, {"entityValue": TWO, "status": "PENDING"}]
    found = read(aws.health(affectedEntities=entities)).readings
    assert [it.stage for it in found] == [Stage.CANCELLED, Stage.SCHEDULED]


def test_an_open_event_has_begun_once_its_start_is_past() -> None:
    (found,) = read_message(aws.health(ONE, at=END, statusCode="open"), now=END).readings
    assert found.stage is Stage.STARTED


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED", Kind.REBOOT),
        ("AWS_EC2_INSTANCE_REBOOT_FLEXIBLE_MAINTENANCE_SCHEDULED", Kind.REBOOT),
        ("AWS_EC2_SYSTEM_REBOOT_MAINTENANCE_SCHEDULED", Kind.REBOOT),
        ("AWS_EC2_INSTANCE_NETWORK_MAINTENANCE_SCHEDULED", Kind.FREEZE),
        ("AWS_EC2_INSTANCE_POWER_MAINTENANCE_SCHEDULED", Kind.REBOOT),
        ("AWS_EC2_PERSISTENT_INSTANCE_POWER_MAINTENANCE_SCHEDULED", Kind.REBOOT),
        ("AWS_EC2_INSTANCE_STOP_SCHEDULED", Kind.STOP),
        ("AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED", Kind.TERMINATE),
        ("AWS_EC2_INSTANCE_RETIREMENT_EXPEDITED", Kind.TERMINATE),
        ("AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED", Kind.TERMINATE),
        ("AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_EXPEDITED", Kind.TERMINATE),
        ("AWS_EC2_INSTANCE_TERMINATION_SCHEDULED", Kind.TERMINATE),
        ("AWS_EC2_MAINTENANCE_SCHEDULED", Kind.REBOOT),
        ("AWS_EC2_DEDICATED_HOST_MAINTENANCE_SCHEDULED", Kind.REBOOT),
        ("AWS_EC2_DEDICATED_HOST_NETWORK_MAINTENANCE_SCHEDULED", Kind.FREEZE),
        ("AWS_EC2_DEDICATED_HOST_POWER_MAINTENANCE_SCHEDULED", Kind.REBOOT),
        ("AWS_EC2_DEDICATED_HOST_RETIREMENT_SCHEDULED", Kind.TERMINATE),
        ("AWS_EC2_ULTRASERVER_MAINTENANCE_INITIATED", Kind.UNKNOWN),
    ],
)
def test_what_will_happen_is_told_by_the_code_of_the_event(code: str, kind: Kind) -> None:
    assert plan(aws.health(ONE, eventTypeCode=code)).kind is kind


def test_maintenance_without_a_closer_word_goes_by_its_description() -> None:
    said = [{"latestDescription": "Network maintenance: connectivity is lost for a moment"}]
    assert (
        plan(aws.health(ONE, eventTypeCode="AWS_EC2_MAINTENANCE_SCHEDULED", eventDescription=said)).kind is Kind.FREEZE
    )


@pytest.mark.parametrize(
    ("action", "kind"), [("terminate", Kind.TERMINATE), ("stop", Kind.STOP), ("hibernate", Kind.STOP)]
)
def test_a_spot_instance_is_taken_back_in_two_minutes(action: str, kind: Kind) -> None:
    found = the(aws.spot(action=action))
    assert (found.family, found.instance, found.stage) == (Family.SPOT, ONE, Stage.SCHEDULED)
    assert found.plan is not None
    assert (found.plan.kind, found.plan.start) == (kind, SAID + timedelta(minutes=2))


def test_a_rebalance_recommendation_may_come_true_at_any_moment() -> None:
    found = plan(aws.rebalance())
    assert (found.kind, found.reason, found.start) == (Kind.TERMINATE, "rebalance-recommendation", None)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("stopping", Kind.STOP),
        ("stopped", Kind.STOP),
        ("shutting-down", Kind.TERMINATE),
        ("terminated", Kind.TERMINATE),
    ],
)
def test_an_instance_that_goes_down_has_begun_to(state: str, kind: Kind) -> None:
    found = the(aws.state(state=state))
    assert found.stage is Stage.STARTED
    assert found.plan is not None
    assert found.plan.kind is kind


def test_an_instance_that_runs_again_is_done_with() -> None:
    found = the(aws.state(state="running"))
    assert (found.family, found.stage, found.plan) == (Family.STATE, Stage.ENDED, None)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(aws.lifecycle(), id="EventBridge"),
        pytest.param(
            json.dumps(aws.action(RequestId="r", Time="2026-05-02T10:00:00.000Z")), id="straight to the queue"
        ),
        pytest.param(aws.in_sns(json.dumps(aws.action(Time="2026-05-02T10:00:00.000Z"))), id="by SNS"),
        pytest.param(aws.in_sns(aws.lifecycle()), id="EventBridge by SNS"),
    ],
)
def test_a_lifecycle_action_is_read_whichever_way_it_comes(body: str) -> None:
    found = the(body)
    assert (found.family, found.called, found.instance, found.at) == (Family.LIFECYCLE, TOKEN, ONE, SAID)
    assert found.notes == {GROUP: "workers", HOOK: "drain"}


def test_a_launch_is_no_maintenance_and_waits_for_its_node() -> None:
    found = read(aws.lifecycle(transition="LAUNCHING"))
    assert found.readings == ()
    assert found.launch is not None
    assert (found.launch.instance, found.launch.group, found.launch.hook) == (ONE, "workers", "drain")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (json.dumps({"Event": "autoscaling:TEST_NOTIFICATION", "AutoScalingGroupName": "workers"}), "only tries"),
        (json.dumps({"LifecycleTransition": "autoscaling:TEST_NOTIFICATION"}), "only tries"),
        (aws.in_sns(json.dumps({"Event": "autoscaling:TEST_NOTIFICATION"})), "only tries"),
        (aws.health(ONE, service="RDS"), "about 'RDS', not about EC2"),
        (aws.health(ONE, eventTypeCategory="issue"), "category 'issue'"),
        (aws.health("h-0123456789abcdef0"), "about no instance: 'h-0123456789abcdef0'"),
        (aws.health(), "about no instance"),
        (aws.state(state="pending"), "an instance that is 'pending'"),
        (aws.envelope("aws.ec2", "EC2 Fleet Spot Instance Request Change", {}), "nothing to do about"),
        (aws.envelope("com.example", "Order Placed", {"n": 1}), "nothing to do about 'Order Placed'"),
        (json.dumps(aws.action(LifecycleTransition="autoscaling:OTHER")), "nothing to do about 'autoscaling:OTHER'"),
    ],
)
def test_what_is_none_of_our_business_is_ignored_with_the_reason(body: str, why: str) -> None:
    found = read(body)
    assert why in found.ignored
    assert (found.readings, found.launch) == ((), None)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "no message that AWS writes"),
        ("hello", "no message that AWS writes"),
        ("[]", "Expected `object`, got `array`"),
        ("null", "Expected `object`, got `null`"),
        ("{}", "found neither source nor detail-type"),
        ('{"a":' * 100_000, "no message that AWS writes"),
        ('{"source": 7}', "Expected `str`, got `int` - at `$.source`"),
        (json.dumps({"Type": "Notification", "Message": "what?"}), "no message that AWS writes"),
        (aws.in_sns(aws.in_sns(aws.in_sns(aws.in_sns(aws.spot())))), "wrapped more than 3 times"),
        (aws.health(ONE, affectedEntities="all"), "at `$.affectedEntities`"),
        (aws.spot("../../etc/passwd"), "expected the id of an instance, found '../../etc/passwd'"),
        (aws.spot(""), "expected the id of an instance"),
        (aws.envelope("aws.ec2", "EC2 Spot Instance Interruption Warning", [1]), "Expected `object`, got `array`"),
        (
            aws.envelope("aws.ec2", "EC2 Spot Instance Interruption Warning", {"instance-id": ONE}, id=""),
            "expected an id",
        ),
        (
            json.dumps(aws.action(transition="LAUNCHING", AutoScalingGroupName="")),
            "expected LifecycleActionToken, AutoScalingGroupName",
        ),
        (aws.state(state=" "), "expected a state"),
        (json.dumps(aws.action(instance="i-")), "expected the id of an instance"),
    ],
)
def test_what_cannot_be_understood_is_told_and_not_guessed(body: str, why: str) -> None:
    with pytest.raises(Nonsense) as told:
        read(body)
    assert why in str(told.value)
    assert len(str(told.value)) < 500


def test_what_claims_to_come_from_the_future_does_not_outweigh_what_is_said_later() -> None:
    far = datetime(9999, 1, 1, tzinfo=UTC)
    assert the(aws.health(ONE, at=far)).at == NOW
    assert the(aws.rebalance(at=far)).at == NOW


def test_more_than_a_notice_can_hold_is_cut() -> None:
    said = [{"latestDescription": "x" * 100_000}]
    found = plan(aws.health(ONE, eventDescription=said, eventTypeCode="AWS_EC2_REBOOT" + "Y" * 9000))
    assert (len(found.description), len(found.reason)) == (4096, 1024)


@pytest.mark.parametrize("written", [None, "", "whenever", "Sat, 16 May 99999 10:00:00 GMT", 1234, ["x"]])
def test_a_scheduled_change_without_a_readable_start_may_begin_at_any_moment(written: object) -> None:
    found = the(aws.health(ONE, startTime=written))
    assert found.plan is not None
    assert (found.stage, found.plan.start) == (Stage.SCHEDULED, None)


def test_an_event_without_a_name_is_named_after_its_message() -> None:
    for body in (aws.health(ONE, eventArn=None), aws.health(ONE, eventArn="a\nb"), aws.spot()):
        whole = json.dumps(json.loads(body) | {"id": None})
        (found,) = read_message(whole, now=NOW, called="m-7").readings
        assert (found.called, found.instance) == ("m-7", ONE)


def test_a_lifecycle_action_that_nobody_can_complete_is_a_reason_to_drain() -> None:
    body = json.dumps(aws.action(LifecycleHookName=None, Time="2026-05-02T10:00:00Z"))
    (found,) = read_message(body, now=NOW, called="m-7").readings
    assert (found.instance, found.called, found.notes) == (ONE, "m-7", {})


@pytest.mark.parametrize("state", ["Stopping", "STOPPED", " shutting-down ", "Terminated"])
def test_a_state_is_read_in_whatever_case_it_is_written(state: str) -> None:
    assert the(aws.state(state=state)).stage is Stage.STARTED


@pytest.mark.parametrize("kind", [None, "Anything"])
@pytest.mark.parametrize("body", [aws.lifecycle(), json.dumps(aws.action()), aws.spot(), aws.health(ONE)])
def test_a_wrapped_message_is_read_whatever_its_type_says(body: str, kind: str | None) -> None:
    assert the(json.dumps({"Type": kind, "Message": body})).instance == ONE


@pytest.mark.parametrize("body", [aws.lifecycle(), json.dumps(aws.action()), aws.spot(), aws.state(), aws.health(ONE)])
def test_what_is_null_and_not_needed_is_absent(body: str) -> None:
    whole = json.loads(body)
    needed = ("source", "detail-type", "detail", "LifecycleTransition", "EC2InstanceId")
    nulls = {key: None for key in whole if key not in needed}
    (found,) = read_message(json.dumps(whole | nulls), now=NOW, called="m-7").readings
    assert found.instance == ONE


def test_an_end_before_the_start_is_none() -> None:
    assert plan(aws.health(ONE, endTime="Sat, 02 May 2026 10:00:00 GMT")).end is None


_KEYS = [
    *("source", "detail-type", "detail", "time", "id", "Type", "Message", "Event", "LifecycleTransition"),
    *("eventArn", "service", "affectedEntities", "entityValue", "instance-id", "startTime", "EC2InstanceId"),
]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.sampled_from([ONE, ARN, "EC2", "closed"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=6),
    max_leaves=12,
)


@given(_JSON)
def test_whatever_comes_is_a_message_or_nonsense(found: object) -> None:
    try:
        read(json.dumps(found))
    except Nonsense:
        return


@given(st.sampled_from(["startTime", "endTime", "lastUpdatedTime"]), st.text(max_size=40))
def test_whatever_stands_for_an_instant_the_instance_is_reported(key: str, written: str) -> None:
    other: dict[str, Any] = {key: written}
    assert the(aws.health(ONE, **other)).instance == ONE
