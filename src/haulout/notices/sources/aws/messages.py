"""What a message of the queue says. Pure.

    found = read_message(body, now=now, called=message_id)

EventBridge writes an envelope with a `detail`; Auto Scaling may write to the queue itself, without one; SNS wraps
either in a `Message`. Many other things may come through the same queue: what is none of our business is ignored,
with the reason, and what cannot be understood is `Nonsense`.

What aws-node-termination-handler accepts is accepted: a `null` counts as absent, and only what tells the instance and
what happens to it is required. An event without an id is named after its message (`called`).

No word of a message is believed further than it can be checked: an instant in the future does not outweigh what is said
later, and something that is no instance is none.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from haulout.kinds.notice import Kind, Stage
from haulout.kinds.reports import Plan
from haulout.notices.sources.aws.health import read_health
from haulout.notices.sources.aws.readings import (
    GROUP,
    HOOK,
    Family,
    Nonsense,
    Reading,
    instance_of,
    instant,
    name_in,
    plan_of,
)

_SPOT_NOTICE = timedelta(minutes=2)
_DEEPEST = 3  # SNS around EventBridge, and one more
_TERMINATING, _LAUNCHING = "autoscaling:EC2_INSTANCE_TERMINATING", "autoscaling:EC2_INSTANCE_LAUNCHING"
_PROBE = "autoscaling:TEST_NOTIFICATION"
_STATES = {
    "stopping": Kind.STOP,
    "stopped": Kind.STOP,
    "shutting-down": Kind.TERMINATE,
    "terminated": Kind.TERMINATE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """An instance that Auto Scaling has started, and that may serve when its node is ready."""

    instance: str
    group: str
    hook: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a message says; if that is nothing, then why."""

    readings: tuple[Reading, ...] = ()
    launch: Launch | None = None
    ignored: str = ""


class _Outer(msgspec.Struct, frozen=True, rename="pascal"):
    """All that may stand around what is said."""

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


def read_message(body: str, *, now: datetime, called: str = "") -> Message:
    """Return what a message says; raises `Nonsense`. `called` is the name of the message."""
    try:
        return _read(body.encode(), now, called, depth=0)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise Nonsense(f"no message that AWS writes: {error}") from error


def _read(body: bytes, now: datetime, called: str, *, depth: int) -> Message:
    document = without_nulls(msgspec.json.decode(body))
    outer = msgspec.convert(document, _Outer)
    if outer.message and not outer.detail_type and not outer.lifecycle_transition:
        if depth >= _DEEPEST:
            raise Nonsense(f"a message wrapped more than {_DEEPEST} times")
        return _read(outer.message.encode(), now, called, depth=depth + 1)
    outer = msgspec.structs.replace(outer, id=name_in(outer.id) or name_in(called))
    if _PROBE in (outer.event, outer.lifecycle_transition):
        return Message(ignored="Auto Scaling only tries whether it can write here")
    if outer.lifecycle_transition:
        return _lifecycle(msgspec.convert(document, _Lifecycle), outer, now)
    if not outer.source or not outer.detail_type:
        raise Nonsense("expected an event of EventBridge or of Auto Scaling, found neither source nor detail-type")
    return _event(outer, now)


def _event(outer: _Outer, now: datetime) -> Message:
    match outer.source, outer.detail_type:
        case "aws.health", _:
            return _health(outer, now)
        case "aws.ec2", "EC2 Spot Instance Interruption Warning":
            return _spot(outer, now)
        case "aws.ec2", "EC2 Instance Rebalance Recommendation":
            return _rebalance(outer, now)
        case "aws.ec2", "EC2 Instance State-change Notification":
            return _state(outer, now)
        case "aws.autoscaling", "EC2 Instance-terminate Lifecycle Action" | "EC2 Instance-launch Lifecycle Action":
            return _lifecycle(msgspec.convert(outer.detail or {}, _Lifecycle), outer, now)
    return Message(ignored=f"nothing to do about {outer.detail_type!r:.100} of {outer.source!r:.100}")


def _health(outer: _Outer, now: datetime) -> Message:
    found = read_health(outer.detail, called=outer.id, resources=outer.resources, at=_said_at(outer.time, now), now=now)
    return Message(ignored=found) if isinstance(found, str) else Message(readings=found)


def _spot(outer: _Outer, now: datetime) -> Message:
    detail = msgspec.convert(outer.detail or {}, _Instance)
    at = _said_at(outer.time, now)
    kind = Kind.TERMINATE if detail.instance_action == "terminate" else Kind.STOP
    plan = plan_of(
        kind,
        reason=f"spot-{detail.instance_action}",
        description="EC2 takes the spot instance back",
        start=at + _SPOT_NOTICE,
    )
    return _one(Family.SPOT, outer, detail.instance_id, at=at, plan=plan)


def _rebalance(outer: _Outer, now: datetime) -> Message:
    detail = msgspec.convert(outer.detail or {}, _Instance)
    plan = plan_of(
        Kind.TERMINATE,
        reason="rebalance-recommendation",
        description="the spot instance is likely to be taken back soon",
    )
    return _one(Family.REBALANCE, outer, detail.instance_id, at=_said_at(outer.time, now), plan=plan)


def _state(outer: _Outer, now: datetime) -> Message:
    detail = msgspec.convert(outer.detail or {}, _Instance)
    at = _said_at(outer.time, now)
    state = detail.state.strip().lower()
    if not state:
        raise Nonsense(f"{outer.detail_type}: expected a state, found {detail.state!r:.100}")
    if state == "running":
        return _one(Family.STATE, outer, detail.instance_id, at=at, stage=Stage.ENDED)
    if state not in _STATES:
        return Message(ignored=f"nothing to do about an instance that is {detail.state!r:.100}")
    plan = plan_of(_STATES[state], reason="state-change", description=f"the instance is {state}", start=at)
    return _one(Family.STATE, outer, detail.instance_id, at=at, stage=Stage.STARTED, plan=plan)


def _one(
    family: Family,
    outer: _Outer,
    written: str,
    *,
    at: datetime,
    stage: Stage = Stage.SCHEDULED,
    plan: Plan | None = None,
) -> Message:
    if not outer.id:
        raise Nonsense(f"{outer.detail_type}: expected an id, found none")
    instance = _instance(outer.detail_type, written)
    reading = Reading(family=family, called=outer.id, instance=instance, at=at, stage=stage, plan=plan)
    return Message(readings=(reading,))


def _lifecycle(found: _Lifecycle, outer: _Outer, now: datetime) -> Message:
    what = "a lifecycle action"
    if _PROBE in (found.event, found.lifecycle_transition):
        return Message(ignored="Auto Scaling only tries whether it can write here")
    instance = _instance(what, found.instance)
    token, group, hook = (
        name_in(it) for it in (found.lifecycle_action_token, found.auto_scaling_group_name, found.lifecycle_hook_name)
    )
    is_whole = bool(group and hook and token)
    called = token if is_whole else outer.id
    if not called or (found.lifecycle_transition == _LAUNCHING and not is_whole):
        raise Nonsense(
            f"{what} for {instance}: expected LifecycleActionToken, AutoScalingGroupName and LifecycleHookName"
        )
    if found.lifecycle_transition == _LAUNCHING:
        return Message(launch=Launch(instance=instance, group=group, hook=hook, token=token))
    if found.lifecycle_transition != _TERMINATING:
        return Message(ignored=f"nothing to do about {found.lifecycle_transition!r:.100}")
    reading = Reading(
        family=Family.LIFECYCLE,
        called=called,
        instance=instance,
        at=_said_at(outer.time or found.time, now),
        plan=plan_of(
            Kind.TERMINATE, reason="autoscaling", description=f"Auto Scaling group {group} terminates the instance"
        ),
        notes={GROUP: group, HOOK: hook} if is_whole else {},  # without them nobody can complete the action
    )
    return Message(readings=(reading,))


def _instance(what: str, written: str) -> str:
    instance = instance_of(written)
    if instance is None:
        raise Nonsense(f"{what}: expected the id of an instance, found {written!r:.100}")
    return instance


def without_nulls(found: Any) -> Any:
    """Return a document in which what is null is absent, as it is for aws-node-termination-handler."""
    if isinstance(found, dict):
        return {key: without_nulls(value) for key, value in found.items() if value is not None}
    return [without_nulls(it) for it in found if it is not None] if isinstance(found, list) else found


def _said_at(written: str, now: datetime) -> datetime:
    """Return when something was said; what claims to come from the future was said now."""
    said = instant(written)
    return now if said is None else min(said, now)
