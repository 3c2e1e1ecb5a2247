"""What sources say about a maintenance, put together so that the order does not matter.

    spec = merged(notice.spec, report)

A cloud says things twice, late, and in the wrong order; a stream is read again from an earlier place, and a list tells
the same as a message. So a report never says "then this happened". It says how far the maintenance is (`stage`) and
what is planned (`plan`) as of an instant, and putting reports together is a maximum:

- Of stages the furthest counts. A maintenance that has ended does not begin again; another one has another name.
- Of plans the one that was said last counts (`at`), whenever it comes in. Of two of the same instant one is chosen by
  what they say, which is as good as any choice as long as everybody makes the same.

So each report may be taken any number of times, and all of them in any order: the same object comes out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from haulout.api.maintenancenotice import MaintenanceKind, MaintenanceNoticeSpec, NoticeStage, object_name

_STAGE_ORDER = {stage: number for number, stage in enumerate(("", *NoticeStage))}


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePlan:
    """What is planned."""

    kind: MaintenanceKind = MaintenanceKind.UNKNOWN
    reason: str = ""
    description: str = ""
    start: datetime | None = None
    end: datetime | None = None
    deadline: datetime | None = None
    reschedulable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeReport:
    """What a source says about one maintenance of one machine."""

    source: str
    notice_id: str
    at: datetime  # as of when it is said
    provider_id: str = ""
    node_name: str = ""
    machine_name: str = ""
    stage: NoticeStage = NoticeStage.SCHEDULED
    plan: MaintenancePlan | None = None  # None: nothing is said about it
    notes: Mapping[str, str] = field(default_factory=dict)  # annotations: what its source needs to find it again

    @property
    def name(self) -> str:
        """The name of the object that it is about."""
        return object_name(self.source, self.notice_id)


def merge_report(spec: MaintenanceNoticeSpec, report: NoticeReport) -> MaintenanceNoticeSpec:
    """Return what is said when this is said, too."""
    identified = msgspec.structs.replace(
        spec,
        source=report.source,
        notice_id=report.notice_id,
        provider_id=max(spec.provider_id, report.provider_id),
        node_name=max(spec.node_name, report.node_name),
        machine_name=max(spec.machine_name, report.machine_name),
        stage=max(spec.stage, report.stage, key=lambda stage: _STAGE_ORDER.get(stage, 0)),
    )
    if report.plan is None:
        return identified
    if _plan_precedence(report.at, report.plan) <= _plan_precedence(spec.reported_at, plan_of(spec)):
        return identified
    return msgspec.structs.replace(identified, **_fields(report.plan), reported_at=report.at)


def missing_annotations(annotations: Mapping[str, str], report: NoticeReport) -> Mapping[str, str]:
    """Return the annotations that are missing when this is said; of two values the larger counts, as above."""
    return {key: value for key, value in report.notes.items() if annotations.get(key, "") < value}


def combine_reports(reports: Iterable[NoticeReport]) -> list[NoticeReport]:
    """Return one report for each maintenance, which says the same as all of them together."""
    by_name: dict[str, tuple[NoticeReport, MaintenanceNoticeSpec]] = {}
    for report in reports:
        last, spec = by_name.get(report.name, (report, MaintenanceNoticeSpec()))
        notes = {**last.notes, **missing_annotations(last.notes, report)}
        latest = replace(max(last, report, key=lambda candidate: candidate.at), notes=notes)
        by_name[report.name] = latest, merge_report(spec, report)
    return [_report_of(last, spec) for last, spec in by_name.values()]


def _report_of(last: NoticeReport, spec: MaintenanceNoticeSpec) -> NoticeReport:
    """Return a report of what `spec` says, which has no plan if nobody has reported one."""
    return NoticeReport(
        source=spec.source,
        notice_id=spec.notice_id,
        at=spec.reported_at or last.at,
        provider_id=spec.provider_id,
        node_name=spec.node_name,
        machine_name=spec.machine_name,
        stage=NoticeStage(spec.stage),
        plan=None if spec.reported_at is None else plan_of(spec),
        notes=last.notes,
    )


def plan_of(spec: MaintenanceNoticeSpec) -> MaintenancePlan:
    """Return what is planned, as a notice says."""
    return MaintenancePlan(**_fields(spec))


def _fields(source: MaintenancePlan | MaintenanceNoticeSpec) -> dict[str, Any]:
    return {name: getattr(source, name) for name in MaintenancePlan.__dataclass_fields__}


def _plan_precedence(at: datetime | None, plan: MaintenancePlan) -> tuple[bool, float, bytes]:
    """Return what decides between two plans; one that nobody reported is the lightest."""
    return at is not None, 0.0 if at is None else at.timestamp(), msgspec.json.encode(plan)
