"""The MaintenanceRecord resource: one for each node, named like it, with what happened to it; values, nothing else.

    content = added(content, [Note(entry=Entry(time=now, what="profile/os", from_="operational", to="in-maintenance"))])

An entry is known by what it is about, when it was and where it led: a repeated one is the same entry. The oldest go
first, when there are too many or they are too long together.

**Nothing is left out.** The entries of one thing (a profile, a NodeMaintenance) are a chain: each begins where the one
before it led. An entry also says since when its thing was where it begins. So whoever adds one sees whether the one
before it is missing, because its writer died right after the change itself, and adds that, too. Where each thing stands
is in an annotation of the record: it outlives old entries, and a list of all records can be had without them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from haulout.kube import shipped
from haulout.kube.objects import Base, Object, RawObject
from haulout.kube.resources import Resource

STANDING = "haulout.dev/standing"
MOST_ENTRIES = 100
MOST_BYTES = 32 * 1024  # of all entries together, as JSON
COMPLETED = "known from the object itself: this change was not written down when it happened"
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
    """One thing that happened. One with `to` is a change of state; one without, something in between."""

    time: datetime
    what: str  # what it is about, as marks on nodes name it: `profile/os`, `NodeMaintenance/patch-n1`
    by: str = ""  # who ordered it, as far as anybody knows
    from_: str = msgspec.field(name="from", default="")
    to: str = ""
    since: datetime | None = None  # when it came to where it begins
    why: str = ""
    result: str = ""
    drain: DrainFacts | None = None

    @property
    def key(self) -> tuple[str, datetime, str, str]:
        """What makes it the same entry."""
        return self.what, self.time, self.to, self.result


class Stand(Base, frozen=True):
    """Where a thing stands, and since when."""

    state: str
    since: datetime


class Record(Object, frozen=True):
    """The history of a node."""

    total: int = 0  # entries that there have ever been
    entries: tuple[Entry, ...] = ()

    @property
    def standing(self) -> dict[str, Stand]:
        """Where each thing stands; what cannot be read counts for nothing."""
        return read_standing(self.metadata.annotations)

    def is_about(self, uid: str) -> bool:
        """Tell whether it is the history of the node with this uid."""
        return any(it.uid == uid for it in self.metadata.owner_references)


MAINTENANCE_RECORDS = Resource(
    "haulout.dev", "v1alpha1", "maintenancerecords", "MaintenanceRecord", namespaced=False, model=Record
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """An entry that is to be added, and what tells whether the one before it is missing.

    A claim says only that a thing has been in a state since then: it becomes an entry if nobody wrote that down. Where
    it came from is what the record says; `from_` is what it must have been if that says nothing.
    """

    entry: Entry
    begins_in: str = ""  # the state that a thing of which nothing is known is taken to be in
    is_claim: bool = False
    born: datetime | None = None  # what is known from before that is about another thing of the same name


@dataclass(frozen=True, slots=True)
class Content:
    """What is in a record, and what is to be."""

    entries: tuple[Entry, ...] = ()
    total: int = 0
    standing: Mapping[str, Stand] = field(default_factory=dict)


def content_of(record: Record) -> Content:
    """Return what a record holds."""
    return Content(record.entries, record.total, record.standing)


def added(content: Content, notes: Iterable[Note]) -> Content:
    """Return it with these, in the order in which they happened; the same value if all of them are there."""
    known = {it.key for it in content.entries}
    standing = dict(content.standing)
    new: list[Entry] = []
    for note in notes:
        for entry in _missing(_fitted(note), standing):
            if entry.key in known:
                continue
            known.add(entry.key)
            new.append(entry)
            if entry.to:
                standing[entry.what] = Stand(state=entry.to, since=entry.time)
    if not new:
        return content
    return Content(bounded((*content.entries, *new)), content.total + len(new), _latest(standing))


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
    """Tell whether what a claim says is written down already."""
    stand = _own(note, standing)
    if stand is not None and note.entry.time < stand.since:
        return True
    return (stand.state if stand else note.begins_in) == note.entry.to


def definition() -> RawObject:
    """Return the CustomResourceDefinition."""
    return shipped.definition(__package__, "maintenancerecords.yaml")


def cut(text: str, longest: int) -> str:
    """Return a text as one line that is not too long."""
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _missing(note: Note, standing: Mapping[str, Stand]) -> Iterable[Entry]:
    """Yield what a note adds to what is known: the change before it, if nobody wrote that down, and itself."""
    entry, stand = note.entry, standing.get(note.entry.what)
    if not entry.to:
        yield entry
        return
    if stand is not None and _is_before(entry, stand):
        return  # it is known, though it may have given way to newer ones since
    if note.is_claim:
        yield from _of_claim(note, standing)
        return
    before = stand.state if stand else note.begins_in
    if entry.since is not None and before != entry.from_ and (stand is None or stand.since <= entry.since):
        yield _completing(entry, before, at=entry.since)
    yield entry


def _is_before(entry: Entry, stand: Stand) -> bool:
    """Tell whether an entry led to where a thing stands, or to where it was earlier; clocks may have been set."""
    follows = (entry.from_, entry.since) == (stand.state, stand.since)
    return not follows and (entry.time < stand.since or (entry.time, entry.to) == (stand.since, stand.state))


def _of_claim(note: Note, standing: Mapping[str, Stand]) -> Iterable[Entry]:
    entry, stand = note.entry, _own(note, standing)
    if is_told(note, standing):
        return
    if stand is not None:
        yield msgspec.structs.replace(entry, from_=stand.state, since=stand.since)
    elif note.born is not None and entry.from_ not in ("", note.begins_in):
        yield _completing(entry, note.begins_in, at=note.born)
        yield msgspec.structs.replace(entry, since=note.born)
    else:
        yield msgspec.structs.replace(entry, from_=note.begins_in)


def _own(note: Note, standing: Mapping[str, Stand]) -> Stand | None:
    """Return where the thing itself stands, and not one that had its name before."""
    stand = standing.get(note.entry.what)
    return None if stand is None or (note.born is not None and stand.since < note.born) else stand


def _completing(entry: Entry, before: str, *, at: datetime) -> Entry:
    """Return the entry that must have been there before this one."""
    return Entry(time=at, what=entry.what, by=entry.by, from_=before, to=entry.from_, why=COMPLETED)


def _fitted(note: Note) -> Note:
    """Return a note whose texts fit into a record, whoever wrote them."""
    entry = note.entry
    words = {name: cut(getattr(entry, name), _LONGEST_WORD) for name in ("what", "by", "from_", "to", "result")}
    drain = entry.drain
    if drain is not None:
        drain = msgspec.structs.replace(drain, blocked_by=cut(drain.blocked_by, _LONGEST_WORD))
    fitted = msgspec.structs.replace(entry, why=cut(entry.why, _LONGEST_WHY), drain=drain, **words)
    return replace(note, entry=fitted)


def _latest(standing: Mapping[str, Stand]) -> dict[str, Stand]:
    kept = sorted(standing.items(), key=lambda item: item[1].since)[-_MOST_STANDING:]
    return dict(kept)
