"""Whether the budget has room for one more unavailable node, and which nodes use it.

    check = BudgetCheck(budget=budget, nodes=nodes, now=now, waiting=waiting_list.entries())
    check.exhausted(node)         # None: there is room; otherwise the limit that is reached, and by which nodes
    check.slot_limits(node)       # the same for the slot ledger, which decides

A node that is unavailable already, because it is down or another owner holds it, is exempt from the budget. A node is
exempt as down only after DOWN_AFTER of NotReady, measured on the monotonic clock (`haulout.budget.unavailable_nodes`).
Until then other NotReady nodes count as unavailable; this one does not.

Waiting NodeMaintenances go first, in order of creation, each as far as the budget has room for it: one that waits for
its zone does not block another zone. Profiles let them go first, too: an order by a user must not wait behind a
thousand nodes of a rolling maintenance. The `WaitingList` is known to one process and only for fairness: no limit
relies on it.
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
from haulout.core.text import format_list
from haulout.kube.slot_ledger import Slot, SlotLimit

_MAX_NAMED = 5


class NodeLister(Protocol):
    """The nodes of the cluster, from a cache that may be stale. The slot ledger decides, not this view."""

    def find(self, name: str) -> Node | None: ...

    def possibly_unavailable(self) -> Iterable[Node]:
        """Return the nodes for which `haulout.budget.unavailable_nodes.may_be_unavailable` is true."""
        ...

    def group_size(self, group: LimitGroup) -> int: ...

    def time_until_down(self, node: Node, now: datetime) -> timedelta | None:
        """Return the result of `NotReadyTracker.time_until_down` (`haulout.budget.unavailable_nodes`) for the node."""
        ...


@dataclass(frozen=True, slots=True)
class BudgetExhausted:
    """The limit that is reached, and the nodes that use it."""

    unavailable: tuple[str, ...]  # names of nodes
    reasons: tuple[str, ...]  # why each of them is unavailable
    group: LimitGroup | None = None  # the group whose limit is reached; None: unknown
    max_unavailable: int = 0
    requeue_at: datetime | None = None  # when to check again without an event

    def __str__(self) -> str:
        if self.group is None:
            return f"the budget is used up{f': {format_list(self.unavailable)}' if self.unavailable else ''}"
        named = [
            f"{name} ({reason})" if reason else name
            for name, reason in zip(self.unavailable, self.reasons, strict=True)
        ]
        noun = "node" if self.max_unavailable == 1 else "nodes"
        used = f"{len(self.unavailable)} of at most {self.max_unavailable} {noun} in {self.group} out of service"
        return f"the budget is used up: {used}: {format_list(named, max_names=_MAX_NAMED)}"


@dataclass(frozen=True, slots=True, order=True)
class WaitingNodeMaintenance:
    """A NodeMaintenance that waits for a budget slot. Entries sort by time of creation."""

    since: datetime
    name: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCheck:
    """A budget with the nodes and the waiting list at one moment."""

    budget: Budget
    nodes: NodeLister
    now: datetime
    waiting: tuple[WaitingNodeMaintenance, ...] = ()  # they are served first
    own_entry: WaitingNodeMaintenance | None = None  # entry of the node being checked: later entries do not count

    def exhausted(self, node: Node) -> BudgetExhausted | None:
        """Return why the budget has no room for a node; None if it has."""
        # To maintain a node that is unavailable anyway makes no further node unavailable.
        if not self.budget or self._is_certainly_unavailable(node):
            return None
        found = self._exhausted(node, [*self._unavailable_nodes(), *self._nodes_served_first(node)])
        time_until_down = self.nodes.time_until_down(node, self.now)
        return (
            # No event tells that the node has been NotReady for long enough.
            found if found is None or time_until_down is None else replace(found, requeue_at=self.now + time_until_down)
        )

    def slot_limits(self, node: Node) -> list[SlotLimit]:
        """Return the limits that the ledger must check for a node; none if the node is exempt."""
        if not self.budget or self._is_certainly_unavailable(node):
            return []
        counted = [*self._unavailable_nodes(), *self._nodes_served_first(node)]
        return [self._slot_limit(group, node, counted) for group in self.budget.groups(node.metadata.labels)]

    def exhausted_by(self, node: Node, slots: Iterable[Slot]) -> BudgetExhausted:
        """Return the reason for a refusal by the ledger.

        This includes nodes whose slots are in use although the nodes do not look unavailable yet.
        """
        counted = {item.name: item for item in (*self._unavailable_nodes(), *self._nodes_served_first(node))}
        # A node has one slot for each owner, and counts once.
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
        return is_under_maintenance(node) or self.nodes.time_until_down(node, self.now) == timedelta()

    def _nodes_served_first(self, node: Node) -> list[Node]:
        """Return the nodes of earlier waiting entries, as far as the budget has room for them."""
        unavailable = list(self._unavailable_nodes()) if self.waiting else []
        served_first: list[Node] = []
        for entry in self.waiting:
            if self.own_entry is not None and entry >= self.own_entry:
                break
            waiting_node = self.nodes.find(entry.node)
            if waiting_node is None or waiting_node.name == node.name or self._is_certainly_unavailable(waiting_node):
                continue
            # An entry without room reserves nothing. Otherwise a maintenance that waits for its zone would block all
            # zones.
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
        return f"NodeMaintenance {waiting} is next" if waiting else "slot already reserved"

    def _max_unavailable(self, group: LimitGroup) -> int:
        return group.max_unavailable(self.nodes.group_size(group) if group.limit.is_percentage else 0)

    def _slot_limit(self, group: LimitGroup, node: Node, counted: Iterable[Node]) -> SlotLimit:
        def counts(slot: Slot) -> bool:
            known = self.nodes.find(slot.name)
            if known is None or known.uid != slot.uid:
                return True  # until the API server confirms that the node is gone
            return group.matches(known.metadata.labels)

        others = (other for other in counted if other.uid != node.uid and group.matches(other.metadata.labels))
        return SlotLimit(
            max_slots=self._max_unavailable(group),
            unavailable_uids=frozenset(other.uid for other in others),
            counts=counts,
        )


def may_free_slot(budget: Budget, old: Node | None, new: Node | None) -> bool:
    """Return whether a change of a node may free a slot for a waiting NodeMaintenance."""
    if old is None or new is None:
        return True
    if may_be_available_again(old, new):
        return True
    before, after = old.metadata.labels, new.metadata.labels
    return before is not after and any(before.get(key) != after.get(key) for key in budget.label_keys())


class GroupSizes:
    """Groups of nodes and their sizes, cached until labels change or nodes come and go."""

    def __init__(self, nodes: Callable[[], Iterable[Node]]) -> None:
        self._nodes = nodes
        self._sizes: dict[LimitGroup, int] = {}
        self._groups: dict[BudgetLimit, tuple[LimitGroup, ...]] = {}

    def size(self, group: LimitGroup) -> int:
        known = self._sizes.get(group)
        if known is None:
            known = self._sizes[group] = sum(group.matches(node.metadata.labels) for node in self._nodes())
        return known

    def groups(self, limit: BudgetLimit) -> tuple[LimitGroup, ...]:
        """Return the groups of a limit, sorted by their labels."""
        known = self._groups.get(limit)
        if known is None:
            found = {group for item in self._nodes() if (group := limit.group(item.metadata.labels)) is not None}
            known = self._groups[limit] = tuple(sorted(found, key=lambda item: item.labels))
        return known

    def on_node_change(self, old: Node | None, new: Node | None) -> None:
        is_known = self._sizes or self._groups
        if is_known and (old is None or new is None or old.metadata.labels != new.metadata.labels):
            self._sizes.clear()
            self._groups.clear()


class WaitingList:
    """The NodeMaintenances that wait for a slot, as this process knows them."""

    def __init__(self) -> None:
        self._entries: dict[str, WaitingNodeMaintenance] = {}
        self._subscribers: list[Callable[[], object]] = []

    def add(self, entry: WaitingNodeMaintenance) -> None:
        self._entries[entry.name] = entry

    def remove(self, name: str) -> None:
        """Remove a NodeMaintenance; notify subscribers if it was waiting."""
        if self._entries.pop(name, None) is not None:
            for callback in tuple(self._subscribers):
                callback()

    def entries(self) -> tuple[WaitingNodeMaintenance, ...]:
        return tuple(sorted(self._entries.values()))

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` when an entry is removed, since others may go now; return the function to unsubscribe."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)
