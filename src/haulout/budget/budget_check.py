"""Whether a budget has room for one more node, and who takes it.

    view = View(budget, nodes, now=now, orders=line.orders())
    view.crowded(node)            # None: there is room; otherwise who is out of service, for people
    view.limits(node)             # the same for the ledger, which has the last word

A node that is out of service already, because it is down or somebody else holds it, takes no room: it may be taken
whatever the budget says. That it is down must be beyond doubt for that (`haulout.budget.not_ready_tracker`); where
there is any, others count as down, and this one does not.

Orders that wait come first, in the order of their coming, each as far as there is room for it: one that waits for its
zone keeps nobody in another zone from going.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from haulout.api.objects import Node
from haulout.budget.limits import Budget, BudgetLimit, LimitGroup
from haulout.budget.unavailable_nodes import (
    is_unavailable,
    is_under_maintenance,
    may_be_available_again,
    unavailability_reason,
)
from haulout.budget.waiting_list import WaitingNodeMaintenance
from haulout.core.text import format_list
from haulout.kube.slot_ledger import Slot, SlotLimit

_MAX_NAMED = 5


class NodeLister(Protocol):
    """What is known of nodes."""

    def find(self, name: str) -> Node | None:
        """Return a node."""
        ...

    def possibly_unavailable(self) -> Iterable[Node]:
        """Return those that `haulout.budget.unavailable_nodes.may_be_unavailable` tells."""
        ...

    def group_size(self, group: LimitGroup) -> int:
        """Return how many nodes there are in a group."""
        ...

    def time_until_down(self, node: Node, now: datetime) -> timedelta | None:
        """Return what `haulout.budget.not_ready_tracker.NotReadyTracker.time_until_down` tells."""
        ...


@dataclass(frozen=True, slots=True)
class BudgetExhausted:
    """Why there is no room: one limit that is reached, and by whom."""

    unavailable: tuple[str, ...]  # nodes, by name
    reasons: tuple[str, ...]  # what keeps each of them out of service
    group: LimitGroup | None = None  # whose limit that is; None: nobody can tell
    max_unavailable: int = 0
    requeue_at: datetime | None = None  # when to look again though nothing happens

    def __str__(self) -> str:
        """Return it for people."""
        if self.group is None:
            return f"the budget is used up{f': {format_list(self.unavailable)}' if self.unavailable else ''}"
        named = [
            f"{name} ({reason})" if reason else name
            for name, reason in zip(self.unavailable, self.reasons, strict=True)
        ]
        noun = "node" if self.max_unavailable == 1 else "nodes"
        used = f"{len(self.unavailable)} of at most {self.max_unavailable} {noun} in {self.group} out of service"
        return f"the budget is used up: {used}: {format_list(named, max_names=_MAX_NAMED)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCheck:
    """A budget, and what is seen of the nodes that share it."""

    budget: Budget
    nodes: NodeLister
    now: datetime
    waiting: tuple[WaitingNodeMaintenance, ...] = ()  # that wait, and go first
    own_entry: WaitingNodeMaintenance | None = None  # whose turn is looked at: those behind it do not matter

    def exhausted(self, node: Node) -> BudgetExhausted | None:
        """Return why there is no room for a node; None if there is."""
        if not self.budget or self._is_certainly_unavailable(node):
            return None
        found = self._exhausted(node, [*self._unavailable_nodes(), *self._nodes_served_first(node)])
        time_until_down = self.nodes.time_until_down(node, self.now)
        return (
            found if found is None or time_until_down is None else replace(found, requeue_at=self.now + time_until_down)
        )

    def slot_limits(self, node: Node) -> list[SlotLimit]:
        """Return the limits that must have room for a node; none if it takes no room."""
        if not self.budget or self._is_certainly_unavailable(node):
            return []
        counted = [*self._unavailable_nodes(), *self._nodes_served_first(node)]
        return [self._slot_limit(group, node, counted) for group in self.budget.groups(node.metadata.labels)]

    def exhausted_by(self, node: Node, slots: Iterable[Slot]) -> BudgetExhausted:
        """Return who uses it by the ledger as well, whose nodes may look as if nothing was done to them."""
        counted = {item.name: item for item in (*self._unavailable_nodes(), *self._nodes_served_first(node))}
        names = dict.fromkeys(item.name for item in slots)
        for name in names:
            if known := self.nodes.find(name):
                counted.setdefault(name, known)
        return self._exhausted(node, counted.values()) or BudgetExhausted(tuple(names), ("",) * len(names))

    def _unavailable_nodes(self) -> Iterator[Node]:
        return (
            node
            for node in self.nodes.possibly_unavailable()
            if is_unavailable(node, self.now) or self._is_certainly_unavailable(node)
        )

    def _is_certainly_unavailable(self, node: Node) -> bool:
        """Tell whether a node is out of service beyond doubt."""
        return is_under_maintenance(node) or self.nodes.time_until_down(node, self.now) == timedelta()

    def _nodes_served_first(self, node: Node) -> list[Node]:
        """Return the nodes of orders that go first, as far as they go."""
        unavailable = list(self._unavailable_nodes()) if self.waiting else []
        served_first: list[Node] = []
        for entry in self.waiting:
            if self.own_entry is not None and entry >= self.own_entry:
                break
            waiting_node = self.nodes.find(entry.node)
            if waiting_node is None or waiting_node.name == node.name or self._is_certainly_unavailable(waiting_node):
                continue
            if self._exhausted(waiting_node, [*unavailable, *served_first]) is None:
                served_first.append(waiting_node)
        return served_first

    def _exhausted(self, node: Node, counted: Iterable[Node]) -> BudgetExhausted | None:
        others = [other for other in counted if other.uid != node.uid]
        for group in self.budget.groups(node.metadata.labels):
            max_unavailable = self._max_unavailable(group)
            unavailable = sorted(
                (other for other in others if group.matches(other.metadata.labels)), key=lambda other: other.name
            )
            if len(unavailable) >= max_unavailable:
                return BudgetExhausted(
                    tuple(other.name for other in unavailable),
                    tuple(map(self._reason, unavailable)),
                    group,
                    max_unavailable,
                )
        return None

    def _reason(self, node: Node) -> str:
        if reason := unavailability_reason(node, self.now):
            return reason
        waiting = next((entry.name for entry in self.waiting if entry.node == node.name), "")
        return f"NodeMaintenance {waiting} goes first" if waiting else "about to be taken"

    def _max_unavailable(self, group: LimitGroup) -> int:
        return group.max_unavailable(self.nodes.group_size(group) if group.limit.is_percentage else 0)

    def _slot_limit(self, group: LimitGroup, node: Node, counted: Iterable[Node]) -> SlotLimit:
        def counts(slot: Slot) -> bool:
            known = self.nodes.find(slot.name)
            if known is None or known.uid != slot.uid:
                return True  # until the server says that it is gone
            return group.matches(known.metadata.labels)

        others = (other for other in counted if other.uid != node.uid and group.matches(other.metadata.labels))
        return SlotLimit(
            max_slots=self._max_unavailable(group),
            unavailable_uids=frozenset(other.uid for other in others),
            counts=counts,
        )


def may_free_slot(budget: Budget, old: Node | None, new: Node | None) -> bool:
    """Tell whether a change of a node may let others go that wait for room."""
    if old is None or new is None:
        return True
    if may_be_available_again(old, new):
        return True
    before, after = old.metadata.labels, new.metadata.labels
    return before is not after and any(before.get(key) != after.get(key) for key in budget.label_keys())


class GroupSizes:
    """Which groups of nodes there are and how large, counted once until labels change or nodes come and go."""

    def __init__(self, nodes: Callable[[], Iterable[Node]]) -> None:
        self._nodes = nodes
        self._sizes: dict[LimitGroup, int] = {}
        self._groups: dict[BudgetLimit, tuple[LimitGroup, ...]] = {}

    def size(self, group: LimitGroup) -> int:
        """Return how many there are."""
        known = self._sizes.get(group)
        if known is None:
            known = self._sizes[group] = sum(group.matches(node.metadata.labels) for node in self._nodes())
        return known

    def groups(self, limit: BudgetLimit) -> tuple[LimitGroup, ...]:
        """Return the groups that share a limit, sorted by their labels."""
        known = self._groups.get(limit)
        if known is None:
            found = {group for item in self._nodes() if (group := limit.group(item.metadata.labels)) is not None}
            known = self._groups[limit] = tuple(sorted(found, key=lambda item: item.labels))
        return known

    def on_node_change(self, old: Node | None, new: Node | None) -> None:
        """Take note of a change."""
        is_known = self._sizes or self._groups
        if is_known and (old is None or new is None or old.metadata.labels != new.metadata.labels):
            self._sizes.clear()
            self._groups.clear()
