"""Which nodes share a limit, and how a limit on nodes in maintenance is kept exactly.

A budget has no name. What is limited is one thing, the set of nodes in maintenance, and each check that limits it says
over which nodes it counts (its scope) and how many there may be. So two instances with different limits over the same
nodes, one for each zone and another for all of them, and instances of the same name in an edited file all agree on what
is taken: they count the same nodes.

To keep a limit while several processes decide at the same time, on copies of the cluster that may be old, there is one
ledger for the whole cluster (`haulout.kube.ledger`): an object that names the nodes which have got leave to go into
maintenance. A transition into maintenance adds its node, by compare-and-swap, before anything else is done to it. With
the ledger as it was read for that, each claim of the transition must hold: of the nodes other than its own that are in
the ledger or seen in maintenance, fewer than `limit` are counted by the scope.

If the swap fails, somebody else was quicker, and the ledger is read again. As a node is in the ledger before it is
touched, an old copy of the cluster can hide that a node has left maintenance, never that one has entered it. (A node
that entered without any limit is not in the ledger; it counts as soon as it is seen.)

An entry holds the version of the node that the transition's write is bound to. It is void, and anybody may remove it,
when the server has the node at a later version and not in maintenance: then that write either was never made and never
can be, or the node was in maintenance and has left it; or when the node is gone. Nothing depends on time, or on who
leads.
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
