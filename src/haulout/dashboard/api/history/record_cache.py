"""Histories of nodes, read on request, cached for some seconds, and never watched.

    records = RecordCache(client)
    await records.summaries()  # which nodes have a record, and the last state in it
    await records.entries(["n1", "n2"])  # the entries

A record has up to 32 KiB, and there is one per node. So all are listed without their entries first
(`haulout.history.record_store`), and only records of displayed nodes are read completely. Concurrent requests share
one read.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta

from haulout.api.maintenancerecord import MAINTENANCE_RECORDS, Entry
from haulout.api.objects import UndecodableObject
from haulout.errors import Forbidden, KubeError, NotFound
from haulout.history import record_store
from haulout.history.record_store import RecordSummary
from haulout.kube.client import Client

TTL = timedelta(seconds=10)
_MAX_CACHED = 1_000  # records
_MAX_CONCURRENT_READS = 8
_PAGE = 50  # decoding a page blocks the event loop
_MAX_SINGLE_READS = 20


class HistoryUnavailable(KubeError):
    """The history cannot be read; the message says why."""


class RecordCache:
    """Caches summaries and entries for TTL."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._clock = client.clock
        self._survey_lock = asyncio.Lock()
        self._surveyed: Mapping[str, RecordSummary] | HistoryUnavailable = {}
        self._surveyed_until = 0.0
        self._read_lock = asyncio.Lock()
        self._entries: dict[str, tuple[float, tuple[Entry, ...]]] = {}  # by node, with their expiry

    async def summaries(self) -> Mapping[str, RecordSummary]:
        """Return the summaries by node; raise `HistoryUnavailable`."""
        async with self._survey_lock:
            if self._clock.monotonic() >= self._surveyed_until:
                self._surveyed = await self._survey()
                self._surveyed_until = self._expiry()
        if isinstance(self._surveyed, HistoryUnavailable):
            raise HistoryUnavailable(str(self._surveyed))
        return self._surveyed

    async def entries(self, nodes: Collection[str]) -> Mapping[str, tuple[Entry, ...]]:
        """Return the entries of nodes that have a record; raise `HistoryUnavailable`."""
        summaries = await self.summaries()
        recorded = [item for item in nodes if item in summaries]
        async with self._read_lock:
            now = self._clock.monotonic()
            self._entries = {name: item for name, item in self._entries.items() if now < item[0]}
            missing = [item for item in recorded if item not in self._entries]
            found = {name: item[1] for name, item in self._entries.items() if name in recorded}
            try:
                found |= await self._read(missing, total=len(summaries))
            except KubeError as error:
                raise HistoryUnavailable(unreadable_reason(error)) from None
        return found

    async def _survey(self) -> Mapping[str, RecordSummary] | HistoryUnavailable:
        try:
            return await record_store.list_summaries(self._client)
        except KubeError as error:
            return HistoryUnavailable(unreadable_reason(error))

    async def _read(self, nodes: Collection[str], *, total: int) -> Mapping[str, tuple[Entry, ...]]:
        """Read entries from a list if the nodes are a large part of all, else one by one."""
        if len(nodes) > _MAX_SINGLE_READS and len(nodes) * 3 > total:
            found = await self._list(set(nodes))
        else:
            found = await self._get_each(nodes)
        until = self._expiry()
        capacity = max(_MAX_CACHED - len(self._entries), 0)
        self._entries |= {name: (until, entries) for name, entries in list(found.items())[:capacity]}
        return found

    async def _list(self, nodes: Collection[str]) -> dict[str, tuple[Entry, ...]]:
        found: dict[str, tuple[Entry, ...]] = {}
        # Not from the server's watch cache, which ignores the page size and returns all objects at once.
        async for page in self._client.pages(MAINTENANCE_RECORDS, page_size=_PAGE):
            for record in page.items:
                if not isinstance(record, UndecodableObject) and record.name in nodes:
                    found[record.name] = record.entries
            await self._clock.sleep(timedelta())
        return found

    async def _get_each(self, nodes: Iterable[str]) -> dict[str, tuple[Entry, ...]]:
        found: dict[str, tuple[Entry, ...]] = {}
        remaining = iter(nodes)

        async def read() -> None:
            for name in remaining:
                try:
                    found[name] = (await self._client.get(MAINTENANCE_RECORDS, name)).entries
                except NotFound:
                    continue  # deleted with its node

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_MAX_CONCURRENT_READS):
                    group.create_task(read())
        except* KubeError as failures:
            raise failures.exceptions[0] from None
        return found

    def _expiry(self) -> float:
        return self._clock.monotonic() + TTL.total_seconds()


def unreadable_reason(error: KubeError) -> str:
    """Return why the history cannot be read, and what to do."""
    if isinstance(error, NotFound):
        return (
            f"there is no history: {MAINTENANCE_RECORDS.kind} is not installed;"
            " `haulout manifests --crds-only | kubectl apply -f -` installs it"
        )
    if isinstance(error, Forbidden):
        return f"no permission to read the history: {error}"
    return f"the history cannot be read: {error}"
