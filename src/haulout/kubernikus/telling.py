"""What people are told by events and in the log: each thing once, until something else is to be told."""

import logging
from collections.abc import Iterator
from typing import NamedTuple

from haulout.kube.events import EventRecorder, reference
from haulout.kube.objects import Node
from haulout.kube.resources import NODES
from haulout.kubernikus.decision import Decision
from haulout.kubernikus.keys import DELETE_NODE

log = logging.getLogger(__name__)

_ACTION = "DeleteNode"


class Told(NamedTuple):
    """What was told of a node last."""

    reason: str
    why: str
    is_bad: bool = False


class Teller:
    """Tells of nodes."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._orders: dict[str, Told] = {}  # by node
        self._versions: dict[str, Told] = {}  # the same

    def stands(self, node: Node, decision: Decision) -> None:
        """Tell how it stands with an order; without a reason there is none."""
        if decision.reason:
            self._tell(self._orders, node, Told(decision.reason, decision.why, decision.is_bad))
        else:
            self._orders.pop(node.name, None)

    def begins(self, node: Node, *, away: int, of: int) -> str:
        """Tell that an order is carried out, and how many other nodes are out of service: no budget is asked."""
        others = f"{away} of {of} other nodes are out of service" if away else "all other nodes are in service"
        why = f"by label {DELETE_NODE} it is cordoned and drained, and its server deleted; {others}"
        self._tell(self._orders, node, Told("DeletionOrdered", why))
        return why

    def restores(self, node: Node, tampering: str) -> None:
        """Tell that somebody undid what was done."""
        why = f"{tampering}, though label {DELETE_NODE} orders that the node goes; it is cordoned again"
        self._tell(self._orders, node, Told("CordonRestored", why, is_bad=True))

    def gives_back(self, node: Node) -> str:
        """Tell that an order is no more."""
        why = f"label {DELETE_NODE} does not order it any more; what was done for it is undone"
        self._tell(self._orders, node, Told("DeletionWithdrawn", why))
        return why

    def knows_version(self, node: Node, *, problem: str = "") -> None:
        """Tell if it is not known whether a kubelet is old."""
        if problem:
            self._tell(self._versions, node, Told("KubeletVersionUnknown", problem, is_bad=True))
        else:
            self._versions.pop(node.name, None)

    def troubles(self) -> Iterator[str]:
        """Yield what somebody should look after."""
        for told in (self._orders, self._versions):
            yield from (f"node {name}: {it.why}" for name, it in sorted(told.items()) if it.is_bad)

    def orders(self) -> int:
        """Return how many nodes are to be deleted."""
        return len(self._orders)

    def stuck(self) -> int:
        """Return how many of them somebody should look after."""
        return sum(it.is_bad for it in self._orders.values())

    def forget(self, name: str) -> None:
        """Forget a node."""
        self._orders.pop(name, None)
        self._versions.pop(name, None)

    def _tell(self, known: dict[str, Told], node: Node, told: Told) -> None:
        if known.get(node.name) == told:
            return
        known[node.name] = told
        level = logging.WARNING if told.is_bad else logging.INFO
        log.log(level, "node %s: %s: %s", node.name, told.reason, told.why, extra={"node": node.name})
        self._events.record(
            reference(NODES, node),
            type="Warning" if told.is_bad else "Normal",
            reason=told.reason,
            note=told.why,
            action=_ACTION,
        )
