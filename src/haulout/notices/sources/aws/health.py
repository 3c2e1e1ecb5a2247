"""What an event of AWS Health says: one maintenance, and all instances that it is about. Pure.

Health says how far the event is as a whole (`statusCode`), and for each instance whether it is done with (`status`). It
says "closed" for what is finished and for what is cancelled: which of them it is, the planned start tells.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from haulout.kinds.notice import Kind, Stage
from haulout.kinds.reports import Plan
from haulout.notices.sources.aws.readings import Family, Nonsense, Reading, instance_of, instant, name_in, plan_of
from haulout.notices.sources.aws.statuses import maintenance_kind

# In this order: the first that is part of the eventTypeCode counts.
_KINDS = (
    ("NETWORK", Kind.FREEZE),
    ("POWER", Kind.REBOOT),
    ("REBOOT", Kind.REBOOT),
    ("RETIREMENT", Kind.TERMINATE),
    ("TERMINATION", Kind.TERMINATE),
    ("INSTANCE_STOP", Kind.STOP),
)


class _Entity(msgspec.Struct, frozen=True, rename="camel"):
    entity_value: str = ""
    status: str = ""


class _Description(msgspec.Struct, frozen=True, rename="camel"):
    latest_description: str = ""


class _Health(msgspec.Struct, frozen=True, rename="camel"):
    event_arn: str = ""
    service: str = ""
    event_type_code: str = ""
    event_type_category: str = ""
    status_code: str = ""
    start_time: str = ""
    end_time: str = ""
    last_updated_time: str = ""
    event_description: tuple[_Description, ...] = ()
    affected_entities: tuple[_Entity, ...] = ()


def read_health(detail: bytes, *, resources: Sequence[str], at: datetime, now: datetime) -> tuple[Reading, ...] | str:
    """Return what is said about each instance, or why it is none of our business; raises `Nonsense`."""
    event = msgspec.json.decode(detail, type=_Health)
    if event.service != "EC2":
        return f"it is about {event.service!r:.100}, not about EC2"
    if event.event_type_category != "scheduledChange":
        return f"it is of the category {event.event_type_category!r:.100}, not a scheduledChange"
    called = name_in(event.event_arn)
    if not called:
        raise Nonsense(f"an event of AWS Health: expected an eventArn, found {event.event_arn!r:.100}")
    entities = event.affected_entities or tuple(_Entity(it) for it in resources)
    statuses = {instance: it.status for it in entities if (instance := instance_of(it.entity_value))}
    if not statuses:
        return f"it is about no instance: {', '.join(it.entity_value for it in entities)!r:.100}"
    said = min(instant(event.last_updated_time) or at, now)
    plan = _plan(event)
    return tuple(
        Reading(
            family=Family.HEALTH,
            called=called,
            instance=instance,
            at=said,
            stage=_stage(event, status, None if plan is None else plan.start, said),
            plan=plan,
        )
        for instance, status in statuses.items()
    )


def kind_of(code: str, description: str) -> Kind:
    """Return what is going to happen."""
    for part, kind in _KINDS:
        if part in code:
            return kind
    return maintenance_kind(description) if code.endswith("MAINTENANCE_SCHEDULED") else Kind.UNKNOWN


def _plan(event: _Health) -> Plan | None:
    start = instant(event.start_time)
    if start is None and event.status_code == "closed":
        return None
    if start is None:
        raise Nonsense(
            f"{event.event_type_code:.100}: expected an instant as startTime, found {event.start_time!r:.100}"
        )
    description = " ".join(it.latest_description for it in event.event_description)
    return plan_of(
        kind_of(event.event_type_code, description),
        reason=event.event_type_code,
        description=description,
        start=start,
        end=instant(event.end_time),
    )


def _stage(event: _Health, status: str, start: datetime | None, said: datetime) -> Stage:
    if event.status_code == "closed" or status == "RESOLVED":
        return Stage.CANCELLED if start is not None and said < start else Stage.ENDED
    return Stage.STARTED if event.status_code == "open" and start is not None and said >= start else Stage.SCHEDULED
