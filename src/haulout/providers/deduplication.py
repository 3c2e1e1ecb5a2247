"""Write a report only if it changes the notice.

    await write_if_changed(notice_writer, existing, report, quarantine)

A poll that returns the same events must not cause a write per event.
"""

from dataclasses import replace

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.notice_reports import NoticeReport, merge_report, missing_annotations, plan_of
from haulout.core.walltime import TICK
from haulout.errors import BadRequest, Invalid
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.quarantine import Quarantine

_UNPLANNED_FIELDS = ("stage", "provider_id", "machine_name", "node_name")


async def write_if_changed(
    notice_writer: NoticeWriter, existing: MaintenanceNotice | None, report: NoticeReport, quarantine: Quarantine
) -> MaintenanceNotice | None:
    """Return the notice as reported; None if the API server rejects the report, which is then quarantined."""
    if existing is not None and not changes_notice(existing, report):
        return existing
    try:
        return await notice_writer.write(outweighing(existing, report))
    except (Invalid, BadRequest) as error:
        quarantine.add(where=report.notice_id, why=f"the API server refuses it: {error}", what=report)
        return None


def outweighing(existing: MaintenanceNotice | None, report: NoticeReport) -> NoticeReport:
    """Return the report with a time after the notice's, so that it applies even if a clock was wrong before."""
    reported_at = None if existing is None else existing.spec.reported_at
    return report if reported_at is None or reported_at < report.at else replace(report, at=reported_at + TICK)


def changes_notice(existing: MaintenanceNotice, report: NoticeReport) -> bool:
    """Return whether a report changes anything except the time of the report."""
    after = merge_report(existing.spec, report)
    is_as_planned = report.plan is None or report.plan == plan_of(existing.spec)
    is_known = is_as_planned and all(
        getattr(after, field) == getattr(existing.spec, field) for field in _UNPLANNED_FIELDS
    )
    return not is_known or bool(missing_annotations(existing.metadata.annotations, report))
