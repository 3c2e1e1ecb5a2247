"""The transitions of NodeMaintenances, for the journal: Events, log lines and counts.

Reasons, types and messages of the first five are those of the Node Maintenance Operator. Events about cluster-scoped
objects are in the namespace `default`. What is told once is remembered in memory only: after a failover the new leader
tells it once more, which costs one Event per problem. In the status it would cost a write per problem.
"""

import logging
from datetime import timedelta
from functools import partial

from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenance, NodeMaintenancePhase, NodeMaintenanceStatus
from haulout.api.objects import Node
from haulout.api.reasons import NodeMaintenanceConditionReason, NodeMaintenanceEventReason
from haulout.api.resources import NODES
from haulout.budget.budget_check import BudgetExhausted
from haulout.controllers.nodemaintenance.node_cordon import shorten
from haulout.controllers.nodemaintenance.observation import Observation
from haulout.kube.recorder import object_reference
from haulout.runtime.journal import Journal, Transition, emit_events

log = logging.getLogger(__name__)


WAITING, MAINTENANCE_ERROR = (
    NodeMaintenanceEventReason.MAINTENANCE_WAITING,
    NodeMaintenanceEventReason.MAINTENANCE_ERROR,
)  # event reasons
RECOVERING = NodeMaintenanceEventReason.WAITING_FOR_RECOVERY  # event reason

# Reason, message and action.
_BEGIN = NodeMaintenanceEventReason.BEGIN_MAINTENANCE, "Begin a node maintenance", "Begin"
_SUCCEED = NodeMaintenanceEventReason.SUCCEED_MAINTENANCE, "Node maintenance was succeeded", "Drain"
_FAIL = NodeMaintenanceEventReason.FAILED_MAINTENANCE, "Failed a node maintenance", "Fail"
_REMOVE = NodeMaintenanceEventReason.REMOVED_MAINTENANCE, "Removed a node maintenance", "End"
_UNCORDON = NodeMaintenanceEventReason.UNCORDON_NODE, "Uncordon a node", "Uncordon"
_KEPT_CORDON = (
    NodeMaintenanceEventReason.CORDON_KEPT,
    "the node stays cordoned: it was cordoned before its maintenance, or something else keeps it cordoned",
    "Release",
)
_SLOW = (
    NodeMaintenanceConditionReason.DRAIN_IN_PROGRESS,
    # Scripts of the Node Maintenance Operator's users search the log for this text.
    "Reconciling with fixed duration: the node is not drained yet",
    "Drain",
)


class NodeMaintenanceEvents:
    """Records the transitions of NodeMaintenances, some of them only once per maintenance."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def record_drain(self, observation: Observation, *, report_after: timedelta) -> None:
        """Record blockers older than `report_after`, stale data, volumes left attached, and a slow drain."""
        drain, maintenance = observation.drain, observation.maintenance
        if drain is None or drain.is_waiting:
            return
        for active in drain.progress.blockers:
            # A pod that is shutting down within its grace period is no problem, however long that is.
            if not active.blocker.is_progress and active.since + report_after <= observation.now:
                blocker, reason = active.blocker, NodeMaintenanceEventReason.DRAIN_BLOCKED
                topic = f"blocked: {blocker.uid} {blocker.kind} {blocker.object}"
                self._record_first(topic, maintenance, _warning(maintenance, reason, str(blocker), "Drain"))
        is_slow = drain.progress.started + report_after <= observation.now
        if is_slow and (stale := drain.progress.stale_reason):
            self._record_first(f"stale: {stale}", maintenance, _warning(maintenance, MAINTENANCE_ERROR, stale, "Retry"))
        if left_attached := drain.progress.left_attached:
            reason = NodeMaintenanceEventReason.VOLUMES_STILL_ATTACHED
            note = f"the drain of node {maintenance.node} no longer waits for volumes to be detached"
            transition = _warning(maintenance, reason, f"{note}: {left_attached}", "Drain")
            self._record_first("volumes", maintenance, transition)
        if is_slow and drain.outcome is None:
            self._record_first("slow", maintenance, _transition(maintenance, *_SLOW, has_event=False))

    def record_waiting(
        self, maintenance: NodeMaintenance, *, problem: str, waits_for: str, reason: str = WAITING
    ) -> None:
        """Record once for whom or what the maintenance waits."""
        topic = f"waits for {waits_for}"
        self._record_first(topic, maintenance, _warning(maintenance, reason, problem, "Wait", details=topic))

    def record_budget(self, maintenance: NodeMaintenance, exhausted: BudgetExhausted | None) -> None:
        """Record once that the budget is exhausted for the maintenance. None resets that."""
        if exhausted is not None:
            message = f"begins automatically when the budget has a free slot: {exhausted}"
            transition = _warning(maintenance, NodeMaintenanceEventReason.BUDGET_EXHAUSTED, message, "Wait")
            self._record_first("budget", maintenance, transition)
        elif self._journal.clear((maintenance.name, "budget")) is not None:
            _log(maintenance, "no longer waits for the budget")

    def record_status_change(self, maintenance: NodeMaintenance, status: NodeMaintenanceStatus) -> None:
        """Record the transition from the current status to `status`."""
        before, after = maintenance.status.phase, status.phase
        if not before:
            self._journal.record(_transition(maintenance, *_BEGIN, details=shorten(maintenance.spec.reason)))
        elif before == after:
            return
        elif after == NodeMaintenancePhase.SUCCEEDED:
            self._journal.record(_transition(maintenance, *_SUCCEED))
        elif after == NodeMaintenancePhase.FAILED:
            self._journal.record(_warning(maintenance, *_FAIL, details=status.last_error))
        else:
            reason, message = NodeMaintenanceConditionReason.RESUMED, f"phase changed from {before} to {after}"
            self._journal.record(_transition(maintenance, reason, message, "Drain", has_event=False))

    def record_retry(self, maintenance: NodeMaintenance, problem: str, *, reason: str = MAINTENANCE_ERROR) -> None:
        """Record that a reconcile failed."""
        self._record_repeatedly("retry", maintenance, _warning(maintenance, reason, problem, "Retry"))

    def record_success(self, maintenance: NodeMaintenance) -> None:
        """Note that the last reconcile did not fail: the next failure is a new one."""
        self._journal.clear((maintenance.name, "retry"))

    def record_unpublished_conditions(self, maintenance: NodeMaintenance, problem: str) -> None:
        """Record that node conditions cannot be written and the maintenance continues without them."""
        reason = NodeMaintenanceEventReason.CONDITIONS_NOT_PUBLISHED
        note = f"cannot publish conditions of node {maintenance.node}, the maintenance continues without them"
        transition = _warning(maintenance, reason, f"{note}: {problem}", "Publish")
        self._record_repeatedly("conditions", maintenance, transition)

    def record_restored_cordon(self, maintenance: NodeMaintenance, node: Node, tampering: str) -> None:
        """Record that our cordon of the node was undone and has been restored."""
        note = f"node {node.name} was changed during its maintenance ({tampering}), and is cordoned and tainted again"
        message = f"{note}; to end the maintenance: kubectl delete nm {maintenance.name}"
        reason = NodeMaintenanceEventReason.CORDON_RESTORED
        self._journal.record(_warning(maintenance, reason, message, "Cordon"))

    def record_release(self, maintenance: NodeMaintenance, node: Node, tampering: str = "") -> None:
        """Record the release of the node. `tampering` tells how our cordon annotation was changed by others."""
        if tampering:
            reason = NodeMaintenanceEventReason.CORDON_ANNOTATION_LOST
            message = f"{tampering}; the node is restored from the saved copy of its previous state"
            self._journal.record(_warning(maintenance, reason, message, "Release", node=node))
        released = _KEPT_CORDON if node.spec.unschedulable else _UNCORDON
        self._journal.record(_transition(maintenance, *released, node=node))

    def record_recovery_end(self, maintenance: NodeMaintenance, *, is_recovered: bool, missing: str) -> None:
        """Record the end of the wait for recovery; without either argument, recovery is not requested any more."""
        if is_recovered:
            reason = NodeMaintenanceEventReason.WORKLOADS_RECOVERED
            message = f"node {maintenance.node} is Ready, and the workloads that were evicted are available again"
            self._journal.record(_transition(maintenance, reason, message, "Recover"))
        elif missing:
            reason = NodeMaintenanceEventReason.RECOVERY_TIMED_OUT
            message = f"the maintenance ends although the workloads have not recovered: {missing}"
            self._journal.record(_warning(maintenance, reason, message, "Recover"))
        else:
            _log(maintenance, "the wait for recovery is over")

    def record_removed(self, maintenance: NodeMaintenance) -> None:
        """Record the end of the maintenance and forget it."""
        self._journal.record(_transition(maintenance, *_REMOVE))
        self.forget(maintenance.name)

    def record_orphaned(self, node: Node, name: str, *, released_in: timedelta) -> None:
        """Record once that a node is held for a maintenance that does not exist."""
        note = f"kept cordoned for NodeMaintenance {name}, which does not exist any more"
        minutes = released_in // timedelta(minutes=1)
        transition = Transition(
            regarding=(object_reference(NODES, node),),
            subject=f"node {node.name}",
            reason=NodeMaintenanceEventReason.ORPHANED_CORDON,
            message=f"{note}; it is released in {minutes} minutes; to keep it: haulout cordon {node.name}",
            action="Report",
            is_warning=True,
            log_fields={"maintenance": name, "node": node.name},
        )
        # An orphaned node outlives its maintenance. If `forget` dropped it, each reconcile would repeat the Event.
        self._journal.record_first(((name, node.uid), "orphaned"), transition)

    def forget(self, name: str) -> None:
        """Forget what was recorded for a maintenance, except for its orphaned nodes."""
        self._journal.forget(name)

    def _record_first(self, topic: str, maintenance: NodeMaintenance, transition: Transition) -> None:
        self._journal.record_first((maintenance.name, topic), transition)

    def _record_repeatedly(self, topic: str, maintenance: NodeMaintenance, transition: Transition) -> None:
        """Record a problem once, and its Event each time, so that it does not expire while the problem lasts."""
        if not self._journal.record_once((maintenance.name, topic), transition):
            emit_events(transition, self._journal.events)


def _transition(
    maintenance: NodeMaintenance,
    reason: str,
    message: str,
    action: str,
    *,
    node: Node | None = None,
    is_warning: bool = False,
    details: str = "",
    has_event: bool = True,
) -> Transition:
    """Return a transition of a maintenance. Its Event, if it has one, is about the node if that is given."""
    regarding = object_reference(NODE_MAINTENANCES, maintenance) if node is None else object_reference(NODES, node)
    return Transition(
        regarding=(regarding,) if has_event else (),
        subject=f"NodeMaintenance {maintenance.name} of node {maintenance.node}",
        reason=reason,
        message=message,
        action=action,
        is_warning=is_warning,
        details=details,
        log_fields={"maintenance": maintenance.name, "node": maintenance.node},
    )


_warning = partial(_transition, is_warning=True)


def _log(maintenance: NodeMaintenance, text: str) -> None:
    extra = {"maintenance": maintenance.name, "node": maintenance.node}
    log.info("NodeMaintenance %s of node %s: %s", maintenance.name, maintenance.node, text, extra=extra)
