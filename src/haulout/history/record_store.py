"""Reads and writes MaintenanceRecords: get, append with retries after conflicts, update, delete, and list summaries.

A record is read when needed and not cached. Each write has the resourceVersion that was read as precondition. Records
are decoded even if they were edited by hand: what cannot be decoded becomes a gap.

Summaries are a list as Table, whose rows contain only metadata. A record is up to 32 KiB long, and there is one per
node. Its last states are in an annotation, so that a list of all records costs a few hundred bytes each.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from haulout.api import maintenancerecord as records
from haulout.api.maintenancerecord import (
    LAST_STATES_ANNOTATION,
    MAINTENANCE_RECORDS,
    NODE_DELETED_ANNOTATION,
    NODE_UID_ANNOTATION,
    Entry,
    LastState,
    MaintenanceRecord,
    NewEntry,
    RecordContent,
)
from haulout.api.objects import Base, ListMeta, Object, RawObject
from haulout.core.backoff import CONFLICT
from haulout.core.retry import Retry
from haulout.core.timestamps import whole_seconds
from haulout.errors import AlreadyExists, Conflict, KubeError, MalformedResponse, NotFound
from haulout.kube import patches, responses
from haulout.kube.client import PAGE_SIZE, Client
from haulout.kube.patches import Operation, Patch
from haulout.kube.transport import Request

log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 5

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class CrdMissing(Exception):
    """The API server does not know the kind: its CRD is not installed, or not served yet."""

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
        retry = Retry(self._clock, self._client.random, CONFLICT, max_attempts=_MAX_ATTEMPTS)
        while True:
            try:
                return await self._append_once(node, uid, new_entries)
            except (AlreadyExists, Conflict, NotFound) as error:  # another process was faster
                await retry.wait(error)

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
        # An entry that was pending while its node was replaced belongs to the earlier node. It must not start a new
        # chapter.
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


class UntypedRecord(Object, frozen=True):
    """A record whose content does not decode, because somebody edited it. Only the metadata is typed."""

    total: Any = 0
    entries: Any = ()
    dropped_digests: Any = ()


def decode_leniently(stored: UntypedRecord, *, now: datetime) -> MaintenanceRecord:
    """Return a record with a gap in place of each entry that cannot be decoded."""
    found = stored.entries if isinstance(stored.entries, list) else []
    entries = tuple(_decode_entry(raw_entry, now) for raw_entry in found)
    total = stored.total if isinstance(stored.total, int) else 0
    return MaintenanceRecord(metadata=stored.metadata, total=max(total, len(entries)), entries=entries)


def _decode_entry(raw: Any, now: datetime) -> Entry:
    try:
        return msgspec.convert(raw, Entry)
    except msgspec.ValidationError as error:
        return records.gap(f"an entry cannot be read: {error}", time=now, missing=1)


def new_record(node: str, uid: str, content: RecordContent) -> RawObject:
    """Return the body of a node's new record. It has no owner reference, because it outlives the node."""
    return {
        "apiVersion": MAINTENANCE_RECORDS.api_version,
        "kind": MAINTENANCE_RECORDS.kind,
        "metadata": {"name": node, "annotations": _annotations(replace(content, node_uid=uid))},
        "total": content.total,
        "entries": content.entries,
        "droppedDigests": content.past,
    }


def append_patch(found: MaintenanceRecord, after: RecordContent) -> Patch:
    """Return the JSON patch that appends new entries, with the resourceVersion that was read as precondition."""
    kept = max(len(after.entries) - (after.total - found.total), 0)
    # `total` counts all entries ever added, so the difference is the number of new ones, whatever was dropped in front.
    removed, appended = len(found.entries) - kept, after.entries[kept:]
    operations = [
        # The API server answers 409 if another version is stored.
        patches.replace("/metadata/resourceVersion", found.resource_version),
        *(patches.remove("/entries/0") for _ in range(removed)),
        *(patches.add("/entries/-", entry) for entry in appended),
        *_digest_operations(found, after),
        patches.add("/total", after.total),
        *_metadata_operations(found, after),
    ]
    return patches.json_patch(*operations)


def rewrite_patch(found: MaintenanceRecord, after: RecordContent) -> Patch:
    """Return the patch that replaces all entries of a record with entries that cannot be decoded."""
    return patches.json_patch(
        patches.replace("/metadata/resourceVersion", found.resource_version),
        patches.add("/entries", after.entries),
        patches.add("/past", after.past),
        patches.add("/total", after.total),
        *_metadata_operations(found, after),
    )


def _digest_operations(found: MaintenanceRecord, after: RecordContent) -> Iterator[Operation]:
    """Yield the operations that update the digests of removed entries."""
    if after.past == found.dropped_digests:
        return
    removed = (
        len(found.dropped_digests)
        + (after.total - found.total)
        + len(found.entries)
        - len(after.entries)
        - len(after.past)
    )
    if not found.dropped_digests:
        yield patches.add("/past", after.past)
        return
    kept = max(len(found.dropped_digests) - removed, 0)
    yield from (patches.remove("/past/0") for _ in range(len(found.dropped_digests) - kept))
    yield from (patches.add("/past/-", digest) for digest in after.past[kept:])


def _metadata_operations(found: MaintenanceRecord, after: RecordContent) -> Iterator[Operation]:
    """Yield the operations that update last states and node in the annotations."""
    # From the end, since each removal shifts the indexes after it.
    for index in reversed(records.node_owner_indexes(found.metadata)):
        yield patches.remove(patches.pointer("metadata", "ownerReferences", index))
    known, desired = found.metadata.annotations, _annotations(after)
    # JSON patch cannot add a key to a map that does not exist (RFC 6902, section 4.1).
    if not known:
        yield patches.add(patches.pointer("metadata", "annotations"), desired)
        return
    for name, value in desired.items():
        if known.get(name) != value:
            yield patches.add(patches.pointer("metadata", "annotations", name), value)
    if NODE_DELETED_ANNOTATION in known and NODE_DELETED_ANNOTATION not in desired:
        yield patches.remove(patches.pointer("metadata", "annotations", NODE_DELETED_ANNOTATION))


def _annotations(content: RecordContent) -> dict[str, str]:
    found = {LAST_STATES_ANNOTATION: records.encode_last_states(content.last_states)}
    if content.node_uid:
        found[NODE_UID_ANNOTATION] = content.node_uid
    if content.node_deleted is not None:
        found[NODE_DELETED_ANNOTATION] = whole_seconds(content.node_deleted)
    return found


@dataclass(frozen=True, slots=True)
class RecordSummary:
    """The last states in one record, with UID and deletion time of its node."""

    node_uid: str
    last_states: Mapping[str, LastState]
    node_deleted: datetime | None = None
    is_owned: bool = False  # by the Node object, as older versions have it: garbage-collected with the node


class _Row(Base, frozen=True):
    object: Object = Object()


class _Table(Base, frozen=True):
    rows: tuple[_Row, ...] | None = None
    metadata: ListMeta = ListMeta()


async def list_summaries(client: Client) -> dict[str, RecordSummary]:
    """Return the summaries by node. Raise `NotFound` if the CRD is missing."""
    doing = f"listing {MAINTENANCE_RECORDS}"
    query = (("limit", str(PAGE_SIZE)), ("includeObject", "Metadata"))
    summaries: dict[str, RecordSummary] = {}
    continuation: tuple[tuple[str, str], ...] = ()
    while True:
        request = Request(method="GET", path=MAINTENANCE_RECORDS.path(), query=query + continuation, accept=_TABLE)
        page = responses.decode(_Table, (await client.request(request, doing=doing)).body, doing=doing)
        for row in page.rows or ():
            metadata = row.object.metadata
            summaries[row.object.name] = RecordSummary(
                records.node_uid(metadata),
                records.decode_last_states(metadata.annotations),
                records.node_deleted(metadata),
                is_owned=bool(records.node_owner_indexes(metadata)),
            )
        if not page.metadata.continue_:
            return summaries
        continuation = (("continue", page.metadata.continue_),)
