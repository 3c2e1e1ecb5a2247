"""Parse OCI's messages and list entries about maintenance of instances into reports. Pure.

    parsed = parse_message(message)                    # of the stream; None: about something else
    report = parse_entry(entry, at=clock.now())        # of ListInstanceMaintenanceEvents, GetInstanceMaintenanceEvent

The two have different spellings, and differ from the documentation: `None` and `NONE`, `SUCCESSFUL` and `SUCCEEDED`,
times with any number of digits. Optional fields may be missing or invalid. Without an instance, or without the start of
a maintenance that has not begun, the document is useless: `UnreadableMaintenanceEvent` has the reason.

Preemptions and host failures are reported by events only. Their end is not reported: they are over when the instance
does not exist any more, or has been running for a while. A live migration is reported as instance action `NONE`. How
long the instance pauses is not reported, so this is a `Migrate`, never a `Freeze`.

Durations are in ISO 8601: `PT2H`, `P1D`, `P1DT12H`, `P2W`, `PT0.5S`. Years and months have no fixed length. This module
uses their maximum length, so that a wait for an end is long enough.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from haulout.api.maintenancenotice import MaintenanceKind, NoticeStage
from haulout.api.notice_reports import MaintenancePlan, NoticeReport
from haulout.core import timestamps
from haulout.core.walltime import EARLIEST, LATEST
from haulout.providers.oci import SOURCE
from haulout.providers.oci.correlation import Position, parse_position

_PREFIX = "com.oraclecloud.computeapi."
_STAGE_BY_EVENT_TYPE = {
    f"{_PREFIX}instancemaintenance": NoticeStage.SCHEDULED,
    f"{_PREFIX}maintenancerescheduled": NoticeStage.SCHEDULED,  # reported by users; not in the documentation of events
    f"{_PREFIX}instancemaintenance.begin": NoticeStage.STARTED,
    f"{_PREFIX}instancemaintenance.end": NoticeStage.ENDED,
}
_HINT_EVENT_TYPES = (f"{_PREFIX}schedulemaintenance",)  # their content is not documented: read Compute instead
_EVENT_SOURCE = "ComputeApi"
_MAINTENANCE_OCID_PREFIX = "ocid1.instancemaintenanceevent."

# Both spellings of each word: the API's enum and the messages differ.
_STAGES = {
    "SCHEDULED": NoticeStage.SCHEDULED,
    "STARTED": NoticeStage.STARTED,
    "PROCESSING": NoticeStage.STARTED,
    "FAILED": NoticeStage.FAILED,
    "CANCELED": NoticeStage.CANCELLED,
    "CANCELLED": NoticeStage.CANCELLED,
    "SUCCEEDED": NoticeStage.ENDED,
    "SUCCESSFUL": NoticeStage.ENDED,
}
_KINDS = {
    "REBOOT_MIGRATION": MaintenanceKind.REBOOT,
    "REBOOT_MIGRATE": MaintenanceKind.REBOOT,
    "TERMINATE": MaintenanceKind.TERMINATE,
    "STOP": MaintenanceKind.STOP,
    "NONE": MaintenanceKind.MIGRATE,
}
_FINISHED_STAGES = (NoticeStage.FAILED, NoticeStage.CANCELLED, NoticeStage.ENDED)
_MAX_OCID = 255  # characters
_MAX_REASON = 1024
_MAX_DESCRIPTION = 4096

T = TypeVar("T")
Document = Mapping[str, Any]

_NUMBER = r"([0-9]{1,9}(?:[.,][0-9]{1,9})?)"
_DURATION = re.compile(
    rf"\+?P(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?",
    re.ASCII | re.IGNORECASE,
)
_DAY = 86_400
_SECONDS = (366 * _DAY, 31 * _DAY, 7 * _DAY, _DAY, 3600, 60, 1)
_MAX_DURATION = timedelta(days=36_600)


class UnreadableMaintenanceEvent(ValueError):
    """A message or entry about maintenance of an instance that cannot be parsed."""


@dataclass(frozen=True, slots=True)
class MaintenanceMessage:
    """The report of a message, the compartment of its instance, and its position on the stream."""

    report: NoticeReport
    compartment: str
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class MaintenanceHint:
    """A message that says that the maintenance of an instance changed, but not how."""

    compartment: str


@dataclass(frozen=True, slots=True)
class _Outage:
    """An outage of an instance that is not maintenance: Compute does not list it."""

    name: str
    kind: MaintenanceKind
    stage: NoticeStage
    reason: str
    lead_time: timedelta = timedelta()  # how long before its start it is reported


_OUTAGES = {
    f"{_PREFIX}instancepreemptionaction": _Outage(
        "preemption", MaintenanceKind.TERMINATE, NoticeStage.SCHEDULED, "Preemption", lead_time=timedelta(minutes=2)
    ),
    f"{_PREFIX}instancefailed": _Outage("failure", MaintenanceKind.STOP, NoticeStage.STARTED, "InfrastructureFailure"),
}


def is_maintenance_id(notice_id: str) -> bool:
    """Return whether it is the OCID of a maintenance event, which Compute can return; outages have other IDs."""
    return notice_id.startswith(_MAINTENANCE_OCID_PREFIX)


def parse_message(message: Document) -> MaintenanceMessage | MaintenanceHint | None:
    """Parse a message of the stream; None if it is not about an instance's maintenance."""
    document = _decoded(message)
    kind, source = _either(document, "eventType", "type"), document.get("source")
    if source != _EVENT_SOURCE or not isinstance(kind, str):
        return None
    data = document.get("data")
    if kind in _HINT_EVENT_TYPES:
        return MaintenanceHint(_text(data.get("compartmentId"), _MAX_OCID) if isinstance(data, dict) else "")
    if kind in _OUTAGES:
        return _parse_outage(message, document, _OUTAGES[kind])
    event_stage = _STAGE_BY_EVENT_TYPE.get(kind)
    return None if event_stage is None else _parse_maintenance(message, document, event_stage)


def parse_entry(entry: Document, *, at: datetime) -> NoticeReport:
    """Parse a maintenance event of the Compute API, as of `at`."""
    instance = _parse_ocid(entry, "instanceId", "instanceId")
    state = entry.get("lifecycleState")
    stage = _stage(NoticeStage.SCHEDULED, state)
    plan = _plan(entry, started_at=_instant(entry.get("timeStarted")) if stage is NoticeStage.STARTED else None)
    if plan is None and stage is NoticeStage.SCHEDULED:
        raise UnreadableMaintenanceEvent(_missing_start_message(entry, "timeWindowStart"))
    notice_id = _parse_ocid(entry, "id", "id")
    return NoticeReport(source=SOURCE, notice_id=notice_id, at=at, provider_id=instance, stage=stage, plan=plan)


def _parse_maintenance(message: Document, document: Document, event_stage: NoticeStage) -> MaintenanceMessage:
    data = document.get("data")
    details = data.get("additionalDetails") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(details, dict):
        raise UnreadableMaintenanceEvent("expected data.additionalDetails with the instance, found none")
    instance = _parse_ocid(details, "instanceId", "data.additionalDetails.instanceId")
    at = _reported_at(message, document)
    stage = _stage(event_stage, details.get("lifecycleState"))
    plan = _plan(details, started_at=at if stage is NoticeStage.STARTED else None)
    if plan is None and stage is NoticeStage.SCHEDULED:
        raise UnreadableMaintenanceEvent(_missing_start_message(details, "data.additionalDetails.timeWindowStart"))
    return MaintenanceMessage(
        NoticeReport(
            source=SOURCE,
            notice_id=_parse_ocid(data, "resourceId", "data.resourceId", fallback=instance),
            at=at,
            provider_id=instance,
            stage=stage,
            plan=plan,
        ),
        compartment=_text(data.get("compartmentId"), _MAX_OCID),
        position=_position(message),
    )


def _parse_outage(message: Document, document: Document, outage: _Outage) -> MaintenanceMessage:
    """Return the report of an outage; each one has its own ID."""
    data = document.get("data")
    if not isinstance(data, dict):
        raise UnreadableMaintenanceEvent("expected data.resourceId, the OCID of the instance, found no data")
    instance, at = _parse_ocid(data, "resourceId", "data.resourceId"), _reported_at(message, document)
    plan = MaintenancePlan(kind=outage.kind, reason=outage.reason, start=_add(at, outage.lead_time))
    report = NoticeReport(
        source=SOURCE,
        notice_id=f"{instance}.{outage.name}.{at:%Y%m%dt%H%M%Sz}",
        at=at,
        provider_id=instance,
        stage=outage.stage,
        plan=plan,
    )
    return MaintenanceMessage(
        report, compartment=_text(data.get("compartmentId"), _MAX_OCID), position=_position(message)
    )


def _position(message: Document) -> Position | None:
    return parse_position(message.get("partition"), message.get("offset"))


def _reported_at(message: Document, document: Document) -> datetime:
    """Return when the event was reported, at most the time of its message.

    A later time would override all later reports.
    """
    times = _instant(_either(document, "eventTime", "time")), _instant(message.get("timestamp"))
    at = min((instant for instant in times if instant is not None), default=None)
    if at is None:
        raise UnreadableMaintenanceEvent("expected eventTime, an instant such as 2026-04-16T02:00:00Z, found none")
    return at


def _decoded(message: Document) -> Document:
    value = message.get("value")
    if not isinstance(value, str | bytes):
        raise UnreadableMaintenanceEvent(f"expected a value in base64, found {type(value).__name__}")
    try:
        document = msgspec.json.decode(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError) as error:
        raise UnreadableMaintenanceEvent(f"expected a JSON document in base64: {error}") from None
    # Anyone who may publish to the stream can send it. It must be quarantined, and not end the source.
    except RecursionError:
        raise UnreadableMaintenanceEvent("expected a JSON document, found one that is nested too deeply") from None
    if not isinstance(document, dict):
        raise UnreadableMaintenanceEvent(f"expected a JSON object, found {type(document).__name__}")
    return document


def _either(document: Document, first: str, second: str) -> Any:
    """Return a field of the envelope, by its name in CloudEvents 0.1 or 1.0."""
    return document[first] if first in document else document.get(second)


def _stage(event_stage: NoticeStage, state: object) -> NoticeStage:
    """Return the stage: that of the event type, or that of the state if it is further."""
    state_stage = _STAGES.get(_normalized(state), event_stage)
    if event_stage is NoticeStage.ENDED:
        return state_stage if state_stage in _FINISHED_STAGES else NoticeStage.ENDED
    # Messages may carry the state from before the event that they announce.
    if event_stage is NoticeStage.STARTED and state_stage is NoticeStage.SCHEDULED:
        return NoticeStage.STARTED
    return state_stage


def _plan(details: Document, *, started_at: datetime | None) -> MaintenancePlan | None:
    start = _instant(details.get("timeWindowStart"))
    if start is None:
        return None
    window, estimate = _duration(details.get("startWindowDuration")), _duration(details.get("estimatedDuration"))
    due = _instant(details.get("timeHardDueDate"))
    # The earlier of the two applies. Neither may be before the start, which would make the notice invalid.
    limits = [limit for limit in (_add(start, window), due) if limit is not None]
    deadline = max(start, min(limits)) if limits else None
    latest = started_at or deadline or start
    end = _add(latest, estimate)
    return MaintenancePlan(
        kind=_KINDS.get(_normalized(details.get("instanceAction")), MaintenanceKind.UNKNOWN),
        reason=_text(details.get("maintenanceReason"), _MAX_REASON),
        description=_text(details.get("description"), _MAX_DESCRIPTION),
        start=start,
        end=None if end is None else max(start, end),
        deadline=deadline,
        reschedulable=details.get("canReschedule") is True,
    )


def _missing_start_message(details: Document, path: str) -> str:
    found = details.get("timeWindowStart")
    return f"{path}: expected an instant such as 2026-04-16T02:00:00Z, found {str(found)[:40]!r}"


def _parse_ocid(document: Document, key: str, path: str, *, fallback: str = "") -> str:
    found = document.get(key)
    if found in (None, "") and fallback:
        return fallback
    if not isinstance(found, str) or not found.isascii() or not found.isprintable() or " " in found or not found:
        raise UnreadableMaintenanceEvent(f"{path}: expected an OCID, found {str(found)[:40]!r}")
    if len(found) > _MAX_OCID:
        raise UnreadableMaintenanceEvent(
            f"{path}: expected an OCID of at most {_MAX_OCID} characters, found {len(found)}"
        )
    return found


def _normalized(found: object) -> str:
    return found.strip().upper() if isinstance(found, str) else ""


def _text(found: object, limit: int) -> str:
    if not isinstance(found, str):
        return ""
    # Shown by kubectl in terminals, where an escape sequence could hide or change text.
    return "".join(character for character in found if character.isprintable() or character in "\n\t").strip()[:limit]


def _instant(found: object) -> datetime | None:
    instant = _parse_optional(
        found, lambda text: timestamps.parse_go_time(text.strip().upper().replace(" ", "T", 1)).instant
    )
    # Years 1 and 9999 are placeholders, and overflow in calculations.
    return instant if instant is not None and EARLIEST <= instant <= LATEST else None


def _duration(found: object) -> timedelta | None:
    return _parse_optional(found, parse_iso_duration)


def _parse_optional(found: object, parse: Callable[[str], T]) -> T | None:
    """Return the parsed text; None if it is missing or invalid, since these fields are optional."""
    if not isinstance(found, str):
        return None
    try:
        return parse(found)
    except ValueError:
        return None


def _add(start: datetime, by: timedelta | None) -> datetime | None:
    try:
        return None if by is None else start + by
    except OverflowError:
        return None


def parse_iso_duration(text: str) -> timedelta:
    """Parse a duration such as `PT2H`. Raise ValueError; longer than 100 years is invalid, too."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        raise ValueError(f"expected a duration such as PT2H or P1D, found {text[:40]!r}")
    numbers = (Decimal((group or "0").replace(",", ".")) for group in found.groups())
    seconds = sum(number * unit for number, unit in zip(numbers, _SECONDS, strict=True))
    if seconds > _MAX_DURATION.total_seconds():
        raise ValueError(f"expected a duration of at most 100 years, found {text[:40]!r}")
    return timedelta(microseconds=int(seconds * 1_000_000))
