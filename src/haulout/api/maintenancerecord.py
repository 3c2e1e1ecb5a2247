"""The MaintenanceRecord resource: the maintenance history of a node, with the name of the node. Values only, no I/O.

    entry = Entry(time=now, object="profile/os", from_="operational", to="in-maintenance")
    content = add_entries(content, [NewEntry(entry=entry)])

**Order.** Entries are in the order in which they were appended. The position of an entry is its sequence number, and
`total` is that of the last one. The wall time of an entry is information for people. Nothing is ordered, kept or
dropped by it, because the clocks of replicas differ and can be set.

**Identity.** An entry is identified by the object that it is about (`object`, `instance`) and by what that object says
itself: the number of the transition, or the state and its recorded instant. A repeated entry is the same entry. The
record keeps digests of entries that were dropped for newer ones, so that these are recognized for longer.

**Completeness.** The entries of one object form a chain: each begins in the state where the previous one ended, and
says since when. So a writer notices that the previous entry is missing, because its writer died right after the change
itself, and adds that entry as well. What cannot be reconstructed is recorded as an entry of its own, a gap. An
annotation of the record has the last state of each object. It outlives old entries, and a metadata-only list of all
records includes it.

**The node.** A record outlives its node for `haulout.history.retention`. Annotations contain the UID of the node and
the time of its deletion: metadata-only lists include them, and CustomResourceDefinitions of older versions preserve
them. A node with the same name and another UID continues the record, after an entry that says so.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import msgspec

from haulout.api import annotations, resources
from haulout.api.objects import Base, Object, ObjectMeta, RawObject
from haulout.api.resources import NODES, Resource
from haulout.core.text import format_time

LAST_STATES_ANNOTATION = annotations.LAST_STATES
NODE_UID_ANNOTATION = annotations.NODE_UID  # UID of the node that the newest entries are about
NODE_DELETED_ANNOTATION = annotations.NODE_DELETED  # when that node was deleted; absent while it exists
# etcd refuses objects above 1.5 MiB, but each append rewrites the whole record there: small records keep that cheap.
MAX_ENTRIES = 100
MAX_BYTES = 32 * 1024  # of all entries together, as JSON
MAX_DIGESTS = 250  # digests of dropped entries
RECONSTRUCTED_REASON = "reconstructed from the object: this change was not recorded when it happened"
ENDED = "Ended"  # the last state of an object that maintains or holds a node for some time
ENDED_UNOBSERVED_REASON = "ended while the operator was not running"
HISTORY, GAP = "history", "Gap"  # `object` and `result` of a gap
NODE, DELETED, CREATED = "Node", "Deleted", "Created"  # `object` and the results of an entry about the Node object
_MAX_REASON_LENGTH = 500
_MAX_FIELD_LENGTH = 256
_MAX_LAST_STATES = 50


class DrainFacts(Base, frozen=True, omit_defaults=False):
    """The numbers of a drain. Later drains are estimated from them."""

    seconds: float
    pods: int  # that were evicted
    blocked_by: str = ""  # the blocker that took the longest
    blocked_seconds: float = 0


class Entry(Base, frozen=True):
    """An entry of the history. With `to` it is a change of state; without, it is something in between, or a gap."""

    time: datetime
    object: str = ""  # the object, in the notation of node annotations: `profile/os`, `NodeMaintenance/patch-n1`
    requested_by: str = ""  # who requested it, as far as known
    from_: str = msgspec.field(name="from", default="")
    to: str = ""
    since: datetime | None = None  # when the state `from` began
    reason: str = ""
    result: str = ""
    drain: DrainFacts | None = None
    instance: str = ""  # the object's UID, or the instant in its annotation on the node
    number: int = 0  # of the transition, as the object counts them; 0 if it does not
    reconstructed: bool = False  # derived from the object afterwards
    missing: int = 0  # of a gap: the minimum number of missing entries

    @property
    def key(self) -> tuple[str, ...]:
        """The identity of an entry: the object, and what the object itself says about the change."""
        if not self.to:
            return self.object, self.time.isoformat(), self.result, str(self.missing)
        recorded = f"#{self.number}" if self.number else self.time.isoformat()
        return self.object, self.instance, self.to, recorded

    @property
    def is_gap(self) -> bool:
        """Return whether the entry stands for missing entries."""
        return self.object == HISTORY and self.result == GAP


class LastState(Base, frozen=True):
    """The last known state of an object. `sequence` is the number of the entry that recorded it."""

    state: str
    since: datetime
    instance: str = ""
    number: int = 0
    sequence: int = 0


class MaintenanceRecord(Object, frozen=True):
    """The maintenance history of a node. It outlives the node, whose name it has."""

    total: int = 0  # the number of entries ever added
    entries: tuple[Entry, ...] = ()
    dropped_digests: tuple[str, ...] = ()  # of entries that were dropped, the newest last

    @property
    def last_states(self) -> dict[str, LastState]:
        """The last state of each object; empty if the annotation cannot be decoded."""
        return decode_last_states(self.metadata.annotations)

    @property
    def node_uid(self) -> str:
        """The UID of the node that the newest entries are about; empty if unknown."""
        return node_uid(self.metadata)

    @property
    def node_deleted(self) -> datetime | None:
        """When that node was deleted; None if its deletion is not recorded."""
        return node_deleted(self.metadata)

    def is_about(self, uid: str) -> bool:
        """Return whether the newest entries are about the node with this UID, or about a node with unknown UID."""
        return self.node_uid in ("", uid)


MAINTENANCE_RECORDS = Resource(
    "haulout.dev", "v1alpha1", "maintenancerecords", "MaintenanceRecord", namespaced=False, model=MaintenanceRecord
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An entry to add, and what is needed to detect that the previous one is missing.

    A state claim says only that an object is in a state. It becomes an entry if that state is not recorded yet. Its
    previous state is that of the record; `from_` is used if the record has none.
    """

    entry: Entry
    initial_state: str = ""  # the assumed state of an object without entries
    is_state_claim: bool = False
    # Creation time of the object. Older versions recorded no `instance`; this time distinguishes objects then.
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RecordContent:
    """The content of a record, current or new."""

    entries: tuple[Entry, ...] = ()
    total: int = 0
    last_states: Mapping[str, LastState] = field(default_factory=dict)
    past: tuple[str, ...] = ()
    node_uid: str = ""
    node_deleted: datetime | None = None


def content_of(record: MaintenanceRecord) -> RecordContent:
    return RecordContent(
        tuple(entry for entry in record.entries if entry.object),  # others are invalid, and refused if written again
        record.total,
        record.last_states,
        record.dropped_digests,
        record.node_uid,
        record.node_deleted,
    )


def node_owner_indexes(metadata: ObjectMeta) -> list[int]:
    """Return the indexes of owner references to Nodes.

    Older versions set them, so that the garbage collector deleted the record with its node.
    """
    return [
        index
        for index, owner in enumerate(metadata.owner_references)
        if (owner.api_version, owner.kind) == (NODES.api_version, NODES.kind)
    ]


def node_uid(metadata: ObjectMeta) -> str:
    """Return the UID of a record's node.

    It is in an annotation or, in records of older versions, in an owner reference.
    """
    owners = [metadata.owner_references[index].uid for index in node_owner_indexes(metadata)]
    return metadata.annotations.get(NODE_UID_ANNOTATION) or next(iter(owners), "")


def node_deleted(metadata: ObjectMeta) -> datetime | None:
    """Return when the node of a record was deleted; None if it was not, or if the time is invalid."""
    try:
        found = datetime.fromisoformat(metadata.annotations.get(NODE_DELETED_ANNOTATION, ""))
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo is not None else None


def with_node_deleted(content: RecordContent, *, at: datetime, is_guess: bool = False) -> RecordContent:
    """Return the content with an entry for the deletion of its node.

    With `is_guess` the time is that of the discovery.
    """
    why = "the Node object was deleted"
    why = f"{why} while the operator was not running: the time is when the operator noticed" if is_guess else why
    entry = Entry(time=at, object=NODE, result=DELETED, reason=why, instance=content.node_uid, reconstructed=is_guess)
    return replace(_append(content, [entry]), node_deleted=at)


def continue_for_new_node(content: RecordContent, uid: str, *, at: datetime) -> RecordContent:
    """Return the content for a new node of the same name. Its entries stay, and a new entry marks the new node.

    The states of profiles and holds are dropped, because they ended with the old Node object. NodeMaintenances are
    objects of their own that number their changes, so their states stay.
    """
    if content.node_deleted is None:
        content = with_node_deleted(content, at=at, is_guess=True)
    why = "another Node of this name was created: later entries are about that Node"
    entry = Entry(time=at, object=NODE, result=CREATED, reason=why, instance=uid)
    last_states = {what: last_state for what, last_state in content.last_states.items() if last_state.number}
    return replace(_append(content, [entry]), last_states=last_states, node_uid=uid, node_deleted=None)


def entries_of_current_node(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries about the newest node of this name."""
    begins = [index for index, entry in enumerate(entries) if entry.object == NODE and entry.result == CREATED]
    return entries[begins[-1] + 1 :] if begins else entries


def is_uid_of_earlier_node(content: RecordContent, uid: str) -> bool:
    """Return whether this is the UID of an earlier node of the same name."""
    return uid != content.node_uid and any(entry.object == NODE and entry.instance == uid for entry in content.entries)


def add_entries(content: RecordContent, new_entries: Iterable[NewEntry]) -> RecordContent:
    """Return the content with these entries added in their order; the same object if it has all of them already."""
    # Digests of dropped entries, too: a successor repeats what its predecessor wrote, and must not bring old entries
    # back.
    known = {*content.past, *map(digest, content.entries)}
    last_states = dict(content.last_states)
    new: list[Entry] = []
    for new_entry in map(_truncated, new_entries):
        if digest(new_entry.entry) in known:
            continue
        for entry in _entries_to_add(new_entry, last_states.get(new_entry.entry.object)):
            if digest(entry) in known or (
                entry.is_gap and entry is not new_entry.entry and _ends_with_gap(content, new)
            ):
                continue
            known.add(digest(entry))
            new.append(entry)
            if entry.to:
                last_states[entry.object] = _last_state(entry, sequence=content.total + len(new))
    if not new:
        return content
    return replace(_append(content, new), last_states=_latest_states(last_states))


def _append(content: RecordContent, new: Sequence[Entry]) -> RecordContent:
    """Return the content with these entries added. Drop the oldest entries if needed."""
    everything = (*content.entries, *new)
    kept = newest_entries(everything)
    past = (*content.past, *map(digest, everything[: len(everything) - len(kept)]))[-MAX_DIGESTS:]
    return replace(content, entries=kept, total=content.total + len(new), past=past)


def _ends_with_gap(content: RecordContent, new: Sequence[Entry]) -> bool:
    last = (*content.entries[-1:], *new[-1:])
    return bool(last) and last[-1].is_gap


def digest(entry: Entry) -> str:
    """Return a short hash of the identity of an entry."""
    # 48 bits: with 350 entries and digests per record, a collision is practically impossible, and it would only hide
    # one entry.
    return hashlib.sha256(msgspec.json.encode(entry.key)).hexdigest()[:12]


def gap(why: str, *, time: datetime, missing: int = 0) -> Entry:
    """Return the entry that stands for missing entries. `missing` is 0 if their number is unknown."""
    return Entry(time=time, object=HISTORY, reason=why, result=GAP, missing=missing)


def ended_unobserved(what: str, last_state: LastState, *, at: datetime) -> Entry:
    """Return the entry for the end of an object that was not observed: the object no longer exists."""
    return Entry(
        time=at,
        object=what,
        from_=last_state.state,
        to=ENDED,
        since=last_state.since,
        reason=ENDED_UNOBSERVED_REASON,
        instance=last_state.instance,
        number=last_state.number,
        reconstructed=True,
    )


def entries_between(entries: Sequence[Entry], *, since: datetime | None, until: datetime | None) -> Sequence[Entry]:
    """Return entries from the first one at `since` or later to the last one before `until`, in their order.

    Entries between these two positions are included, whatever their time.
    """
    first = next((index for index, entry in enumerate(entries) if since is None or entry.time >= since), len(entries))
    last = next(
        (index for index, entry in reversed(list(enumerate(entries))) if until is None or entry.time < until), -1
    )
    return entries[first : last + 1]


def newest_entries(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the newest entries that fit `MAX_ENTRIES` and `MAX_BYTES`, at least one."""
    kept: list[Entry] = []
    size = 0
    for entry in reversed(entries):
        size += len(msgspec.json.encode(entry)) + 1
        # `kept`: an entry that is too large alone is better than an empty history.
        if kept and (len(kept) >= MAX_ENTRIES or size > MAX_BYTES):
            break
        kept.append(entry)
    return tuple(reversed(kept))


def decode_last_states(annotations: Mapping[str, str]) -> dict[str, LastState]:
    """Return the last state of each object from the annotations of a record; empty if they cannot be decoded."""
    try:
        return msgspec.json.decode(annotations.get(LAST_STATES_ANNOTATION, "{}"), type=dict[str, LastState])
    except (msgspec.ValidationError, msgspec.DecodeError):
        return {}


def encode_last_states(last_states: Mapping[str, LastState]) -> str:
    return msgspec.json.encode(dict(last_states), order="sorted").decode()


def is_recorded(new_entry: NewEntry, last_states: Mapping[str, LastState]) -> bool:
    """Return whether the state of a claim is recorded already."""
    return _is_state_recorded(new_entry, last_states.get(new_entry.entry.object))


def custom_resource_definition() -> RawObject:
    return resources.load_crd(__package__, "maintenancerecords.yaml")


def truncate(text: str, max_length: int) -> str:
    """Return a text as a single line of at most `max_length` characters."""
    line = " ".join(text[: 4 * max_length].split())
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"


def _entries_to_add(new_entry: NewEntry, last_state: LastState | None) -> Iterable[Entry]:
    """Yield the entries that `new_entry` adds: missing previous ones, if any, and itself."""
    if not new_entry.entry.to:
        yield new_entry.entry
    elif last_state is not None and _is_last_change(new_entry.entry, last_state):
        return  # the entry itself may have been dropped already
    elif not new_entry.is_state_claim:
        yield from _entries_of_change(new_entry, last_state)
    elif not _is_state_recorded(new_entry, last_state):
        yield from _entries_of_claim(new_entry, last_state)


def _entries_of_change(new_entry: NewEntry, last_state: LastState | None) -> Iterable[Entry]:
    entry = new_entry.entry
    before = last_state.state if last_state else new_entry.initial_state
    if entry.since is not None and before != entry.from_:
        yield _reconstructed(entry, before, at=entry.since)
    elif (
        entry.since is not None
        and last_state is not None
        and before != new_entry.initial_state
        and last_state.since != entry.since
    ):
        yield _gap_of_changes(entry, last_state, at=entry.since)
    yield entry


def _is_state_recorded(new_entry: NewEntry, last_state: LastState | None) -> bool:
    entry = new_entry.entry
    if last_state is None:
        return entry.to == new_entry.initial_state
    if not _is_same_object(new_entry, last_state):
        return False
    if last_state.state == entry.to == ENDED:
        return True
    if entry.number and last_state.number:
        return entry.number < last_state.number or (
            entry.number == last_state.number and last_state.state in (entry.to, ENDED)
        )
    if entry.instance:
        return last_state.state in (entry.to, ENDED)
    # Objects without a number that begin again (a profile that is attached again) report the same state again.
    return last_state.state == entry.to and (
        entry.to in (new_entry.initial_state, ENDED) or last_state.since == entry.time
    )


def _entries_of_claim(new_entry: NewEntry, last_state: LastState | None) -> Iterable[Entry]:
    entry = new_entry.entry
    if last_state is not None and _is_same_object(new_entry, last_state):
        yield from _entries_after(entry, last_state)
        return
    if last_state is not None and last_state.state != ENDED:
        yield ended_unobserved(entry.object, last_state, at=new_entry.created_at or entry.time)
    if new_entry.created_at is not None and entry.from_ not in ("", new_entry.initial_state):
        yield _reconstructed(entry, new_entry.initial_state, at=new_entry.created_at)
        yield msgspec.structs.replace(entry, since=new_entry.created_at)
    else:
        yield msgspec.structs.replace(entry, from_=new_entry.initial_state)


def _entries_after(entry: Entry, last_state: LastState) -> Iterable[Entry]:
    if last_state.state == ENDED and entry.instance:  # the object is about this node again
        yield msgspec.structs.replace(entry, from_="")
        return
    if last_state.state == entry.to:
        yield _gap_of_changes(entry, last_state, at=entry.time)
        yield msgspec.structs.replace(entry, from_="", since=None)
        return
    if (skipped := entry.number - last_state.number - 1) > 0 and last_state.number:
        yield _gap_of_changes(entry, last_state, at=entry.time, missing=skipped)
    yield msgspec.structs.replace(entry, from_=last_state.state, since=last_state.since)


def _is_same_object(new_entry: NewEntry, last_state: LastState) -> bool:
    """Return whether the last state is that of the same object, not of an earlier one with the same name."""
    instance = new_entry.entry.instance
    if instance and last_state.instance:
        return instance == last_state.instance
    # An older version recorded no instance: only then the times decide.
    return not instance or new_entry.created_at is None or last_state.since >= new_entry.created_at


def _is_last_change(entry: Entry, last_state: LastState) -> bool:
    recorded = (entry.to, entry.time, entry.instance, entry.number)
    return recorded == (last_state.state, last_state.since, last_state.instance, last_state.number)


def _last_state(entry: Entry, *, sequence: int) -> LastState:
    return LastState(state=entry.to, since=entry.time, instance=entry.instance, number=entry.number, sequence=sequence)


def _reconstructed(entry: Entry, before: str, *, at: datetime) -> Entry:
    """Return the entry that must have preceded this one."""
    return Entry(
        time=at,
        object=entry.object,
        requested_by=entry.requested_by,
        from_=before,
        to=entry.from_,
        reason=RECONSTRUCTED_REASON,
        instance=entry.instance,
        reconstructed=True,
    )


def _gap_of_changes(entry: Entry, last_state: LastState, *, at: datetime, missing: int = 0) -> Entry:
    """Return a gap between the last recorded state of an object and the beginning of an entry."""
    changes = f"{missing} changes" if missing > 1 else "one change" if missing else "changes"
    are = "is" if missing == 1 else "are"
    between = f"between {format_time(last_state.since)} and {format_time(at)}"
    return gap(f"{changes} of {entry.object} {are} missing {between}", time=at, missing=missing)


def _truncated(new_entry: NewEntry) -> NewEntry:
    """Return the entry with texts truncated to what fits into a record."""
    entry = new_entry.entry
    words = {
        name: truncate(getattr(entry, name), _MAX_FIELD_LENGTH)
        for name in ("object", "requested_by", "from_", "to", "result", "instance")
    }
    drain = entry.drain
    if drain is not None:
        drain = msgspec.structs.replace(drain, blocked_by=truncate(drain.blocked_by, _MAX_FIELD_LENGTH))
    truncated = msgspec.structs.replace(entry, reason=truncate(entry.reason, _MAX_REASON_LENGTH), drain=drain, **words)
    return replace(new_entry, entry=truncated)


def _latest_states(last_states: Mapping[str, LastState]) -> dict[str, LastState]:
    """Return the most recent last states. Objects that have not ended are kept longest."""
    kept = sorted(last_states.items(), key=lambda item: (item[1].state != ENDED, item[1].sequence))[-_MAX_LAST_STATES:]
    return dict(kept)
