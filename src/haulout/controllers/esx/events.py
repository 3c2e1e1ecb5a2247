"""Events, node history entries and log lines of the ESX controller."""

import logging
from collections.abc import Mapping

from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.controllers.esx import decision
from haulout.controllers.esx.decision import Decision
from haulout.drain.manager import DrainSnapshot
from haulout.history.cordon_history import CordonHistory
from haulout.kube.recorder import EventRecorder, object_reference

log = logging.getLogger(__name__)

_ACTION = "RunEsx"


class EsxEventRecorder:
    """Records events, history entries and log lines."""

    def __init__(self, events: EventRecorder, node_history: CordonHistory) -> None:
        self._events = events
        self._node_history = node_history
        self._reported: dict[str, str] = {}  # by host or node: the problem that was reported last

    def record_observation(self, node: Node, drain: DrainSnapshot | None) -> None:
        """Record in the node's history what is not recorded yet."""
        self._node_history.observe(node)
        self._node_history.record_drain(node, drain)

    def record_decision(self, previous: Node, node: Node, node_decision: Decision) -> None:
        """Record an action on a node; `previous` is the node before it."""
        if node_decision.message:
            log.info("node %s: %s", node.name, node_decision.message)
        if not node_decision.reason:
            return
        self._events.event(
            object_reference(NODES, node),
            type="Warning" if node_decision.is_warning else "Normal",
            reason=node_decision.reason,
            note=node_decision.message,
            action=_ACTION,
        )
        match node_decision.reason:
            case decision.BEGIN_REASON:
                entry = self._node_history.start_entry(node, node_decision.message)
            case decision.END_REASON:
                entry = self._node_history.end_entry(previous, node_decision.message)
            case reason:
                entry = self._node_history.action_entry(reason, node_decision.message)
        if entry is not None:
            self._node_history.history.add(previous, entry)

    def record_warning(self, node: Node, node_decision: Decision) -> None:
        """Record a warning about a node, unless it was reported in the previous round."""
        if self._reported.get(node.name) != f"node {node.name}: {node_decision.message}":
            regarding = object_reference(NODES, node)
            self._events.event(
                regarding, type="Warning", reason=node_decision.reason, note=node_decision.message, action=_ACTION
            )

    def log_problems(self, problems: Mapping[str, str]) -> None:
        """Log new and resolved problems."""
        for key, problem in problems.items():
            if self._reported.get(key) != problem:
                log.warning("ESX: %s", problem)
        for key in self._reported.keys() - problems.keys():
            log.info("ESX: the problem of %s is resolved", key)
        self._reported = dict(problems)
