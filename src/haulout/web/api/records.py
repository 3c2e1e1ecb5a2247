"""Histories of nodes for those who look: read when somebody does, kept for some seconds, and never watched.

    records = Records(client)
    await records.standings()                   # which nodes have had something happen to them, and when last
    await records.entries(["n1", "n2"])         # what that was

A record is up to 32 KiB long, and there is one for each node. So all of them are looked at without their entries first
(`haulout.history.survey`), and only those are read whose node is shown. Who asks while another waits for the same waits
with it, and gets the same answer.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta

from haulout.errors import Forbidden, KubeError, NotFound
from haulout.history import survey
from haulout.history.record import MAINTENANCE_RECORDS, Entry
from haulout.history.survey import Standing
from haulout.kube.client import Client
from haulout.kube.objects import Misfit

KEPT_FOR = timedelta(seconds=10)
_MOST_KEPT = 1_000  # records
_AT_ONCE = 8
_PAGE = 50  # what is decoded at once holds up everybody else
_FEW = 20


class NoRecords(KubeError):
    """There is no history to be had, and why."""


class Records:
    """What is known of histories, for as long as it is new enough."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._clock = client.clock
        self._surveying = asyncio.Lock()
        self._surveyed: Mapping[str, Standing] | NoRecords = {}
        self._surveyed_until = 0.0
        self._reading = asyncio.Lock()
        self._entries: dict[str, tuple[float, tuple[Entry, ...]]] = {}  # by node, with until when they are kept

    async def standings(self) -> Mapping[str, Standing]:
        """Return by node where things stand by its history; raises `NoRecords`."""
        async with self._surveying:
            if self._clock.monotonic() >= self._surveyed_until:
                self._surveyed = await self._survey()
                self._surveyed_until = self._soon()
        if isinstance(self._surveyed, NoRecords):
            raise NoRecords(str(self._surveyed))
        return self._surveyed

    async def entries(self, nodes: Collection[str]) -> Mapping[str, tuple[Entry, ...]]:
        """Return by node what happened to it, as far as there is a record of that; raises `NoRecords`."""
        known = await self.standings()
        wanted = [it for it in nodes if it in known]
        async with self._reading:
            now = self._clock.monotonic()
            self._entries = {name: it for name, it in self._entries.items() if now < it[0]}
            missing = [it for it in wanted if it not in self._entries]
            found = {name: it[1] for name, it in self._entries.items() if name in wanted}
            try:
                found |= await self._read(missing, of=len(known))
            except KubeError as error:
                raise NoRecords(why_unreadable(error)) from None
        return found

    async def _survey(self) -> Mapping[str, Standing] | NoRecords:
        try:
            return await survey.standings(self._client)
        except KubeError as error:
            return NoRecords(why_unreadable(error))

    async def _read(self, nodes: Collection[str], *, of: int) -> Mapping[str, tuple[Entry, ...]]:
        """Return what happened to nodes: from a list if these are many of all there are, or else one by one."""
        if len(nodes) > _FEW and len(nodes) * 3 > of:
            found = await self._listed(set(nodes))
        else:
            found = await self._one_by_one(nodes)
        until = self._soon()
        room = max(_MOST_KEPT - len(self._entries), 0)
        self._entries |= {name: (until, entries) for name, entries in list(found.items())[:room]}
        return found

    async def _listed(self, nodes: Collection[str]) -> dict[str, tuple[Entry, ...]]:
        found: dict[str, tuple[Entry, ...]] = {}
        # Not from the server's cache, which would answer with all of them at once, whatever the size of a page.
        async for page in self._client.pages(MAINTENANCE_RECORDS, page_size=_PAGE):
            for it in page.items:
                if not isinstance(it, Misfit) and it.name in nodes:
                    found[it.name] = it.entries
            await self._clock.sleep(timedelta())
        return found

    async def _one_by_one(self, nodes: Iterable[str]) -> dict[str, tuple[Entry, ...]]:
        found: dict[str, tuple[Entry, ...]] = {}
        waiting = iter(nodes)

        async def read() -> None:
            for name in waiting:
                try:
                    found[name] = (await self._client.get(MAINTENANCE_RECORDS, name)).entries
                except NotFound:
                    continue  # it went with its node

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_AT_ONCE):
                    group.create_task(read())
        except* KubeError as failures:
            raise failures.exceptions[0] from None
        return found

    def _soon(self) -> float:
        return self._clock.monotonic() + KEPT_FOR.total_seconds()


def why_unreadable(error: KubeError) -> str:
    """Return why there is no history, and what to do about it."""
    if isinstance(error, NotFound):
        return (
            f"there is no history: {MAINTENANCE_RECORDS.kind} is not installed;"
            " `haulout manifests --crds-only | kubectl apply -f -` installs it"
        )
    if isinstance(error, Forbidden):
        return f"the history may not be read: {error}"
    return f"the history cannot be read: {error}"
