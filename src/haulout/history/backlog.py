"""What waits to be written into the records, by node. It is bounded: what does not fit becomes a gap."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from haulout.history import record as records
from haulout.history.record import MOST_ENTRIES, Entry, Note
from haulout.kube.meters import HISTORY, Meters
from haulout.kube.objects import Node

_MOST_NODES = 10_000
_MOST_NOTES = 20_000  # of all nodes together
_COUNTED_EVERY = 500  # notes


@dataclass(slots=True)
class Waiting:
    """What waits to be written about a node, and what of it was given up before that."""

    uid: str
    notes: list[Note] = field(default_factory=list)
    lost: Note | None = None

    def all(self) -> tuple[Note, ...]:
        """Return what is to be written, in its order."""
        return tuple(self.notes) if self.lost is None else (self.lost, *self.notes)

    def done(self, written: Collection[Note]) -> None:
        """Forget what is written; more may have been given up meanwhile."""
        self.notes = [it for it in self.notes if it not in written]
        gap = next((it.entry for it in written if it.entry.is_gap), None)
        if self.lost is not None and gap is not None:
            left, last = self.lost.entry.missing - gap.missing, self.lost.entry.time
            self.lost = Note(entry=overflow(left, gap.time, last)) if left > 0 else None


class Backlog(dict[str, Waiting]):
    """What waits, by node, the one that has waited longest first.

    It may outlive the one who keeps the history: a process that leads again goes on with what it could not write
    before. What another leader has written meanwhile is known by its identity.
    """


class Pending:
    """What happened, and claims until all records were looked at; `dropped` counts the notes that were given up."""

    def __init__(self, waiting: Backlog, meters: Meters) -> None:
        self.dropped = 0
        self.waiting = waiting
        self.claims = Backlog()
        self._meters = meters
        self._uncounted = 0  # notes since all that wait were counted

    def wait(self, waiting: Backlog, node: Node, notes: Sequence[Note]) -> None:
        """Add notes of a node to one of the two."""
        known = waiting.setdefault(node.name, Waiting(node.uid))
        if known.uid != node.uid:  # what happened to the node before it was created again becomes a gap
            self._lose(known, len(known.notes))
            known.uid = node.uid
        known.notes += notes
        if len(known.all()) > MOST_ENTRIES:  # a record has no more, and the gap is one of them
            self._lose(known, len(known.notes) - MOST_ENTRIES + 1)
        self._uncounted += len(notes)
        if self._uncounted >= _COUNTED_EVERY:  # counting is not for every note of thousands of nodes
            self._uncounted = 0
            self._lose_surplus(self.count() - _MOST_NOTES)
        if len(waiting) > _MOST_NODES:
            self.drop(len(waiting.pop(next(iter(waiting))).notes))

    def count(self) -> int:
        """Return how many notes wait."""
        return sum(len(it.notes) for it in self.waiting.values())

    def _lose_surplus(self, surplus: int) -> None:
        """Give up this many notes, of the nodes that have waited longest."""
        for waiting in self.waiting.values():
            if surplus <= 0:
                return
            before = len(waiting.notes)
            self._lose(waiting, min(surplus, before))
            surplus -= before

    def _lose(self, waiting: Waiting, number: int) -> None:
        """Give up the oldest notes of a node, and remember how many: that is written in their place."""
        lost = waiting.notes[: max(number, 0)]
        if not lost:
            return
        del waiting.notes[: len(lost)]
        self.drop(len(lost))
        before = 0 if waiting.lost is None else waiting.lost.entry.missing
        first = lost[0].entry.time if waiting.lost is None else waiting.lost.entry.since
        waiting.lost = Note(entry=overflow(len(lost) + before, first or lost[0].entry.time, lost[-1].entry.time))

    def drop(self, number: int) -> None:
        """Count notes that were given up."""
        self.dropped += number
        self._meters.dropped.add(HISTORY, amount=number)


def entries(count: int) -> str:
    """Return a number of entries in words."""
    return f"{count} {'entry' if count == 1 else 'entries'}"


def overflow(missing: int, first: datetime, last: datetime) -> Entry:
    """Return the gap in place of entries that were given up."""
    between = f"between {records.instant(first)} and {records.instant(last)}"
    why = f"{entries(missing)} missing {between}: more waited to be written than can be kept"
    return msgspec.structs.replace(records.gap(why, time=last, missing=missing), since=first)
