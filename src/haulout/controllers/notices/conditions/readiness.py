"""What kstatus reads of a notice: the conditions Ready, Reconciling and Stalled. Pure.

Ready is True when nothing is to be done about the notice now: it is over, its time has not come, its node is empty or
is gone. Reconciling is True while the node is to be emptied. Stalled is True when a person must act: no node is found,
the node will not be empty in time, or the source says that the maintenance failed. Absent means False.

All of it is known from what the other conditions say, so that it costs no writes of its own.
"""

from dataclasses import dataclass

import msgspec

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeCondition, NoticePhase, NoticeStage
from haulout.api.notice_phase import PhaseStatus
from haulout.api.objects import StatusCondition
from haulout.controllers.notices.conditions.on_time import OnTimeReason
from haulout.controllers.notices.node_lookup import NodeLookupResult

_READY_REASONS = (OnTimeReason.EMPTY, OnTimeReason.NOT_NEEDED)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Which of the three conditions is True, and why."""

    condition_type: NoticeCondition
    reason: str
    message: str

    def conditions(self) -> tuple[StatusCondition, ...]:
        """Return the conditions: Ready, and what else is True."""
        is_ready = self.condition_type is NoticeCondition.READY
        ready = StatusCondition(
            type=NoticeCondition.READY, status=str(is_ready), reason=self.reason, message=self.message
        )
        return (
            (ready,) if is_ready else (ready, msgspec.structs.replace(ready, type=self.condition_type, status="True"))
        )


def readiness(
    notice: MaintenanceNotice, lookup: NodeLookupResult, state: PhaseStatus, on_time: StatusCondition | None
) -> Readiness:
    """Return how ready a notice is; `on_time` is its condition OnTime, as it is going to be."""
    phase = state.phase
    if phase.is_over:
        return Readiness(NoticeCondition.READY, phase, state.message)
    if notice.spec.stage == NoticeStage.FAILED:
        return Readiness(NoticeCondition.STALLED, "MaintenanceFailed", state.message)
    if lookup.node is None:
        return _without_node(lookup)
    if on_time is None or (phase is NoticePhase.PLANNED and on_time.status != "False"):
        return Readiness(NoticeCondition.READY, phase, state.message)
    return Readiness(_condition_type(on_time), on_time.reason, on_time.message)


def _without_node(lookup: NodeLookupResult) -> Readiness:
    if lookup.gone_node:
        return Readiness(NoticeCondition.READY, "NodeGone", lookup.reason)
    return Readiness(NoticeCondition.STALLED, OnTimeReason.NODE_NOT_FOUND, lookup.reason)


def _condition_type(on_time: StatusCondition) -> NoticeCondition:
    if on_time.status == "False":
        return NoticeCondition.STALLED
    return NoticeCondition.READY if on_time.reason in _READY_REASONS else NoticeCondition.RECONCILING
