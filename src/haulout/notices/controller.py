"""The notices controller: keeps the status of each notice true, tells people, and clears away what is long over.

It touches no node. What is done about a notice is for profiles to decide, which see the same objects.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from haulout.errors import Conflict, NotFound
from haulout.kinds.machines import machine_key
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder, reference
from haulout.kube.follow import Selection
from haulout.kube.objects import Node
from haulout.kube.patches import difference, merge_patch
from haulout.kube.queue import Queue
from haulout.kube.resources import NODES
from haulout.notices.finding import Finding, Nodes
from haulout.notices.review import Happening, Review, Terms, reviewed

log = logging.getLogger(__name__)

_WORKERS = 16

Predict = Callable[[Node], timedelta | None]


def _nothing_known(_: Node) -> None:
    return None


class Controller:
    """Sees to all notices; `run` may be called once."""

    def __init__(
        self,
        client: Client,
        *,
        events: EventRecorder,
        nodes: Cache[Node],
        terms: Terms | None = None,
        predict: Predict = _nothing_known,
    ) -> None:
        self.notices: Cache[MaintenanceNotice] = Cache(client, Selection(MAINTENANCE_NOTICES), row=as_is)
        self._client = client
        self._clock = client.clock
        self._events = events
        self._terms = terms or Terms()
        self._predict = predict
        self._node_cache = nodes
        self._nodes = Nodes()
        self._queue: Queue[str] = Queue(
            self._work, clock=client.clock, random=client.random, workers=_WORKERS, name="notices"
        )

    async def run(self) -> None:
        """Work until cancelled; somebody else runs the cache of nodes."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            await self._node_cache.wait_synced()
            self._node_cache.subscribe(self._note_node)
            await self.notices.wait_synced()
            self.notices.subscribe(self._note_notice)
            await self._queue.run()

    async def _follow(self) -> None:
        await self.notices.run()

    # Who is woken by what

    def _note_notice(self, old: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        changed = new or old
        if changed is not None:
            self._queue.add(changed.name)

    def _note_node(self, old: Node | None, new: Node | None) -> None:
        self._nodes.follow(old, new)
        if old is not None and new is not None and (old.uid, old.spec.provider_id) == (new.uid, new.spec.provider_id):
            return
        names = {it.name for it in (old, new) if it is not None}
        machines = {machine_key(it.spec.provider_id) for it in (old, new) if it is not None}
        for notice in self.notices.all():
            if notice.node in names or machine_key(notice.spec.provider_id) in machines:
                self._queue.add(notice.name)

    # One look

    async def _work(self, name: str) -> datetime | None:
        notice = self.notices.get(name)
        if notice is None:
            return None
        finding = self._nodes.find(notice.spec)
        predicted = None if finding.node is None else self._predict(finding.node)
        review = reviewed(notice, finding, now=self._clock.now(), terms=self._terms, predicted=predicted)
        try:
            if review.is_done_with:
                await self._client.delete(
                    MAINTENANCE_NOTICES, name, uid=notice.uid, resource_version=notice.resource_version
                )
                return None
            await self._write(notice, review)
        except (Conflict, NotFound) as error:
            log.debug("notice %s is not as it was: %s", name, error)
            return None  # the watch will tell
        for happening in review.happenings:
            self._tell(notice, finding, happening)
        return review.next_look

    async def _write(self, notice: MaintenanceNotice, review: Review) -> None:
        change = difference(msgspec.to_builtins(notice.status), msgspec.to_builtins(review.status))
        if not change:
            return
        basis = {"uid": notice.uid, "resourceVersion": notice.resource_version}
        patch = merge_patch({"metadata": basis, "status": change})
        await self._client.patch(MAINTENANCE_NOTICES, notice.name, patch, subresource="status")

    def _tell(self, notice: MaintenanceNotice, finding: Finding, happening: Happening) -> None:
        about = [reference(MAINTENANCE_NOTICES, notice)]
        about += [] if finding.node is None else [reference(NODES, finding.node)]
        for regarding in about:
            self._events.record(
                regarding,
                reason=happening.reason,
                note=f"{notice.name}: {happening.what}",
                action="Review",
                type="Warning" if happening.is_bad else "Normal",
            )
