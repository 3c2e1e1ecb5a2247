"""What people are told of the integration: by events about nodes and their histories, and by the log."""

import logging
from collections.abc import Mapping

from haulout.drain.keeper import Kept
from haulout.esx import decision
from haulout.esx.decision import Decision
from haulout.history.holding import Holding
from haulout.kube.events import EventRecorder, reference
from haulout.kube.objects import Node
from haulout.kube.resources import NODES

log = logging.getLogger(__name__)

_ACTION = "SeeToEsx"


class Teller:
    """Tells."""

    def __init__(self, events: EventRecorder, holding: Holding) -> None:
        self._events = events
        self._holding = holding
        self._known: dict[str, str] = {}  # problems that were told, by what they are about

    def sees(self, node: Node, drain: Kept | None) -> None:
        """Note in the history of a node what nobody has noted yet."""
        self._holding.sees(node)
        self._holding.drains(node, drain)

    def told(self, before: Node, node: Node, decided: Decision) -> None:
        """Tell what was done to a node, which was otherwise before."""
        if decided.why:
            log.info("node %s: %s", node.name, decided.why)
        if not decided.reason:
            return
        self._events.record(
            reference(NODES, node),
            type="Warning" if decided.is_bad else "Normal",
            reason=decided.reason,
            note=decided.why,
            action=_ACTION,
        )
        match decided.reason:
            case decision.BEGINS:
                self._holding.begins(node, decided.why)
            case decision.ENDS:
                self._holding.ends(before, decided.why)
            case reason:
                self._holding.does(node, reason, decided.why)

    def warned(self, node: Node, decided: Decision) -> None:
        """Tell what holds a node up, unless that is known."""
        if self._known.get(node.name) != f"node {node.name}: {decided.why}":
            about = reference(NODES, node)
            self._events.record(about, type="Warning", reason=decided.reason, note=decided.why, action=_ACTION)

    def problems(self, problems: Mapping[str, str]) -> None:
        """Log what is wrong now and was not before, and what is over."""
        for about, problem in problems.items():
            if self._known.get(about) != problem:
                log.warning("ESX: %s", problem)
        for about in self._known.keys() - problems.keys():
            log.info("ESX: %s is well again", about)
        self._known = dict(problems)
