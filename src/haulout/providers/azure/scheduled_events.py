"""Parse a document of Scheduled Events, and derive the reports for one machine. Pure.

    document = parse_scheduled_events(body)
    report = report_of(event, machine="aks-np1-0", node="n1", at=now, existing=None)

All machines of an availability set or placement group get the same document: `Resources` names the machines of an
event. An event that is no longer in the document is over or was cancelled, depending on how far it was (`end_report`).

Events that cannot be parsed are returned separately. While there are any, no missing event is ended. An event with an
invalid time may begin at any moment: it is included, and also returned as invalid.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from haulout.api.maintenancenotice import MaintenanceKind, MaintenanceNotice, NoticeStage, may_have_started
from haulout.api.notice_reports import MaintenancePlan, NoticeReport, plan_of
from haulout.core import timestamps
from haulout.providers.http_fetch import DECODE_ERRORS

SOURCE = "azure"
# Minimum notice by the documentation of Scheduled Events: Freeze and Reboot 15 minutes, Redeploy 10 minutes, Preempt
# 30 s, Terminate 5 to 15 minutes as configured.
_KINDS = {
    "Freeze": MaintenanceKind.FREEZE,
    "Reboot": MaintenanceKind.REBOOT,
    "Redeploy": MaintenanceKind.REBOOT,  # on another host: the machine comes back without its temporary disk
    "Preempt": MaintenanceKind.TERMINATE,
    "Terminate": MaintenanceKind.TERMINATE,
}
_STAGES = {"Scheduled": NoticeStage.SCHEDULED, "Started": NoticeStage.STARTED}
_MAX_DESCRIPTION = 4000  # characters
_MAX_REASON = 250
_MAX_EVENT_SECONDS = timedelta(days=365).total_seconds()
_OPEN_STAGES = ("", NoticeStage.SCHEDULED, NoticeStage.STARTED)


class UnreadableScheduledEvent(ValueError):
    """A document or event that does not have the expected form."""


class ScheduledEvent(msgspec.Struct, frozen=True, rename="pascal"):
    """One event; the fields that are only for display may be null."""

    event_id: str
    event_type: str = ""
    event_status: str = ""
    resources: tuple[str, ...] = ()
    not_before: Any = ""
    description: str | None = ""
    event_source: str | None = ""
    duration_in_seconds: int | float | None = -1

    @property
    def duration(self) -> timedelta | None:
        """How long the event takes; None if unknown."""
        seconds = self.duration_in_seconds
        return timedelta(seconds=seconds) if seconds is not None and 0 <= seconds <= _MAX_EVENT_SECONDS else None

    def is_about(self, machine: str) -> bool:
        """Return whether a machine is among the event's resources."""
        # Azure does not keep the case of resource names.
        return machine.lower() in {resource.lower() for resource in self.resources}

    @property
    def has_started(self) -> bool:
        return self.event_status == "Started"


@dataclass(frozen=True, slots=True)
class ScheduledEvents:
    """All events, and what could not be parsed."""

    events: tuple[ScheduledEvent, ...]
    unreadable: tuple[tuple[str, str], ...] = ()  # pairs of the raw text, and what was expected
    invalid_times: tuple[tuple[str, str], ...] = ()  # likewise, for events that are included nevertheless

    def find(self, event_id: str, machine: str) -> ScheduledEvent | None:
        """Return the event of a machine; None if the document has none."""
        same = (event for event in self.events if event.event_id.lower() == event_id.lower())
        return next((event for event in same if event.is_about(machine)), None)


class _Body(msgspec.Struct, rename="pascal"):
    events: list[msgspec.Raw]


def parse_scheduled_events(body: bytes) -> ScheduledEvents:
    """Parse a document; raise `UnreadableScheduledEvent` if it is invalid as a whole."""
    try:
        document = msgspec.json.decode(body, type=_Body)
    except DECODE_ERRORS as error:
        raise UnreadableScheduledEvent(f"expected a document of scheduled events: {error}") from None
    events: list[ScheduledEvent] = []
    unreadable: list[tuple[str, str]] = []
    invalid_times: list[tuple[str, str]] = []
    for raw in document.events:
        try:
            event = _parse_event(raw)
        except (UnreadableScheduledEvent, *DECODE_ERRORS) as error:
            unreadable.append((_text(raw), str(error)))
            continue
        try:
            _start(event)
        except UnreadableScheduledEvent as error:
            invalid_times.append((_text(raw), str(error)))
            # Included without a time: to drop it would leave the machine in service, and would end its notice as
            # cancelled.
            event = msgspec.structs.replace(event, not_before="")
        events.append(event)
    return ScheduledEvents(tuple(events), tuple(unreadable), tuple(invalid_times))


def _text(raw: msgspec.Raw) -> str:
    return bytes(raw).decode("utf-8", "replace")


def _start(event: ScheduledEvent) -> datetime | None:
    return parse_instant(event.not_before) if event.not_before else None


def _parse_event(raw: msgspec.Raw) -> ScheduledEvent:
    event = msgspec.json.decode(raw, type=ScheduledEvent)
    if not event.event_id:
        raise UnreadableScheduledEvent("expected an EventId")
    if event.event_status not in _STAGES:
        raise UnreadableScheduledEvent(
            f"expected an EventStatus of {', '.join(_STAGES)}, found {event.event_status[:40]!r}"
        )
    return event


def parse_instant(text: object) -> datetime:
    """Parse an instant such as `Thu, 14 May 2026 09:30:00 GMT`."""
    try:
        return timestamps.parse_http_date(text if isinstance(text, str) else "")
    except ValueError as error:
        raise UnreadableScheduledEvent(f"NotBefore {str(text)[:40]!r}: {error}") from None


def notice_id(event_id: str, machine: str) -> str:
    """Return the ID of a notice: each machine of an event has its own, written by its own agent."""
    return f"{event_id.lower()}/{machine.lower()}"


def split_notice_id(notice: str) -> tuple[str, str]:
    """Return the event and the machine of a notice ID."""
    event, _, machine = notice.partition("/")
    return event, machine


def report_of(
    event: ScheduledEvent, *, machine: str, node: str, at: datetime, existing: MaintenanceNotice | None = None
) -> NoticeReport:
    """Return the report for an event of a machine; `existing` is its notice so far."""
    return NoticeReport(
        source=SOURCE,
        notice_id=notice_id(event.event_id, machine),
        at=at,
        node_name=node,
        stage=_STAGES[event.event_status],
        plan=_started_plan(event, at, existing) if event.has_started else _planned_plan(event),
    )


def _planned_plan(event: ScheduledEvent) -> MaintenancePlan:
    """Return the plan of an event that has not begun.

    It has no end, since the event begins at an unknown time after `NotBefore`.
    """
    start = _start(event)
    duration_text = "" if event.duration is None else f"; it takes about {event.duration.total_seconds():.0f} s"
    others = len(event.resources) - 1
    others_text = f"; {others} more machine{'s' if others > 1 else ''} will be affected with it" if others > 0 else ""
    return MaintenancePlan(
        kind=_kind(event),
        reason=_reason(event),
        description=_truncated(
            f"{(event.description or '').rstrip('.')}{duration_text}{others_text}".removeprefix("; "), _MAX_DESCRIPTION
        ),
        start=start,
        deadline=start,
    )


def _kind(event: ScheduledEvent) -> MaintenanceKind:
    return _KINDS.get(event.event_type, MaintenanceKind.UNKNOWN)


def _reason(event: ScheduledEvent) -> str:
    """Return the reason: the event type if the kind does not say it, else the source of the event."""
    is_reported_by_kind = _kind(event) == event.event_type
    return _truncated((event.event_source or "") if is_reported_by_kind else event.event_type, _MAX_REASON)


def _started_plan(event: ScheduledEvent, at: datetime, known: MaintenanceNotice | None) -> MaintenancePlan | None:
    """Return the plan of an event that has begun, with its expected end; None if it adds nothing."""
    if known is not None and known.spec.stage == NoticeStage.STARTED:
        return None
    before = None if known is None or known.spec.reported_at is None else plan_of(known.spec)
    plan = before or replace(_planned_plan(event), start=at.replace(microsecond=0), deadline=None)
    if event.duration is None or plan.start is None or plan.start > at:
        return plan if before is None else None  # an event that began early would get an end before its start
    return replace(plan, end=at.replace(microsecond=0) + event.duration)


def end_report(notice: MaintenanceNotice, *, at: datetime) -> NoticeReport:
    """Return the report for an event that is no longer in the document.

    An event that had begun has ended; one that was still ahead was cancelled. One whose time had come, or that we
    approved, counts as ended: it can begin and end between two polls, since a restarting machine does not see its own
    event begin.
    """
    start = notice.spec.start
    has_started = (
        notice.spec.stage == NoticeStage.STARTED or may_have_started(notice) or (start is not None and at >= start)
    )
    stage = NoticeStage.ENDED if has_started else NoticeStage.CANCELLED
    return NoticeReport(
        source=SOURCE, notice_id=notice.spec.notice_id, at=at, node_name=notice.spec.node_name, stage=stage
    )


def is_open(notice: MaintenanceNotice) -> bool:
    """Return whether the event of the notice is not over."""
    return notice.spec.stage in _OPEN_STAGES


def missing_notices(document: ScheduledEvents, notices: Sequence[MaintenanceNotice]) -> list[MaintenanceNotice]:
    """Return the open notices that are missing from a document; none if part of it could not be parsed."""
    # The unreadable event may be the missing one.
    if document.unreadable:
        return []
    return [
        notice
        for notice in notices
        if is_open(notice) and document.find(*split_notice_id(notice.spec.notice_id)) is None
    ]


def _truncated(text: str, limit: int) -> str:
    clean = "".join(character if character.isprintable() else " " for character in text)
    return clean if len(clean) <= limit else f"{clean[: limit - 1]}…"
