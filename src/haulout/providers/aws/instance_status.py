"""Parse the response of DescribeInstanceStatus: the instance's state and its scheduled events. Pure.

EC2 marks a finished event by a prefix of its description, and lists it for some days; some just disappear. It never
reports that one has begun. An event that is still listed after its NotBefore counts as begun: the node stays out of
service until EC2 reports the end.

The document is as boto3 returns it. An invalid event is reported, and the others are parsed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from haulout.api.maintenancenotice import MaintenanceKind, NoticeStage
from haulout.providers.aws.instance_events import (
    EventType,
    InstanceEvent,
    new_plan,
    parse_event_id,
    parse_instance_id,
    parse_instant,
)

_KINDS = {
    "instance-reboot": MaintenanceKind.REBOOT,
    "system-reboot": MaintenanceKind.REBOOT,
    "instance-stop": MaintenanceKind.STOP,
    "instance-retirement": MaintenanceKind.TERMINATE,
}
# EC2 keeps a finished event for up to a week, with one of these prefixes.
_END_STAGES = {
    "[completed]": NoticeStage.ENDED,
    "[canceled]": NoticeStage.CANCELLED,
    "[cancelled]": NoticeStage.CANCELLED,
}
_TERMINATED_STATES = ("shutting-down", "terminated")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """The state of one instance, and its scheduled events."""

    instance: str
    state: str = ""  # empty: the instance does not exist
    events: tuple[InstanceEvent, ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def is_terminated(self) -> bool:
        """Whether the instance is terminated, or does not exist."""
        return not self.state or self.state in _TERMINATED_STATES


def parse_status(document: Mapping[str, Any], *, at: datetime) -> InstanceStatus | None:
    """Parse the status of an instance; None if it has no valid instance ID."""
    instance = parse_instance_id(document.get("InstanceId"))
    if instance is None:
        return None
    events = document.get("Events") or ()
    found = (
        [_parse_event(instance, item, at) for item in events]
        if isinstance(events, Sequence)
        else ["Events is not a list"]
    )
    state = document.get("InstanceState")
    name = state.get("Name") if isinstance(state, Mapping) else None
    return InstanceStatus(
        instance=instance,
        state=name if isinstance(name, str) and name else "unknown",
        events=tuple(item for item in found if isinstance(item, InstanceEvent)),
        unreadable=tuple(item for item in found if isinstance(item, str)),
    )


def maintenance_kind(description: str) -> MaintenanceKind:
    """Return the kind of system maintenance: that of the network takes moments, any other one reboots."""
    text = description.lower()
    return MaintenanceKind.FREEZE if "network" in text and "power" not in text else MaintenanceKind.REBOOT


def _parse_event(instance: str, event: object, at: datetime) -> InstanceEvent | str:
    if not isinstance(event, Mapping):
        return f"{instance}: an event that is not an object: {event!r:.100}"
    event_id = parse_event_id(event.get("InstanceEventId"))
    if not event_id:
        return f"{instance}: an event without InstanceEventId: {dict(event)!r:.100}"
    start = parse_instant(event.get("NotBefore"))
    if start is None:
        return f"{instance}: event {event_id} without a valid time as NotBefore: {event.get('NotBefore')!r:.100}"
    code, text = str(event.get("Code") or ""), str(event.get("Description") or "")
    end_stage, description = _split_end_stage(text)
    return InstanceEvent(
        event_type=EventType.SCHEDULED_EVENT,
        event_id=event_id,
        instance=instance,
        at=at,
        stage=end_stage or (NoticeStage.STARTED if at >= start else NoticeStage.SCHEDULED),
        plan=new_plan(
            maintenance_kind(description)
            if code == "system-maintenance"
            else _KINDS.get(code, MaintenanceKind.UNKNOWN),
            reason=code,
            description=description,
            start=start,
            end=parse_instant(event.get("NotAfter")),
            deadline=parse_instant(event.get("NotBeforeDeadline")),
        ),
    )


def _split_end_stage(description: str) -> tuple[NoticeStage | None, str]:
    text = description.strip()
    for prefix, stage in _END_STAGES.items():
        if text.lower().startswith(prefix):
            return stage, text[len(prefix) :].strip()
    return None, text
