"""Merges reports about a maintenance, so that their order does not matter.

    spec = merge_report(notice.spec, report)

A cloud reports things twice, late and out of order: a stream is read again from an earlier position, and a list repeats
a message. So a report never says "then this happened". It contains the progress of the maintenance (`stage`) and its
`plan`, both as of an instant, and a merge is a maximum:

- The furthest stage counts. A maintenance that has ended does not begin again; another one has another object name.
- The plan with the latest instant (`at`) counts, whenever it arrives. Of two plans with the same instant, their content
  decides. The choice is arbitrary, but every process makes the same.

So each report may be merged any number of times and in any order, with the same result.
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
    """What a source plans for a maintenance. A newer plan replaces it as a whole."""

    kind: MaintenanceKind = MaintenanceKind.UNKNOWN
    reason: str = ""
    description: str = ""
    start: datetime | None = None
    end: datetime | None = None
    deadline: datetime | None = None
    reschedulable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeReport:
    """What a source reports about one maintenance of one machine."""

    source: str
    notice_id: str
    at: datetime  # the instant that the report describes
    provider_id: str = ""
    node_name: str = ""
    machine_name: str = ""
    stage: NoticeStage = NoticeStage.SCHEDULED
    plan: MaintenancePlan | None = None  # None: the report has no plan
    # annotations that the source needs to identify the maintenance
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the MaintenanceNotice, the same for all reports about this maintenance."""
        return object_name(self.source, self.notice_id)


def merge_report(spec: MaintenanceNoticeSpec, report: NoticeReport) -> MaintenanceNoticeSpec:
    """Return the spec after this report. It does not matter whether the report was merged before."""
    identified = msgspec.structs.replace(
        spec,
        source=report.source,
        notice_id=report.notice_id,
        # A maximum, so that the order of reports does not matter; an empty value is less than any other.
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
    """Return the annotations that this report adds or changes. Of two values the larger one counts."""
    return {key: value for key, value in report.notes.items() if annotations.get(key, "") < value}


def combine_reports(reports: Iterable[NoticeReport]) -> list[NoticeReport]:
    """Return one report for each maintenance, equivalent to all reports about it."""
    by_name: dict[str, tuple[NoticeReport, MaintenanceNoticeSpec]] = {}
    for report in reports:
        last, spec = by_name.get(report.name, (report, MaintenanceNoticeSpec()))
        notes = {**last.notes, **missing_annotations(last.notes, report)}
        latest = replace(max(last, report, key=lambda candidate: candidate.at), notes=notes)
        by_name[report.name] = latest, merge_report(spec, report)
    return [_report_of(last, spec) for last, spec in by_name.values()]


def _report_of(last: NoticeReport, spec: MaintenanceNoticeSpec) -> NoticeReport:
    """Return a report with the content of `spec`. It has no plan if none was reported."""
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
    return MaintenancePlan(**_fields(spec))


def _fields(source: MaintenancePlan | MaintenanceNoticeSpec) -> dict[str, Any]:
    return {name: getattr(source, name) for name in MaintenancePlan.__dataclass_fields__}


def _plan_precedence(at: datetime | None, plan: MaintenancePlan) -> tuple[bool, float, bytes]:
    """Return the sort key that decides between two plans. A plan that was never reported sorts first."""
    return at is not None, 0.0 if at is None else at.timestamp(), msgspec.json.encode(plan)
