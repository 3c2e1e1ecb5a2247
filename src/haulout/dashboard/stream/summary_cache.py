"""All tiles, kept up to date while there are viewers, and not computed otherwise.

A change marks its node as dirty. Dirty nodes are processed in batches, at most four batches a second, with a yield to
the event loop after each fifty nodes, for the controllers. Unchanged tiles are not published. Some tiles change without
an event, when a drain has been blocked for a while or a notice falls due: these are scheduled.

After the last viewer left, the tiles are kept for a while, so that a page that is hidden and shown again finds them.
"""

import asyncio
import heapq
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.core.clock import real_seconds, real_time
from haulout.dashboard.api.backend import HttpError
from haulout.dashboard.api.nodes.informers import Informers, InformerSubscription, NodeSnapshot
from haulout.dashboard.api.nodes.summary import failed_node_summary, summarize_node
from haulout.dashboard.api.notices import notice_to_api as told_notice
from haulout.dashboard.api.types import (
    NodeDetail,
    NodeList,
    NodesChanged,
    NodeState,
    NodeSummary,
    NoticesChanged,
    Summary,
)
from haulout.dashboard.stream.broadcaster import Broadcaster, encode_event

log = logging.getLogger(__name__)

REFRESH_INTERVAL = timedelta(milliseconds=250)
KEEP_AFTER_LAST_VIEWER = timedelta(seconds=30)  # after the last viewer left
_SUMMARY_INTERVAL = timedelta(seconds=1)  # between refreshes of the summary without events
_READY_TIMEOUT = timedelta(seconds=10)
_BATCH_SIZE = 50  # nodes between two yields to the event loop
_MAX_TILES_PER_EVENT = 500  # per event

Summarize = Callable[["SummaryCache"], Summary]
Describe = Callable[[str], Awaitable[NodeDetail | None]]


class SummaryCache:
    """Keeps the tiles; `run` belongs into the leader's TaskGroup."""

    def __init__(
        self,
        informers: Informers,
        broadcaster: Broadcaster,
        *,
        summarize: Summarize,
        describe: Describe,
        interval: timedelta = REFRESH_INTERVAL,
    ) -> None:
        self.tiles: dict[str, NodeSummary] = {}
        self.counts: Counter[NodeState] = Counter()
        self.computed = 0  # number of computed tiles
        self._informers = informers
        self._clock = informers.clock
        self._broadcaster = broadcaster
        self._summarize = summarize
        self._describe_node = describe
        self._interval = interval
        self._summary: Summary | None = None
        self._dirty_nodes: set[str] = set()
        self._dirty_notices: set[str] = set()
        self._due: list[tuple[datetime, str]] = []
        self._due_at: dict[str, datetime] = {}
        self._failing: set[str] = set()
        self._details: dict[str, bytes] = {}
        self._to_describe: set[str] = set()
        self._subscription = InformerSubscription(informers, self._mark_node, self._mark_notice)
        self._changed = asyncio.Event()
        self._describe_requested = asyncio.Event()
        self._requested = asyncio.Event()
        self._refreshed = asyncio.Condition()
        self._refresh_count = 0
        self._keep_until = 0.0

    @property
    def is_in_use(self) -> bool:
        """Whether there are viewers, or were a moment ago."""
        return len(self._broadcaster) > 0 or self._clock.monotonic() < self._keep_until

    async def run(self) -> None:
        """Keep the tiles up to date while there are viewers, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._describe_all())
            try:
                while True:
                    await self._requested.wait()
                    await self._keep_updated()
            finally:
                self._broadcaster.reset_all()

    async def _keep_updated(self) -> None:
        await self._informers.nodes.wait_synced()
        self._broadcaster.start(f"{int(self._clock.now().timestamp() * 1000):x}")
        self._subscription.start()
        try:
            while self.is_in_use:
                await self._refresh()
                await self._clock.sleep(real_time(self._interval))
                await self._wait_for_change()
        finally:
            self._subscription.stop()
            self._clear()

    async def _wait_for_change(self) -> None:
        try:
            async with asyncio.timeout(real_seconds(_SUMMARY_INTERVAL)):
                await self._changed.wait()
        except TimeoutError:
            return

    def _clear(self) -> None:
        self._requested.clear()
        self._refresh_count = 0
        self._summary = None
        for collection in (
            self.tiles,
            self.counts,
            self._dirty_nodes,
            self._dirty_notices,
            self._due,
            self._due_at,
            self._details,
        ):
            collection.clear()
        self._broadcaster.reset_all()

    # Requests

    async def wait_ready(self) -> None:
        """Request tiles, and wait until all are there."""
        self._keep_until = self._clock.monotonic() + real_seconds(KEEP_AFTER_LAST_VIEWER)
        self._requested.set()
        try:
            async with asyncio.timeout(real_seconds(_READY_TIMEOUT)), self._refreshed:
                await self._refreshed.wait_for(lambda: self._refresh_count > 0)
        except TimeoutError:
            reason = self._informers.nodes.health().problem or "they are being read"
            raise HttpError(f"nodes are not known yet: {reason}") from None

    async def fleet(self) -> NodeList:
        await self.wait_ready()
        nodes = tuple(tile for _, tile in sorted(self.tiles.items()))
        return NodeList(revision=self._broadcaster.revision, total=len(nodes), nodes=nodes)

    async def summary(self) -> Summary:
        await self.wait_ready()
        return self._summarize(self)

    # Changes

    def _mark_node(self, node: str) -> None:
        self._dirty_nodes.add(node)
        self._changed.set()

    def _mark_notice(self, notice: str) -> None:
        self._dirty_notices.add(notice)
        self._changed.set()

    async def _refresh(self) -> None:
        """Update the tiles of dirty nodes, and publish differences."""
        self._subscription.resubscribe()
        self._changed.clear()
        dirty, self._dirty_nodes = self._dirty_nodes | self._pop_due(), set()
        changed, gone = await self._update_summaries(dirty)
        is_first = self._refresh_count == 0
        if not is_first:
            self._publish_nodes(changed, gone)
            self._publish_notices()
        self._dirty_notices.clear()
        self._to_describe |= dirty & self._broadcaster.subscribed_nodes()
        if self._to_describe:
            self._describe_requested.set()
        summary = self._summarize(self)
        if summary != self._summary:
            self._summary = summary
            if not is_first:
                self._broadcaster.publish("summary", summary)
        self._refresh_count += 1
        if is_first:
            async with self._refreshed:
                self._refreshed.notify_all()

    def _pop_due(self) -> set[str]:
        now, found = self._clock.now(), set()
        while self._due and self._due[0][0] <= now:
            at, name = heapq.heappop(self._due)
            if self._due_at.get(name) == at:
                found.add(name)
        return found

    def _schedule(self, name: str, at: datetime | None) -> None:
        """Schedule an update of a tile; an instant is pushed once, however often it is computed."""
        if at is None:
            self._due_at.pop(name, None)
        elif self._due_at.get(name) != at:
            self._due_at[name] = at
            heapq.heappush(self._due, (at, name))

    async def _update_summaries(self, names: Iterable[str]) -> tuple[list[NodeSummary], list[str]]:
        changed: list[NodeSummary] = []
        gone: list[str] = []
        observer = self._informers.observer()
        for number, name in enumerate(sorted(names), 1):
            before = self.tiles.get(name)
            try:
                observation = observer.observe(name)
                after, changes_at = (None, None) if observation is None else self._make_summary(observation)
            except Exception as error:  # noqa: BLE001 - an error about one node must not hide the others
                after, changes_at = self._make_failed_summary(name, error), None
            self._schedule(name, changes_at)
            if after != before:
                self._put(name, before, after)
                changed += [] if after is None else [after]
                gone += [name] if after is None else []
            if number % _BATCH_SIZE == 0:
                await self._clock.sleep(timedelta())
        return changed, gone

    def _make_summary(self, observation: NodeSnapshot) -> tuple[NodeSummary, datetime | None]:
        tile, assessment = summarize_node(observation)
        self.computed += 1
        self._failing.discard(tile.name)
        return tile, assessment.changes_at

    def _make_failed_summary(self, name: str, error: Exception) -> NodeSummary:
        if name not in self._failing:
            self._failing.add(name)
            log.error("cannot build the tile of node %s", name, exc_info=error, extra={"node": name})
        return failed_node_summary(name, repr(error))

    def _put(self, name: str, before: NodeSummary | None, after: NodeSummary | None) -> None:
        if before is not None:
            self.counts[before.state] -= 1
        if after is None:
            del self.tiles[name]
            return
        self.tiles[name] = after
        self.counts[after.state] += 1

    # Publishing

    def _publish_nodes(self, changed: list[NodeSummary], gone: list[str]) -> None:
        for first in range(0, max(len(changed), bool(gone)), _MAX_TILES_PER_EVENT):
            change = NodesChanged(
                revision=self._broadcaster.next_revision(),
                changed=tuple(changed[first : first + _MAX_TILES_PER_EVENT]),
                deleted=() if first else tuple(gone),
            )
            self._broadcaster.publish("nodes", change)

    def _publish_notices(self) -> None:
        notices = self._informers.notices()
        if not self._dirty_notices or notices is None:
            return
        found: Mapping[str, MaintenanceNotice | None] = {
            item: notices.notices.get(item) for item in sorted(self._dirty_notices)
        }
        now = self._clock.now()
        change = NoticesChanged(
            revision=self._broadcaster.next_revision(),
            changed=tuple(told_notice(item, now=now) for item in found.values() if item is not None),
            deleted=tuple(name for name, item in found.items() if item is None),
        )
        self._broadcaster.publish("notices", change)

    async def _describe_all(self) -> None:
        """Publish details of nodes to their subscribers."""
        while True:
            await self._describe_requested.wait()
            self._describe_requested.clear()
            names, self._to_describe = self._to_describe, set()
            subscribed = self._broadcaster.subscribed_nodes()
            self._details = {name: message for name, message in self._details.items() if name in subscribed}
            for name in sorted(names & subscribed):
                await self._describe(name)
            await self._clock.sleep(real_time(self._interval))

    async def _describe(self, name: str) -> None:
        try:
            detail = await self._describe_node(name)
        except Exception:
            log.exception("cannot build the details of node %s", name, extra={"node": name})
            return
        if detail is None:
            return
        message = encode_event("node", detail)
        if self._details.get(name) != message:
            self._details[name] = message
            self._broadcaster.publish_detail(name, message)
