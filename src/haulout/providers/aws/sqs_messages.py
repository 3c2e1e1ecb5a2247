"""Parse messages of the queue. Pure.

    message = parse_message(body, now=now, message_id=message_id)

EventBridge writes an envelope with a `detail`; Auto Scaling may write to the queue directly, without one; SNS wraps
either of them. Other messages may be in the same queue: irrelevant ones are ignored with a reason, and those that
cannot be parsed raise `UnreadableEvent`.

Every message that aws-node-termination-handler accepts is accepted: a `null` counts as absent, and only the instance
and the event are required. An event without an ID gets the ID of its message (`message_id`). Messages are untrusted: a
time in the future is replaced by now, so that it does not override later messages, and an invalid instance ID is
rejected.

An event of AWS Health is one maintenance of all instances that it affects (`parse_health_event`). Health has a status
of the event as a whole (`statusCode`), and one per instance (`status`). It reports "closed" for both finished and
cancelled events; the planned start tells them apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from haulout.api.maintenancenotice import MaintenanceKind, NoticeStage
from haulout.api.notice_reports import MaintenancePlan
from haulout.providers.aws.instance_events import (
    LIFECYCLE_GROUP,
    LIFECYCLE_HOOK,
    EventType,
    InstanceEvent,
    UnreadableEvent,
    new_plan,
    parse_event_id,
    parse_instance_id,
    parse_instant,
)
from haulout.providers.aws.instance_status import maintenance_kind

# The warning has no time: EC2 sends it two minutes before the interruption.
_SPOT_NOTICE = timedelta(minutes=2)
_MAX_NESTING = 3  # SNS around EventBridge, and one more
_TERMINATING, _LAUNCHING = "autoscaling:EC2_INSTANCE_TERMINATING", "autoscaling:EC2_INSTANCE_LAUNCHING"
_TEST_NOTIFICATION = "autoscaling:TEST_NOTIFICATION"
_KIND_BY_STATE = {
    "stopping": MaintenanceKind.STOP,
    "stopped": MaintenanceKind.STOP,
    "shutting-down": MaintenanceKind.TERMINATE,
    "terminated": MaintenanceKind.TERMINATE,
}

# The first entry that is part of the eventTypeCode applies.
_KINDS = (
    ("NETWORK", MaintenanceKind.FREEZE),
    ("POWER", MaintenanceKind.REBOOT),
    ("REBOOT", MaintenanceKind.REBOOT),
    ("RETIREMENT", MaintenanceKind.TERMINATE),
    ("TERMINATION", MaintenanceKind.TERMINATE),
    ("INSTANCE_STOP", MaintenanceKind.STOP),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """An instance that Auto Scaling has launched, and that may go into service when its node is ready."""

    instance: str
    group: str
    hook: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsMessage:
    """The content of a message; or the reason why it is ignored."""

    events: tuple[InstanceEvent, ...] = ()
    launch: Launch | None = None
    ignored_reason: str = ""


class _Envelope(msgspec.Struct, frozen=True, rename="pascal"):
    """The fields of every kind of envelope."""

    type: str = ""
    message: str = ""
    id: str = msgspec.field(name="id", default="")
    source: str = msgspec.field(name="source", default="")
    detail_type: str = msgspec.field(name="detail-type", default="")
    time: str = msgspec.field(name="time", default="")
    resources: tuple[str, ...] = msgspec.field(name="resources", default=())
    detail: Any = msgspec.field(name="detail", default=None)
    event: str = ""
    lifecycle_transition: str = ""


class _Instance(msgspec.Struct, frozen=True):
    instance_id: str = msgspec.field(name="instance-id", default="")
    instance_action: str = msgspec.field(name="instance-action", default="terminate")
    state: str = ""


class _Lifecycle(msgspec.Struct, frozen=True, rename="pascal"):
    lifecycle_action_token: str = ""
    auto_scaling_group_name: str = ""
    lifecycle_hook_name: str = ""
    instance: str = msgspec.field(name="EC2InstanceId", default="")
    lifecycle_transition: str = ""
    event: str = ""
    time: str = ""


def parse_message(body: str, *, now: datetime, message_id: str = "") -> SqsMessage:
    """Parse a message; raise `UnreadableEvent`. `message_id` is the ID of the SQS message."""
    try:
        return _parse(body.encode(), now, message_id, depth=0)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise UnreadableEvent(f"not a message of AWS: {error}") from error


def _parse(body: bytes, now: datetime, message_id: str, *, depth: int) -> SqsMessage:
    document = without_nulls(msgspec.json.decode(body))
    envelope = msgspec.convert(document, _Envelope)
    if envelope.message and not envelope.detail_type and not envelope.lifecycle_transition:
        if depth >= _MAX_NESTING:
            raise UnreadableEvent(f"a message nested more than {_MAX_NESTING} times")
        return _parse(envelope.message.encode(), now, message_id, depth=depth + 1)
    envelope = msgspec.structs.replace(envelope, id=parse_event_id(envelope.id) or parse_event_id(message_id))
    if _TEST_NOTIFICATION in (envelope.event, envelope.lifecycle_transition):
        return SqsMessage(ignored_reason="a test notification of Auto Scaling")
    if envelope.lifecycle_transition:
        return _parse_lifecycle(msgspec.convert(document, _Lifecycle), envelope, now)
    if not envelope.source or not envelope.detail_type:
        raise UnreadableEvent(
            "expected an event of EventBridge or of Auto Scaling, found neither source nor detail-type"
        )
    return _parse_event(envelope, now)


def _parse_event(envelope: _Envelope, now: datetime) -> SqsMessage:
    match envelope.source, envelope.detail_type:
        case "aws.health", _:
            return _parse_health(envelope, now)
        case "aws.ec2", "EC2 Spot Instance Interruption Warning":
            return _parse_spot(envelope, now)
        case "aws.ec2", "EC2 Instance Rebalance Recommendation":
            return _parse_rebalance(envelope, now)
        case "aws.ec2", "EC2 Instance State-change Notification":
            return _parse_state(envelope, now)
        case "aws.autoscaling", "EC2 Instance-terminate Lifecycle Action" | "EC2 Instance-launch Lifecycle Action":
            return _parse_lifecycle(msgspec.convert(envelope.detail or {}, _Lifecycle), envelope, now)
    return SqsMessage(ignored_reason=f"nothing to do about {envelope.detail_type!r:.100} of {envelope.source!r:.100}")


def _parse_health(envelope: _Envelope, now: datetime) -> SqsMessage:
    found = parse_health_event(
        envelope.detail,
        event_id=envelope.id,
        resources=envelope.resources,
        at=_reported_at(envelope.time, now),
        now=now,
    )
    return SqsMessage(ignored_reason=found) if isinstance(found, str) else SqsMessage(events=found)


def _parse_spot(envelope: _Envelope, now: datetime) -> SqsMessage:
    detail = msgspec.convert(envelope.detail or {}, _Instance)
    at = _reported_at(envelope.time, now)
    kind = MaintenanceKind.TERMINATE if detail.instance_action == "terminate" else MaintenanceKind.STOP
    plan = new_plan(
        kind,
        reason=f"spot-{detail.instance_action}",
        description="EC2 reclaims the spot instance",
        start=at + _SPOT_NOTICE,
    )
    return _single_event(EventType.SPOT, envelope, detail.instance_id, at=at, plan=plan)


def _parse_rebalance(envelope: _Envelope, now: datetime) -> SqsMessage:
    detail = msgspec.convert(envelope.detail or {}, _Instance)
    plan = new_plan(
        MaintenanceKind.TERMINATE,
        reason="rebalance-recommendation",
        description="the spot instance is likely to be reclaimed soon",
    )
    return _single_event(
        EventType.REBALANCE, envelope, detail.instance_id, at=_reported_at(envelope.time, now), plan=plan
    )


def _parse_state(envelope: _Envelope, now: datetime) -> SqsMessage:
    detail = msgspec.convert(envelope.detail or {}, _Instance)
    at = _reported_at(envelope.time, now)
    state = detail.state.strip().lower()
    if not state:
        raise UnreadableEvent(f"{envelope.detail_type}: expected a state, found {detail.state!r:.100}")
    if state == "running":
        return _single_event(EventType.STATE_CHANGE, envelope, detail.instance_id, at=at, stage=NoticeStage.ENDED)
    if state not in _KIND_BY_STATE:
        return SqsMessage(ignored_reason=f"nothing to do about an instance that is {detail.state!r:.100}")
    plan = new_plan(_KIND_BY_STATE[state], reason="state-change", description=f"the instance is {state}", start=at)
    return _single_event(
        EventType.STATE_CHANGE, envelope, detail.instance_id, at=at, stage=NoticeStage.STARTED, plan=plan
    )


def _single_event(
    event_type: EventType,
    envelope: _Envelope,
    instance_text: str,
    *,
    at: datetime,
    stage: NoticeStage = NoticeStage.SCHEDULED,
    plan: MaintenancePlan | None = None,
) -> SqsMessage:
    if not envelope.id:
        raise UnreadableEvent(f"{envelope.detail_type}: expected an id, found none")
    instance = _parse_instance(envelope.detail_type, instance_text)
    event = InstanceEvent(event_type=event_type, event_id=envelope.id, instance=instance, at=at, stage=stage, plan=plan)
    return SqsMessage(events=(event,))


def _parse_lifecycle(found: _Lifecycle, envelope: _Envelope, now: datetime) -> SqsMessage:
    what = "a lifecycle action"
    if _TEST_NOTIFICATION in (found.event, found.lifecycle_transition):
        return SqsMessage(ignored_reason="a test notification of Auto Scaling")
    instance = _parse_instance(what, found.instance)
    token, group, hook = (
        parse_event_id(text)
        for text in (found.lifecycle_action_token, found.auto_scaling_group_name, found.lifecycle_hook_name)
    )
    is_complete = bool(group and hook and token)
    event_id = token if is_complete else envelope.id
    if not event_id or (found.lifecycle_transition == _LAUNCHING and not is_complete):
        raise UnreadableEvent(
            f"{what} for {instance}: expected LifecycleActionToken, AutoScalingGroupName and LifecycleHookName"
        )
    if found.lifecycle_transition == _LAUNCHING:
        return SqsMessage(launch=Launch(instance=instance, group=group, hook=hook, token=token))
    if found.lifecycle_transition != _TERMINATING:
        return SqsMessage(ignored_reason=f"nothing to do about {found.lifecycle_transition!r:.100}")
    event = InstanceEvent(
        event_type=EventType.LIFECYCLE,
        event_id=event_id,
        instance=instance,
        at=_reported_at(envelope.time or found.time, now),
        plan=new_plan(
            MaintenanceKind.TERMINATE,
            reason="autoscaling",
            description=f"Auto Scaling group {group} terminates the instance",
        ),
        annotations={LIFECYCLE_GROUP: group, LIFECYCLE_HOOK: hook}
        if is_complete
        else {},  # without them the action cannot be completed
    )
    return SqsMessage(events=(event,))


def _parse_instance(what: str, text: str) -> str:
    instance = parse_instance_id(text)
    if instance is None:
        raise UnreadableEvent(f"{what}: expected an instance ID, found {text!r:.100}")
    return instance


def without_nulls(found: Any) -> Any:
    """Return the document without null values, as aws-node-termination-handler treats them."""
    if isinstance(found, dict):
        return {key: without_nulls(value) for key, value in found.items() if value is not None}
    return [without_nulls(item) for item in found if item is not None] if isinstance(found, list) else found


def _reported_at(text: str, now: datetime) -> datetime:
    """Return when the event was reported; a time in the future counts as now."""
    reported = parse_instant(text)
    return now if reported is None else min(reported, now)


class _Entity(msgspec.Struct, frozen=True, rename="camel"):
    entity_value: str = ""
    status: Any = ""


class _HealthEvent(msgspec.Struct, frozen=True, rename="camel"):
    """Only the fields that decide whether the event affects instances must be as documented; others are optional."""

    event_arn: Any = ""
    service: str = ""
    event_type_code: Any = ""
    event_type_category: str = ""
    status_code: Any = ""
    start_time: Any = ""
    end_time: Any = ""
    last_updated_time: Any = ""
    event_description: Any = ()
    affected_entities: tuple[_Entity, ...] = ()


def parse_health_event(
    detail: Any, *, event_id: str, resources: Sequence[str], at: datetime, now: datetime
) -> tuple[InstanceEvent, ...] | str:
    """Return one event per instance, or the reason to ignore the message; raise `UnreadableEvent`.

    An event without an ARN gets the ID of its message, `event_id`. One with an unreadable start may begin at any
    moment.
    """
    event = msgspec.convert(detail or {}, _HealthEvent)
    if event.service != "EC2":
        return f"it is about {event.service!r:.100}, not about EC2"
    if event.event_type_category != "scheduledChange":
        return f"it is of the category {event.event_type_category!r:.100}, not a scheduledChange"
    event_id = parse_event_id(event.event_arn) or event_id
    if not event_id:
        raise UnreadableEvent(f"an event of AWS Health: expected an eventArn, found {event.event_arn!r:.100}")
    entities = event.affected_entities or tuple(_Entity(item) for item in resources)
    statuses = {instance: item.status for item in entities if (instance := parse_instance_id(item.entity_value))}
    if not statuses:
        return f"it names no instance: {', '.join(item.entity_value for item in entities)!r:.100}"
    reported_at = min(parse_instant(event.last_updated_time) or at, now)
    plan = _plan(event)
    return tuple(
        InstanceEvent(
            event_type=EventType.HEALTH,
            event_id=event_id,
            instance=instance,
            at=reported_at,
            stage=_stage(event, status, None if plan is None else plan.start, reported_at),
            plan=plan,
        )
        for instance, status in statuses.items()
    )


def kind_of(code: str, description: str) -> MaintenanceKind:
    """Return the kind of maintenance of an event type."""
    for part, kind in _KINDS:
        if part in code:
            return kind
    return maintenance_kind(description) if code.endswith("MAINTENANCE_SCHEDULED") else MaintenanceKind.UNKNOWN


def _plan(event: _HealthEvent) -> MaintenancePlan | None:
    start = parse_instant(event.start_time)
    if start is None and event.status_code == "closed":
        return None
    description = _description(event.event_description)
    code = event.event_type_code if isinstance(event.event_type_code, str) else ""
    return new_plan(
        kind_of(code, description),
        reason=code,
        description=description,
        start=start,
        end=parse_instant(event.end_time),
    )


def _description(found: Any) -> str:
    texts = (
        [item.get("latestDescription") for item in found if isinstance(item, dict)] if isinstance(found, list) else []
    )
    return " ".join(item for item in texts if isinstance(item, str))


def _stage(event: _HealthEvent, status: str, start: datetime | None, reported_at: datetime) -> NoticeStage:
    if event.status_code == "closed" or status == "RESOLVED":
        return NoticeStage.CANCELLED if start is not None and reported_at < start else NoticeStage.ENDED
    return (
        NoticeStage.STARTED
        if event.status_code == "open" and start is not None and reported_at >= start
        else NoticeStage.SCHEDULED
    )
