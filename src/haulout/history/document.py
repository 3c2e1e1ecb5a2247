"""A MaintenanceRecord as the server has it: how it is created, patched, and read if somebody has edited it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from haulout.history import record as records
from haulout.history.record import MAINTENANCE_RECORDS, NODE_DELETED, NODE_UID, STANDING, Content, Entry, Record
from haulout.kube import patches
from haulout.kube.objects import Object, RawObject
from haulout.kube.patches import Operation, Patch
from haulout.kube.timestamps import whole_seconds


class Stored(Object, frozen=True):
    """A record of which somebody wrote something that we do not understand."""

    total: Any = 0
    entries: Any = ()
    past: Any = ()


def readable(stored: Stored, *, now: datetime) -> Record:
    """Return a record with a gap in place of each entry that cannot be read."""
    found = stored.entries if isinstance(stored.entries, list) else []
    entries = tuple(_read(it, now) for it in found)
    total = stored.total if isinstance(stored.total, int) else 0
    return Record(metadata=stored.metadata, total=max(total, len(entries)), entries=entries)


def _read(raw: Any, now: datetime) -> Entry:
    try:
        return msgspec.convert(raw, Entry)
    except msgspec.ValidationError as error:
        return records.gap(f"an entry cannot be read: {error}", time=now, missing=1)


def new(node: str, uid: str, content: Content) -> RawObject:
    """Return the record of a node as it is made. It has no owner: it outlives the node."""
    return {
        "apiVersion": MAINTENANCE_RECORDS.api_version,
        "kind": MAINTENANCE_RECORDS.kind,
        "metadata": {"name": node, "annotations": _annotations(replace(content, node_uid=uid))},
        "total": content.total,
        "entries": content.entries,
        "past": content.past,
    }


def change(found: Record, after: Content) -> Patch:
    """Return the patch that makes this of a record, and of nothing else than it was: only what is new is sent."""
    kept = max(len(after.entries) - (after.total - found.total), 0)
    gone, fresh = len(found.entries) - kept, after.entries[kept:]
    operations = [
        patches.replace("/metadata/resourceVersion", found.resource_version),  # another is a conflict
        *(patches.remove("/entries/0") for _ in range(gone)),
        *(patches.add("/entries/-", it) for it in fresh),
        *_forget(found, after),
        patches.add("/total", after.total),
        *_describe(found, after),
    ]
    return patches.json_patch(*operations)


def rewritten(found: Record, after: Content) -> Patch:
    """Return the patch that replaces all entries of a record of which some cannot be read."""
    return patches.json_patch(
        patches.replace("/metadata/resourceVersion", found.resource_version),
        patches.add("/entries", after.entries),
        patches.add("/past", after.past),
        patches.add("/total", after.total),
        *_describe(found, after),
    )


def _forget(found: Record, after: Content) -> Iterator[Operation]:
    """Yield what makes the digests of entries that have given way those that they are to be."""
    if after.past == found.past:
        return
    gone = len(found.past) + (after.total - found.total) + len(found.entries) - len(after.entries) - len(after.past)
    if not found.past:
        yield patches.add("/past", after.past)
        return
    kept = max(len(found.past) - gone, 0)
    yield from (patches.remove("/past/0") for _ in range(len(found.past) - kept))
    yield from (patches.add("/past/-", it) for it in after.past[kept:])


def _describe(found: Record, after: Content) -> Iterator[Operation]:
    """Yield what makes the metadata say where things stand, and which node the record is about."""
    for at in reversed(records.owner_nodes(found.metadata)):
        yield patches.remove(patches.pointer("metadata", "ownerReferences", at))
    known, wanted = found.metadata.annotations, _annotations(after)
    if not known:
        yield patches.add(patches.pointer("metadata", "annotations"), wanted)
        return
    for name, value in wanted.items():
        if known.get(name) != value:
            yield patches.add(patches.pointer("metadata", "annotations", name), value)
    if NODE_DELETED in known and NODE_DELETED not in wanted:
        yield patches.remove(patches.pointer("metadata", "annotations", NODE_DELETED))


def _annotations(content: Content) -> dict[str, str]:
    found = {STANDING: records.write_standing(content.standing)}
    if content.node_uid:
        found[NODE_UID] = content.node_uid
    if content.node_deleted is not None:
        found[NODE_DELETED] = whole_seconds(content.node_deleted)
    return found
