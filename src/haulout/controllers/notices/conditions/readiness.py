"""The kstatus conditions of a notice: Ready, Reconciling and Stalled. Pure.

Ready is True when there is nothing to do for the notice now: it is over, it is not due yet, or its node is empty or
deleted. Reconciling is True while the node must be drained. Stalled is True when a person must act: no node is found,
the node will not be empty in time, or the source reports that the maintenance failed. Absent means False.

All three follow from the other conditions, so they cost no additional writes.
"""

from dataclasses import dataclass

import msgspec

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeCondition, NoticePhase, NoticeStage, PhaseStatus
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
        """Return the condition Ready, and Reconciling or Stalled if one of them is True."""
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
    """Return the readiness of a notice; `on_time` is its new condition OnTime."""
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
