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

from haulout.kube import shipped
from haulout.kube.objects import Base, Metadata, Object, RawObject
from haulout.kube.resources import NODES, Resource

STANDING = "haulout.dev/standing"
NODE_UID = "haulout.dev/node-uid"  # of the node that the newest entries are about
NODE_DELETED = "haulout.dev/node-deleted"  # when that node was deleted; absent while it exists
MOST_ENTRIES = 100
MOST_BYTES = 32 * 1024  # of all entries together, as JSON
MOST_PAST = 250  # digests of entries that have given way
COMPLETED = "known from the object itself: this change was not written down when it happened"
ENDED = "Ended"  # the last state of whatever holds a node for a while
ENDED_UNSEEN = "ended while the operator was away"
HISTORY, GAP = "history", "Gap"  # what a gap is about, and its result
NODE, DELETED, CREATED = "Node", "Deleted", "Created"  # what an entry about the Node object is about, and its results
_LONGEST_WHY = 500
_LONGEST_WORD = 256
_MOST_STANDING = 50


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


class Stand(Base, frozen=True):
    """Where an object stands, and since when; `sequence` is that of the entry that says so."""

    state: str
    since: datetime
    instance: str = ""
    number: int = 0
    sequence: int = 0


class Record(Object, frozen=True):
    """The history of a node."""

    total: int = 0  # entries that there have ever been
    entries: tuple[Entry, ...] = ()
    past: tuple[str, ...] = ()  # digests of entries that have given way, the newest last

    @property
    def standing(self) -> dict[str, Stand]:
        """Where each thing stands; what cannot be read counts for nothing."""
        return read_standing(self.metadata.annotations)

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
    "haulout.dev", "v1alpha1", "maintenancerecords", "MaintenanceRecord", namespaced=False, model=Record
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """An entry that is to be added, and what tells whether the one before it is missing.

    A claim says only that an object is in a state: it becomes an entry if nobody wrote that down. Where it came from is
    what the record says; `from_` is what it must have been if that says nothing.
    """

    entry: Entry
    begins_in: str = ""  # the state that an object of which nothing is known is taken to be in
    is_claim: bool = False
    born: datetime | None = None  # of the object; older versions wrote no `instance`, and then this tells them apart


@dataclass(frozen=True, slots=True)
class Content:
    """What is in a record, and what is to be."""

    entries: tuple[Entry, ...] = ()
    total: int = 0
    standing: Mapping[str, Stand] = field(default_factory=dict)
    past: tuple[str, ...] = ()
    node_uid: str = ""
    node_deleted: datetime | None = None


def content_of(record: Record) -> Content:
    """Return what a record holds."""
    return Content(record.entries, record.total, record.standing, record.past, record.node_uid, record.node_deleted)


def owner_nodes(metadata: Metadata) -> list[int]:
    """Return the places of owner references to Nodes: older versions had the record deleted with its node."""
    return [
        at
        for at, it in enumerate(metadata.owner_references)
        if (it.api_version, it.kind) == (NODES.api_version, NODES.kind)
    ]


def node_uid(metadata: Metadata) -> str:
    """Return the uid of the node that a record is about, by its annotation or, from older versions, its owner."""
    owners = [metadata.owner_references[at].uid for at in owner_nodes(metadata)]
    return metadata.annotations.get(NODE_UID) or next(iter(owners), "")


def node_deleted(metadata: Metadata) -> datetime | None:
    """Return when the node of a record was deleted; None if it was not, or if that cannot be read."""
    try:
        found = datetime.fromisoformat(metadata.annotations.get(NODE_DELETED, ""))
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo is not None else None


def with_node_deleted(content: Content, *, at: datetime, is_guess: bool = False) -> Content:
    """Return it with the entry that its node was deleted; `is_guess`: that was noticed later."""
    why = "the Node object was deleted"
    why = f"{why} while the operator was away: its time is that of the discovery" if is_guess else why
    entry = Entry(time=at, what=NODE, result=DELETED, why=why, instance=content.node_uid, reconstructed=is_guess)
    return replace(_appended(content, [entry]), node_deleted=at)


def continued(content: Content, uid: str, *, at: datetime) -> Content:
    """Return it for another node of the same name: what it holds stays, and an entry says where the new one begins.

    Where profiles and holds stood went with the old Node object. NodeMaintenances have objects of their own, which
    count their changes, and go on.
    """
    if content.node_deleted is None:
        content = with_node_deleted(content, at=at, is_guess=True)
    why = "another Node of this name was created: entries from here on are about it"
    entry = Entry(time=at, what=NODE, result=CREATED, why=why, instance=uid)
    standing = {what: it for what, it in content.standing.items() if it.number}
    return replace(_appended(content, [entry]), standing=standing, node_uid=uid, node_deleted=None)


def of_current_node(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries about the last of the nodes that had this name."""
    begins = [at for at, it in enumerate(entries) if it.what == NODE and it.result == CREATED]
    return entries[begins[-1] + 1 :] if begins else entries


def is_about_earlier_node(content: Content, uid: str) -> bool:
    """Tell whether this is the uid of a node that had the name before."""
    return uid != content.node_uid and any(it.what == NODE and it.instance == uid for it in content.entries)


def added(content: Content, notes: Iterable[Note]) -> Content:
    """Return it with these, in the order in which they come; the same value if all of them are there."""
    known = {*content.past, *map(digest, content.entries)}
    standing = dict(content.standing)
    new: list[Entry] = []
    for note in map(_fitted, notes):
        if digest(note.entry) in known:
            continue
        for entry in _additions(note, standing.get(note.entry.what)):
            if digest(entry) in known or (entry.is_gap and entry is not note.entry and _is_shown(content, new)):
                continue
            known.add(digest(entry))
            new.append(entry)
            if entry.to:
                standing[entry.what] = _stand(entry, sequence=content.total + len(new))
    if not new:
        return content
    return replace(_appended(content, new), standing=_latest(standing))


def _appended(content: Content, new: Sequence[Entry]) -> Content:
    """Return it with these entries; the oldest give way."""
    everything = (*content.entries, *new)
    kept = bounded(everything)
    past = (*content.past, *map(digest, everything[: len(everything) - len(kept)]))[-MOST_PAST:]
    return replace(content, entries=kept, total=content.total + len(new), past=past)


def _is_shown(content: Content, new: Sequence[Entry]) -> bool:
    """Tell whether a gap stands there already."""
    last = (*content.entries[-1:], *new[-1:])
    return bool(last) and last[-1].is_gap


def digest(entry: Entry) -> str:
    """Return the key of an entry in a few characters."""
    return hashlib.sha256(msgspec.json.encode(entry.key)).hexdigest()[:12]


def gap(why: str, *, time: datetime, missing: int = 0) -> Entry:
    """Return the entry that stands for those that are missing; 0: nobody knows how many."""
    return Entry(time=time, what=HISTORY, why=why, result=GAP, missing=missing)


def ended_unseen(what: str, stand: Stand, *, at: datetime) -> Entry:
    """Return that an object has ended, of whose end nobody knows more than that it is gone."""
    return Entry(
        time=at,
        what=what,
        from_=stand.state,
        to=ENDED,
        since=stand.since,
        why=ENDED_UNSEEN,
        instance=stand.instance,
        number=stand.number,
        reconstructed=True,
    )


def within(entries: Sequence[Entry], *, since: datetime | None, until: datetime | None) -> Sequence[Entry]:
    """Return entries from the first one at `since` or later to the last one before `until`, in their order.

    What lies between them by its place is among them, whatever its time says.
    """
    first = next((at for at, it in enumerate(entries) if since is None or it.time >= since), len(entries))
    last = next((at for at, it in reversed(list(enumerate(entries))) if until is None or it.time < until), -1)
    return entries[first : last + 1]


def instant(time: datetime) -> str:
    """Return an instant as texts of entries name it."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def bounded(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return as many of the newest entries as there may be."""
    kept: list[Entry] = []
    size = 0
    for entry in reversed(entries):
        size += len(msgspec.json.encode(entry)) + 1
        if kept and (len(kept) >= MOST_ENTRIES or size > MOST_BYTES):
            break
        kept.append(entry)
    return tuple(reversed(kept))


def read_standing(annotations: Mapping[str, str]) -> dict[str, Stand]:
    """Return where each thing stands, by the annotations of a record."""
    try:
        return msgspec.json.decode(annotations.get(STANDING, "{}"), type=dict[str, Stand])
    except (msgspec.ValidationError, msgspec.DecodeError):
        return {}


def write_standing(standing: Mapping[str, Stand]) -> str:
    """Return the annotation that says this."""
    return msgspec.json.encode(dict(standing), order="sorted").decode()


def is_told(note: Note, standing: Mapping[str, Stand]) -> bool:
    """Tell whether what a claim says is written down already, by where its object stands."""
    return _is_told(note, standing.get(note.entry.what))


def definition() -> RawObject:
    """Return the CustomResourceDefinition."""
    return shipped.definition(__package__, "maintenancerecords.yaml")


def cut(text: str, longest: int) -> str:
    """Return a text as one line that is not too long."""
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _additions(note: Note, stand: Stand | None) -> Iterable[Entry]:
    """Yield what a note adds to what is known: what is missing before it, if anything is, and itself."""
    if not note.entry.to:
        yield note.entry
    elif stand is not None and _leads_to(note.entry, stand):
        return  # the entry itself may have given way to newer ones
    elif not note.is_claim:
        yield from _of_move(note, stand)
    elif not _is_told(note, stand):
        yield from _of_claim(note, stand)


def _of_move(note: Note, stand: Stand | None) -> Iterable[Entry]:
    entry = note.entry
    before = stand.state if stand else note.begins_in
    if entry.since is not None and before != entry.from_:
        yield _completing(entry, before, at=entry.since)
    elif entry.since is not None and stand is not None and before != note.begins_in and stand.since != entry.since:
        yield _lost_changes(entry, stand, at=entry.since)
    yield entry


def _is_told(note: Note, stand: Stand | None) -> bool:
    entry = note.entry
    if stand is None:
        return entry.to == note.begins_in
    if not _is_same(note, stand):
        return False
    if stand.state == entry.to == ENDED:
        return True
    if entry.number and stand.number:
        return entry.number < stand.number or (entry.number == stand.number and stand.state in (entry.to, ENDED))
    if entry.instance:
        return stand.state in (entry.to, ENDED)
    # Of what has no number and begins anew (a profile that is attached again), the same state is told.
    return stand.state == entry.to and (entry.to in (note.begins_in, ENDED) or stand.since == entry.time)


def _of_claim(note: Note, stand: Stand | None) -> Iterable[Entry]:
    entry = note.entry
    if stand is not None and _is_same(note, stand):
        yield from _following(entry, stand)
        return
    if stand is not None and stand.state != ENDED:
        yield ended_unseen(entry.what, stand, at=note.born or entry.time)
    if note.born is not None and entry.from_ not in ("", note.begins_in):
        yield _completing(entry, note.begins_in, at=note.born)
        yield msgspec.structs.replace(entry, since=note.born)
    else:
        yield msgspec.structs.replace(entry, from_=note.begins_in)


def _following(entry: Entry, stand: Stand) -> Iterable[Entry]:
    if stand.state == ENDED and entry.instance:  # it names this node once more
        yield msgspec.structs.replace(entry, from_="")
        return
    if stand.state == entry.to:
        yield _lost_changes(entry, stand, at=entry.time)
        yield msgspec.structs.replace(entry, from_="", since=None)
        return
    if (skipped := entry.number - stand.number - 1) > 0 and stand.number:
        yield _lost_changes(entry, stand, at=entry.time, missing=skipped)
    yield msgspec.structs.replace(entry, from_=stand.state, since=stand.since)


def _is_same(note: Note, stand: Stand) -> bool:
    """Tell whether it is the same object that stands there, and not one that had its name before."""
    instance = note.entry.instance
    if instance and stand.instance:
        return instance == stand.instance
    # An older version wrote no instance: only then an instant decides.
    return not instance or note.born is None or stand.since >= note.born


def _leads_to(entry: Entry, stand: Stand) -> bool:
    recorded = (entry.to, entry.time, entry.instance, entry.number)
    return recorded == (stand.state, stand.since, stand.instance, stand.number)


def _stand(entry: Entry, *, sequence: int) -> Stand:
    return Stand(state=entry.to, since=entry.time, instance=entry.instance, number=entry.number, sequence=sequence)


def _completing(entry: Entry, before: str, *, at: datetime) -> Entry:
    """Return the entry that must have been there before this one."""
    return Entry(
        time=at,
        what=entry.what,
        by=entry.by,
        from_=before,
        to=entry.from_,
        why=COMPLETED,
        instance=entry.instance,
        reconstructed=True,
    )


def _lost_changes(entry: Entry, stand: Stand, *, at: datetime, missing: int = 0) -> Entry:
    """Return the gap between where an object stands by the record and where an entry begins."""
    changes = f"{missing} changes" if missing > 1 else "one change" if missing else "changes"
    are = "is" if missing == 1 else "are"
    between = f"between {instant(stand.since)} and {instant(at)}"
    return gap(f"{changes} of {entry.what} {are} missing {between}", time=at, missing=missing)


def _fitted(note: Note) -> Note:
    """Return a note whose texts fit into a record, whoever wrote them."""
    entry = note.entry
    words = {
        name: cut(getattr(entry, name), _LONGEST_WORD) for name in ("what", "by", "from_", "to", "result", "instance")
    }
    drain = entry.drain
    if drain is not None:
        drain = msgspec.structs.replace(drain, blocked_by=cut(drain.blocked_by, _LONGEST_WORD))
    fitted = msgspec.structs.replace(entry, why=cut(entry.why, _LONGEST_WHY), drain=drain, **words)
    return replace(note, entry=fitted)


def _latest(standing: Mapping[str, Stand]) -> dict[str, Stand]:
    """Return where the objects stand that something happened to last; those that have not ended outlive the others."""
    kept = sorted(standing.items(), key=lambda item: (item[1].state != ENDED, item[1].sequence))[-_MOST_STANDING:]
    return dict(kept)
