"""What OCI says about the maintenance of an instance, read into reports. Pure.

    report = of_message(message)                    # of the stream; None: it is about something else
    report = of_entry(entry, at=clock.now())        # of ListInstanceMaintenanceEvents or GetInstanceMaintenanceEvent

The two spell things differently, and differently from what is documented: `None` and `NONE`, `SUCCESSFUL` and
`SUCCEEDED`, times with any number of digits. What is not needed may be missing or make no sense. Without an instance,
or without the time of a maintenance that is only planned, nothing can be done: that is `Unreadable`, with the reason.

An instance that is preempted, or whose host has failed, is told of by events only. When it is over nobody says: that is
when the instance is gone, or has run on for a while.

A live migration is told as an instance action of `NONE`. How long the instance stands still is not told, so this is a
`Migrate`, never a `Freeze`.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from haulout.core import gotime, isoduration
from haulout.core.walltime import EARLIEST, LATEST
from haulout.kinds.notice import Kind, Stage
from haulout.kinds.reports import Plan, Report
from haulout.notices.sources.oci import SOURCE
from haulout.notices.sources.oci.occurrences import Position, position_of

_PREFIX = "com.oraclecloud.computeapi."
_TOLD_BY = {
    f"{_PREFIX}instancemaintenance": Stage.SCHEDULED,
    f"{_PREFIX}maintenancerescheduled": Stage.SCHEDULED,  # documented by users, in no catalogue of events
    f"{_PREFIX}instancemaintenance.begin": Stage.STARTED,
    f"{_PREFIX}instancemaintenance.end": Stage.ENDED,
}
_HINTS = (f"{_PREFIX}schedulemaintenance",)  # what they say is in no catalogue: Compute has to be asked
_FROM = "ComputeApi"
_MAINTENANCE = "ocid1.instancemaintenanceevent."

_STAGES = {
    "SCHEDULED": Stage.SCHEDULED,
    "STARTED": Stage.STARTED,
    "PROCESSING": Stage.STARTED,
    "FAILED": Stage.FAILED,
    "CANCELED": Stage.CANCELLED,
    "CANCELLED": Stage.CANCELLED,
    "SUCCEEDED": Stage.ENDED,
    "SUCCESSFUL": Stage.ENDED,
}
_KINDS = {
    "REBOOT_MIGRATION": Kind.REBOOT,
    "REBOOT_MIGRATE": Kind.REBOOT,
    "TERMINATE": Kind.TERMINATE,
    "STOP": Kind.STOP,
    "NONE": Kind.MIGRATE,
}
_OVER = (Stage.FAILED, Stage.CANCELLED, Stage.ENDED)
_LONGEST_ID = 255  # of an OCID
_LONGEST_REASON = 1024
_LONGEST_DESCRIPTION = 4096

T = TypeVar("T")
Document = Mapping[str, Any]


class Unreadable(ValueError):
    """It is about the maintenance of an instance, and makes no sense."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a message says, in which compartment its instance is, and where the message is on the stream."""

    report: Report
    compartment: str
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class Hint:
    """Something happened to the maintenance of an instance, and the message does not say what."""

    compartment: str


@dataclass(frozen=True, slots=True)
class _Outage:
    """Something that happens to an instance and is no maintenance: Compute has no list of these."""

    name: str
    kind: Kind
    stage: Stage
    reason: str
    ahead: timedelta = timedelta()  # how long before it begins it is told


_OUTAGES = {
    f"{_PREFIX}instancepreemptionaction": _Outage(
        "preemption", Kind.TERMINATE, Stage.SCHEDULED, "Preemption", ahead=timedelta(minutes=2)
    ),
    f"{_PREFIX}instancefailed": _Outage("failure", Kind.STOP, Stage.STARTED, "InfrastructureFailure"),
}


def is_listed(notice_id: str) -> bool:
    """Tell whether Compute can be asked for it: for maintenance, and not for what else happens to instances."""
    return notice_id.startswith(_MAINTENANCE)


def of_message(message: Document) -> Told | Hint | None:
    """Return what a message of the stream says; None: nothing about a maintenance of an instance."""
    document = _decoded(message)
    kind, source = _either(document, "eventType", "type"), document.get("source")
    if source != _FROM or not isinstance(kind, str):
        return None
    data = document.get("data")
    if kind in _HINTS:
        return Hint(_text(data.get("compartmentId"), _LONGEST_ID) if isinstance(data, dict) else "")
    if kind in _OUTAGES:
        return _outage(message, document, _OUTAGES[kind])
    told_by = _TOLD_BY.get(kind)
    return None if told_by is None else _told(message, document, told_by)


def of_entry(entry: Document, *, at: datetime) -> Report:
    """Return what the Compute API says of a maintenance, as of `at`."""
    instance = _id(entry, "instanceId", "instanceId")
    state = entry.get("lifecycleState")
    stage = _stage(Stage.SCHEDULED, state)
    plan = _plan(entry, began=_instant(entry.get("timeStarted")) if stage is Stage.STARTED else None)
    if plan is None and stage is Stage.SCHEDULED:
        raise Unreadable(_no_start(entry, "timeWindowStart"))
    notice_id = _id(entry, "id", "id")
    return Report(source=SOURCE, notice_id=notice_id, at=at, provider_id=instance, stage=stage, plan=plan)


def _told(message: Document, document: Document, told_by: Stage) -> Told:
    data = document.get("data")
    details = data.get("additionalDetails") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(details, dict):
        raise Unreadable("expected data.additionalDetails with the instance, found none")
    instance = _id(details, "instanceId", "data.additionalDetails.instanceId")
    at = _told_at(message, document)
    stage = _stage(told_by, details.get("lifecycleState"))
    plan = _plan(details, began=at if stage is Stage.STARTED else None)
    if plan is None and stage is Stage.SCHEDULED:
        raise Unreadable(_no_start(details, "data.additionalDetails.timeWindowStart"))
    return Told(
        Report(
            source=SOURCE,
            notice_id=_id(data, "resourceId", "data.resourceId", instead=instance),
            at=at,
            provider_id=instance,
            stage=stage,
            plan=plan,
        ),
        compartment=_text(data.get("compartmentId"), _LONGEST_ID),
        position=_position(message),
    )


def _outage(message: Document, document: Document, outage: _Outage) -> Told:
    """Return that an instance goes down, or is about to; each time is an outage of its own."""
    data = document.get("data")
    if not isinstance(data, dict):
        raise Unreadable("expected data.resourceId, the OCID of the instance, found no data")
    instance, at = _id(data, "resourceId", "data.resourceId"), _told_at(message, document)
    plan = Plan(kind=outage.kind, reason=outage.reason, start=_later(at, outage.ahead))
    report = Report(
        source=SOURCE,
        notice_id=f"{instance}.{outage.name}.{at:%Y%m%dt%H%M%Sz}",
        at=at,
        provider_id=instance,
        stage=outage.stage,
        plan=plan,
    )
    return Told(report, compartment=_text(data.get("compartmentId"), _LONGEST_ID), position=_position(message))


def _position(message: Document) -> Position | None:
    return position_of(message.get("partition"), message.get("offset"))


def _told_at(message: Document, document: Document) -> datetime:
    """Return when something was told; not later than its message, or it would outdo all that is told afterwards."""
    told_at = _instant(_either(document, "eventTime", "time")), _instant(message.get("timestamp"))
    at = min((it for it in told_at if it is not None), default=None)
    if at is None:
        raise Unreadable("expected eventTime, an instant such as 2026-04-16T02:00:00Z, found none")
    return at


def _decoded(message: Document) -> Document:
    value = message.get("value")
    if not isinstance(value, str | bytes):
        raise Unreadable(f"expected a value in base64, found {type(value).__name__}")
    try:
        document = msgspec.json.decode(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError) as error:
        raise Unreadable(f"expected a JSON document in base64: {error}") from None
    except RecursionError:
        raise Unreadable("expected a JSON document, found one that is nested too deeply") from None
    if not isinstance(document, dict):
        raise Unreadable(f"expected a JSON object, found {type(document).__name__}")
    return document


def _either(document: Document, first: str, second: str) -> Any:
    """Return what an envelope of CloudEvents 0.1 has, or one of 1.0."""
    return document[first] if first in document else document.get(second)


def _stage(told_by: Stage, state: object) -> Stage:
    """Return how far it is: what kind of event tells so, or the state if that is further."""
    named = _STAGES.get(_word(state), told_by)
    if told_by is Stage.ENDED:
        return named if named in _OVER else Stage.ENDED
    if told_by is Stage.STARTED and named is Stage.SCHEDULED:
        return Stage.STARTED
    return named


def _plan(details: Document, *, began: datetime | None) -> Plan | None:
    start = _instant(details.get("timeWindowStart"))
    if start is None:
        return None
    window, estimate = _duration(details.get("startWindowDuration")), _duration(details.get("estimatedDuration"))
    due = _instant(details.get("timeHardDueDate"))
    limits = [it for it in (_later(start, window), due) if it is not None]
    deadline = max(start, min(limits)) if limits else None
    latest = began or deadline or start
    end = _later(latest, estimate)
    return Plan(
        kind=_KINDS.get(_word(details.get("instanceAction")), Kind.UNKNOWN),
        reason=_text(details.get("maintenanceReason"), _LONGEST_REASON),
        description=_text(details.get("description"), _LONGEST_DESCRIPTION),
        start=start,
        end=None if end is None else max(start, end),
        deadline=deadline,
        reschedulable=details.get("canReschedule") is True,
    )


def _no_start(details: Document, where: str) -> str:
    found = details.get("timeWindowStart")
    return f"{where}: expected an instant such as 2026-04-16T02:00:00Z, found {str(found)[:40]!r}"


def _id(document: Document, key: str, where: str, *, instead: str = "") -> str:
    found = document.get(key)
    if found in (None, "") and instead:
        return instead
    if not isinstance(found, str) or not found.isascii() or not found.isprintable() or " " in found or not found:
        raise Unreadable(f"{where}: expected an OCID, found {str(found)[:40]!r}")
    if len(found) > _LONGEST_ID:
        raise Unreadable(f"{where}: expected an OCID of at most {_LONGEST_ID} characters, found {len(found)}")
    return found


def _word(found: object) -> str:
    return found.strip().upper() if isinstance(found, str) else ""


def _text(found: object, longest: int) -> str:
    if not isinstance(found, str):
        return ""
    return "".join(it for it in found if it.isprintable() or it in "\n\t").strip()[:longest]


def _instant(found: object) -> datetime | None:
    instant = _read(found, lambda text: gotime.parse(text.strip().upper().replace(" ", "T", 1)).instant)
    # One of the year 1 or 9999 is a placeholder, and cannot be reckoned with.
    return instant if instant is not None and EARLIEST <= instant <= LATEST else None


def _duration(found: object) -> timedelta | None:
    return _read(found, isoduration.parse)


def _read(found: object, read: Callable[[str], T]) -> T | None:
    """Return what a text says; None if it says nothing, or makes no sense: none of these is needed."""
    if not isinstance(found, str):
        return None
    try:
        return read(found)
    except ValueError:
        return None


def _later(start: datetime, by: timedelta | None) -> datetime | None:
    try:
        return None if by is None else start + by
    except OverflowError:
        return None
