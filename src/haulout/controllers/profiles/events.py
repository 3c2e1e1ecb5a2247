"""Events and log lines about profiles; events have the reasons and messages of the SAP maintenance-controller.

Failures are Warnings. A repeated failure is logged once; the recorder aggregates its events. A failure that persists
without any other change is emitted again every few minutes, so that its event does not expire. All else is recorded in
the journal.
"""

import logging
from datetime import timedelta
from typing import NamedTuple

from haulout.api.objects import Node, Pod
from haulout.api.reasons import ProfileEventReason
from haulout.api.resources import NODES
from haulout.controllers.profiles.metrics import ProfileMetrics
from haulout.controllers.profiles.observation import ProfileReport
from haulout.controllers.profiles.plugin import State, Warn
from haulout.core.clock import Clock
from haulout.drain import pod_events
from haulout.drain.escalation import EscalationStep
from haulout.errors import Conflict, HauloutError, ServerFailure, TooManyRequests, Unreachable
from haulout.kube.recorder import EventRecorder, object_reference
from haulout.kube.responses import condition_reason
from haulout.runtime.journal import Journal, Transition, emit_events

log = logging.getLogger(__name__)

_ACTION = "ChangeMaintenanceState"
_TRANSIENT = (Conflict, ServerFailure, TooManyRequests, Unreachable)  # usually temporary
_UNREADABLE_DATA = ProfileEventReason.MAINTENANCE_DATA_UNREADABLE
LOOP_REASON = ProfileEventReason.PROFILE_TRANSITION_LOOP  # on nodes
_STATES = frozenset(map(str, State))
# The API server deletes events after an hour by default (`--event-ttl`). Five minutes keep an ongoing failure visible
# in `kubectl describe node`.
_REPEAT_AFTER = timedelta(minutes=5)
_UNREADABLE, _FAILING = "", " "  # in place of a profile's name; no profile is called so
_LOOPING = "  "  # prefix of a profile's name


class _Failure(NamedTuple):
    """The last failure recorded for a node and a profile."""

    problem: str
    at: float


class ProfileEvents:
    """Records events of nodes and profiles. Pods have a recorder of their own, since their events are numerous."""

    def __init__(
        self,
        journal: Journal,
        *,
        clock: Clock,
        pod_events: EventRecorder | None = None,
        metrics: ProfileMetrics | None = None,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._pod_events = pod_events or journal.events
        self.metrics = metrics or ProfileMetrics()
        self._failures: dict[tuple[str, str], _Failure] = {}  # by node and profile

    def record_report(self, node: Node, report: ProfileReport) -> None:
        """Record what a reconcile did to one profile of a node."""
        if report.next != report.state:
            note = f"The node is now in the {report.next} state caused by profile {report.name}"
            self._record(node, ProfileEventReason.CHANGED_MAINTENANCE_STATE, note, report, is_warning=False)
        if any(transition.is_throttled for transition in report.transitions):
            self._record_loop(node, report)
        self._update_failure(node, report)

    def _record_loop(self, node: Node, report: ProfileReport) -> None:
        """Record that a profile is slowed down, at most every few minutes."""
        note = (
            f"profile {report.name} loops: it enters and leaves maintenance again and again, so its transitions are "
            "delayed: do its checks contradict each other?"
        )
        if self._should_record(node, f"{_LOOPING}{report.name}", note):
            self._record(node, LOOP_REASON, note, report)

    def record_repeated_failure(self, node: Node, report: ProfileReport) -> None:
        """Record that a profile fails again for the same reason: count it, and emit an event every few minutes."""
        if not report.failed_part:
            return
        self.metrics.failures.add(report.name)
        last = self._failures.get((node.name, report.name))
        if last is None or self._clock.monotonic() - last.at >= _REPEAT_AFTER.total_seconds():
            self._record_failure(node, report)

    def _update_failure(self, node: Node, report: ProfileReport) -> None:
        key = node.name, report.name
        if not report.error:
            self._failures.pop(key, None)
            return
        last = self._failures.get(key)
        if last is None or last.problem != report.error:
            if report.state not in _STATES:
                note = f"profile {report.name} is not evaluated: {report.error}"
                self._record(node, _UNREADABLE_DATA, note, report)
            else:
                fields = _log_fields(node, report)
                log.warning("profile %s of node %s: %s", report.name, node.name, report.error, extra=fields)
        if report.failed_part:
            self.metrics.failures.add(report.name)
        self._record_failure(node, report)

    def _record_failure(self, node: Node, report: ProfileReport) -> None:
        self._failures[node.name, report.name] = _Failure(report.error, self._clock.monotonic())
        if report.failed_part:
            note = f"{report.failed_part} for profile {report.name}: Will stay in {report.state} state"
            self._emit_failure(node, ProfileEventReason.CHANGE_MAINTENANCE_STATE_FAILED, note)

    # Whole node

    def record_unreadable_data(self, node: Node, problem: str) -> None:
        """Record that the data annotation of a node cannot be read, so that the node is left untouched."""
        if self._should_record(node, _UNREADABLE, problem):
            self._record(node, _UNREADABLE_DATA, problem)

    def clear_unreadable_data(self, node: str) -> None:
        self._failures.pop((node, _UNREADABLE), None)

    def record_step_failure(self, node: Node, error: Exception) -> str:
        """Record that a reconcile of a node failed; return the reason. Transient errors emit no event."""
        problem = str(error) if isinstance(error, HauloutError) else f"a defect in the operator: {error!r}"
        note = f"reconcile failed and will be retried: {problem}"
        shown_as = condition_reason(error)
        if (shown_as or not isinstance(error, _TRANSIENT)) and self._should_record(node, _FAILING, note):
            self._emit_failure(node, shown_as or ProfileEventReason.MAINTENANCE_STEP_FAILED, note)  # the queue logs it
        return note

    def clear_step_failure(self, node: str) -> None:
        self._failures.pop((node, _FAILING), None)

    def _should_record(self, node: Node, kind: str, problem: str) -> bool:
        """Return whether this problem was not recorded recently, and remember it."""
        key, now = (node.name, kind), self._clock.monotonic()
        last = self._failures.get(key)
        if last is not None and last.problem == problem and now - last.at < _REPEAT_AFTER.total_seconds():
            return False
        self._failures[key] = _Failure(problem, now)
        return True

    # Other events

    def record_restored_cordon(self, node: Node, tampering: str) -> None:
        """Record that another writer removed or edited the cordon annotation of a node in maintenance."""
        note = f"another writer changed the cordon during the maintenance: {tampering}; Haulout restores it"
        self._record(node, ProfileEventReason.CORDON_RESTORED, note)

    def record_warning(self, node: Node, warning: Warn) -> None:
        """Record a warning that a plugin returned."""
        self._record(node, warning.reason, warning.note)

    def record_pod_removal(self, node: Node, pod: Pod, escalation: EscalationStep) -> None:
        """Record that a pod is evicted or deleted."""
        pod_events.record_pod_event(self._pod_events, node, pod, escalation)

    def record_unsent_notification(self, node: Node, instance: str, problem: str) -> None:
        self._record(node, ProfileEventReason.NOTIFICATION_FAILED, f"notification {instance}: {problem}")

    def forget(self, node: str) -> None:
        for key in [failure_key for failure_key in self._failures if failure_key[0] == node]:
            del self._failures[key]

    def _record(
        self, node: Node, reason: str, note: str, report: ProfileReport | None = None, *, is_warning: bool = True
    ) -> None:
        self._journal.record(_transition(node, reason, note, report, is_warning=is_warning))

    def _emit_failure(self, node: Node, reason: str, note: str) -> None:
        """Emit an event only: the failure may be an old one."""
        emit_events(_transition(node, reason, note), self._journal.events)


def _transition(
    node: Node, reason: str, note: str, report: ProfileReport | None = None, *, is_warning: bool = True
) -> Transition:
    return Transition(
        regarding=(object_reference(NODES, node),),
        subject=f"node {node.name}",
        reason=reason,
        message=note,
        action=_ACTION,
        is_warning=is_warning,
        log_fields=_log_fields(node, report),
    )


def _log_fields(node: Node, report: ProfileReport | None) -> dict[str, str]:
    log_fields = {"node": node.name}
    if report is not None:
        log_fields |= {"profile": report.name, "state": report.next}
    return log_fields
