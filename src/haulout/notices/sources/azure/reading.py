"""What a document of Scheduled Events means for one machine. Pure.

    document = read(body)
    report = reported(event, machine="aks-np1-0", node="n1", at=now, known=None)

All machines of an availability set, or of a placement group, see the same document: `Resources` says whom an event is
about. An event that has been announced and is not shown any more is over, or was called off; which of them is told by
how far it was (`gone`).

What cannot be read is returned beside the rest. While there is any, nothing is concluded from what is missing. An event
whose time cannot be read may begin at any moment: it is taken, and what is odd about it is returned, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from haulout.core import httpdate
from haulout.kinds.early import may_have_begun
from haulout.kinds.notice import Kind, MaintenanceNotice, Stage
from haulout.kinds.reports import Plan, Report, planned
from haulout.notices.sources.fetching import UNREADABLE

SOURCE = "azure"
_KINDS = {
    "Freeze": Kind.FREEZE,
    "Reboot": Kind.REBOOT,
    "Redeploy": Kind.REBOOT,  # on another host: the machine comes back, without its temporary disk
    "Preempt": Kind.TERMINATE,
    "Terminate": Kind.TERMINATE,
}
_STAGES = {"Scheduled": Stage.SCHEDULED, "Started": Stage.STARTED}
_LONGEST = 4000  # characters of a description
_LONGEST_WORD = 250
_LONGEST_EVENT_SECONDS = timedelta(days=365).total_seconds()
_OPEN = ("", Stage.SCHEDULED, Stage.STARTED)


class Unreadable(ValueError):
    """Something that Azure does not say."""


class Event(msgspec.Struct, frozen=True, rename="pascal"):
    """One event; what is only for people may be null."""

    event_id: str
    event_type: str = ""
    event_status: str = ""
    resources: tuple[str, ...] = ()
    not_before: Any = ""
    description: str | None = ""
    event_source: str | None = ""
    duration_in_seconds: int | float | None = -1

    @property
    def lasts(self) -> timedelta | None:
        """How long it takes; None if that is not known."""
        seconds = self.duration_in_seconds
        return timedelta(seconds=seconds) if seconds is not None and 0 <= seconds <= _LONGEST_EVENT_SECONDS else None

    def is_about(self, machine: str) -> bool:
        """Tell whether a machine is among its resources."""
        return machine.lower() in {it.lower() for it in self.resources}

    @property
    def has_begun(self) -> bool:
        """Whether it is under way."""
        return self.event_status == "Started"


@dataclass(frozen=True, slots=True)
class Document:
    """All events, and what could not be read."""

    incarnation: int
    events: tuple[Event, ...]
    nonsense: tuple[tuple[str, str], ...] = ()  # what it begins with, and what was expected
    odd: tuple[tuple[str, str], ...] = ()  # likewise, of events that are taken nevertheless

    def event(self, event_id: str, machine: str) -> Event | None:
        """Return an event of a machine."""
        same = (it for it in self.events if it.event_id.lower() == event_id.lower())
        return next((it for it in same if it.is_about(machine)), None)


class _Whole(msgspec.Struct, rename="pascal"):
    events: list[msgspec.Raw]
    document_incarnation: int = 0


def read(body: bytes) -> Document:
    """Return what a document says; raises `Unreadable` if that is nothing at all."""
    try:
        whole = msgspec.json.decode(body, type=_Whole)
    except UNREADABLE as error:
        raise Unreadable(f"expected a document of scheduled events: {error}") from None
    events: list[Event] = []
    nonsense: list[tuple[str, str]] = []
    odd: list[tuple[str, str]] = []
    for raw in whole.events:
        try:
            event = _event(raw)
        except (Unreadable, *UNREADABLE) as error:
            nonsense.append((_text(raw), str(error)))
            continue
        try:
            _start(event)
        except Unreadable as error:
            odd.append((_text(raw), str(error)))
            event = msgspec.structs.replace(event, not_before="")
        events.append(event)
    return Document(whole.document_incarnation, tuple(events), tuple(nonsense), tuple(odd))


def _text(raw: msgspec.Raw) -> str:
    return bytes(raw).decode("utf-8", "replace")


def _start(event: Event) -> datetime | None:
    return instant(event.not_before) if event.not_before else None


def _event(raw: msgspec.Raw) -> Event:
    event = msgspec.json.decode(raw, type=Event)
    if not event.event_id:
        raise Unreadable("expected an EventId")
    if event.event_status not in _STAGES:
        raise Unreadable(f"expected an EventStatus of {', '.join(_STAGES)}, found {event.event_status[:40]!r}")
    return event


def instant(text: object) -> datetime:
    """Return what `Thu, 14 May 2026 09:30:00 GMT` says."""
    try:
        return httpdate.parse(text if isinstance(text, str) else "")
    except ValueError as error:
        raise Unreadable(f"NotBefore {str(text)[:40]!r}: {error}") from None


def notice_id(event_id: str, machine: str) -> str:
    """Return what a notice is called: each machine of an event has its own, which its own agent writes."""
    return f"{event_id.lower()}/{machine.lower()}"


def parts(called: str) -> tuple[str, str]:
    """Return the event and the machine of a notice."""
    event, _, machine = called.partition("/")
    return event, machine


def reported(event: Event, *, machine: str, node: str, at: datetime, known: MaintenanceNotice | None = None) -> Report:
    """Return what is said about an event of a machine; `known` is what was said before."""
    return Report(
        source=SOURCE,
        notice_id=notice_id(event.event_id, machine),
        at=at,
        node_name=node,
        stage=_STAGES[event.event_status],
        plan=_begun(event, at, known) if event.has_begun else _planned(event),
    )


def _planned(event: Event) -> Plan:
    """Return what is planned; its end is not: it begins somewhere after `NotBefore`, and lasts from then on."""
    start = _start(event)
    takes = "" if event.lasts is None else f"; it takes about {event.lasts.total_seconds():.0f} s"
    others = len(event.resources) - 1
    alike = f"; {others} more machine{'s' if others > 1 else ''} will be affected with it" if others > 0 else ""
    return Plan(
        kind=_kind(event),
        reason=_reason(event),
        description=_cut(f"{(event.description or '').rstrip('.')}{takes}{alike}".removeprefix("; "), _LONGEST),
        start=start,
        deadline=start,
    )


def _kind(event: Event) -> Kind:
    return _KINDS.get(event.event_type, Kind.UNKNOWN)


def _reason(event: Event) -> str:
    """Return why, in a word: what the kind does not tell, or else whose doing it is."""
    is_told = _kind(event) == event.event_type
    return _cut((event.event_source or "") if is_told else event.event_type, _LONGEST_WORD)


def _begun(event: Event, at: datetime, known: MaintenanceNotice | None) -> Plan | None:
    """Return what an event that has begun adds: what it is, if nobody said so before, and by when it should be over."""
    if known is not None and known.spec.stage == Stage.STARTED:
        return None
    before = None if known is None or known.spec.reported_at is None else planned(known.spec)
    plan = before or replace(_planned(event), start=at.replace(microsecond=0), deadline=None)
    if event.lasts is None or plan.start is None or plan.start > at:
        return plan if before is None else None  # what began before its time has an end before its start, too
    return replace(plan, end=at.replace(microsecond=0) + event.lasts)


def gone(notice: MaintenanceNotice, *, at: datetime) -> Report:
    """Return what is said about an event that is shown no more.

    One that was under way has ended, and one that still lay ahead was called off. One whose time had come, or that we
    asked for, was too quick for us: a machine that is restarted does not see its own event begin.
    """
    start = notice.spec.start
    has_begun = notice.spec.stage == Stage.STARTED or may_have_begun(notice) or (start is not None and at >= start)
    stage = Stage.ENDED if has_begun else Stage.CANCELLED
    return Report(source=SOURCE, notice_id=notice.spec.notice_id, at=at, node_name=notice.spec.node_name, stage=stage)


def is_open(notice: MaintenanceNotice) -> bool:
    """Tell whether more is to be expected."""
    return notice.spec.stage in _OPEN


def missing(document: Document, notices: Sequence[MaintenanceNotice]) -> list[MaintenanceNotice]:
    """Return which open notices a document does not show; none, if part of it could not be read."""
    if document.nonsense:
        return []
    return [it for it in notices if is_open(it) and document.event(*parts(it.spec.notice_id)) is None]


def _cut(text: str, longest: int) -> str:
    clean = "".join(it if it.isprintable() else " " for it in text)
    return clean if len(clean) <= longest else f"{clean[: longest - 1]}…"
