"""What nodes say about notices: the conditions MaintenancePlanned and MaintenanceInProgress (KEP-5683).

    kubectl describe node n1
      MaintenancePlanned   True   Reboot   Haulout notice oci-e1: Reboot (EVACUATION), not before 2026-01-07 09:00 UTC

Others write these conditions, too: a NodeMaintenance by `haulout.drain.node_conditions`, and whoever knows the
proposal. Only what we wrote is changed. Our messages begin with words of their own, so that a NodeMaintenance leaves
them alone while they are True; when nothing is announced any more they are False, in the words of `lifecycle`, and may
be taken over by it. What it has left False may be taken over by us.

A node is written to only if what it says changes: when a notice comes, is moved, begins, and is over.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceNotice, NoticePhase
from haulout.api.objects import Condition, Node, RawObject
from haulout.api.resources import NODES
from haulout.controllers.notices.remaining_pods import node_condition
from haulout.drain.node_conditions import NodeConditionType
from haulout.errors import Conflict, Forbidden, Invalid, NotFound
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.patches import strategic_patch
from haulout.kube.timestamps import whole_seconds
from haulout.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

OUR_PREFIX = "Haulout notice "
_SHARED_PREFIX = "Haulout: "  # what a NodeMaintenance writes, too
_ENDED_MESSAGE = f"{_SHARED_PREFIX}nothing is announced any more"
_CONFLICT_RETRY_AFTER = timedelta(seconds=1)
_FORBIDDEN_RETRY_AFTER = timedelta(minutes=10)
_WORKERS = 8
_CONDITION_PHASES: tuple[tuple[NodeConditionType, frozenset[str]], ...] = (
    (NodeConditionType.PLANNED, frozenset({NoticePhase.PLANNED, NoticePhase.DUE})),
    (NodeConditionType.IN_PROGRESS, frozenset({NoticePhase.ACTIVE})),
)

NoticesOfNode = Callable[[str], Collection[MaintenanceNotice]]


def status_patch(node: Node, notices: Collection[MaintenanceNotice], *, now: datetime) -> RawObject | None:
    """Return the change to the status of a node that makes it say what is announced for it; None if it does."""
    changed = list(_changes(node, notices, now=now))
    if not changed:
        return None
    metadata = {"uid": node.uid, "resourceVersion": node.resource_version}
    return {"metadata": metadata, "status": {"conditions": changed}}


def has_same_conditions(old: Node, new: Node) -> bool:
    """Tell whether two states of a node say the same about maintenance."""
    return all(node_condition(old, kind) == node_condition(new, kind) for kind, _ in _CONDITION_PHASES)


def has_our_conditions(node: Node) -> bool:
    """Tell whether a node says that something is announced for it, in our words."""
    conditions = (node_condition(node, kind) for kind, _ in _CONDITION_PHASES)
    return any(condition is not None and condition.message.startswith(OUR_PREFIX) for condition in conditions)


def _changes(node: Node, notices: Collection[MaintenanceNotice], *, now: datetime) -> Iterator[RawObject]:
    for kind, phases in _CONDITION_PHASES:
        found = node_condition(node, kind)
        relevant = sorted((notice for notice in notices if notice.status.phase in phases), key=_urgency)
        if relevant and _may_write(found):
            status, reason, message = "True", relevant[0].spec.kind, _message(relevant)
        elif not relevant and found is not None and found.message.startswith(OUR_PREFIX):
            status, reason, message = "False", "MaintenanceEnded", _ENDED_MESSAGE
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


class NodeConditionWriter:
    """Keeps what nodes say true; the owner runs `run`, and says by `add` of which nodes it may have changed."""

    def __init__(self, client: Client, nodes: Informer[Node], *, notices_of_node: NoticesOfNode) -> None:
        self._client = client
        self._nodes = nodes
        self._notices_of_node = notices_of_node
        self._is_forbidden = False
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            metrics=client.metrics,
            name="announcing",
        )

    def add(self, node: str) -> None:
        """Look at a node soon."""
        if node:
            self._queue.add(node)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run()

    async def _reconcile(self, name: str) -> datetime | None:
        node = self._nodes.get(name)
        if node is None:
            return None
        now = self._client.clock.now()
        change = status_patch(
            node, [notice for notice in self._notices_of_node(name) if notice.matches_node(node)], now=now
        )
        if change is None:
            return None
        try:
            await self._client.patch(NODES, name, strategic_patch(change), subresource="status")
        except NotFound:
            return None
        except Conflict:
            return now + _CONFLICT_RETRY_AFTER  # its kubelet writes there, too, and the cache will know soon
        except (Forbidden, Invalid) as error:
            if not self._is_forbidden:
                log.warning("nodes do not say what is announced for them: %s", error)
            self._is_forbidden = True
            return now + _FORBIDDEN_RETRY_AFTER
        self._is_forbidden = False
        return None
