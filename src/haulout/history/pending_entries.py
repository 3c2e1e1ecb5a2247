"""What waits to be written into the records, by node. It is bounded: what does not fit becomes a gap."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from haulout.api import maintenancerecord as records
from haulout.api.maintenancerecord import MAX_ENTRIES, Entry, NewEntry
from haulout.api.objects import Node
from haulout.kube.metrics import DROPPED_HISTORY, KubeMetrics

_MOST_NODES = 10_000
_MOST_NOTES = 20_000  # of all nodes together
_COUNTED_EVERY = 500  # notes


@dataclass(slots=True)
class PendingEntries:
    """What waits to be written about a node, and what of it was given up before that."""

    uid: str
    new_entries: list[NewEntry] = field(default_factory=list)
    overflow: NewEntry | None = None

    def all(self) -> tuple[NewEntry, ...]:
        """Return what is to be written, in its order."""
        return tuple(self.new_entries) if self.overflow is None else (self.overflow, *self.new_entries)

    def discard_written(self, written: Collection[NewEntry]) -> None:
        """Forget what is written; more may have been given up meanwhile."""
        self.new_entries = [new_entry for new_entry in self.new_entries if new_entry not in written]
        gap = next((new_entry.entry for new_entry in written if new_entry.entry.is_gap), None)
        if self.overflow is not None and gap is not None:
            remaining, last = self.overflow.entry.missing - gap.missing, self.overflow.entry.time
            self.overflow = NewEntry(entry=overflow_gap(remaining, gap.time, last)) if remaining > 0 else None


class Backlog(dict[str, PendingEntries]):
    """What waits, by node, the one that has waited longest first.

    It may outlive the one who keeps the history: a process that leads again goes on with what it could not write
    before. What another leader has written meanwhile is known by its identity.
    """


class PendingQueue:
    """What happened, and claims until all records were looked at; `dropped` counts the notes that were given up."""

    def __init__(self, backlog: Backlog, metrics: KubeMetrics) -> None:
        self.dropped = 0
        self.backlog = backlog
        self.claims = Backlog()
        self._metrics = metrics
        self._uncounted = 0  # notes since all that wait were counted

    def add(self, backlog: Backlog, node: Node, new_entries: Sequence[NewEntry]) -> None:
        """Add notes of a node to one of the two."""
        known = backlog.setdefault(node.name, PendingEntries(node.uid))
        if known.uid != node.uid:  # what happened to the node before it was created again becomes a gap
            self._replace_oldest_by_gap(known, len(known.new_entries))
            known.uid = node.uid
        known.new_entries += new_entries
        if len(known.all()) > MAX_ENTRIES:  # a record has no more, and the gap is one of them
            self._replace_oldest_by_gap(known, len(known.new_entries) - MAX_ENTRIES + 1)
        self._uncounted += len(new_entries)
        if self._uncounted >= _COUNTED_EVERY:  # counting is not for every note of thousands of nodes
            self._uncounted = 0
            self._drop_surplus(self.count() - _MOST_NOTES)
        if len(backlog) > _MOST_NODES:
            self.count_dropped(len(backlog.pop(next(iter(backlog))).new_entries))

    def count(self) -> int:
        """Return how many notes wait."""
        return sum(len(pending.new_entries) for pending in self.backlog.values())

    def _drop_surplus(self, surplus: int) -> None:
        """Give up this many notes, of the nodes that have waited longest."""
        for pending in self.backlog.values():
            if surplus <= 0:
                return
            before = len(pending.new_entries)
            self._replace_oldest_by_gap(pending, min(surplus, before))
            surplus -= before

    def _replace_oldest_by_gap(self, pending: PendingEntries, number: int) -> None:
        """Give up the oldest notes of a node, and remember how many: that is written in their place."""
        lost = pending.new_entries[: max(number, 0)]
        if not lost:
            return
        del pending.new_entries[: len(lost)]
        self.count_dropped(len(lost))
        before = 0 if pending.overflow is None else pending.overflow.entry.missing
        first = lost[0].entry.time if pending.overflow is None else pending.overflow.entry.since
        pending.overflow = NewEntry(
            entry=overflow_gap(len(lost) + before, first or lost[0].entry.time, lost[-1].entry.time)
        )

    def count_dropped(self, number: int) -> None:
        """Count notes that were given up."""
        self.dropped += number
        self._metrics.dropped.add(DROPPED_HISTORY, amount=number)


def format_entries(count: int) -> str:
    """Return a number of entries in words."""
    return f"{count} {'entry' if count == 1 else 'entries'}"


def overflow_gap(missing: int, first: datetime, last: datetime) -> Entry:
    """Return the gap in place of entries that were given up."""
    between = f"between {records.format_instant(first)} and {records.format_instant(last)}"
    why = f"{format_entries(missing)} missing {between}: more waited to be written than can be kept"
    return msgspec.structs.replace(records.gap(why, time=last, missing=missing), since=first)
