"""What an event of AWS Health says: one maintenance, and all instances that it is about. Pure.

Health says how far the event is as a whole (`statusCode`), and for each instance whether it is done with (`status`). It
says "closed" for what is finished and for what is cancelled: which of them it is, the planned start tells.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

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
    status: Any = ""


class _Health(msgspec.Struct, frozen=True, rename="camel"):
    """Only what tells whether it is about instances has to be as documented; the rest is read if it can be."""

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


def read_health(
    detail: Any, *, called: str, resources: Sequence[str], at: datetime, now: datetime
) -> tuple[Reading, ...] | str:
    """Return what is said about each instance, or why it is none of our business; raises `Nonsense`.

    An event without an ARN is `called` as its message. One whose start cannot be read may begin at any moment.
    """
    event = msgspec.convert(detail or {}, _Health)
    if event.service != "EC2":
        return f"it is about {event.service!r:.100}, not about EC2"
    if event.event_type_category != "scheduledChange":
        return f"it is of the category {event.event_type_category!r:.100}, not a scheduledChange"
    called = name_in(event.event_arn) or called
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
    description = _description(event.event_description)
    code = event.event_type_code if isinstance(event.event_type_code, str) else ""
    return plan_of(
        kind_of(code, description),
        reason=code,
        description=description,
        start=start,
        end=instant(event.end_time),
    )


def _description(found: Any) -> str:
    texts = [it.get("latestDescription") for it in found if isinstance(it, dict)] if isinstance(found, list) else []
    return " ".join(it for it in texts if isinstance(it, str))


def _stage(event: _Health, status: str, start: datetime | None, said: datetime) -> Stage:
    if event.status_code == "closed" or status == "RESOLVED":
        return Stage.CANCELLED if start is not None and said < start else Stage.ENDED
    return Stage.STARTED if event.status_code == "open" and start is not None and said >= start else Stage.SCHEDULED
