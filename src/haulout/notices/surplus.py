"""Limits how many notices of agents one node has.

An agent writes the notices of its own node. One that was taken over can create them without end: roles, quotas and
admission policies cannot count objects that are in no namespace. So the operator counts. Beyond `MAX_PER_NODE` it
deletes those that are over, the oldest first, and then open ones, the newest first: what was announced before a flood
stays. A notice that is to be deleted is not looked at, so that a flood costs a deletion for each, and nothing more.

Notices of other sources, such as people and clouds that the operator asks itself, are not counted.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import islice

from haulout.errors import NotFound
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice, Phase, Stage
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder, reference
from haulout.kube.objects import Node
from haulout.kube.queue import Queue
from haulout.kube.resources import NODES
from haulout.notices.orphans import AGENTS

log = logging.getLogger(__name__)

MAX_PER_NODE = 50
BY_AGENT = "agent"
EVENT = "TooManyNotices"
_AT_ONCE = 16  # deletions
_WORKERS = 4
_OVER_STAGES = (Stage.ENDED, Stage.CANCELLED)
_OVER_PHASES = tuple(it for it in Phase if it.is_over)


def agent_of(notice: MaintenanceNotice) -> tuple[str, ...]:
    """Return the node whose agent may have written a notice, for an index of a cache."""
    spec = notice.spec
    return (spec.node_name,) if spec.source in AGENTS and spec.node_name else ()


def split(notices: Iterable[MaintenanceNotice]) -> tuple[list[MaintenanceNotice], list[MaintenanceNotice]]:
    """Return the notices of one node that are kept, and those that are surplus."""
    over: list[MaintenanceNotice] = []
    is_open: list[MaintenanceNotice] = []
    for it in notices:
        (over if _is_over(it) else is_open).append(it)
    # Times of creation are in whole seconds: of one second, those stay that were looked at.
    is_open.sort(key=lambda it: (not it.status.phase, _age(it)))
    ranked = [*is_open, *sorted(over, key=_age, reverse=True)]
    return ranked[:MAX_PER_NODE], ranked[MAX_PER_NODE:]


class SurplusNotices:
    """Deletes surplus notices while `run` runs; `notices` has the index `BY_AGENT`, and `wake` has one looked at."""

    def __init__(
        self,
        client: Client,
        notices: Cache[MaintenanceNotice],
        nodes: Cache[Node],
        *,
        events: EventRecorder,
        wake: Callable[[str], object],
    ) -> None:
        self._client = client
        self._notices = notices
        self._nodes = nodes
        self._events = events
        self._wake = wake
        self._kept: dict[str, frozenset[str]] = {}  # by node that has too many: names
        self._queue: Queue[str] = Queue(
            self._work,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            meters=client.meters,
            name="surplus notices",
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run()

    def add(self, notice: MaintenanceNotice) -> None:
        """Count the notices of its node soon, if there may be too many."""
        for node in agent_of(notice):
            if node in self._kept or self._is_crowded(node):
                self._queue.add(node)

    def is_held_back(self, notice: MaintenanceNotice) -> bool:
        """Tell whether a notice is surplus, or may be."""
        return any(
            self._is_crowded(node) and notice.name not in self._kept.get(node, frozenset()) for node in agent_of(notice)
        )

    def _is_crowded(self, node: str) -> bool:
        return len(self._notices.by(BY_AGENT, node)) > MAX_PER_NODE

    async def _work(self, node: str) -> datetime | None:
        kept, surplus = split(self._notices.by(BY_AGENT, node))
        held_back = [it for it in kept if self.is_held_back(it)]
        if surplus:
            self._kept[node] = frozenset(it.name for it in kept)
        else:
            self._kept.pop(node, None)
        for it in held_back:
            self._wake(it.name)
        if surplus:
            self._tell(node, len(surplus))
        rest = iter(surplus)
        while batch := tuple(islice(rest, _AT_ONCE)):
            await asyncio.gather(*(self._delete(it) for it in batch))
        return None

    async def _delete(self, notice: MaintenanceNotice) -> None:
        # Without a resourceVersion: whoever changes a notice again and again must not keep it.
        try:
            await self._client.delete(MAINTENANCE_NOTICES, notice.name, uid=notice.uid)
        except NotFound:
            log.debug("notice %s is gone already", notice.name)

    def _tell(self, node: str, surplus: int) -> None:
        log.warning("node %s has %d notices of its agent too many, which are deleted", node, surplus)
        found = self._nodes.get(node)
        if found is not None:
            note = f"the agent of this node writes more than {MAX_PER_NODE} notices: what is too much is deleted"
            self._events.record(reference(NODES, found), reason=EVENT, note=note, action="Review", type="Warning")


def _is_over(notice: MaintenanceNotice) -> bool:
    return notice.spec.stage in _OVER_STAGES or notice.status.phase in _OVER_PHASES


def _age(notice: MaintenanceNotice) -> tuple[float, str]:
    created = notice.metadata.creation_timestamp
    return 0.0 if created is None else created.timestamp(), notice.name
