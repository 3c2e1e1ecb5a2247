"""Whether a budget has room for one more node, and who takes it.

    view = View(budget, nodes, now=now, orders=line.orders())
    view.crowded(node)            # None: there is room; otherwise who is out of service, for people
    view.limits(node)             # the same for the ledger, which has the last word

A node that is out of service already, because it is down or somebody else holds it, takes no room: it may be taken
whatever the budget says. That it is down must be beyond doubt for that (`haulout.budget.outages`); where there is any,
others count as down, and this one does not.

Orders that wait come first, in the order of their coming, each as far as there is room for it: one that waits for its
zone keeps nobody in another zone from going.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from haulout.budget.away import is_away, is_taken, may_be_back, why
from haulout.budget.limits import Budget, BudgetLimit, Group
from haulout.budget.line import Order
from haulout.drain.words import some
from haulout.kube.ledger import Limit, Slot
from haulout.kube.objects import Node

_NAMED = 5


class Nodes(Protocol):
    """What is known of nodes."""

    def find(self, name: str) -> Node | None:
        """Return a node."""
        ...

    def candidates(self) -> Iterable[Node]:
        """Return those that `haulout.budget.away.may_count` tells."""
        ...

    def size(self, group: Group) -> int:
        """Return how many nodes there are in a group."""
        ...

    def sure_in(self, node: Node, now: datetime) -> timedelta | None:
        """Return what `haulout.budget.outages.Outages.sure_in` tells."""
        ...


@dataclass(frozen=True, slots=True)
class Crowded:
    """Why there is no room: one limit that is reached, and by whom."""

    users: tuple[str, ...]  # nodes, by name
    whys: tuple[str, ...]  # what keeps each of them out of service
    group: Group | None = None  # whose limit that is; None: nobody can tell
    most: int = 0
    again_at: datetime | None = None  # when to look again though nothing happens

    def __str__(self) -> str:
        """Return it for people."""
        if self.group is None:
            return f"the budget is used up{f': {some(self.users)}' if self.users else ''}"
        named = [f"{name} ({it})" if it else name for name, it in zip(self.users, self.whys, strict=True)]
        noun = "node" if self.most == 1 else "nodes"
        used = f"{len(self.users)} of at most {self.most} {noun} in {self.group} out of service"
        return f"the budget is used up: {used}: {some(named, most=_NAMED)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A budget, and what is seen of the nodes that share it."""

    budget: Budget
    nodes: Nodes
    now: datetime
    orders: tuple[Order, ...] = ()  # that wait, and go first
    order: Order | None = None  # whose turn is looked at: those behind it do not matter

    def crowded(self, node: Node) -> Crowded | None:
        """Return why there is no room for a node; None if there is."""
        if not self.budget or self._is_out(node):
            return None
        found = self._crowded(node, [*self._away(), *self._before(node)])
        sure_in = self.nodes.sure_in(node, self.now)
        return found if found is None or sure_in is None else replace(found, again_at=self.now + sure_in)

    def limits(self, node: Node) -> list[Limit]:
        """Return the limits that must have room for a node; none if it takes no room."""
        if not self.budget or self._is_out(node):
            return []
        counted = [*self._away(), *self._before(node)]
        return [self._limit(group, node, counted) for group in self.budget.groups(node.metadata.labels)]

    def crowded_by(self, node: Node, slots: Iterable[Slot]) -> Crowded:
        """Return who uses it by the ledger as well, whose nodes may look as if nothing was done to them."""
        counted = {it.name: it for it in (*self._away(), *self._before(node))}
        names = dict.fromkeys(it.name for it in slots)
        for name in names:
            if known := self.nodes.find(name):
                counted.setdefault(name, known)
        return self._crowded(node, counted.values()) or Crowded(tuple(names), ("",) * len(names))

    def _away(self) -> Iterator[Node]:
        return (it for it in self.nodes.candidates() if is_away(it, self.now) or self._is_out(it))

    def _is_out(self, node: Node) -> bool:
        """Tell whether a node is out of service beyond doubt."""
        return is_taken(node) or self.nodes.sure_in(node, self.now) == timedelta()

    def _before(self, node: Node) -> list[Node]:
        """Return the nodes of orders that go first, as far as they go."""
        taken = list(self._away()) if self.orders else []
        going: list[Node] = []
        for order in self.orders:
            if self.order is not None and order >= self.order:
                break
            wanted = self.nodes.find(order.node)
            if wanted is None or wanted.name == node.name or self._is_out(wanted):
                continue
            if self._crowded(wanted, [*taken, *going]) is None:
                going.append(wanted)
        return going

    def _crowded(self, node: Node, counted: Iterable[Node]) -> Crowded | None:
        others = [it for it in counted if it.uid != node.uid]
        for group in self.budget.groups(node.metadata.labels):
            most = self._most(group)
            users = sorted((it for it in others if group.covers(it.metadata.labels)), key=lambda it: it.name)
            if len(users) >= most:
                return Crowded(tuple(it.name for it in users), tuple(map(self._why, users)), group, most)
        return None

    def _why(self, node: Node) -> str:
        if said := why(node, self.now):
            return said
        waiting = next((it.name for it in self.orders if it.node == node.name), "")
        return f"NodeMaintenance {waiting} goes first" if waiting else "about to be taken"

    def _most(self, group: Group) -> int:
        return group.most(self.nodes.size(group) if group.limit.is_share else 0)

    def _limit(self, group: Group, node: Node, counted: Iterable[Node]) -> Limit:
        def counts(slot: Slot) -> bool:
            known = self.nodes.find(slot.name)
            if known is None or known.uid != slot.uid:
                return True  # until the server says that it is gone
            return group.covers(known.metadata.labels)

        others = (it for it in counted if it.uid != node.uid and group.covers(it.metadata.labels))
        return Limit(most=self._most(group), others=frozenset(it.uid for it in others), counts=counts)


def may_make_room(budget: Budget, old: Node | None, new: Node | None) -> bool:
    """Tell whether a change of a node may let others go that wait for room."""
    if old is None or new is None:
        return True
    if may_be_back(old, new):
        return True
    before, after = old.metadata.labels, new.metadata.labels
    return before is not after and any(before.get(key) != after.get(key) for key in budget.label_keys())


class Sizes:
    """Which groups of nodes there are and how large, counted once until labels change or nodes come and go."""

    def __init__(self, nodes: Callable[[], Iterable[Node]]) -> None:
        self._nodes = nodes
        self._known: dict[Group, int] = {}
        self._groups: dict[BudgetLimit, tuple[Group, ...]] = {}

    def of(self, group: Group) -> int:
        """Return how many there are."""
        known = self._known.get(group)
        if known is None:
            known = self._known[group] = sum(group.covers(it.metadata.labels) for it in self._nodes())
        return known

    def groups(self, limit: BudgetLimit) -> tuple[Group, ...]:
        """Return the groups that share a limit, sorted by their labels."""
        known = self._groups.get(limit)
        if known is None:
            found = {group for it in self._nodes() if (group := limit.group(it.metadata.labels)) is not None}
            known = self._groups[limit] = tuple(sorted(found, key=lambda it: it.labels))
        return known

    def note(self, old: Node | None, new: Node | None) -> None:
        """Take note of a change."""
        is_known = self._known or self._groups
        if is_known and (old is None or new is None or old.metadata.labels != new.metadata.labels):
            self._known.clear()
            self._groups.clear()
