"""The MaintenanceRecord resource: one for each node, named like it, with what happened to it; values, nothing else.

    content = added(content, [Note(entry=Entry(time=now, what="profile/os", from_="operational", to="in-maintenance"))])

**Order.** Entries are in the order in which they were appended: the place of an entry is its sequence number, and
`total` is that of the last. The wall time of an entry is information for people. Nothing is ordered, kept or dropped
by it, because the clocks of replicas differ and are set.

**Identity.** An entry is known by the object that it comes from (`what`, `instance`) and by what that object says of
itself: the number of the transition, or the state and the recorded instant of it. A repeated one is the same entry. The
record remembers digests of entries that have given way to newer ones, so that these are known for longer.

**Nothing is left out.** The entries of one object are a chain: each begins where the one before it led, and says since
when. So whoever adds one sees whether the one before it is missing, because its writer died right after the change
itself, and adds that, too. What cannot be told any more is an entry of its own, a gap. Where each object stands is in
an annotation of the record: it outlives old entries, and a list of all records can be had without them.

**The node.** A record outlives its node, for as long as `haulout.history.retention` keeps it. Annotations name the uid
of the node and when it was deleted: they are in every list of metadata, and a definition of an older version keeps
them. A node of the same name with another uid continues the record, after an entry that says so.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import msgspec

from haulout.api import crds
from haulout.api.objects import Base, Object, ObjectMeta, RawObject
from haulout.api.resources import NODES, Resource

LAST_STATES_ANNOTATION = "haulout.dev/standing"
NODE_UID_ANNOTATION = "haulout.dev/node-uid"  # of the node that the newest entries are about
NODE_DELETED_ANNOTATION = "haulout.dev/node-deleted"  # when that node was deleted; absent while it exists
MAX_ENTRIES = 100
MAX_BYTES = 32 * 1024  # of all entries together, as JSON
MAX_DIGESTS = 250  # digests of entries that have given way
RECONSTRUCTED_REASON = "known from the object itself: this change was not written down when it happened"
ENDED = "Ended"  # the last state of whatever holds a node for a while
ENDED_UNOBSERVED_REASON = "ended while the operator was away"
HISTORY, GAP = "history", "Gap"  # what a gap is about, and its result
NODE, DELETED, CREATED = "Node", "Deleted", "Created"  # what an entry about the Node object is about, and its results
_MAX_REASON_LENGTH = 500
_MAX_FIELD_LENGTH = 256
_MAX_LAST_STATES = 50


class DrainFacts(Base, frozen=True, omit_defaults=False):
    """What a drain took, in numbers: what later drains are estimated from."""

    seconds: float
    pods: int  # that left
    blocked_by: str = ""  # what stood in the way longest
    blocked_seconds: float = 0


class Entry(Base, frozen=True):
    """One thing that happened. One with `to` is a change of state; one without, something in between, or a gap."""

    time: datetime
    what: str  # what it is about, as marks on nodes name it: `profile/os`, `NodeMaintenance/patch-n1`
    by: str = ""  # who ordered it, as far as anybody knows
    from_: str = msgspec.field(name="from", default="")
    to: str = ""
    since: datetime | None = None  # when it came to where it begins
    why: str = ""
    result: str = ""
    drain: DrainFacts | None = None
    instance: str = ""  # which object of that name: its uid, or the instant that its mark on the node names
    number: int = 0  # of the transition, as the object counts them; 0 if it does not
    reconstructed: bool = False  # learned from the object afterwards
    missing: int = 0  # of a gap: how many entries are missing at least

    @property
    def key(self) -> tuple[str, ...]:
        """What makes it the same entry: the object, and what the object itself says about the change."""
        if not self.to:
            return self.what, self.time.isoformat(), self.result, str(self.missing)
        recorded = f"#{self.number}" if self.number else self.time.isoformat()
        return self.what, self.instance, self.to, recorded

    @property
    def is_gap(self) -> bool:
        """Tell whether it stands for entries that are missing."""
        return self.what == HISTORY and self.result == GAP


class LastState(Base, frozen=True):
    """Where an object stands, and since when; `sequence` is that of the entry that says so."""

    state: str
    since: datetime
    instance: str = ""
    number: int = 0
    sequence: int = 0


class MaintenanceRecord(Object, frozen=True):
    """The history of a node."""

    total: int = 0  # entries that there have ever been
    entries: tuple[Entry, ...] = ()
    past: tuple[str, ...] = ()  # digests of entries that have given way, the newest last

    @property
    def last_states(self) -> dict[str, LastState]:
        """Where each thing stands; what cannot be read counts for nothing."""
        return decode_last_states(self.metadata.annotations)

    @property
    def node_uid(self) -> str:
        """The uid of the node that the newest entries are about; empty if nothing says it."""
        return node_uid(self.metadata)

    @property
    def node_deleted(self) -> datetime | None:
        """When that node was deleted; None while it exists, as far as anybody wrote down."""
        return node_deleted(self.metadata)

    def is_about(self, uid: str) -> bool:
        """Tell whether its newest entries are about the node with this uid."""
        return self.node_uid in ("", uid)


MAINTENANCE_RECORDS = Resource(
    "haulout.dev", "v1alpha1", "maintenancerecords", "MaintenanceRecord", namespaced=False, model=MaintenanceRecord
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An entry that is to be added, and what tells whether the one before it is missing.

    A claim says only that an object is in a state: it becomes an entry if nobody wrote that down. Where it came from is
    what the record says; `from_` is what it must have been if that says nothing.
    """

    entry: Entry
    initial_state: str = ""  # the state that an object of which nothing is known is taken to be in
    is_state_claim: bool = False
    created_at: datetime | None = (
        None  # of the object; older versions wrote no `instance`, and then this tells them apart
    )


@dataclass(frozen=True, slots=True)
class RecordContent:
    """What is in a record, and what is to be."""

    entries: tuple[Entry, ...] = ()
    total: int = 0
    last_states: Mapping[str, LastState] = field(default_factory=dict)
    past: tuple[str, ...] = ()
    node_uid: str = ""
    node_deleted: datetime | None = None


def content_of(record: MaintenanceRecord) -> RecordContent:
    """Return what a record holds."""
    return RecordContent(
        record.entries, record.total, record.last_states, record.past, record.node_uid, record.node_deleted
    )


def node_owner_indexes(metadata: ObjectMeta) -> list[int]:
    """Return the places of owner references to Nodes: older versions had the record deleted with its node."""
    return [
        index
        for index, owner in enumerate(metadata.owner_references)
        if (owner.api_version, owner.kind) == (NODES.api_version, NODES.kind)
    ]


def node_uid(metadata: ObjectMeta) -> str:
    """Return the uid of the node that a record is about, by its annotation or, from older versions, its owner."""
    owners = [metadata.owner_references[index].uid for index in node_owner_indexes(metadata)]
    return metadata.annotations.get(NODE_UID_ANNOTATION) or next(iter(owners), "")


def node_deleted(metadata: ObjectMeta) -> datetime | None:
    """Return when the node of a record was deleted; None if it was not, or if that cannot be read."""
    try:
        found = datetime.fromisoformat(metadata.annotations.get(NODE_DELETED_ANNOTATION, ""))
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo is not None else None


def with_node_deleted(content: RecordContent, *, at: datetime, is_guess: bool = False) -> RecordContent:
    """Return it with the entry that its node was deleted; `is_guess`: that was noticed later."""
    why = "the Node object was deleted"
    why = f"{why} while the operator was away: its time is that of the discovery" if is_guess else why
    entry = Entry(time=at, what=NODE, result=DELETED, why=why, instance=content.node_uid, reconstructed=is_guess)
    return replace(_append(content, [entry]), node_deleted=at)


def continue_for_new_node(content: RecordContent, uid: str, *, at: datetime) -> RecordContent:
    """Return it for another node of the same name: what it holds stays, and an entry says where the new one begins.

    Where profiles and holds stood went with the old Node object. NodeMaintenances have objects of their own, which
    count their changes, and go on.
    """
    if content.node_deleted is None:
        content = with_node_deleted(content, at=at, is_guess=True)
    why = "another Node of this name was created: entries from here on are about it"
    entry = Entry(time=at, what=NODE, result=CREATED, why=why, instance=uid)
    last_states = {what: last_state for what, last_state in content.last_states.items() if last_state.number}
    return replace(_append(content, [entry]), last_states=last_states, node_uid=uid, node_deleted=None)


def entries_of_current_node(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries about the last of the nodes that had this name."""
    begins = [index for index, entry in enumerate(entries) if entry.what == NODE and entry.result == CREATED]
    return entries[begins[-1] + 1 :] if begins else entries


def is_uid_of_earlier_node(content: RecordContent, uid: str) -> bool:
    """Tell whether this is the uid of a node that had the name before."""
    return uid != content.node_uid and any(entry.what == NODE and entry.instance == uid for entry in content.entries)


def add_entries(content: RecordContent, new_entries: Iterable[NewEntry]) -> RecordContent:
    """Return it with these, in the order in which they come; the same value if all of them are there."""
    known = {*content.past, *map(digest, content.entries)}
    last_states = dict(content.last_states)
    new: list[Entry] = []
    for new_entry in map(_truncated, new_entries):
        if digest(new_entry.entry) in known:
            continue
        for entry in _entries_to_add(new_entry, last_states.get(new_entry.entry.what)):
            if digest(entry) in known or (
                entry.is_gap and entry is not new_entry.entry and _ends_with_gap(content, new)
            ):
                continue
            known.add(digest(entry))
            new.append(entry)
            if entry.to:
                last_states[entry.what] = _last_state(entry, sequence=content.total + len(new))
    if not new:
        return content
    return replace(_append(content, new), last_states=_latest_states(last_states))


def _append(content: RecordContent, new: Sequence[Entry]) -> RecordContent:
    """Return it with these entries; the oldest give way."""
    everything = (*content.entries, *new)
    kept = newest_entries(everything)
    past = (*content.past, *map(digest, everything[: len(everything) - len(kept)]))[-MAX_DIGESTS:]
    return replace(content, entries=kept, total=content.total + len(new), past=past)


def _ends_with_gap(content: RecordContent, new: Sequence[Entry]) -> bool:
    """Tell whether a gap stands there already."""
    last = (*content.entries[-1:], *new[-1:])
    return bool(last) and last[-1].is_gap


def digest(entry: Entry) -> str:
    """Return the key of an entry in a few characters."""
    return hashlib.sha256(msgspec.json.encode(entry.key)).hexdigest()[:12]


def gap(why: str, *, time: datetime, missing: int = 0) -> Entry:
    """Return the entry that stands for those that are missing; 0: nobody knows how many."""
    return Entry(time=time, what=HISTORY, why=why, result=GAP, missing=missing)


def ended_unobserved(what: str, last_state: LastState, *, at: datetime) -> Entry:
    """Return that an object has ended, of whose end nobody knows more than that it is gone."""
    return Entry(
        time=at,
        what=what,
        from_=last_state.state,
        to=ENDED,
        since=last_state.since,
        why=ENDED_UNOBSERVED_REASON,
        instance=last_state.instance,
        number=last_state.number,
        reconstructed=True,
    )


def entries_between(entries: Sequence[Entry], *, since: datetime | None, until: datetime | None) -> Sequence[Entry]:
    """Return entries from the first one at `since` or later to the last one before `until`, in their order.

    What lies between them by its place is among them, whatever its time says.
    """
    first = next((index for index, entry in enumerate(entries) if since is None or entry.time >= since), len(entries))
    last = next(
        (index for index, entry in reversed(list(enumerate(entries))) if until is None or entry.time < until), -1
    )
    return entries[first : last + 1]


def format_instant(time: datetime) -> str:
    """Return an instant as texts of entries name it."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def newest_entries(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return as many of the newest entries as there may be."""
    kept: list[Entry] = []
    size = 0
    for entry in reversed(entries):
        size += len(msgspec.json.encode(entry)) + 1
        if kept and (len(kept) >= MAX_ENTRIES or size > MAX_BYTES):
            break
        kept.append(entry)
    return tuple(reversed(kept))


def decode_last_states(annotations: Mapping[str, str]) -> dict[str, LastState]:
    """Return where each thing stands, by the annotations of a record."""
    try:
        return msgspec.json.decode(annotations.get(LAST_STATES_ANNOTATION, "{}"), type=dict[str, LastState])
    except (msgspec.ValidationError, msgspec.DecodeError):
        return {}


def encode_last_states(last_states: Mapping[str, LastState]) -> str:
    """Return the annotation that says this."""
    return msgspec.json.encode(dict(last_states), order="sorted").decode()


def is_recorded(new_entry: NewEntry, last_states: Mapping[str, LastState]) -> bool:
    """Tell whether what a claim says is written down already, by where its object stands."""
    return _is_state_recorded(new_entry, last_states.get(new_entry.entry.what))


def custom_resource_definition() -> RawObject:
    """Return the CustomResourceDefinition."""
    return crds.load_crd(__package__, "maintenancerecords.yaml")


def truncate(text: str, max_length: int) -> str:
    """Return a text as one line that is not too long."""
    line = " ".join(text[: 4 * max_length].split())
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"


def _entries_to_add(new_entry: NewEntry, last_state: LastState | None) -> Iterable[Entry]:
    """Yield what a note adds to what is known: what is missing before it, if anything is, and itself."""
    if not new_entry.entry.to:
        yield new_entry.entry
    elif last_state is not None and _is_last_change(new_entry.entry, last_state):
        return  # the entry itself may have given way to newer ones
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
    # Of what has no number and begins anew (a profile that is attached again), the same state is told.
    return last_state.state == entry.to and (
        entry.to in (new_entry.initial_state, ENDED) or last_state.since == entry.time
    )


def _entries_of_claim(new_entry: NewEntry, last_state: LastState | None) -> Iterable[Entry]:
    entry = new_entry.entry
    if last_state is not None and _is_same_object(new_entry, last_state):
        yield from _entries_after(entry, last_state)
        return
    if last_state is not None and last_state.state != ENDED:
        yield ended_unobserved(entry.what, last_state, at=new_entry.created_at or entry.time)
    if new_entry.created_at is not None and entry.from_ not in ("", new_entry.initial_state):
        yield _reconstructed(entry, new_entry.initial_state, at=new_entry.created_at)
        yield msgspec.structs.replace(entry, since=new_entry.created_at)
    else:
        yield msgspec.structs.replace(entry, from_=new_entry.initial_state)


def _entries_after(entry: Entry, last_state: LastState) -> Iterable[Entry]:
    if last_state.state == ENDED and entry.instance:  # it names this node once more
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
    """Tell whether it is the same object that stands there, and not one that had its name before."""
    instance = new_entry.entry.instance
    if instance and last_state.instance:
        return instance == last_state.instance
    # An older version wrote no instance: only then an instant decides.
    return not instance or new_entry.created_at is None or last_state.since >= new_entry.created_at


def _is_last_change(entry: Entry, last_state: LastState) -> bool:
    recorded = (entry.to, entry.time, entry.instance, entry.number)
    return recorded == (last_state.state, last_state.since, last_state.instance, last_state.number)


def _last_state(entry: Entry, *, sequence: int) -> LastState:
    return LastState(state=entry.to, since=entry.time, instance=entry.instance, number=entry.number, sequence=sequence)


def _reconstructed(entry: Entry, before: str, *, at: datetime) -> Entry:
    """Return the entry that must have been there before this one."""
    return Entry(
        time=at,
        what=entry.what,
        by=entry.by,
        from_=before,
        to=entry.from_,
        why=RECONSTRUCTED_REASON,
        instance=entry.instance,
        reconstructed=True,
    )


def _gap_of_changes(entry: Entry, last_state: LastState, *, at: datetime, missing: int = 0) -> Entry:
    """Return the gap between where an object stands by the record and where an entry begins."""
    changes = f"{missing} changes" if missing > 1 else "one change" if missing else "changes"
    are = "is" if missing == 1 else "are"
    between = f"between {format_instant(last_state.since)} and {format_instant(at)}"
    return gap(f"{changes} of {entry.what} {are} missing {between}", time=at, missing=missing)


def _truncated(new_entry: NewEntry) -> NewEntry:
    """Return a note whose texts fit into a record, whoever wrote them."""
    entry = new_entry.entry
    words = {
        name: truncate(getattr(entry, name), _MAX_FIELD_LENGTH)
        for name in ("what", "by", "from_", "to", "result", "instance")
    }
    drain = entry.drain
    if drain is not None:
        drain = msgspec.structs.replace(drain, blocked_by=truncate(drain.blocked_by, _MAX_FIELD_LENGTH))
    truncated = msgspec.structs.replace(entry, why=truncate(entry.why, _MAX_REASON_LENGTH), drain=drain, **words)
    return replace(new_entry, entry=truncated)


def _latest_states(last_states: Mapping[str, LastState]) -> dict[str, LastState]:
    """Return where the objects stand that something happened to last; those that have not ended outlive the others."""
    kept = sorted(last_states.items(), key=lambda item: (item[1].state != ENDED, item[1].sequence))[-_MAX_LAST_STATES:]
    return dict(kept)
