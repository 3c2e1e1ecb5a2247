"""What happened to all nodes, deleted ones among them: the newest entries for a page, or all of them as CSV.

    history = FleetHistory(client, nodes=sight.nodes)
    await history.newest(HistoryQuery(since=…))            # at most `limit` entries, the newest first
    async for piece in history.csv(HistoryQuery()): …      # all of them, node by node

Records are read page by page when somebody asks, and not kept: no more than a page of records and the entries that are
answered are in memory. Few may ask at once, because each of them has the API server read all records.
"""

import contextlib
import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus

import msgspec

from haulout.errors import KubeError, NotFound
from haulout.history import export
from haulout.history.record import MAINTENANCE_RECORDS, Entry, Record, within
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Misfit, Node
from haulout.web.api.details import happening
from haulout.web.api.records import why_unreadable
from haulout.web.api.shapes import HistoryEntry, HistoryList
from haulout.web.api.source import HistoryQuery, Unanswerable

LIMIT = 500
_PAGE = 50  # what is decoded at once holds up everybody else
_FEW = 20  # nodes that are named are read one by one
_AT_ONCE = 3
_AGAIN_AFTER = timedelta(seconds=5)
_PIECE = 64 << 10  # characters


@dataclass(frozen=True, slots=True)
class _OfNode:
    """What is asked for of one node."""

    node: str
    entries: Sequence[Entry]
    is_deleted: bool
    deleted: datetime | None


class FleetHistory:
    """Answers what happened."""

    def __init__(self, client: Client, *, nodes: Cache[Node]) -> None:
        self._client = client
        self._clock = client.clock
        self._nodes = nodes
        self._asking = 0

    async def newest(self, asked: HistoryQuery) -> HistoryList:
        """Return the newest entries, the newest first."""
        limit = asked.limit or LIMIT
        total = 0
        kept: list[tuple[datetime, int, HistoryEntry]] = []
        with self._turn():
            async for it in self._found(asked):
                for entry in it.entries:
                    total += 1
                    shown = entry_of(it.node, entry, is_deleted=it.is_deleted, deleted=it.deleted)
                    # The number breaks ties: of one node what was written later is newer.
                    heapq.heappush(kept, (entry.time, total, shown))
                    if len(kept) > limit:
                        heapq.heappop(kept)
        entries = tuple(shown for _, _, shown in sorted(kept, key=lambda timed: timed[:2], reverse=True))
        return HistoryList(entries=entries, total=total)

    async def csv(self, asked: HistoryQuery) -> AsyncGenerator[bytes, None]:
        """Yield all entries as CSV, node by node; raises `Unanswerable`, also in the middle."""
        with self._turn():
            piece, size = [export.HEADER], 0
            async for it in self._found(asked):
                rows = [export.row(it.node, entry, deleted=it.deleted) for entry in it.entries]
                piece += rows
                size += sum(map(len, rows))
                if size >= _PIECE:
                    yield "".join(piece).encode()
                    piece, size = [], 0
            yield "".join(piece).encode()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        if self._asking >= _AT_ONCE:
            raise Unanswerable(
                "others read the whole history at the moment", HTTPStatus.SERVICE_UNAVAILABLE, retry_after=_AGAIN_AFTER
            )
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1

    async def _found(self, asked: HistoryQuery) -> AsyncIterator[_OfNode]:
        try:
            async for record in self._records(asked):
                entries = chosen(record, asked)
                if entries:
                    is_deleted = record.node_deleted is not None or self._nodes.get(record.name) is None
                    yield _OfNode(record.name, entries, is_deleted, record.node_deleted)
        except KubeError as error:
            raise Unanswerable(why_unreadable(error)) from None

    async def _records(self, asked: HistoryQuery) -> AsyncIterator[Record]:
        if 0 < len(asked.nodes) <= _FEW:
            for name in sorted(asked.nodes):
                with contextlib.suppress(NotFound):
                    yield await self._client.get(MAINTENANCE_RECORDS, name)
            return
        # Not from the server's cache, which would answer with all of them at once, whatever the size of a page.
        async for page in self._client.pages(MAINTENANCE_RECORDS, page_size=_PAGE):
            for it in page.items:
                if not isinstance(it, Misfit) and (not asked.nodes or it.name in asked.nodes):
                    yield it
            await self._clock.sleep(timedelta())


def chosen(record: Record, asked: HistoryQuery) -> Sequence[Entry]:
    """Return the entries of a record that are asked for."""
    entries = within(record.entries, since=asked.since, until=asked.until)
    return [it for it in entries if _is_about(it, asked.what) and _has(record.name, it, asked.words)]


def _is_about(entry: Entry, what: frozenset[str]) -> bool:
    return not what or entry.what in what or entry.what.partition("/")[0] in what


def _has(node: str, entry: Entry, words: Sequence[str]) -> bool:
    if not words:
        return True
    said = (node, entry.what, entry.by, entry.from_, entry.to, entry.result, entry.why)
    text = "\n".join(said).casefold()
    return all(word in text for word in words)


def entry_of(node: str, entry: Entry, *, is_deleted: bool = False, deleted: datetime | None = None) -> HistoryEntry:
    """Return an entry as the API has it."""
    return HistoryEntry(node=node, is_deleted=is_deleted, deleted=deleted, **msgspec.structs.asdict(happening(entry)))
