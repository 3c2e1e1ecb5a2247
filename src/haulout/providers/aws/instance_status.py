"""What DescribeInstanceStatus says: scheduled events of an instance, and whether it is there. Pure.

EC2 tells when an event is over by a prefix of its description, and keeps it for some days; some just vanish. It never
tells that one has begun. An event that is still listed after its NotBefore counts as begun: the node stays out of
service until EC2 says that it is over.

An answer is read as boto3 gives it. What makes no sense in one event is said, and the others are read.
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
_END_STAGES = {
    "[completed]": NoticeStage.ENDED,
    "[canceled]": NoticeStage.CANCELLED,
    "[cancelled]": NoticeStage.CANCELLED,
}
_TERMINATED_STATES = ("shutting-down", "terminated")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """How one instance is, and what is planned for it."""

    instance: str
    state: str = ""  # empty: there is no such instance
    events: tuple[InstanceEvent, ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def is_terminated(self) -> bool:
        """Tell whether it will never be back."""
        return not self.state or self.state in _TERMINATED_STATES


def parse_status(document: Mapping[str, Any], *, at: datetime) -> InstanceStatus | None:
    """Return what is said about an instance; None if it is not said about which."""
    instance = parse_instance_id(document.get("InstanceId"))
    if instance is None:
        return None
    events = document.get("Events") or ()
    found = (
        [_parse_event(instance, item, at) for item in events] if isinstance(events, Sequence) else ["Events is no list"]
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
    """Return what maintenance of the system does: network maintenance is over in moments, the rest restarts it."""
    text = description.lower()
    return MaintenanceKind.FREEZE if "network" in text and "power" not in text else MaintenanceKind.REBOOT


def _parse_event(instance: str, event: object, at: datetime) -> InstanceEvent | str:
    if not isinstance(event, Mapping):
        return f"{instance}: an event that is no object: {event!r:.100}"
    event_id = parse_event_id(event.get("InstanceEventId"))
    if not event_id:
        return f"{instance}: an event without InstanceEventId: {dict(event)!r:.100}"
    start = parse_instant(event.get("NotBefore"))
    if start is None:
        return f"{instance}: event {event_id} without an instant as NotBefore: {event.get('NotBefore')!r:.100}"
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
