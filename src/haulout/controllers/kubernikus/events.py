"""Events and log lines about Kubernikus nodes, each recorded once until the state changes."""

import logging
from collections.abc import Iterator
from typing import NamedTuple

from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.controllers.kubernikus.decision import Decision
from haulout.controllers.kubernikus.labels import DELETE_NODE
from haulout.kube.recorder import EventRecorder, object_reference

log = logging.getLogger(__name__)

_ACTION = "DeleteNode"


class ReportedState(NamedTuple):
    """The state of a node that was recorded last."""

    reason: str
    message: str
    is_warning: bool = False


class KubernikusEventRecorder:
    """Records events and log lines about nodes."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._orders: dict[str, ReportedState] = {}  # by node: the state of its order
        self._versions: dict[str, ReportedState] = {}  # by node: the state of its version label

    def record_decision(self, node: Node, decision: Decision) -> None:
        """Record the status of an order; an empty reason means that there is none."""
        if decision.reason:
            self._record_once(self._orders, node, ReportedState(decision.reason, decision.message, decision.is_warning))
        else:
            self._orders.pop(node.name, None)

    def record_order(self, node: Node, *, unavailable: int, total: int) -> str:
        """Record that an order begins, and how many other nodes are unavailable, since no budget applies."""
        others = (
            f"{unavailable} of {total} other nodes are unavailable" if unavailable else "all other nodes are available"
        )
        message = f"label {DELETE_NODE} is set: the node is cordoned and drained, and its server deleted; {others}"
        self._record_once(self._orders, node, ReportedState("DeletionOrdered", message))
        return message

    def record_restored_cordon(self, node: Node, tampering: str) -> None:
        """Record that a change by others was reverted."""
        message = f"{tampering}, although label {DELETE_NODE} requests the deletion of the node; it is cordoned again"
        self._record_once(self._orders, node, ReportedState("CordonRestored", message, is_warning=True))

    def record_release(self, node: Node) -> str:
        """Record that an order was withdrawn."""
        message = f"label {DELETE_NODE} no longer requests the deletion; the cordon is removed and the drain stopped"
        self._record_once(self._orders, node, ReportedState("DeletionWithdrawn", message))
        return message

    def record_version_problem(self, node: Node, *, problem: str = "") -> None:
        """Record that it is unknown whether a kubelet is outdated, or clear that state if `problem` is empty."""
        if problem:
            self._record_once(self._versions, node, ReportedState("KubeletVersionUnknown", problem, is_warning=True))
        else:
            self._versions.pop(node.name, None)

    def problems(self) -> Iterator[str]:
        """Yield the problems that a person should look into."""
        for reports in (self._orders, self._versions):
            yield from (
                f"node {name}: {report.message}" for name, report in sorted(reports.items()) if report.is_warning
            )

    def order_count(self) -> int:
        """Return how many nodes have an order to report on."""
        return len(self._orders)

    def problem_count(self) -> int:
        """Return how many orders have a problem."""
        return sum(report.is_warning for report in self._orders.values())

    def forget(self, name: str) -> None:
        self._orders.pop(name, None)
        self._versions.pop(name, None)

    def _record_once(self, reports: dict[str, ReportedState], node: Node, report: ReportedState) -> None:
        if reports.get(node.name) == report:
            return
        reports[node.name] = report
        level = logging.WARNING if report.is_warning else logging.INFO
        log.log(level, "node %s: %s: %s", node.name, report.reason, report.message, extra={"node": node.name})
        self._events.event(
            object_reference(NODES, node),
            type="Warning" if report.is_warning else "Normal",
            reason=report.reason,
            note=report.message,
            action=_ACTION,
        )
