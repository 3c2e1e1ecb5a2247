"""Events and log lines about NodeMaintenances.

Reasons, types and messages of the first five are those of the Node Maintenance Operator. Events about cluster-scoped
objects are in the namespace `default`.
"""

import logging
from datetime import timedelta
from typing import NamedTuple

from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenance, NodeMaintenancePhase, NodeMaintenanceStatus
from haulout.api.objects import Node
from haulout.api.reasons import NodeMaintenanceEventReason
from haulout.api.resources import NODES
from haulout.budget.budget_check import BudgetExhausted
from haulout.controllers.nodemaintenance.node_cordon import shorten
from haulout.controllers.nodemaintenance.observation import Observation
from haulout.drain.progress import ActiveBlocker
from haulout.kube.recorder import EventRecorder, EventType, object_reference

log = logging.getLogger(__name__)


WAITING, MAINTENANCE_ERROR = (
    NodeMaintenanceEventReason.MAINTENANCE_WAITING,
    NodeMaintenanceEventReason.MAINTENANCE_ERROR,
)  # event reasons
RECOVERING = NodeMaintenanceEventReason.WAITING_FOR_RECOVERY  # event reason


class _Event(NamedTuple):
    type: EventType
    reason: str
    note: str
    action: str


_BEGIN = _Event("Normal", NodeMaintenanceEventReason.BEGIN_MAINTENANCE, "Begin a node maintenance", "Begin")
_SUCCEED = _Event("Normal", NodeMaintenanceEventReason.SUCCEED_MAINTENANCE, "Node maintenance was succeeded", "Drain")
_FAIL = _Event("Warning", NodeMaintenanceEventReason.FAILED_MAINTENANCE, "Failed a node maintenance", "Fail")
_REMOVE = _Event("Normal", NodeMaintenanceEventReason.REMOVED_MAINTENANCE, "Removed a node maintenance", "End")
_UNCORDON = _Event("Normal", NodeMaintenanceEventReason.UNCORDON_NODE, "Uncordon a node", "Uncordon")


class NodeMaintenanceEventRecorder:
    """Records events and log lines about NodeMaintenances, some of them only once per maintenance."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        # In memory only: after a failover the new leader reports once more, which costs one Event per problem. In the
        # status it would cost a write per problem.
        self._reported: set[tuple[str, ...]] = set()  # name of the maintenance, and what is reported once

    def record_drain(self, observation: Observation, *, report_after: timedelta) -> None:
        """Record blockers older than `report_after`, stale data and volumes left attached; log a slow drain."""
        drain, maintenance = observation.drain, observation.maintenance
        if drain is None or drain.is_waiting:
            return
        for active in drain.progress.blockers:
            # A pod that is shutting down within its grace period is no problem, however long that is.
            if not active.blocker.is_progress and active.since + report_after <= observation.now:
                self._record_blocked(maintenance, active)
        if drain.progress.stale_reason and drain.progress.started + report_after <= observation.now:
            self._record_stale_data(maintenance, drain.progress.stale_reason)
        left_attached = drain.progress.left_attached
        if left_attached and self._is_first_report(maintenance.name, "volumes"):
            note = f"the drain of node {maintenance.node} no longer waits for volumes to be detached: {left_attached}"
            self._log(maintenance, f"no longer waits for volumes to be detached: {left_attached}")
            self._record(
                maintenance, _Event("Warning", NodeMaintenanceEventReason.VOLUMES_STILL_ATTACHED, note, "Drain")
            )
        is_slow = drain.outcome is None and drain.progress.started + report_after <= observation.now
        if is_slow and self._is_first_report(maintenance.name, "slow"):
            # Scripts of the Node Maintenance Operator's users match on this text.
            self._log(maintenance, "Reconciling with fixed duration: the node is not drained yet")

    def record_waiting(
        self, maintenance: NodeMaintenance, *, problem: str, waits_for: str, reason: str = WAITING
    ) -> None:
        """Record once for whom or what the maintenance waits."""
        if self._is_first_report(maintenance.name, "waits", waits_for):
            self._log(maintenance, f"waits for {waits_for}: {problem}")
            self._record(maintenance, _Event("Warning", reason, problem, "Wait"))

    def record_budget(self, maintenance: NodeMaintenance, exhausted: BudgetExhausted | None) -> None:
        """Record once that the budget is exhausted for the maintenance. None resets that."""
        key = (maintenance.name, "room")
        if exhausted is None:
            if key in self._reported:
                self._reported.discard(key)
                self._log(maintenance, "no longer waits for the budget")
        elif self._is_first_report(*key):
            self._log(maintenance, f"waits: {exhausted}")
            note = f"begins automatically when the budget has a free slot: {exhausted}"
            self._record(maintenance, _Event("Warning", NodeMaintenanceEventReason.BUDGET_EXHAUSTED, note, "Wait"))

    def record_accepted(self, maintenance: NodeMaintenance) -> None:
        reason = shorten(maintenance.spec.reason)
        self._log(maintenance, f"begins: {reason}" if reason else "begins")
        self._record(maintenance, _BEGIN)

    def record_status_change(self, maintenance: NodeMaintenance, status: NodeMaintenanceStatus) -> None:
        """Record the transition from the current status to `status`."""
        before, after = maintenance.status.phase, status.phase
        if not before:
            self.record_accepted(maintenance)
        elif before != after:
            self._record_phase_change(maintenance, status)

    def _record_phase_change(self, maintenance: NodeMaintenance, status: NodeMaintenanceStatus) -> None:
        before, after = maintenance.status.phase, status.phase
        if after == NodeMaintenancePhase.SUCCEEDED:
            self._record(maintenance, _SUCCEED)
        elif after == NodeMaintenancePhase.FAILED:
            self._record(maintenance, _FAIL)
        error_text = f": {status.last_error}" if status.last_error else ""
        self._log(maintenance, f"phase changed from {before} to {after}{error_text}")

    def record_retry(self, maintenance: NodeMaintenance, problem: str, *, reason: str = MAINTENANCE_ERROR) -> None:
        self._record(maintenance, _Event("Warning", reason, problem, "Retry"))

    def record_unpublished_conditions(self, maintenance: NodeMaintenance, problem: str) -> None:
        """Record that node conditions cannot be written and the maintenance continues without them."""
        note = (
            f"cannot publish conditions of node {maintenance.node}, the maintenance continues without them: {problem}"
        )
        self._record(
            maintenance, _Event("Warning", NodeMaintenanceEventReason.CONDITIONS_NOT_PUBLISHED, note, "Publish")
        )

    def record_restored_cordon(self, maintenance: NodeMaintenance, node: Node, tampering: str) -> None:
        """Record that our cordon of the node was undone and has been restored."""
        note = f"node {node.name} was changed during its maintenance ({tampering}), and is cordoned and tainted again"
        advice = f"to end the maintenance: kubectl delete nm {maintenance.name}"
        self._record(
            maintenance, _Event("Warning", NodeMaintenanceEventReason.CORDON_RESTORED, f"{note}; {advice}", "Cordon")
        )
        self._log(maintenance, f"node {node.name} was changed by another client ({tampering}), and is cordoned again")

    def record_release(self, maintenance: NodeMaintenance, node: Node, tampering: str = "") -> None:
        """Record the release of the node. `tampering` tells how our cordon annotation was changed by others."""
        if tampering:
            note = f"{tampering}; the node is restored from the saved copy of its previous state"
            self._record_for_node(
                node, _Event("Warning", NodeMaintenanceEventReason.CORDON_ANNOTATION_LOST, note, "Release")
            )
        if node.spec.unschedulable:
            note = (
                "the node stays cordoned: it was cordoned before its maintenance, or something else keeps it cordoned"
            )
            self._record_for_node(node, _Event("Normal", NodeMaintenanceEventReason.CORDON_KEPT, note, "Release"))
        else:
            self._record_for_node(node, _UNCORDON)
        self._log(maintenance, "released the node" + ("; it stays cordoned" if node.spec.unschedulable else ""))

    def record_recovery_end(self, maintenance: NodeMaintenance, *, is_recovered: bool, missing: str) -> None:
        """Record the end of the wait for recovery; without either argument, recovery is not requested any more."""
        if is_recovered:
            note = f"node {maintenance.node} is Ready, and the workloads that were evicted are available again"
            self._record(maintenance, _Event("Normal", NodeMaintenanceEventReason.WORKLOADS_RECOVERED, note, "Recover"))
        elif missing:
            self._record(
                maintenance,
                _Event(
                    "Warning",
                    NodeMaintenanceEventReason.RECOVERY_TIMED_OUT,
                    f"the maintenance ends although the workloads have not recovered: {missing}",
                    "Recover",
                ),
            )
        self._log(
            maintenance, f"no longer waits for recovery: {missing}" if missing else "the wait for recovery is over"
        )

    def record_removed(self, maintenance: NodeMaintenance) -> None:
        """Record the end of the maintenance and forget it."""
        self._record(maintenance, _REMOVE)
        self._log(maintenance, "has ended")
        self.forget(maintenance.name)

    def record_orphaned(self, node: Node, name: str, *, released_in: timedelta) -> None:
        """Record once that a node is held for a maintenance that does not exist."""
        if not self._is_first_report(name, "orphaned", node.uid):
            return
        note = f"kept cordoned for NodeMaintenance {name}, which does not exist any more"
        minutes = released_in // timedelta(minutes=1)
        advice = f"it is released in {minutes} minutes; to keep it: haulout cordon {node.name}"
        self._record_for_node(
            node, _Event("Warning", NodeMaintenanceEventReason.ORPHANED_CORDON, f"{note}; {advice}", "Report")
        )
        log.warning("node %s is %s; %s", node.name, note, advice, extra={"node": node.name})

    def forget(self, name: str) -> None:
        """Forget what was reported for a maintenance, except for its orphaned nodes."""
        # An orphaned node outlives its maintenance. Forgetting it would repeat the Event at every reconcile.
        self._reported = {key for key in self._reported if key[0] != name or key[1] == "orphaned"}

    def _record_stale_data(self, maintenance: NodeMaintenance, stale_reason: str) -> None:
        if self._is_first_report(maintenance.name, "trouble", stale_reason):
            self.record_retry(maintenance, stale_reason)

    def _record_blocked(self, maintenance: NodeMaintenance, active: ActiveBlocker) -> None:
        blocker = active.blocker
        if self._is_first_report(maintenance.name, blocker.uid, blocker.kind, blocker.object):
            self._log(maintenance, f"is blocked: {blocker}")
            self._record(
                maintenance, _Event("Warning", NodeMaintenanceEventReason.DRAIN_BLOCKED, str(blocker), "Drain")
            )

    def _is_first_report(self, *key: str) -> bool:
        """Return whether this was not reported yet, and remember it."""
        if key in self._reported:
            return False
        self._reported.add(key)
        return True

    def _record(self, maintenance: NodeMaintenance, event: _Event) -> None:
        regarding = object_reference(NODE_MAINTENANCES, maintenance)
        self._recorder.event(regarding, type=event.type, reason=event.reason, note=event.note, action=event.action)

    def _record_for_node(self, node: Node, event: _Event) -> None:
        regarding = object_reference(NODES, node)
        self._recorder.event(regarding, type=event.type, reason=event.reason, note=event.note, action=event.action)

    def _log(self, maintenance: NodeMaintenance, text: str) -> None:
        extra = {"maintenance": maintenance.name, "node": maintenance.node}
        log.info("NodeMaintenance %s of node %s: %s", maintenance.name, maintenance.node, text, extra=extra)
