"""Keeps notices true to the labels of nodes, and has maintenance begin early by another label.

Nothing is asked while nothing changes: nodes are followed anyway, and only a change of what counts has notices looked
at. While there is anything planned they are looked at now and then, since somebody may have deleted one.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from haulout.core.backoff import Backoff
from haulout.errors import CannotMove, Conflict, Invalid, KubeError, NotFound
from haulout.kinds.notice import MaintenanceNotice
from haulout.kinds.reports import Report
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from haulout.notices.inbox import Inbox
from haulout.notices.sources import news
from haulout.notices.sources.gke import SOURCE
from haulout.notices.sources.gke.labels import PERFORM, Unreadable, gone, is_over, marks, read, reports
from haulout.notices.sources.quarantine import Quarantine

log = logging.getLogger(__name__)

_LOOK_AGAIN = timedelta(minutes=10)
_PAUSE = Backoff(first=timedelta(seconds=1), limit=timedelta(minutes=1), jitter=0.3)


class GkeSource:
    """Maintenance that labels tell of; somebody else runs the cache of nodes."""

    name = SOURCE
    taken = 0  # there are no messages

    def __init__(self, client: Client, nodes: Cache[Node]) -> None:
        self.quarantine = Quarantine(SOURCE, client.clock)
        self._client = client
        self._nodes = nodes
        self._changed = asyncio.Event()
        self._is_idle = False  # nothing is planned, and no notice is open
        self._trouble = ""

    @property
    def is_up(self) -> bool:
        """Tell whether it sees nodes and notices."""
        return not self._trouble

    def troubles(self) -> Sequence[str]:
        """Return what keeps it from its work, a line each."""
        return (*([self._trouble] if self._trouble else ()), *self.quarantine.troubles())

    def silence(self) -> timedelta | None:
        """Return nothing: nobody is asked."""
        return None

    async def run(self, inbox: Inbox) -> None:
        """Report what labels say, until cancelled."""
        await self._nodes.wait_synced()
        unsubscribe = self._nodes.subscribe(self._note)
        failures = 0
        try:
            while True:
                self._changed.clear()
                try:
                    await self._look(inbox)
                except KubeError as error:
                    failures += 1
                    self._complain(error)
                    await self._client.clock.sleep(_PAUSE.delay(failures, self._client.random))
                else:
                    failures, self._trouble = 0, ""
                    await self._rest()
        finally:
            unsubscribe()

    def _note(self, old: Node | None, new: Node | None) -> None:
        if marks(old) != marks(new):
            self._changed.set()

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(None if self._is_idle else _LOOK_AGAIN.total_seconds()):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _look(self, inbox: Inbox) -> None:
        found = await inbox.of(SOURCE)
        at, nodes = self._client.clock.now(), {it.name: it for it in self._nodes.all()}
        by_node: dict[str, list[MaintenanceNotice]] = {}
        for notice in found:
            by_node.setdefault(notice.spec.node_name, []).append(notice)
        known = {it.name: it for it in found}
        is_idle = all(map(is_over, found))
        for node in nodes.values():
            for report in self._of(node, by_node.get(node.name, ()), at):
                is_idle = False
                await news.take(inbox, known.get(report.name), report, self.quarantine)
        for notice in found:
            name = notice.spec.node_name
            if name not in nodes and name not in self._nodes.misfits and not is_over(notice):
                await news.take(inbox, notice, gone(notice, at=at), self.quarantine)
        self._is_idle = is_idle

    def _of(self, node: Node, notices: Sequence[MaintenanceNotice], at: datetime) -> Sequence[Report]:
        try:
            return list(reports(node, read(node), notices, at=at))
        except Unreadable as error:
            self.quarantine.put(where=f"node {node.name}", why=str(error), what=dict(node.metadata.labels))
            return ()  # what was said before holds

    def _complain(self, error: KubeError) -> None:
        trouble = f"{SOURCE}: notices cannot be read or written, which is tried again: {error}"
        if trouble != self._trouble:
            log.warning("%s", trouble)
        self._trouble = trouble


class BeginningGkeSource(GkeSource):
    """The same, for those who want maintenance to begin as soon as a node is empty: it is a `Starter`."""

    async def begin(self, notice: MaintenanceNotice) -> None:
        """Have GKE begin now, by a label of the node; raises `CannotMove` if that is not there any more."""
        uid = notice.spec.notice_id.rpartition("-")[0]
        patch = merge_patch({"metadata": {"uid": uid, "labels": {PERFORM: "true"}}})
        try:
            await self._client.patch(NODES, notice.spec.node_name, patch)
        except (Conflict, Invalid, NotFound) as error:  # a uid that is not that of the node is invalid
            raise CannotMove(f"the node is not there any more: {error}") from error
