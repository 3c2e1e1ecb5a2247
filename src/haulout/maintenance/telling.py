"""What people are told by events and in the log, as a maintenance goes from one state to the next.

Reasons, types and messages of the first five are the Node Maintenance Operator's. Events about cluster-scoped objects
are in the namespace `default`.
"""

import logging
from datetime import timedelta
from typing import NamedTuple

from haulout.budget.room import Crowded
from haulout.drain.progress import Standing
from haulout.kube.events import EventRecorder, EventType, reference
from haulout.kube.objects import Node
from haulout.kube.resources import NODES
from haulout.maintenance.holding import shortened
from haulout.maintenance.resource import NODE_MAINTENANCES, NodeMaintenance, Phase, Status
from haulout.maintenance.seen import Seen

log = logging.getLogger(__name__)


WAITING, MAINTENANCE_ERROR = "MaintenanceWaiting", "MaintenanceError"  # reasons of events
RECOVERING = "WaitingForRecovery"  # the same


class _Event(NamedTuple):
    type: EventType
    reason: str
    note: str
    action: str


_BEGIN = _Event("Normal", "BeginMaintenance", "Begin a node maintenance", "Begin")
_SUCCEED = _Event("Normal", "SucceedMaintenance", "Node maintenance was succeeded", "Drain")
_FAIL = _Event("Warning", "FailedMaintenance", "Failed a node maintenance", "Fail")
_REMOVE = _Event("Normal", "RemovedMaintenance", "Removed a node maintenance", "End")
_UNCORDON = _Event("Normal", "UncordonNode", "Uncordon a node", "Uncordon")


class Teller:
    """Tells of maintenances; it forgets them by name."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._told: set[tuple[str, ...]] = set()  # the name of a maintenance, and what is told of it once

    def stands(self, seen: Seen, *, told_after: timedelta) -> None:
        """Tell what has stood in the way for so long, and in the log that a drain takes its time."""
        drain, maintenance = seen.drain, seen.maintenance
        if drain is None or drain.is_waiting:
            return
        for standing in drain.progress.blockers:
            if not standing.blocker.is_progress and standing.since + told_after <= seen.now:
                self._blocked(maintenance, standing)
        if drain.progress.trouble and drain.progress.started + told_after <= seen.now:
            self._cannot_see(maintenance, drain.progress.trouble)
        left = drain.progress.left_attached
        if left and self._is_new(maintenance.name, "volumes"):
            note = f"the drain of node {maintenance.node} does not wait for volumes any longer: {left}"
            self._log(maintenance, f"does not wait for volumes any longer: {left}")
            self._tell(maintenance, _Event("Warning", "VolumesStillAttached", note, "Drain"))
        is_slow = drain.outcome is None and drain.progress.started + told_after <= seen.now
        if is_slow and self._is_new(maintenance.name, "slow"):
            # Scripts of the Node Maintenance Operator's users look for these words.
            self._log(maintenance, "Reconciling with fixed duration: the node is not drained yet")

    def waits(self, maintenance: NodeMaintenance, *, problem: str, for_whom: str, reason: str = WAITING) -> None:
        """Tell once for whom or what a maintenance waits."""
        if self._is_new(maintenance.name, "waits", for_whom):
            self._log(maintenance, f"waits for {for_whom}: {problem}")
            self._tell(maintenance, _Event("Warning", reason, problem, "Wait"))

    def waits_for_room(self, maintenance: NodeMaintenance, crowded: Crowded | None) -> None:
        """Tell that the budget has no room for a maintenance; None: that it has."""
        key = (maintenance.name, "room")
        if crowded is None:
            if key in self._told:
                self._told.discard(key)
                self._log(maintenance, "waits no longer for the budget")
        elif self._is_new(*key):
            self._log(maintenance, f"waits: {crowded}")
            note = f"begins by itself when there is room: {crowded}"
            self._tell(maintenance, _Event("Warning", "BudgetUsedUp", note, "Wait"))

    def begins(self, maintenance: NodeMaintenance) -> None:
        """Tell that a maintenance was accepted."""
        reason = shortened(maintenance.spec.reason)
        self._log(maintenance, f"begins: {reason}" if reason else "begins")
        self._tell(maintenance, _BEGIN)

    def changes(self, maintenance: NodeMaintenance, status: Status) -> None:
        """Tell of the way from one status to the next."""
        before, after = maintenance.status.phase, status.phase
        if not before:
            self.begins(maintenance)
        elif before != after:
            self._passes(maintenance, status)

    def _passes(self, maintenance: NodeMaintenance, status: Status) -> None:
        before, after = maintenance.status.phase, status.phase
        if after == Phase.SUCCEEDED:
            self._tell(maintenance, _SUCCEED)
        elif after == Phase.FAILED:
            self._tell(maintenance, _FAIL)
        why = f": {status.last_error}" if status.last_error else ""
        self._log(maintenance, f"goes from {before} to {after}{why}")

    def fails_for_now(self, maintenance: NodeMaintenance, problem: str, *, reason: str = MAINTENANCE_ERROR) -> None:
        """Tell that something went wrong, and is tried again."""
        self._tell(maintenance, _Event("Warning", reason, problem, "Retry"))

    def cannot_publish(self, maintenance: NodeMaintenance, problem: str) -> None:
        """Tell that a node's conditions cannot be written; the maintenance goes on without them."""
        note = (
            f"conditions of node {maintenance.node} cannot be published, and the maintenance goes on without: {problem}"
        )
        self._tell(maintenance, _Event("Warning", "ConditionsNotPublished", note, "Publish"))

    def restores(self, maintenance: NodeMaintenance, node: Node, tampering: str) -> None:
        """Tell that somebody gave a node back that is in maintenance, and that it was taken again."""
        note = f"node {node.name} was changed during its maintenance ({tampering}), and is cordoned and tainted again"
        advice = f"to end the maintenance: kubectl delete nm {maintenance.name}"
        self._tell(maintenance, _Event("Warning", "CordonRestored", f"{note}; {advice}", "Cordon"))
        self._log(maintenance, f"was undone by somebody ({tampering}), and holds node {node.name} again")

    def gives_back(self, maintenance: NodeMaintenance, node: Node, tampering: str = "") -> None:
        """Tell what became of the node; `tampering` says what somebody has done to our mark on it."""
        if tampering:
            note = f"{tampering}; the node is restored by the copy that was kept of it"
            self._about(node, _Event("Warning", "CordonMarkLost", note, "Release"))
        if node.spec.unschedulable:
            note = "the node stays cordoned: it was before its maintenance, or another one holds it"
            self._about(node, _Event("Normal", "CordonKept", note, "Release"))
        else:
            self._about(node, _UNCORDON)
        self._log(maintenance, "lets go of it" + ("; it stays cordoned" if node.spec.unschedulable else ""))

    def recovers(self, maintenance: NodeMaintenance, *, is_recovered: bool, missing: str) -> None:
        """Tell how the wait for workloads has ended; nothing if nobody wants it any more."""
        if is_recovered:
            note = f"node {maintenance.node} is Ready, and the workloads that were evicted are available again"
            self._tell(maintenance, _Event("Normal", "WorkloadsRecovered", note, "Recover"))
        elif missing:
            self._tell(maintenance, _Event("Warning", "RecoveryTimedOut", f"ends without: {missing}", "Recover"))
        self._log(maintenance, f"does not wait for recovery any longer: {missing}" if missing else "has recovered")

    def is_removed(self, maintenance: NodeMaintenance) -> None:
        """Tell that a maintenance is over."""
        self._tell(maintenance, _REMOVE)
        self._log(maintenance, "is over")
        self.forget(maintenance.name)

    def orphaned(self, node: Node, name: str, *, released_in: timedelta) -> None:
        """Tell that a node is kept cordoned in the name of a maintenance that does not exist."""
        if not self._is_new(name, "orphaned", node.uid):
            return
        note = f"kept cordoned for NodeMaintenance {name}, which does not exist any more"
        minutes = released_in // timedelta(minutes=1)
        advice = f"it is released in {minutes} minutes; to keep it: haulout cordon {node.name}"
        self._about(node, _Event("Warning", "OrphanedCordon", f"{note}; {advice}", "Report"))
        log.warning("node %s is %s; %s", node.name, note, advice, extra={"node": node.name})

    def forget(self, name: str) -> None:
        """Forget what was told of a maintenance, but not of what it left behind."""
        self._told = {key for key in self._told if key[0] != name or key[1] == "orphaned"}

    def _cannot_see(self, maintenance: NodeMaintenance, trouble: str) -> None:
        if self._is_new(maintenance.name, "trouble", trouble):
            self.fails_for_now(maintenance, trouble)

    def _blocked(self, maintenance: NodeMaintenance, standing: Standing) -> None:
        blocker = standing.blocker
        if self._is_new(maintenance.name, blocker.uid, blocker.kind, blocker.object):
            self._log(maintenance, f"is blocked: {blocker}")
            self._tell(maintenance, _Event("Warning", "DrainBlocked", str(blocker), "Drain"))

    def _is_new(self, *what: str) -> bool:
        """Tell whether this was not told yet, and take note of it."""
        if what in self._told:
            return False
        self._told.add(what)
        return True

    def _tell(self, maintenance: NodeMaintenance, event: _Event) -> None:
        regarding = reference(NODE_MAINTENANCES, maintenance)
        self._events.record(regarding, type=event.type, reason=event.reason, note=event.note, action=event.action)

    def _about(self, node: Node, event: _Event) -> None:
        regarding = reference(NODES, node)
        self._events.record(regarding, type=event.type, reason=event.reason, note=event.note, action=event.action)

    def _log(self, maintenance: NodeMaintenance, words: str) -> None:
        extra = {"maintenance": maintenance.name, "node": maintenance.node}
        log.info("NodeMaintenance %s of node %s: %s", maintenance.name, maintenance.node, words, extra=extra)
