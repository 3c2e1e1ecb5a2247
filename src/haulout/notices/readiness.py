"""What kstatus reads of a notice: the conditions Ready, Reconciling and Stalled. Pure.

Ready is True when nothing is to be done about the notice now: it is over, its time has not come, its node is empty or
is gone. Reconciling is True while the node is to be emptied. Stalled is True when a person must act: no node is found,
the node will not be empty in time, or the source says that the maintenance failed. Absent means False.

All of it is known from what the other conditions say, so that it costs no writes of its own.
"""

from dataclasses import dataclass

import msgspec

from haulout.kinds.notice import MaintenanceNotice, NoticeCondition, Phase, Stage
from haulout.kinds.standing import Standing
from haulout.kube.objects import StatusCondition
from haulout.notices.finding import Finding
from haulout.notices.timeliness import Verdict

_DONE = (Verdict.EMPTY, Verdict.NOT_NEEDED)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Which of the three conditions is True, and why."""

    kind: NoticeCondition
    reason: str
    message: str

    def conditions(self) -> tuple[StatusCondition, ...]:
        """Return the conditions: Ready, and what else is True."""
        is_ready = self.kind is NoticeCondition.READY
        ready = StatusCondition(
            type=NoticeCondition.READY, status=str(is_ready), reason=self.reason, message=self.message
        )
        return (ready,) if is_ready else (ready, msgspec.structs.replace(ready, type=self.kind, status="True"))


def readiness(
    notice: MaintenanceNotice, finding: Finding, standing: Standing, on_time: StatusCondition | None
) -> Readiness:
    """Return how ready a notice is; `on_time` is its condition OnTime, as it is going to be."""
    phase = standing.phase
    if phase.is_over:
        return Readiness(NoticeCondition.READY, phase, standing.why)
    if notice.spec.stage == Stage.FAILED:
        return Readiness(NoticeCondition.STALLED, "MaintenanceFailed", standing.why)
    if finding.node is None:
        return _without_node(finding)
    if on_time is None or (phase is Phase.PLANNED and on_time.status != "False"):
        return Readiness(NoticeCondition.READY, phase, standing.why)
    return Readiness(_kind_of(on_time), on_time.reason, on_time.message)


def _without_node(finding: Finding) -> Readiness:
    if finding.gone:
        return Readiness(NoticeCondition.READY, "NodeGone", finding.why)
    return Readiness(NoticeCondition.STALLED, Verdict.NODE_NOT_FOUND, finding.why)


def _kind_of(on_time: StatusCondition) -> NoticeCondition:
    if on_time.status == "False":
        return NoticeCondition.STALLED
    return NoticeCondition.READY if on_time.reason in _DONE else NoticeCondition.RECONCILING
