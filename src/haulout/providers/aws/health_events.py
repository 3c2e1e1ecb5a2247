"""Parse events of AWS Health: one maintenance, and all instances that it affects. Pure.

Health has a status of the event as a whole (`statusCode`), and one per instance (`status`). It reports "closed" for
both finished and cancelled events; the planned start tells them apart.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from haulout.api.maintenancenotice import MaintenanceKind, NoticeStage
from haulout.api.notice_reports import MaintenancePlan
from haulout.providers.aws.instance_events import (
    EventType,
    InstanceEvent,
    UnreadableEvent,
    new_plan,
    parse_event_id,
    parse_instance_id,
    parse_instant,
)
from haulout.providers.aws.instance_status import maintenance_kind

# The first entry that is part of the eventTypeCode applies.
_KINDS = (
    ("NETWORK", MaintenanceKind.FREEZE),
    ("POWER", MaintenanceKind.REBOOT),
    ("REBOOT", MaintenanceKind.REBOOT),
    ("RETIREMENT", MaintenanceKind.TERMINATE),
    ("TERMINATION", MaintenanceKind.TERMINATE),
    ("INSTANCE_STOP", MaintenanceKind.STOP),
)


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
