"""What people are told by events and in the log: each thing once, until something else is to be told."""

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
    """What was told of a node last."""

    reason: str
    message: str
    is_warning: bool = False


class KubernikusEventRecorder:
    """Tells of nodes."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._orders: dict[str, ReportedState] = {}  # by node
        self._versions: dict[str, ReportedState] = {}  # the same

    def record_decision(self, node: Node, decision: Decision) -> None:
        """Tell how it stands with an order; without a reason there is none."""
        if decision.reason:
            self._record_once(self._orders, node, ReportedState(decision.reason, decision.message, decision.is_warning))
        else:
            self._orders.pop(node.name, None)

    def record_order(self, node: Node, *, unavailable: int, total: int) -> str:
        """Tell that an order is carried out, and how many other nodes are out of service: no budget is asked."""
        others = (
            f"{unavailable} of {total} other nodes are out of service"
            if unavailable
            else "all other nodes are in service"
        )
        message = f"by label {DELETE_NODE} it is cordoned and drained, and its server deleted; {others}"
        self._record_once(self._orders, node, ReportedState("DeletionOrdered", message))
        return message

    def record_restored_cordon(self, node: Node, tampering: str) -> None:
        """Tell that somebody undid what was done."""
        message = f"{tampering}, though label {DELETE_NODE} orders that the node goes; it is cordoned again"
        self._record_once(self._orders, node, ReportedState("CordonRestored", message, is_warning=True))

    def record_release(self, node: Node) -> str:
        """Tell that an order is no more."""
        message = f"label {DELETE_NODE} does not order it any more; what was done for it is undone"
        self._record_once(self._orders, node, ReportedState("DeletionWithdrawn", message))
        return message

    def record_version_problem(self, node: Node, *, problem: str = "") -> None:
        """Tell if it is not known whether a kubelet is old."""
        if problem:
            self._record_once(self._versions, node, ReportedState("KubeletVersionUnknown", problem, is_warning=True))
        else:
            self._versions.pop(node.name, None)

    def problems(self) -> Iterator[str]:
        """Yield what somebody should look after."""
        for reports in (self._orders, self._versions):
            yield from (
                f"node {name}: {report.message}" for name, report in sorted(reports.items()) if report.is_warning
            )

    def order_count(self) -> int:
        """Return how many nodes are to be deleted."""
        return len(self._orders)

    def problem_count(self) -> int:
        """Return how many of them somebody should look after."""
        return sum(report.is_warning for report in self._orders.values())

    def forget(self, name: str) -> None:
        """Forget a node."""
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
