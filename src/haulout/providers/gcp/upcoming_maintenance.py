"""Parse Google's documents about a machine and its planned maintenance. Pure.

    machine = parse_machine(document, project=project)  # of the Compute API
    upcoming = parse_upcoming(document["resourceStatus"]["upcomingMaintenance"])

The metadata server and the Compute API return the same fields in two spellings: `can_reschedule: "true"` and
`canReschedule: true`. Optional fields may be missing or invalid. An invalid start raises `UnreadableMaintenance`:
without it the time of the drain is unknown.

A machine either migrates live to another host, or is stopped and, if so configured, restarted elsewhere: for a node
that is a Reboot. A live migration announced one minute ahead pauses the machine for less than a second, and a drain
would not finish in time: that is a Freeze. One that is planned ahead is a Migrate.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from haulout.api.maintenancenotice import MaintenanceKind, NoticeStage
from haulout.api.notice_reports import MaintenancePlan
from haulout.core import timestamps
from haulout.core.walltime import EARLIEST, LATEST

MIGRATES, TERMINATES = "MIGRATE", "TERMINATE"

_PROVIDER_ID = re.compile(r"gce://(?P<project>[^/\s]+)/(?P<zone>[^/\s]+)/(?P<name>[^/\s]+)")
_NUMBER = re.compile(r"[0-9]{1,20}")
_STAGES = {"ONGOING": NoticeStage.STARTED, "COMPLETE": NoticeStage.ENDED, "COMPLETED": NoticeStage.ENDED}
_MAX_REASON = 1024  # limit of the notices' schema
_MAX_DESCRIPTION = 4096
# Documented: a live migration begins 60 s after the key changes, if the key was read before; preemption after about
# 30 s.
_EVENT_LEAD = timedelta(seconds=60)
_PREEMPTED_AFTER = timedelta(seconds=30)
_MIGRATION_DURATION = timedelta(minutes=5)

Document = Mapping[str, Any]


class UnreadableMaintenance(ValueError):
    """The maintenance of a machine cannot be parsed: what was found, and what was expected."""


class MaintenanceUnknown(UnreadableMaintenance):
    """The metadata server knows of no maintenance yet, which does not mean that none is planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualMachine:
    """An instance. A new instance of the same name has another number."""

    project: str
    zone: str
    name: str
    number: str
    on_maintenance: str = ""  # MIGRATE or TERMINATE; empty: unknown
    is_restarted: bool = True  # restarted after it was stopped for maintenance

    @property
    def provider_id(self) -> str:
        return f"gce://{self.project}/{self.zone}/{self.name}"

    @property
    def kind(self) -> MaintenanceKind:
        """The kind of maintenance that the machine experiences."""
        if self.on_maintenance == MIGRATES:
            return MaintenanceKind.MIGRATE
        if self.on_maintenance == TERMINATES:
            return MaintenanceKind.REBOOT if self.is_restarted else MaintenanceKind.STOP
        return MaintenanceKind.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class UpcomingMaintenance:
    """A maintenance that is planned or has begun."""

    start: datetime | None = None
    end: datetime | None = None
    deadline: datetime | None = None  # the latest start
    stage: NoticeStage = NoticeStage.SCHEDULED
    can_start_early: bool = False
    reason: str = ""
    description: str = ""

    def plan(self, machine: VirtualMachine) -> MaintenancePlan:
        """Return the plan for a notice. Google may begin early, but never moves a maintenance to a later time."""
        return MaintenancePlan(
            kind=machine.kind,
            reason=self.reason,
            description=self.description,
            start=self.start,
            end=self.end,
            deadline=self.deadline,
        )


def parse_provider_id(provider_id: str) -> tuple[str, str, str] | None:
    """Return project, zone and name from a provider ID; None if it is not one of Google's."""
    found = _PROVIDER_ID.fullmatch(provider_id.strip())
    return None if found is None else (found["project"], found["zone"], found["name"])


def parse_machine(document: Document, *, project: str) -> VirtualMachine:
    """Parse an instance of the Compute API; raise `UnreadableMaintenance`."""
    name, number = _text(document, "name"), str(document.get("id") or "")
    zone = _text(document, "zone").rpartition("/")[2]
    if not name or not zone or not _NUMBER.fullmatch(number):
        raise UnreadableMaintenance(f"expected an instance with id, name and zone, found {dict(document)!r:.120}")
    return with_scheduling(
        VirtualMachine(project=project, zone=zone, name=name, number=number), document.get("scheduling")
    )


def with_scheduling(machine: VirtualMachine, options: object) -> VirtualMachine:
    """Return the machine with its scheduling options, in either spelling."""
    fields = _normalized(options) if isinstance(options, Mapping) else {}
    return replace(
        machine,
        on_maintenance=str(fields.get("onhostmaintenance") or "").strip().upper(),
        is_restarted=_is_true(fields.get("automaticrestart", True)),
    )


def parse_upcoming(document: object) -> UpcomingMaintenance | None:
    """Parse a maintenance; None if none is planned. Raise `UnreadableMaintenance`."""
    if document is None:
        return None
    if not isinstance(document, Mapping):
        raise UnreadableMaintenance(f"expected an object, found {document!r:.100}")
    fields = _normalized(document)
    if len(fields) == 1 and isinstance(inner := next(iter(fields.values())), Mapping):
        fields = _normalized(inner)  # nested under a title, as in Google's examples
    if not any(fields.values()):
        return None
    # The metadata server answers so for some time after boot. To take it for "nothing is planned" would end an open
    # notice.
    if "error" in fields:
        raise MaintenanceUnknown(f"expected a maintenance, found the error {fields['error']!r:.100}")
    start = _instant(fields, "windowStartTime")
    return UpcomingMaintenance(
        start=start,
        end=_not_before(start, _optional_instant(fields, "windowEndTime")),
        deadline=_not_before(start, _optional_instant(fields, "latestWindowStartTime")),
        stage=_STAGES.get(str(fields.get("maintenancestatus")).upper(), NoticeStage.SCHEDULED),
        can_start_early=_is_true(fields.get("canreschedule", False)),
        reason=_reason(fields)[:_MAX_REASON],
        description=_description(fields)[:_MAX_DESCRIPTION],
    )


def plan_of_event(machine: VirtualMachine, event: str, *, at: datetime) -> MaintenancePlan:
    """Return the plan for a value of maintenance-event; the time is known only for a live migration."""
    if event.startswith(MIGRATES):
        return MaintenancePlan(
            kind=MaintenanceKind.FREEZE,
            reason=event,
            description="live migration to another host",
            start=at + _EVENT_LEAD,
            end=at + _EVENT_LEAD + _MIGRATION_DURATION,
        )
    kind = MaintenanceKind.REBOOT if machine.is_restarted else MaintenanceKind.STOP
    return MaintenancePlan(kind=kind, reason=event, description="the machine is stopped for maintenance of its host")


def plan_of_preemption(*, at: datetime) -> MaintenancePlan:
    return MaintenancePlan(
        kind=MaintenanceKind.TERMINATE,
        reason="PREEMPTED",
        description="Compute Engine preempts the machine",
        start=at + _PREEMPTED_AFTER,
    )


def _normalized(document: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the document with keys that are equal for both spellings."""
    return {str(key).replace("_", "").replace("-", "").lower(): value for key, value in document.items()}


def _text(document: Document, key: str) -> str:
    found = document.get(key)
    return found.strip() if isinstance(found, str) else ""


def _is_true(found: object) -> bool:
    return found is True or str(found).strip().lower() == "true"


def _strings(found: object) -> list[str]:
    values = found if isinstance(found, Sequence) and not isinstance(found, str) else [found]
    return [value.strip() for value in values if isinstance(value, str) and value.strip()]


def _reason(fields: Document) -> str:
    return ", ".join(_strings(fields.get("maintenancereasons")) or _strings(fields.get("type")) or ["UNKNOWN"])


def _description(fields: Document) -> str:
    kind = (_strings(fields.get("type")) or [""])[0].lower().replace("_", " ")
    parts = [f"{kind} maintenance of the host" if kind in ("scheduled", "unscheduled") else "maintenance of the host"]
    if _is_true(fields.get("maintenanceonshutdown", False)):
        parts.append("done when the machine is shut down")
    if _is_true(fields.get("canreschedule", False)):
        parts.append("it can begin early")
    return ", ".join(parts)


def _instant(fields: Document, key: str) -> datetime | None:
    text = fields.get(key.lower())
    if text is None or text == "":
        return None
    try:
        found = timestamps.parse_go_time(str(text)).instant.replace(microsecond=0)
    except ValueError:
        raise UnreadableMaintenance(f"expected a time as {key}, found {text!r:.60}") from None
    if not EARLIEST <= found < LATEST:
        raise UnreadableMaintenance(f"expected a plausible time as {key}, found {text!r:.60}")
    return found


def _optional_instant(fields: Document, key: str) -> datetime | None:
    try:
        return _instant(fields, key)
    except UnreadableMaintenance:
        return None


def _not_before(start: datetime | None, later: datetime | None) -> datetime | None:
    return later if later is not None and (start is None or start <= later) else None
