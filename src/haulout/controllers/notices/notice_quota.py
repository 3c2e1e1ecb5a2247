"""A limit on the number of notices that the agent of one node may create.

An agent writes the notices of its own node. A compromised agent could create notices without limit: RBAC, quotas and
admission policies cannot count cluster-scoped objects. So the operator counts them. Beyond `MAX_PER_NODE` it deletes
notices that are over, the oldest first, and then open ones, the newest first, so that notices from before a flood stay.
A surplus notice is not reconciled: a flood costs one delete request per notice and nothing more.

Notices of other sources, such as users and clouds that the operator polls, do not count.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticePhase, NoticeStage
from haulout.api.objects import Node
from haulout.api.reasons import NoticeEventReason
from haulout.api.resources import NODES
from haulout.controllers.notices.orphans import AGENT_SOURCES
from haulout.errors import NotFound
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.recorder import object_reference
from haulout.runtime.journal import Journal, Transition
from haulout.runtime.reconciler import Reconciler

log = logging.getLogger(__name__)

MAX_PER_NODE = 50
BY_AGENT = "agent"
EVENT_REASON = NoticeEventReason.TOO_MANY_NOTICES
_MAX_PARALLEL_DELETIONS = 16
_OVER_STAGES = (NoticeStage.ENDED, NoticeStage.CANCELLED)
_OVER_PHASES = tuple(it for it in NoticePhase if it.is_over)


def agent_node(notice: MaintenanceNotice) -> tuple[str, ...]:
    """Return the node whose agent may have written a notice, as an index function."""
    spec = notice.spec
    return (spec.node_name,) if spec.source in AGENT_SOURCES and spec.node_name else ()


def split_surplus(notices: Iterable[MaintenanceNotice]) -> tuple[list[MaintenanceNotice], list[MaintenanceNotice]]:
    """Return the notices of one node to keep, and the surplus."""
    finished: list[MaintenanceNotice] = []
    open_notices: list[MaintenanceNotice] = []
    for notice in notices:
        (finished if _is_over(notice) else open_notices).append(notice)
    # creationTimestamp has whole seconds: among notices of the same second, keep those that were reconciled already.
    open_notices.sort(key=lambda notice: (not notice.status.phase, _age(notice)))
    ranked = [*open_notices, *sorted(finished, key=_age, reverse=True)]
    return ranked[:MAX_PER_NODE], ranked[MAX_PER_NODE:]


@dataclass(frozen=True, slots=True)
class QuotaObservation:
    """The notices that the agent of a node wrote."""

    node: str
    kept: tuple[MaintenanceNotice, ...]
    surplus: tuple[MaintenanceNotice, ...]


@dataclass(frozen=True, slots=True)
class QuotaDecision:
    """The notices to delete."""

    surplus: tuple[MaintenanceNotice, ...]
    requeue_at: datetime | None = None


class NoticeQuota(Reconciler[str, QuotaObservation, QuotaDecision]):
    """Deletes the surplus notices of one node at a time, by the name of the node.

    `notices` must have the index `BY_AGENT`; `requeue` reconciles a notice again.
    """

    def __init__(
        self,
        client: Client,
        notices: MutationCache[MaintenanceNotice],
        nodes: Informer[Node],
        *,
        journal: Journal,
        requeue: Callable[[str], object],
    ) -> None:
        self._client = client
        self._notices = notices
        self._nodes = nodes
        self._journal = journal
        self._requeue = requeue
        self._kept_names: dict[str, frozenset[str]] = {}  # by node over quota: names of the notices to keep

    def affected_nodes(self, notice: MaintenanceNotice) -> Iterator[str]:
        """Yield the node whose agent may have written a notice, if it may be over quota."""
        for node in agent_node(notice):
            if node in self._kept_names or self._is_over_quota(node):
                yield node

    def exceeds_quota(self, notice: MaintenanceNotice) -> bool:
        """Return whether a notice is surplus, or may be until the node is reconciled."""
        return any(
            self._is_over_quota(node) and notice.name not in self._kept_names.get(node, frozenset())
            for node in agent_node(notice)
        )

    def _is_over_quota(self, node: str) -> bool:
        return len(self._notices.informer.by_index(BY_AGENT, node)) > MAX_PER_NODE

    async def observe(self, key: str) -> QuotaObservation | None:
        indexed = [notice.name for notice in self._notices.informer.by_index(BY_AGENT, key)]
        existing = (self._notices.get(name) for name in indexed)  # without those that we have deleted
        kept, surplus = split_surplus(notice for notice in existing if notice is not None)
        return QuotaObservation(key, tuple(kept), tuple(surplus))

    def decide(self, observation: QuotaObservation) -> QuotaDecision:
        return QuotaDecision(observation.surplus)

    async def act(self, observation: QuotaObservation, decision: QuotaDecision) -> bool:
        self._update_kept(observation)
        if not decision.surplus:
            return False
        self._record_transition(observation.node, len(decision.surplus))
        rest = iter(decision.surplus)
        while batch := tuple(islice(rest, _MAX_PARALLEL_DELETIONS)):
            await asyncio.gather(*(self._delete(notice) for notice in batch))
        return True

    def _update_kept(self, observation: QuotaObservation) -> None:
        """Update which notices are reconciled, and requeue those that were not until now."""
        node, kept = observation.node, observation.kept
        to_requeue = [notice for notice in kept if self.exceeds_quota(notice)]
        if observation.surplus or self._is_over_quota(node):  # the watch may not have delivered our deletions yet
            self._kept_names[node] = frozenset(notice.name for notice in kept)
        else:
            self._kept_names.pop(node, None)
        for notice in to_requeue:
            self._requeue(notice.name)

    async def _delete(self, notice: MaintenanceNotice) -> None:
        # No resourceVersion precondition: otherwise a client that keeps updating the notice could prevent its deletion.
        try:
            await self._client.delete(MAINTENANCE_NOTICES, notice.name, uid=notice.uid)
        except NotFound:
            log.debug("MaintenanceNotice %s is already deleted", notice.name)
        self._notices.record_delete(notice)

    def _record_transition(self, node: str, surplus: int) -> None:
        node_object = self._nodes.get(node)
        message = f"the agent of this node wrote more than {MAX_PER_NODE} MaintenanceNotices: the surplus is deleted"
        self._journal.record(
            Transition(
                regarding=() if node_object is None else (object_reference(NODES, node_object),),
                subject=f"node {node}",
                reason=EVENT_REASON,
                message=message,
                action="Review",
                is_warning=True,
                log_fields={"surplus": str(surplus)},
            )
        )


def _is_over(notice: MaintenanceNotice) -> bool:
    return notice.spec.stage in _OVER_STAGES or notice.status.phase in _OVER_PHASES


def _age(notice: MaintenanceNotice) -> tuple[float, str]:
    created = notice.metadata.creation_timestamp
    return 0.0 if created is None else created.timestamp(), notice.name
