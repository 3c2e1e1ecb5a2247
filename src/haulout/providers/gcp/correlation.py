"""Find the notice for a maintenance of a Google machine, and end notices that are no longer reported. Pure.

    for report in reports_of_upcoming(machine, upcoming, notices, at=now): …

Google has no ID for a maintenance. It reports at most one per machine, the next one. So a notice is named after the
number of the machine and the first reported start. A maintenance of a machine with an open notice belongs to that
notice, even with another start: it was moved. Only after one has begun is another start a new maintenance.

A maintenance that is no longer reported is over. Before its start it was cancelled. After its start, or once it had
begun or an early start was requested, it has ended: a maintenance may take minutes in a window of hours, and polls may
have missed it.

A notice that was ended because Google no longer reported it has the annotation `GONE_AT`: if the maintenance is
reported again there is a new notice. A notice that a person cancelled stays cancelled.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from haulout.api import annotations
from haulout.api.maintenancenotice import MaintenanceKind, MaintenanceNotice, NoticeStage, is_finished, may_have_started
from haulout.api.notice_reports import MaintenancePlan, NoticeReport
from haulout.providers.gcp import SOURCE
from haulout.providers.gcp.upcoming_maintenance import (
    MIGRATES,
    UpcomingMaintenance,
    VirtualMachine,
    plan_of_event,
    plan_of_preemption,
)

GONE_AT = annotations.GCP_GONE_AT
# the machine was informed through the key maintenance-event, too
MAINTENANCE_EVENT = annotations.GCP_MAINTENANCE_EVENT
BOOT_ID = annotations.GCP_BOOT  # boot ID at the announcement: if it is unchanged, the machine was not restarted since

_NONE = "NONE"
_MAX_EVENT_LEAD = timedelta(hours=1)  # how long before its start a machine is informed, at most
_EVENT_LINGER = timedelta(minutes=10)
_ID = re.compile(r"(?P<number>[0-9]+)-(?:(?P<word>event|preempted)-)?.*")
_STOPPING_KINDS = (MaintenanceKind.REBOOT, MaintenanceKind.STOP, MaintenanceKind.UNKNOWN)


def is_planned_ahead(notice: MaintenanceNotice) -> bool:
    """Return whether the maintenance was planned ahead, and not announced only by maintenance-event or preempted."""
    found = _ID.fullmatch(notice.spec.notice_id)
    return found is not None and not found["word"]


def reports_of_upcoming(
    machine: VirtualMachine,
    upcoming: UpcomingMaintenance | None,
    notices: Iterable[MaintenanceNotice],
    *,
    at: datetime,
    node: str = "",
    annotations: Mapping[str, str] | None = None,
) -> Iterator[NoticeReport]:
    """Yield the reports for a machine's planned maintenance; None: certainly none is planned."""
    own_notices = [notice_of_machine for notice_of_machine in notices if _is_about(notice_of_machine, machine, "")]
    matching = None if upcoming is None else _matching_notice(own_notices, upcoming)
    for notice in own_notices:
        if notice is not matching and not is_finished(notice):
            yield _end_report(notice, at)
    if upcoming is None:
        return
    plan = upcoming.plan(machine)
    if matching is not None:
        existing = matching.metadata.annotations
        missing_annotations = {key: value for key, value in (annotations or {}).items() if key not in existing}
        yield _report(
            machine,
            matching.spec.notice_id,
            at=at,
            stage=upcoming.stage,
            plan=plan,
            node=node,
            annotations=missing_annotations,
        )
    elif upcoming.stage is not NoticeStage.ENDED and (notice_id := _new_notice_id(machine, upcoming, own_notices, at)):
        yield _report(machine, notice_id, at=at, stage=upcoming.stage, plan=plan, node=node, annotations=annotations)


def reports_of_maintenance_event(
    machine: VirtualMachine, event: str, notices: Collection[MaintenanceNotice], *, at: datetime, node: str = ""
) -> Iterator[NoticeReport]:
    """Yield the reports for the key maintenance-event: something begins at once, or is over."""
    event_notices = [notice for notice in notices if not is_finished(notice) and _is_about(notice, machine, "event")]
    planned = [notice for notice in notices if _is_about(notice, machine, "")]
    if event == _NONE:
        yield from (_end_report(notice, at, stage=NoticeStage.ENDED) for notice in event_notices)
        return
    if any(_has_just_ended(notice, event, at) for notice in planned):
        return  # the metadata keys do not change at the same instant
    near = next((notice for notice in planned if not is_finished(notice) and _is_imminent(notice, at)), None)
    if near is not None:
        yield from (
            _end_report(notice, at, stage=NoticeStage.ENDED) for notice in event_notices
        )  # the event belongs to the planned maintenance, as is known now
        if MAINTENANCE_EVENT not in near.metadata.annotations:
            yield _report(machine, near.spec.notice_id, at=at, node=node, annotations={MAINTENANCE_EVENT: event})
        return
    same = next((notice for notice in event_notices if notice.spec.reason == event), None)
    yield from (_end_report(notice, at, stage=NoticeStage.ENDED) for notice in event_notices if notice is not same)
    if same is None:
        notice_id = f"{machine.number}-event-{_compact_instant(at)}"
        yield _report(machine, notice_id, at=at, plan=plan_of_event(machine, event, at=at), node=node)


def reports_of_preemption(
    machine: VirtualMachine, *, is_preempted: bool, notices: Iterable[MaintenanceNotice], at: datetime, node: str = ""
) -> Iterator[NoticeReport]:
    """Yield the reports for the key preempted: the machine is being preempted, or runs again."""
    preemption_notices = [
        notice for notice in notices if _is_about(notice, machine, "preempted") and not is_finished(notice)
    ]
    if not is_preempted:
        yield from (_end_report(notice, at, stage=NoticeStage.ENDED) for notice in preemption_notices)
    elif not preemption_notices:
        notice_id = f"{machine.number}-preempted-{_compact_instant(at)}"
        yield _report(machine, notice_id, at=at, plan=plan_of_preemption(at=at), node=node)


def reports_without_upcoming(
    machine: VirtualMachine, notices: Iterable[MaintenanceNotice], *, event: str, boot_id: str, at: datetime
) -> Iterator[NoticeReport]:
    """Yield the ends that are certain while the metadata server does not know what is planned.

    A server on a new host knows nothing yet. So only observed facts count: the machine was informed that a migration
    begins and then that it is over, or it was restarted.
    """
    for notice in notices:
        if is_finished(notice) or event != _NONE or not _is_about(notice, machine, ""):
            continue
        start, annotations = notice.spec.start, notice.metadata.annotations
        has_started = notice.spec.stage == NoticeStage.STARTED or start is None or at >= start
        was_started = (
            bool(boot_id) and annotations.get(BOOT_ID, boot_id) != boot_id and notice.spec.kind in _STOPPING_KINDS
        )
        was_migrated = annotations.get(MAINTENANCE_EVENT, "").startswith(MIGRATES)
        if (has_started and was_started) or was_migrated:
            yield _end_report(notice, at, stage=NoticeStage.ENDED)


def reports_of_missing_machine(
    machine_number: str, notices: Iterable[MaintenanceNotice], *, at: datetime
) -> Iterator[NoticeReport]:
    """Yield the ends of notices whose machine was deleted or replaced by another one of the same name.

    `machine_number` is the number of the machine that exists now.
    """
    for notice in notices:
        found = _ID.fullmatch(notice.spec.notice_id)
        if found is not None and found["number"] != machine_number and not is_finished(notice):
            yield _end_report(notice, at)


def end_stage(notice: MaintenanceNotice, at: datetime) -> NoticeStage:
    """Return the final stage of a maintenance that is no longer reported.

    Before its start it was cancelled, unless we requested an early start.
    """
    spec = notice.spec
    is_ahead = spec.stage in ("", NoticeStage.SCHEDULED) and spec.start is not None and at < spec.start
    return NoticeStage.CANCELLED if is_ahead and not may_have_started(notice) else NoticeStage.ENDED


def _is_about(notice: MaintenanceNotice, machine: VirtualMachine, infix: str) -> bool:
    found = _ID.fullmatch(notice.spec.notice_id)
    return found is not None and found["number"] == machine.number and (found["word"] or "") == infix


def _matching_notice(notices: Iterable[MaintenanceNotice], upcoming: UpcomingMaintenance) -> MaintenanceNotice | None:
    """Return the open notice of a maintenance."""
    known = [notice for notice in notices if not is_finished(notice)]
    same = [notice for notice in known if notice.spec.start == upcoming.start]
    moved = [
        notice
        for notice in known
        if upcoming.stage is not NoticeStage.SCHEDULED or notice.spec.stage != NoticeStage.STARTED
    ]
    return next(iter((*same, *moved)), None)


def _new_notice_id(
    machine: VirtualMachine, upcoming: UpcomingMaintenance, notices: Sequence[MaintenanceNotice], at: datetime
) -> str:
    """Return the ID of a maintenance without an open notice; empty if a person cancelled it."""
    notice_id = f"{machine.number}-{_compact_instant(upcoming.start or at)}"
    previous = [notice for notice in notices if notice.spec.notice_id.startswith(notice_id)]
    if not previous:
        return notice_id
    is_announced_again = all(GONE_AT in notice.metadata.annotations for notice in previous)
    return f"{notice_id}-{_compact_instant(at)}" if is_announced_again else ""


def _is_imminent(notice: MaintenanceNotice, at: datetime) -> bool:
    start = notice.spec.start
    return notice.spec.stage == NoticeStage.STARTED or start is None or at >= start - _MAX_EVENT_LEAD


def _has_just_ended(notice: MaintenanceNotice, event: str, at: datetime) -> bool:
    annotations = notice.metadata.annotations
    is_same_event = is_finished(notice) and annotations.get(MAINTENANCE_EVENT) == event
    return is_same_event and annotations.get(GONE_AT, "") >= _format_instant(at - _EVENT_LINGER)


def _end_report(notice: MaintenanceNotice, at: datetime, *, stage: NoticeStage | None = None) -> NoticeReport:
    spec = notice.spec
    return NoticeReport(
        source=SOURCE,
        notice_id=spec.notice_id,
        at=at,
        provider_id=spec.provider_id,
        node_name=spec.node_name,
        stage=stage or end_stage(notice, at),
        notes={GONE_AT: _format_instant(at)},
    )


def _report(
    machine: VirtualMachine,
    notice_id: str,
    *,
    at: datetime,
    stage: NoticeStage = NoticeStage.SCHEDULED,
    plan: MaintenancePlan | None = None,
    node: str = "",
    annotations: Mapping[str, str] | None = None,
) -> NoticeReport:
    return NoticeReport(
        source=SOURCE,
        notice_id=notice_id,
        at=at,
        provider_id=machine.provider_id,
        node_name=node,
        stage=stage,
        plan=plan,
        notes=annotations or {},
    )


def _compact_instant(instant: datetime) -> str:
    return f"{instant:%Y%m%dt%H%M%S}"


def _format_instant(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"
