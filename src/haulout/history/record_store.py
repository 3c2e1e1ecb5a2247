"""Reads and writes the MaintenanceRecord of a node, with retries after conflicts.

A record is read when needed and not cached. Each write has the resourceVersion that was read as precondition.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from haulout.api import maintenancerecord as records
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS, MaintenanceRecord, NewEntry, RecordContent
from haulout.core.backoff import Backoff
from haulout.errors import AlreadyExists, Conflict, KubeError, MalformedResponse, NotFound
from haulout.history.record_patches import UntypedRecord, append_patch, decode_leniently, new_record, rewrite_patch
from haulout.kube.client import Client

log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 5
_BACKOFF = Backoff(first=timedelta(milliseconds=50), limit=timedelta(seconds=1), jitter=0.5)


class CrdMissing(Exception):
    """The API server does not know the kind."""

    def __init__(self, cause: KubeError) -> None:
        super().__init__(cause)
        self.cause = cause


class RecordStore:
    """The records of all nodes. `on_created` is called with the node's name when a record is created."""

    def __init__(self, client: Client, *, on_created: Callable[[str], object] = lambda _: None) -> None:
        self._client = client
        self._clock = client.clock
        self._on_created = on_created

    async def append(self, node: str, uid: str, new_entries: Sequence[NewEntry]) -> None:
        """Append entries to the record of a node; retry if another process was faster."""
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                await self._append_once(node, uid, new_entries)
            except (AlreadyExists, Conflict, NotFound):  # another process was faster
                if attempt == _MAX_ATTEMPTS:
                    raise
            else:
                return
            await self._clock.sleep(_BACKOFF.delay(attempt, self._client.random))

    async def _append_once(self, node: str, uid: str, new_entries: Sequence[NewEntry]) -> None:
        found, is_readable = await self.get(node)
        before = (
            RecordContent(node_uid=uid) if found is None else self._content_for_node(records.content_of(found), uid)
        )
        after = records.add_entries(before, new_entries)
        if after is before:
            return
        if found is None:
            await self._create(node, uid, after)
        else:
            await self.update(found, after, is_readable=is_readable)

    def _content_for_node(self, content: RecordContent, uid: str) -> RecordContent:
        """Return the content of a record, adapted to the node with this UID."""
        if content.node_uid == uid or records.is_uid_of_earlier_node(content, uid):
            return content
        if not content.node_uid:  # the annotation was removed
            return replace(content, node_uid=uid)
        return records.continue_for_new_node(content, uid, at=self._clock.now())

    async def update(self, found: MaintenanceRecord, after: RecordContent, *, is_readable: bool = True) -> None:
        """Update a record that has not changed since `found` was read."""
        patch = append_patch(found, after) if is_readable else rewrite_patch(found, after)
        await self._client.patch(MAINTENANCE_RECORDS, found.name, patch)

    async def get(self, node: str) -> tuple[MaintenanceRecord | None, bool]:
        """Return a record, and whether all of it could be decoded: what could not is a gap."""
        try:
            return await self._client.get(MAINTENANCE_RECORDS, node), True
        except NotFound:
            return None, True
        except MalformedResponse:
            # An incomplete response is no JSON, and raises MalformedResponse again.
            stored = await self._client.get(MAINTENANCE_RECORDS.with_model(UntypedRecord), node)
            return decode_leniently(stored, now=self._clock.now()), False

    async def delete(self, found: MaintenanceRecord) -> None:
        """Delete a record that has not changed since `found` was read."""
        try:
            await self._client.delete(
                MAINTENANCE_RECORDS, found.name, uid=found.uid, resource_version=found.resource_version
            )
        except NotFound:
            log.debug("the record of node %s was already deleted", found.name)

    async def _create(self, node: str, uid: str, content: RecordContent) -> None:
        try:
            await self._client.create(MAINTENANCE_RECORDS, new_record(node, uid, content))
        except NotFound as error:  # a create returns 404 only if the kind is unknown
            raise CrdMissing(error) from error
        self._on_created(node)
