"""What people are told about profiles: events, as the SAP maintenance-controller tells them, and the log.

Failures are Warnings. One that is the same as before is logged once; the recorder counts the events. What goes on
failing without anything else happening is told again every few minutes, so that it stays to be seen.
"""

import logging
from datetime import timedelta
from typing import NamedTuple

from haulout.core.clock import Clock
from haulout.drain import leaving
from haulout.drain.ladder import Rung
from haulout.errors import Conflict, HauloutError, ServerFailure, TooManyRequests, Unreachable
from haulout.kube.admission import shown_reason
from haulout.kube.events import EventRecorder, EventType, reference
from haulout.kube.objects import Node, Pod
from haulout.kube.resources import NODES
from haulout.profiles.plugin import State, Warn
from haulout.profiles.steps import ProfileReport
from haulout.profiles.tallies import Tallies

log = logging.getLogger(__name__)

_ACTION = "ChangeMaintenanceState"
_PASSING = (Conflict, ServerFailure, TooManyRequests, Unreachable)  # is over by itself, mostly
_UNREADABLE_DATA = "MaintenanceDataUnreadable"
GOES_IN_CIRCLES = "MaintenanceGoesInCircles"  # the reason of events about a node
_STATES = frozenset(map(str, State))
_TOLD_AGAIN_AFTER = timedelta(minutes=5)
_UNREADABLE, _FAILING = "", " "  # instead of the name of a profile: no profile has it
_CIRCLES = "  "  # before the name of one


class _Failure(NamedTuple):
    """What was told last of a node and a profile."""

    problem: str
    at: float


class Teller:
    """Tells of nodes and their profiles; of pods by a recorder of their own, as there are many of them."""

    def __init__(
        self,
        events: EventRecorder,
        *,
        clock: Clock,
        about_pods: EventRecorder | None = None,
        tallies: Tallies | None = None,
    ) -> None:
        self._events = events
        self._clock = clock
        self._about_pods = about_pods or events
        self.tallies = tallies or Tallies()
        self._failures: dict[tuple[str, str], _Failure] = {}  # by node and profile

    def tell(self, node: Node, report: ProfileReport) -> None:
        """Tell what a step did to one profile of a node."""
        extra = {"node": node.name, "profile": report.name, "state": report.next}
        if report.next != report.state:
            note = f"The node is now in the {report.next} state caused by profile {report.name}"
            self._record(node, "Normal", "ChangedMaintenanceState", note)
            log.info("profile %s of node %s: %s -> %s", report.name, node.name, report.state, report.next, extra=extra)
        if any(it.is_slowed for it in report.transitions):
            self._tell_circles(node, report, extra)
        self._tell_failure(node, report, extra)

    def _tell_circles(self, node: Node, report: ProfileReport, extra: dict[str, str]) -> None:
        """Tell that a profile is slowed down, once in a while."""
        note = (
            f"profile {report.name} goes in circles, into maintenance and out of it again and again, and is slowed "
            "down: do its checks contradict each other?"
        )
        if self._is_news(node, f"{_CIRCLES}{report.name}", note):
            self._record(node, "Warning", GOES_IN_CIRCLES, note)
            log.warning("node %s: %s", node.name, note, extra=extra)

    def fails_on(self, node: Node, report: ProfileReport) -> None:
        """Tell that a profile fails again, for the same reason: it counts, and is an event once in a while."""
        if not report.failed:
            return
        self.tallies.failures.add(report.name)
        told = self._failures.get((node.name, report.name))
        if told is None or self._clock.monotonic() - told.at >= _TOLD_AGAIN_AFTER.total_seconds():
            self._record_failure(node, report)

    def _tell_failure(self, node: Node, report: ProfileReport, extra: dict[str, str]) -> None:
        key = node.name, report.name
        if not report.error:
            self._failures.pop(key, None)
            return
        told = self._failures.get(key)
        if told is None or told.problem != report.error:
            log.warning("profile %s of node %s: %s", report.name, node.name, report.error, extra=extra)
            if report.state not in _STATES:
                self._record(node, "Warning", _UNREADABLE_DATA, f"profile {report.name} is left alone: {report.error}")
        if report.failed:
            self.tallies.failures.add(report.name)
        self._record_failure(node, report)

    def _record_failure(self, node: Node, report: ProfileReport) -> None:
        self._failures[node.name, report.name] = _Failure(report.error, self._clock.monotonic())
        if report.failed:
            note = f"{report.failed} for profile {report.name}: Will stay in {report.state} state"
            self._record(node, "Warning", "ChangeMaintenanceStateFailed", note)

    # The node as a whole

    def unreadable(self, node: Node, problem: str) -> None:
        """Tell that the data of a node cannot be read, so that nothing is done about it."""
        if self._is_news(node, _UNREADABLE, problem):
            self._record(node, "Warning", _UNREADABLE_DATA, problem)
            log.warning("node %s is left alone: %s", node.name, problem, extra={"node": node.name})

    def readable(self, node: str) -> None:
        """Note that the data of a node can be read."""
        self._failures.pop((node, _UNREADABLE), None)

    def fails(self, node: Node, error: Exception) -> str:
        """Tell that a step of a node could not be taken, and return why; what passes by itself makes no event."""
        problem = str(error) if isinstance(error, HauloutError) else f"a defect in the operator: {error!r}"
        why = f"nothing is done about the node for now: {problem}"
        shown_as = shown_reason(error)
        if (shown_as or not isinstance(error, _PASSING)) and self._is_news(node, _FAILING, why):
            self._record(node, "Warning", shown_as or "MaintenanceStepFailed", why)  # the queue logs it
        return why

    def works(self, node: str) -> None:
        """Note that steps of a node can be taken."""
        self._failures.pop((node, _FAILING), None)

    def _is_news(self, node: Node, kind: str, problem: str) -> bool:
        """Tell whether this was not told of a node lately, and take note of it."""
        key, now = (node.name, kind), self._clock.monotonic()
        told = self._failures.get(key)
        if told is not None and told.problem == problem and now - told.at < _TOLD_AGAIN_AFTER.total_seconds():
            return False
        self._failures[key] = _Failure(problem, now)
        return True

    # What else happens

    def restores(self, node: Node, tampering: str) -> None:
        """Tell that somebody has removed or edited our mark on a node that a profile holds."""
        note = f"the node was changed during its maintenance: {tampering}, and is written again"
        self._record(node, "Warning", "CordonRestored", note)
        log.warning("node %s: %s", node.name, note, extra={"node": node.name})

    def warns(self, node: Node, warning: Warn) -> None:
        """Tell what a plugin wants to be told."""
        self._record(node, "Warning", warning.reason, warning.note)
        log.warning("node %s: %s", node.name, warning.note, extra={"node": node.name})

    def leaves(self, node: Node, pod: Pod, rung: Rung) -> None:
        """Tell that a pod is made to leave a node."""
        leaving.tell(self._about_pods, node, pod, rung)

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
