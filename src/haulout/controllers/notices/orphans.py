"""Notices that nothing will end: those of an agent whose node was deleted together with the agent. Pure.

A terminated machine takes its agent down before the agent can report the end. So the operator ends the notice: some
time after the node was deleted, and not before the maintenance has begun or its start is well past. A node that comes
back in the meantime brings its agent back, too.
"""

from datetime import datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeCondition, NoticeStage, may_have_started
from haulout.api.notice_reports import NoticeReport

AGENT_SOURCES = ("aws", "azure", "gcp")  # sources whose agents run on nodes
_ORPHANED_AFTER = timedelta(minutes=10)
_OVERDUE_AFTER = timedelta(hours=1)
_OPEN_STAGES = ("", NoticeStage.SCHEDULED, NoticeStage.STARTED)


def orphaned_at(notice: MaintenanceNotice) -> datetime | None:
    """Return from when on the notice is orphaned; None if its agent may still end it, or no agent reports it."""
    spec, node_found = notice.spec, notice.status.condition(NoticeCondition.NODE_FOUND)
    is_gone = node_found is not None and node_found.status == "False" and bool(notice.status.node_name)
    if (
        spec.source not in AGENT_SOURCES
        or spec.stage not in _OPEN_STAGES
        or not spec.node_name
        or node_found is None
        or not is_gone
    ):
        return None
    if node_found.last_transition_time is None:
        return None
    orphaned_from = node_found.last_transition_time + _ORPHANED_AFTER
    has_started = spec.stage == NoticeStage.STARTED or may_have_started(notice)
    return orphaned_from if has_started or spec.start is None else max(orphaned_from, spec.start + _OVERDUE_AFTER)


def ended_report(notice: MaintenanceNotice, *, now: datetime) -> NoticeReport:
    """Return the report that ends the notice."""
    spec = notice.spec
    return NoticeReport(
        source=spec.source, notice_id=spec.notice_id, at=now, node_name=spec.node_name, stage=NoticeStage.ENDED
    )
