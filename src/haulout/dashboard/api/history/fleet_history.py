"""The history of all nodes, including deleted ones: the newest entries, or all entries as CSV.

    history = FleetHistory(client, nodes=informers.nodes)
    await history.newest(HistoryQuery(since=…))  # at most `limit` entries, the newest first
    async for chunk in history.csv(HistoryQuery()):  # all entries, node by node
        ...

Records are read page by page on request and not cached: memory holds one page of records and the returned entries. The
number of concurrent readers is limited, because each makes the API server read all records.
"""

import contextlib
import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus

import msgspec

from haulout.api.maintenancerecord import MAINTENANCE_RECORDS, Entry, MaintenanceRecord, entries_between
from haulout.api.objects import Node, UndecodableObject
from haulout.dashboard.api.backend import HistoryQuery, HttpError
from haulout.dashboard.api.history.record_cache import unreadable_reason
from haulout.dashboard.api.nodes.detail import happening
from haulout.dashboard.api.types import HistoryList, NodeHistoryEntry
from haulout.errors import KubeError, NotFound
from haulout.history import csv_export
from haulout.kube.client import Client
from haulout.kube.informer import Informer

LIMIT = 500
_PAGE = 50  # decoding a page blocks the event loop
_MAX_SINGLE_READS = 20  # few named nodes are read one by one
_MAX_READERS = 3
_RETRY_AFTER = timedelta(seconds=5)
_PIECE = 64 << 10  # characters


@dataclass(frozen=True, slots=True)
class _NodeEntries:
    """The matching entries of one node."""

    node: str
    entries: Sequence[Entry]
    is_deleted: bool
    deleted: datetime | None


class FleetHistory:
    """Answers history requests."""

    def __init__(self, client: Client, *, nodes: Informer[Node]) -> None:
        self._client = client
        self._clock = client.clock
        self._nodes = nodes
        self._readers = 0

    async def newest(self, query: HistoryQuery) -> HistoryList:
        """Return the newest entries, the newest first."""
        limit = query.limit or LIMIT
        total = 0
        heap: list[tuple[datetime, int, NodeHistoryEntry]] = []
        with self._limit_readers():
            async for node_entries in self._matching(query):
                for entry in node_entries.entries:
                    total += 1
                    history_entry = to_history_entry(
                        node_entries.node, entry, is_deleted=node_entries.is_deleted, deleted=node_entries.deleted
                    )
                    # The number breaks ties: a later entry of the same node is newer.
                    heapq.heappush(heap, (entry.time, total, history_entry))
                    if len(heap) > limit:
                        heapq.heappop(heap)
        entries = tuple(
            history_entry for _, _, history_entry in sorted(heap, key=lambda timed: timed[:2], reverse=True)
        )
        return HistoryList(entries=entries, total=total)

    async def csv(self, query: HistoryQuery) -> AsyncGenerator[bytes, None]:
        """Yield all entries as CSV, node by node; raise `HttpError`, even after the first chunk."""
        with self._limit_readers():
            piece, size = [csv_export.HEADER], 0
            async for node_entries in self._matching(query):
                rows = [
                    csv_export.row(node_entries.node, entry, deleted=node_entries.deleted)
                    for entry in node_entries.entries
                ]
                piece += rows
                size += sum(map(len, rows))
                if size >= _PIECE:
                    yield "".join(piece).encode()
                    piece, size = [], 0
            yield "".join(piece).encode()

    @contextlib.contextmanager
    def _limit_readers(self) -> Iterator[None]:
        if self._readers >= _MAX_READERS:
            raise HttpError(
                "too many requests read the whole history at the moment: try again in a few seconds",
                HTTPStatus.SERVICE_UNAVAILABLE,
                retry_after=_RETRY_AFTER,
            )
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1

    async def _matching(self, query: HistoryQuery) -> AsyncIterator[_NodeEntries]:
        try:
            async for record in self._records(query):
                entries = matching_entries(record, query)
                if entries:
                    is_deleted = record.node_deleted is not None or self._nodes.get(record.name) is None
                    yield _NodeEntries(record.name, entries, is_deleted, record.node_deleted)
        except KubeError as error:
            raise HttpError(unreadable_reason(error)) from None

    async def _records(self, query: HistoryQuery) -> AsyncIterator[MaintenanceRecord]:
        if 0 < len(query.nodes) <= _MAX_SINGLE_READS:
            for name in sorted(query.nodes):
                with contextlib.suppress(NotFound):
                    yield await self._client.get(MAINTENANCE_RECORDS, name)
            return
        # Not from the server's watch cache, which ignores the page size and returns all objects at once.
        async for page in self._client.pages(MAINTENANCE_RECORDS, page_size=_PAGE):
            for record in page.items:
                if not isinstance(record, UndecodableObject) and (not query.nodes or record.name in query.nodes):
                    yield record
            await self._clock.sleep(timedelta())


def matching_entries(record: MaintenanceRecord, query: HistoryQuery) -> Sequence[Entry]:
    """Return the matching entries of a record."""
    entries = entries_between(record.entries, since=query.since, until=query.until)
    return [
        entry for entry in entries if _is_about(entry, query.objects) and _has_terms(record.name, entry, query.terms)
    ]


def _is_about(entry: Entry, objects: frozenset[str]) -> bool:
    return not objects or entry.object in objects or entry.object.partition("/")[0] in objects


def _has_terms(node: str, entry: Entry, terms: Sequence[str]) -> bool:
    if not terms:
        return True
    texts = (node, entry.object, entry.requested_by, entry.from_, entry.to, entry.result, entry.reason)
    text = "\n".join(texts).casefold()
    return all(term in text for term in terms)


def to_history_entry(
    node: str, entry: Entry, *, is_deleted: bool = False, deleted: datetime | None = None
) -> NodeHistoryEntry:
    return NodeHistoryEntry(
        node=node, is_deleted=is_deleted, deleted=deleted, **msgspec.structs.asdict(happening(entry))
    )
