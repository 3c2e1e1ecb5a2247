"""MaintenanceRecords as API objects: create, patch, and decode even if they were edited by hand."""

from collections.abc import Iterator
from dataclasses import replace
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
    MaintenanceRecord,
    RecordContent,
)
from haulout.api.objects import Object, RawObject
from haulout.core.timestamps import whole_seconds
from haulout.kube import patches
from haulout.kube.patches import Operation, Patch


class UntypedRecord(Object, frozen=True):
    """A record with content that does not decode."""

    total: Any = 0
    entries: Any = ()
    past: Any = ()


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
        "past": content.past,
    }


def append_patch(found: MaintenanceRecord, after: RecordContent) -> Patch:
    """Return the JSON patch that appends new entries, with the resourceVersion that was read as precondition."""
    kept = max(len(after.entries) - (after.total - found.total), 0)
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
    if after.past == found.past:
        return
    removed = len(found.past) + (after.total - found.total) + len(found.entries) - len(after.entries) - len(after.past)
    if not found.past:
        yield patches.add("/past", after.past)
        return
    kept = max(len(found.past) - removed, 0)
    yield from (patches.remove("/past/0") for _ in range(len(found.past) - kept))
    yield from (patches.add("/past/-", digest) for digest in after.past[kept:])


def _metadata_operations(found: MaintenanceRecord, after: RecordContent) -> Iterator[Operation]:
    """Yield the operations that update last states and node in the annotations."""
    for index in reversed(records.node_owner_indexes(found.metadata)):
        yield patches.remove(patches.pointer("metadata", "ownerReferences", index))
    known, desired = found.metadata.annotations, _annotations(after)
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
