"""Reads and writes the MaintenanceRecord of a node, and tries again when somebody else was faster.

A record is read when it is needed and forgotten again. A write is bound to the version that was read.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from haulout.core.backoff import Backoff
from haulout.errors import AlreadyExists, Conflict, GarbledAnswer, KubeError, NotFound
from haulout.history import record as records
from haulout.history.document import Stored, change, new, readable, rewritten
from haulout.history.record import MAINTENANCE_RECORDS, Content, Note, Record
from haulout.kube.client import Client

log = logging.getLogger(__name__)

_TRIES = 5
_PAUSE = Backoff(first=timedelta(milliseconds=50), limit=timedelta(seconds=1), jitter=0.5)


class NoDefinition(Exception):
    """The server does not know the kind."""

    def __init__(self, why: KubeError) -> None:
        super().__init__(why)
        self.why = why


class Storage:
    """The records of all nodes on the server; `created` hears of each node for which one is made."""

    def __init__(self, client: Client, *, created: Callable[[str], object] = lambda _: None) -> None:
        self._client = client
        self._clock = client.clock
        self._created = created

    async def store(self, node: str, uid: str, notes: Sequence[Note]) -> None:
        """Add notes to the record of a node."""
        for attempt in range(1, _TRIES + 1):
            try:
                await self._add(node, uid, notes)
            except (AlreadyExists, Conflict, NotFound):  # somebody was faster
                if attempt == _TRIES:
                    raise
            else:
                return
            await self._clock.sleep(_PAUSE.delay(attempt, self._client.random))

    async def _add(self, node: str, uid: str, notes: Sequence[Note]) -> None:
        found, is_readable = await self.find(node)
        before = Content(node_uid=uid) if found is None else self._continued(records.content_of(found), uid)
        after = records.added(before, notes)
        if after is before:
            return
        if found is None:
            await self._create(node, uid, after)
        else:
            await self.write(found, after, is_readable=is_readable)

    def _continued(self, content: Content, uid: str) -> Content:
        """Return what a record holds, for the node with this uid."""
        if content.node_uid == uid or records.is_about_earlier_node(content, uid):
            return content
        if not content.node_uid:  # somebody removed the annotation
            return replace(content, node_uid=uid)
        return records.continued(content, uid, at=self._clock.now())

    async def write(self, found: Record, after: Content, *, is_readable: bool = True) -> None:
        """Make this of a record, if it is still as it was found."""
        patch = change(found, after) if is_readable else rewritten(found, after)
        await self._client.patch(MAINTENANCE_RECORDS, found.name, patch)

    async def find(self, node: str) -> tuple[Record | None, bool]:
        """Return a record, and whether all of it can be read: what cannot be is a gap."""
        try:
            return await self._client.get(MAINTENANCE_RECORDS, node), True
        except NotFound:
            return None, True
        except GarbledAnswer:
            # Half an answer is no JSON, and is raised once more.
            stored = await self._client.get(MAINTENANCE_RECORDS.of(Stored), node)
            return readable(stored, now=self._clock.now()), False

    async def remove(self, found: Record) -> None:
        """Delete a record, if it is still as it was found."""
        try:
            await self._client.delete(
                MAINTENANCE_RECORDS, found.name, uid=found.uid, resource_version=found.resource_version
            )
        except NotFound:
            log.debug("the record of node %s is gone already", found.name)

    async def _create(self, node: str, uid: str, content: Content) -> None:
        try:
            await self._client.create(MAINTENANCE_RECORDS, new(node, uid, content))
        except NotFound as error:  # there is no such kind: one object cannot be missed where it is made
            raise NoDefinition(error) from error
        self._created(node)
