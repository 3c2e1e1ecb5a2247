"""The entries that wait to be written, by node. Bounded: what exceeds a bound becomes a gap."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from haulout.api import maintenancerecord as records
from haulout.api.maintenancerecord import MAX_ENTRIES, Entry, NewEntry
from haulout.api.objects import Node
from haulout.core.text import format_time
from haulout.kube.metrics import DROPPED_HISTORY, KubeMetrics

# These bound the memory while the API server refuses all writes.
_MOST_NODES = 10_000
_MOST_NOTES = 20_000  # of all nodes together
_COUNTED_EVERY = 500  # entries


@dataclass(slots=True)
class PendingEntries:
    """The pending entries of a node, and a gap in place of dropped ones."""

    uid: str
    new_entries: list[NewEntry] = field(default_factory=list)
    overflow: NewEntry | None = None

    def all(self) -> tuple[NewEntry, ...]:
        """Return the entries to write, in order."""
        return tuple(self.new_entries) if self.overflow is None else (self.overflow, *self.new_entries)

    def discard_written(self, written: Collection[NewEntry]) -> None:
        """Remove written entries. More may have been dropped during the write; these stay as a gap."""
        self.new_entries = [new_entry for new_entry in self.new_entries if new_entry not in written]
        gap = next((new_entry.entry for new_entry in written if new_entry.entry.is_gap), None)
        if self.overflow is not None and gap is not None:
            # The written gap counts those that were missing when the write began.
            remaining, last = self.overflow.entry.missing - gap.missing, self.overflow.entry.time
            self.overflow = NewEntry(entry=overflow_gap(remaining, gap.time, last)) if remaining > 0 else None


class Backlog(dict[str, PendingEntries]):
    """Pending entries by node, the longest waiting first.

    It may outlive its HistoryWriter: a process that leads again continues with what it could not write before. Entries
    that another leader has written meanwhile are recognized by their identity.
    """


class PendingQueue:
    """The backlog of entries, and the claims until all records were listed. `dropped` counts dropped entries."""

    def __init__(self, backlog: Backlog, metrics: KubeMetrics) -> None:
        self.dropped = 0
        self.backlog = backlog
        self.claims = Backlog()
        self._metrics = metrics
        self._uncounted = 0  # entries since the last count of all pending ones

    def add(self, backlog: Backlog, node: Node, new_entries: Sequence[NewEntry]) -> None:
        """Add entries of a node to the backlog or the claims."""
        known = backlog.setdefault(node.name, PendingEntries(node.uid))
        if known.uid != node.uid:  # entries of a node that was created again become a gap
            self._replace_oldest_by_gap(known, len(known.new_entries))
            known.uid = node.uid
        known.new_entries += new_entries
        if len(known.all()) > MAX_ENTRIES:  # the maximum of a record, including the gap
            self._replace_oldest_by_gap(known, len(known.new_entries) - MAX_ENTRIES + 1)
        self._uncounted += len(new_entries)
        if self._uncounted >= _COUNTED_EVERY:  # counting all nodes for each entry would be too slow
            self._uncounted = 0
            self._drop_surplus(self.count() - _MOST_NOTES)
        if len(backlog) > _MOST_NODES:
            # A dict keeps the order of insertion, so the first node has waited longest.
            self.count_dropped(len(backlog.pop(next(iter(backlog))).new_entries))

    def count(self) -> int:
        return sum(len(pending.new_entries) for pending in self.backlog.values())

    def _drop_surplus(self, surplus: int) -> None:
        """Drop this many entries, of the nodes that have waited longest."""
        for pending in self.backlog.values():
            if surplus <= 0:
                return
            before = len(pending.new_entries)
            self._replace_oldest_by_gap(pending, min(surplus, before))
            surplus -= before

    def _replace_oldest_by_gap(self, pending: PendingEntries, number: int) -> None:
        """Drop the oldest entries of a node, and count them in its gap."""
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
        self.dropped += number
        self._metrics.dropped.add(DROPPED_HISTORY, amount=number)


def format_entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"


def overflow_gap(missing: int, first: datetime, last: datetime) -> Entry:
    between = f"between {format_time(first)} and {format_time(last)}"
    why = f"{format_entries(missing)} missing {between}: more entries were pending than the operator keeps in memory"
    return msgspec.structs.replace(records.gap(why, time=last, missing=missing), since=first)
