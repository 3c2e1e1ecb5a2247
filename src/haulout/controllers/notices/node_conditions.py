"""Node conditions that show announced maintenance: MaintenancePlanned and MaintenanceInProgress (KEP-5683).

    kubectl describe node n1
    MaintenancePlanned   True   Reboot   Haulout notice oci-e1: Reboot (EVACUATION), not before 2026-01-07 09:00 UTC

Other writers set these conditions, too: a NodeMaintenance through `haulout.drain.node_conditions`, and third parties
that implement the KEP. This module changes only conditions that it wrote. They are recognized by the prefix of their
message, so a NodeMaintenance does not touch them while they are True. When no maintenance is announced any more they
become False with the message prefix that NodeMaintenances use, and a NodeMaintenance may take them over. Likewise this
module may take over a condition that a NodeMaintenance left False.

A node is patched only if a condition changes: when a notice arrives, moves, begins or ends.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceNotice, NoticePhase
from haulout.api.objects import Condition, Node, NodeConditionType, RawObject
from haulout.api.reasons import NodeConditionReason
from haulout.api.resources import NODES
from haulout.core.timestamps import whole_seconds
from haulout.errors import Forbidden, Invalid
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.patches import strategic_patch
from haulout.runtime.reconciler import Reconciler

log = logging.getLogger(__name__)

OUR_PREFIX = "Haulout notice "
_SHARED_PREFIX = "Haulout: "  # the prefix that a NodeMaintenance writes
_ENDED_MESSAGE = f"{_SHARED_PREFIX}no maintenance is announced"
_FORBIDDEN_RETRY_AFTER = timedelta(minutes=10)
_CONDITION_PHASES: tuple[tuple[NodeConditionType, frozenset[str]], ...] = (
    (NodeConditionType.PLANNED, frozenset({NoticePhase.PLANNED, NoticePhase.DUE})),
    (NodeConditionType.IN_PROGRESS, frozenset({NoticePhase.ACTIVE})),
)

NoticesOfNode = Callable[[str], Collection[MaintenanceNotice]]


def status_patch(node: Node, notices: Collection[MaintenanceNotice], *, now: datetime) -> RawObject | None:
    """Return the status patch that makes the node's conditions match its notices; None if they match already."""
    changed = list(_changes(node, notices, now=now))
    if not changed:
        return None
    metadata = {"uid": node.uid, "resourceVersion": node.resource_version}
    return {"metadata": metadata, "status": {"conditions": changed}}


def has_same_conditions(old: Node, new: Node) -> bool:
    """Return whether both versions of a node have the same maintenance conditions."""
    return all(old.condition(kind) == new.condition(kind) for kind, _ in _CONDITION_PHASES)


def has_our_conditions(node: Node) -> bool:
    """Return whether a node has a condition that this module wrote for an announced maintenance."""
    conditions = (node.condition(kind) for kind, _ in _CONDITION_PHASES)
    return any(condition is not None and condition.message.startswith(OUR_PREFIX) for condition in conditions)


def _changes(node: Node, notices: Collection[MaintenanceNotice], *, now: datetime) -> Iterator[RawObject]:
    for kind, phases in _CONDITION_PHASES:
        found = node.condition(kind)
        relevant = sorted((notice for notice in notices if notice.status.phase in phases), key=_urgency)
        if relevant and _may_write(found):
            status, reason, message = "True", relevant[0].spec.kind, _message(relevant)
        elif not relevant and found is not None and found.message.startswith(OUR_PREFIX):
            status, reason, message = "False", NodeConditionReason.MAINTENANCE_ENDED, _ENDED_MESSAGE
        else:
            continue
        if found is None or (found.status, found.reason, found.message) != (status, reason, message):
            yield _condition(kind, found, status=status, reason=reason, message=message, now=now)


def _may_write(condition: Condition | None) -> bool:
    if condition is None or condition.message.startswith(OUR_PREFIX):
        return True
    return condition.status == "False" and condition.message.startswith(_SHARED_PREFIX)


def _urgency(notice: MaintenanceNotice) -> tuple[bool, str, str]:
    start = notice.spec.start
    return start is not None, "" if start is None else start.isoformat(), notice.name


def _message(notices: Sequence[MaintenanceNotice]) -> str:
    first, others = notices[0], len(notices) - 1
    spec = first.spec
    description = f"{spec.kind} ({spec.reason})" if spec.reason else spec.kind
    when = "at any moment" if spec.start is None else f"not before {spec.start:%Y-%m-%d %H:%M} UTC"
    more = f", and {others} more" if others else ""
    return f"{OUR_PREFIX}{first.name}: {description}, {when}{more}"


def _condition(
    kind: NodeConditionType, previous: Condition | None, *, status: str, reason: str, message: str, now: datetime
) -> RawObject:
    condition = {"type": str(kind), "status": status, "reason": reason, "message": message}
    if previous is None or previous.status != status:
        condition["lastTransitionTime"] = whole_seconds(now)
    return condition


@dataclass(frozen=True, slots=True)
class NodeConditionObservation:
    """A node and the notices about it at one moment."""

    node: Node
    notices: tuple[MaintenanceNotice, ...]
    now: datetime


@dataclass(frozen=True, slots=True)
class NodeConditionDecision:
    """The status patch, if any."""

    change: RawObject | None
    requeue_at: datetime | None = None


class NodeConditionReconciler(Reconciler[str, NodeConditionObservation, NodeConditionDecision]):
    """Reconciles the conditions of one node at a time, by name."""

    def __init__(self, client: Client, nodes: Informer[Node], *, notices_of_node: NoticesOfNode) -> None:
        self._client = client
        self._nodes = MutationCache(nodes)
        self._notices_of_node = notices_of_node
        self._refused: set[str] = set()  # nodes whose last patch the API server refused

    async def observe(self, key: str) -> NodeConditionObservation | None:
        node = self._nodes.get(key)
        if node is None:
            return None
        notices = tuple(notice for notice in self._notices_of_node(key) if notice.matches_node(node))
        return NodeConditionObservation(node, notices, self._client.clock.now())

    def decide(self, observation: NodeConditionObservation) -> NodeConditionDecision:
        return NodeConditionDecision(status_patch(observation.node, observation.notices, now=observation.now))

    async def act(self, observation: NodeConditionObservation, decision: NodeConditionDecision) -> bool:
        name, change = observation.node.name, decision.change
        if change is None:
            self._refused.discard(name)
            return False
        try:
            patched = await self._client.patch(NODES, name, strategic_patch(change), subresource="status")
        except (Forbidden, Invalid) as error:  # not a failure of the notice: it only costs these conditions
            if not self._refused:
                log.warning("cannot set node conditions for announced maintenance: %s", error)
            self._refused.add(name)
            return False
        self._nodes.record_write(patched)
        return True

    async def report(self, observation: NodeConditionObservation, decision: NodeConditionDecision) -> datetime | None:
        del decision
        return observation.now + _FORBIDDEN_RETRY_AFTER if observation.node.name in self._refused else None

    async def refresh(self, key: str, error: Exception) -> bool:
        """Read the node: the kubelet patches its status, too."""
        del error
        found = (await self._client.list(NODES, fields=f"metadata.name={key}")).items  # `get` is not permitted
        for node in found:
            self._nodes.record_write(node)
        return bool(found)  # the watch delivers the deletion of a node

    async def forget(self, key: str) -> datetime | None:
        self._refused.discard(key)
        return None
