"""Parse the documents of the instance metadata service about maintenance. Pure.

Each becomes the same event that the queue or EC2 would produce, with the annotation `SHOWN_BY_IMDS`: an agent ends only
notices whose event its instance was shown, since EC2 and the queue may know events that this service does not show yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import msgspec

from haulout.api.maintenancenotice import MaintenanceKind, NoticeStage
from haulout.providers.aws.correlation import SPOT_GRACE_PERIOD
from haulout.providers.aws.instance_events import (
    SHOWN_BY_IMDS,
    EventType,
    InstanceEvent,
    UnreadableEvent,
    new_plan,
    parse_instant,
)
from haulout.providers.aws.instance_status import parse_status
from haulout.providers.http_fetch import DECODE_ERRORS

_IMDS_ANNOTATIONS = {SHOWN_BY_IMDS: "shown"}
_TERMINATED_STATES = ("Terminated", "Warmed:Terminated")
_END_STAGES = {"completed": NoticeStage.ENDED, "canceled": NoticeStage.CANCELLED, "cancelled": NoticeStage.CANCELLED}


class _Spot(msgspec.Struct, frozen=True):
    action: str = ""
    time: str = ""


class _Rebalance(msgspec.Struct, frozen=True, rename="camel"):
    notice_time: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImdsEvents:
    """The events in a document, and what could not be parsed."""

    events: tuple[InstanceEvent, ...] = ()
    unreadable: tuple[str, ...] = ()


class ParseImds(Protocol):
    """Parses a document of the metadata service."""

    def __call__(self, body: bytes, *, instance: str, at: datetime) -> ImdsEvents:
        """Return its events as of `at`; raise `UnreadableEvent` if it is invalid as a whole."""
        ...


def parse_spot(body: bytes, *, instance: str, at: datetime) -> ImdsEvents:
    """Parse a spot interruption; none if it is overdue by `SPOT_GRACE_PERIOD`. Raise `UnreadableEvent`."""
    try:
        found = msgspec.json.decode(body, type=_Spot)
    except DECODE_ERRORS as error:
        raise UnreadableEvent(f"expected a spot instance action: {error}") from None
    start = parse_instant(found.time)
    if not found.action or start is None:
        raise UnreadableEvent(f"expected a spot instance action with an action and a time, found {body!r:.100}")
    if at >= start + SPOT_GRACE_PERIOD:
        return ImdsEvents()
    kind = MaintenanceKind.TERMINATE if found.action == "terminate" else MaintenanceKind.STOP
    description = "EC2 reclaims the spot instance"
    plan = new_plan(kind, reason=f"spot-{found.action}", description=description, start=start)
    return _single_event(
        InstanceEvent(
            event_type=EventType.SPOT,
            event_id=found.time,
            instance=instance,
            at=at,
            plan=plan,
            annotations=_IMDS_ANNOTATIONS,
        )
    )


def parse_rebalance(body: bytes, *, instance: str, at: datetime) -> ImdsEvents:
    """Parse a rebalance recommendation; raise `UnreadableEvent`."""
    try:
        found = msgspec.json.decode(body, type=_Rebalance)
    except DECODE_ERRORS as error:
        raise UnreadableEvent(f"expected a rebalance recommendation: {error}") from None
    if parse_instant(found.notice_time) is None:
        raise UnreadableEvent(f"expected a rebalance recommendation with a noticeTime, found {body!r:.100}")
    plan = new_plan(
        MaintenanceKind.TERMINATE,
        reason="rebalance-recommendation",
        description="the spot instance is likely to be reclaimed soon",
    )
    event_id = found.notice_time
    return _single_event(
        InstanceEvent(
            event_type=EventType.REBALANCE,
            event_id=event_id,
            instance=instance,
            at=at,
            plan=plan,
            annotations=_IMDS_ANNOTATIONS,
        )
    )


def parse_target_state(body: bytes, *, instance: str, at: datetime) -> ImdsEvents:
    """Return a termination by Auto Scaling, if the target lifecycle state is one of termination."""
    state = body.decode("utf-8", "replace").strip()
    if state not in _TERMINATED_STATES:
        return ImdsEvents()
    plan = new_plan(MaintenanceKind.TERMINATE, reason="autoscaling", description="Auto Scaling terminates the instance")
    return _single_event(
        InstanceEvent(
            event_type=EventType.TARGET_LIFECYCLE_STATE,
            event_id=state,
            instance=instance,
            at=at,
            plan=plan,
            annotations=_IMDS_ANNOTATIONS,
        )
    )


def parse_events(body: bytes, *, instance: str, at: datetime) -> ImdsEvents:
    """Parse a list of scheduled events; raise `UnreadableEvent` if it is none."""
    try:
        found = msgspec.json.decode(body)
    except DECODE_ERRORS as error:
        raise UnreadableEvent(f"expected a list of scheduled events: {error}") from None
    if not isinstance(found, list):
        raise UnreadableEvent(f"expected a list of scheduled events, found {body!r:.100}")
    states = {str(item.get("EventId")): str(item.get("State") or "") for item in found if isinstance(item, Mapping)}
    status = parse_status({"InstanceId": instance, "Events": [_as_ec2_event(item) for item in found]}, at=at)
    if status is None:
        raise UnreadableEvent(f"expected an instance ID, found {instance!r:.100}")
    events = tuple(_with_state(item, states.get(item.event_id, "")) for item in status.events)
    return ImdsEvents(events=events, unreadable=status.unreadable)


def _single_event(event: InstanceEvent) -> ImdsEvents:
    return ImdsEvents(events=(event,))


def _as_ec2_event(event: object) -> object:
    return {**event, "InstanceEventId": event.get("EventId")} if isinstance(event, Mapping) else event


def _with_state(event: InstanceEvent, state: str) -> InstanceEvent:
    return replace(event, stage=_END_STAGES.get(state.lower(), event.stage), annotations=_IMDS_ANNOTATIONS)
