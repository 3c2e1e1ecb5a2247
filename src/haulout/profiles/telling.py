"""What people are told about profiles: events, as the SAP maintenance-controller tells them, and the log.

Failures are Warnings. One that is the same as before is logged once; the recorder counts the events.
"""

import logging

from haulout.errors import Conflict, HauloutError, ServerFailure, TooManyRequests, Unreachable
from haulout.kube.events import EventRecorder, EventType, reference
from haulout.kube.objects import Node
from haulout.kube.resources import NODES
from haulout.profiles.plugin import State
from haulout.profiles.steps import ProfileReport

log = logging.getLogger(__name__)

_ACTION = "ChangeMaintenanceState"
_PASSING = (Conflict, ServerFailure, TooManyRequests, Unreachable)  # is over by itself, mostly
_FAILING = " "  # instead of the name of a profile: no profile has it
_UNREADABLE = "MaintenanceDataUnreadable"
_STATES = frozenset(map(str, State))


class Teller:
    """Tells of nodes and their profiles."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._failures: dict[tuple[str, str], str] = {}  # by node and profile: what was told last

    def tell(self, node: Node, report: ProfileReport) -> None:
        """Tell what a step did to one profile of a node."""
        extra = {"node": node.name, "profile": report.name, "state": report.next}
        if report.next != report.state:
            note = f"The node is now in the {report.next} state caused by profile {report.name}"
            self._record(node, "Normal", "ChangedMaintenanceState", note)
            log.info("profile %s of node %s: %s -> %s", report.name, node.name, report.state, report.next, extra=extra)
        self._tell_failure(node, report, extra)

    def _tell_failure(self, node: Node, report: ProfileReport, extra: dict[str, str]) -> None:
        key = node.name, report.name
        if not report.error:
            self._failures.pop(key, None)
            return
        if report.failed:
            note = f"{report.failed} for profile {report.name}: Will stay in {report.state} state"
            self._record(node, "Warning", "ChangeMaintenanceStateFailed", note)
        if self._failures.get(key) == report.error:
            return
        self._failures[key] = report.error
        log.warning("profile %s of node %s: %s", report.name, node.name, report.error, extra=extra)
        if report.state not in _STATES:
            self._record(node, "Warning", _UNREADABLE, f"profile {report.name} is left alone: {report.error}")

    def unreadable(self, node: Node, problem: str) -> None:
        """Tell that the data of a node cannot be read, so that nothing is done about it."""
        key = node.name, ""
        if self._failures.get(key) == problem:
            return
        self._failures[key] = problem
        self._record(node, "Warning", _UNREADABLE, problem)
        log.warning("node %s is left alone: %s", node.name, problem, extra={"node": node.name})

    def readable(self, node: str) -> None:
        """Note that the data of a node can be read."""
        self._failures.pop((node, ""), None)

    def fails(self, node: Node, error: Exception) -> str:
        """Tell that a step of a node could not be taken, and return why; what passes by itself makes no event."""
        problem = str(error) if isinstance(error, HauloutError) else f"a defect in the operator: {error!r}"
        why = f"nothing is done about the node for now: {problem}"
        if not isinstance(error, _PASSING) and self._failures.get((node.name, _FAILING)) != why:
            self._failures[node.name, _FAILING] = why
            self._record(node, "Warning", "MaintenanceStepFailed", why)
        return why

    def works(self, node: str) -> None:
        """Note that steps of a node can be taken."""
        self._failures.pop((node, _FAILING), None)

    def not_sent(self, node: Node, instance: str, problem: str) -> None:
        """Tell that a notification could not be sent."""
        self._record(node, "Warning", "NotificationFailed", f"notification {instance}: {problem}")
        log.warning("notification %s about node %s: %s", instance, node.name, problem, extra={"node": node.name})

    def forget(self, node: str) -> None:
        """Forget what was told of a node."""
        for key in [it for it in self._failures if it[0] == node]:
            del self._failures[key]

    def _record(self, node: Node, kind: EventType, reason: str, note: str) -> None:
        self._events.record(reference(NODES, node), type=kind, reason=reason, note=note, action=_ACTION)
