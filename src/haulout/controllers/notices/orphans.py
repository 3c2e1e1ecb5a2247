"""Notices that nobody will end: those of agents whose node is gone, and the agent with it. Pure.

A machine that is terminated takes its agent along, before that could say that it is over. So the operator says it:
some time after the node went, and not before the maintenance has begun or its time is well over. A node that comes back
meanwhile brings its agent back, too.
"""

from datetime import datetime, timedelta

from haulout.api.early_start import may_have_started
from haulout.api.maintenancenotice import MaintenanceNotice, NoticeCondition, NoticeStage
from haulout.api.notice_reports import NoticeReport

AGENT_SOURCES = ("aws", "azure", "gcp")  # the sources that run on nodes
_ORPHANED_AFTER = timedelta(minutes=10)
_OVERDUE_AFTER = timedelta(hours=1)
_OPEN_STAGES = ("", NoticeStage.SCHEDULED, NoticeStage.STARTED)


def orphaned_at(notice: MaintenanceNotice) -> datetime | None:
    """Return from when on nobody is left who could end a notice; None: its agent is there, or never was needed."""
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
    """Return that it is over."""
    spec = notice.spec
    return NoticeReport(
        source=spec.source, notice_id=spec.notice_id, at=now, node_name=spec.node_name, stage=NoticeStage.ENDED
    )
