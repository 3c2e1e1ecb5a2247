"""Notices that nobody will end: those of agents whose node is gone, and the agent with it. Pure.

A machine that is terminated takes its agent along, before that could say that it is over. So the operator says it:
some time after the node went, and not before the maintenance has begun or its time is well over. A node that comes back
meanwhile brings its agent back, too.
"""

from datetime import datetime, timedelta

from haulout.kinds.early import may_have_begun
from haulout.kinds.notice import MaintenanceNotice, NoticeCondition, Stage
from haulout.kinds.reports import Report

AGENTS = ("aws", "azure", "gcp")  # the sources that run on nodes
_GONE_FOR = timedelta(minutes=10)
_WELL_OVER = timedelta(hours=1)
_OPEN = ("", Stage.SCHEDULED, Stage.STARTED)


def orphaned_at(notice: MaintenanceNotice) -> datetime | None:
    """Return from when on nobody is left who could end a notice; None: its agent is there, or never was needed."""
    spec, said = notice.spec, notice.status.condition(NoticeCondition.NODE_FOUND)
    is_gone = said is not None and said.status == "False" and bool(notice.status.node_name)
    if spec.source not in AGENTS or spec.stage not in _OPEN or not spec.node_name or said is None or not is_gone:
        return None
    if said.last_transition_time is None:
        return None
    gone = said.last_transition_time + _GONE_FOR
    has_begun = spec.stage == Stage.STARTED or may_have_begun(notice)
    return gone if has_begun or spec.start is None else max(gone, spec.start + _WELL_OVER)


def ended(notice: MaintenanceNotice, *, now: datetime) -> Report:
    """Return that it is over."""
    spec = notice.spec
    return Report(source=spec.source, notice_id=spec.notice_id, at=now, node_name=spec.node_name, stage=Stage.ENDED)
