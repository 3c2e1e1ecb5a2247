"""Which nodes share a limit, and how a limit on nodes in maintenance is kept exactly.

A budget has no name. What is limited is one thing, the set of nodes in maintenance, and each check that limits it says
over which nodes it counts (its scope) and how many there may be. So two instances with different limits over the same
nodes, one for each zone and another for all of them, and instances of the same name in an edited file all agree on what
is taken: they count the same nodes.

How a limit is kept while several processes decide at the same time, on copies of the cluster that may be old, tells
`haulout.budget.slots`: there is one ledger for the limits of all checks, and for the budget that profiles share with
maintenances on a person's order. These have slots in it, too; a check counts only those that profiles have taken.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.profiles.instants import later
from haulout.profiles.plugin import Entry, NodeSight, State


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeScope:
    """Nodes with certain labels, those that have a certain profile, or all."""

    labels: tuple[tuple[str, str], ...] = ()
    profile: str = ""
    forgets_after: timedelta | None = None  # how long a node in maintenance counts; None: as long as it is

    def covers(self, sight: NodeSight) -> bool:
        """Tell whether a node is one of those that share the limit."""
        labels = sight.node.metadata.labels
        if self.profile and self.profile not in sight.profiles:
            return False
        return all(labels.get(key) == value for key, value in self.labels)

    def counts(self, sight: NodeSight, now: datetime) -> bool:
        """Tell whether a node counts that is in maintenance or, if its label does not say so yet, is on its way."""
        if not self.covers(sight):
            return False
        if self.forgets_after is None or sight.state != State.IN_MAINTENANCE:
            return True
        if sight.problem:
            return True  # how long it has been there cannot be read: it would be rash not to count it
        ends = self.forgotten_at(sight)
        return ends is not None and now < ends

    def forgotten_at(self, sight: NodeSight) -> datetime | None:
        """Return when a node in maintenance does not count any more; None if that cannot be told from its data."""
        latest = max(self._transitions(sight), default=None)
        return None if latest is None or self.forgets_after is None else later(latest, self.forgets_after)

    def _transitions(self, sight: NodeSight) -> Iterator[datetime]:
        own = sight.entries.get(self.profile)
        entries: tuple[Entry, ...] = (own,) if own else tuple(sight.entries.values())
        return (it.transition for it in entries if it.transition is not None)

    def __str__(self) -> str:
        """Return it for people: the labels that nodes share, as a selector."""
        return ",".join(f"{key}={value}" for key, value in self.labels) or "the whole cluster"
