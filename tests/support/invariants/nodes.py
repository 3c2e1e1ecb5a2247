"""Invariants about nodes: budgets, cordons, and the control plane."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.storage.store import Write
from haulout_sandbox.nodes.scheduler.framework import CONTROL_PLANE_LABEL
from support.invariants.checker import Checker, Invariant, State, Violation, violation_of
from support.invariants.object_fields import (
    Predicate,
    condition,
    is_cordoned,
    is_down,
    parse_instant,
    selector_predicate,
)

_NODES = frozenset({"nodes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBudget:
    """How many of the selected nodes may be disrupted at once: a number, or a percentage, rounded down."""

    name: str
    at_most: int | str
    labels: str = ""  # a selector; all nodes by default
    group_by: tuple[str, ...] = ()  # so many in each group of nodes with the same values of these labels
    at_least: int = 0  # what a percentage comes to, however few nodes there are

    def limit(self, nodes: int) -> int:
        """Return how many of so many `nodes` may be disrupted."""
        if isinstance(self.at_most, int):
            return self.at_most
        return max(nodes * int(self.at_most.removesuffix("%")) // 100, self.at_least)

    def group_of(self, node: JsonObject) -> Predicate:
        """Return which nodes are in the same group as `node`; a label that it does not have groups nothing."""
        labels = node["metadata"].get("labels", {})
        wanted = {key: labels[key] for key in self.group_by if labels.get(key)}
        return lambda other: wanted.items() <= other["metadata"].get("labels", {}).items()


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionsWithinBudget(Invariant):
    """The operator begins no disruption beyond a budget, nodes that are already down counted in.

    That more nodes fall ill than a budget allows is nobody's fault, but then no further one may be taken. A disruption
    is what `is_disrupted` says of a node: by default that it is cordoned. A node counts as down when it has been not
    ready for `down_after`; an operator whose watch or clock is off by `lag` may see another state for that long.
    """

    operator: Collection[str]
    budgets: tuple[NodeBudget, ...]
    is_disrupted: Predicate = is_cordoned
    down_after: timedelta = timedelta()
    lag: timedelta = timedelta()

    @property
    def kinds(self) -> frozenset[str]:
        """Nodes alone."""
        return _NODES

    def new_checker(self) -> Checker:
        """Return a checker."""
        limits = tuple((budget, budget.limit) for budget in self.budgets)
        return _BudgetChecker(self.operator, self.is_disrupted, limits, down_after=self.down_after, lag=self.lag)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneOneAtATime(Invariant):
    """The operator disrupts one node of the control plane at a time, and none if etcd's quorum would be at risk."""

    operator: Collection[str]
    is_disrupted: Predicate = is_cordoned
    labels: str = CONTROL_PLANE_LABEL
    quorum: bool = True

    @property
    def kinds(self) -> frozenset[str]:
        """Nodes alone."""
        return _NODES

    def new_checker(self) -> Checker:
        """Return a checker."""
        budget = NodeBudget(name="the control plane", at_most=1, labels=self.labels)
        return _BudgetChecker(self.operator, self.is_disrupted, ((budget, self._limit),))

    def _limit(self, nodes: int) -> int:
        return min(1, (nodes - 1) // 2) if self.quorum else 1


class _BudgetChecker(Checker):
    def __init__(
        self,
        operator: Collection[str],
        is_disrupted: Predicate,
        limits: tuple[tuple[NodeBudget, Callable[[int], int]], ...],
        *,
        down_after: timedelta = timedelta(),
        lag: timedelta = timedelta(),
    ) -> None:
        self._down_at_last = down_after + lag
        self._down_at_first = down_after - lag
        self._operator = operator
        self._is_disrupted = is_disrupted
        self._limits = [(budget, limit, selector_predicate(budget.labels)) for budget, limit in limits]

    def check_write(self, write: Write, state: State) -> Iterator[Violation]:
        if write.username not in self._operator or write.after is None or not self._is_disrupted(write.after):
            return
        if write.before is not None and self._is_unavailable(write.before, write.written_at - self._down_at_first):
            return  # it was counted before, and takes nothing more
        for budget, limit, is_selected in self._limits:
            if not is_selected(write.after):
                continue
            is_in_group = budget.group_of(write.after)
            nodes = [node for node in state.by_key("nodes").values() if is_selected(node) and is_in_group(node)]
            unavailable = sorted(
                node["metadata"]["name"]
                for node in nodes
                if self._is_unavailable(node, write.written_at - self._down_at_last)
            )
            if len(unavailable) > limit(len(nodes)):
                rule = f"{limit(len(nodes))} of {len(nodes)} nodes allowed by {budget.name}"
                yield violation_of(
                    write,
                    f"{write.key} was disrupted, and so {len(unavailable)} are ({', '.join(unavailable)}): {rule}",
                )

    def _is_unavailable(self, node: JsonObject, already_at: datetime) -> bool:
        """Tell whether a node is disrupted, or has been down at some instant and ever since."""
        if self._is_disrupted(node) or not is_down(node):
            return self._is_disrupted(node)
        since = condition(node, "Ready").get("lastTransitionTime")
        return since is None or parse_instant(since) <= already_at


def cordon_owners_from(annotation: str) -> Callable[[JsonObject], tuple[str, ...]]:
    """Return how to read the owners of a cordon from an annotation that lists them, divided by commas."""

    def owners(node: JsonObject) -> tuple[str, ...]:
        listed = node["metadata"].get("annotations", {}).get(annotation, "")
        return tuple(name.strip() for name in listed.split(",") if name.strip())

    return owners


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlyOwnCordonsRemoved(Invariant):
    """The operator uncordons a node only if it cordoned it, and when no owner of the cordon is left."""

    operator: Collection[str]
    owners: Callable[[JsonObject], Collection[str]] = field(default=lambda _: ())

    @property
    def kinds(self) -> frozenset[str]:
        """Nodes alone."""
        return _NODES

    def new_checker(self) -> Checker:
        """Return a checker."""
        return _CordonChecker(self.operator, self.owners)


class _CordonChecker(Checker):
    def __init__(self, operator: Collection[str], owners: Callable[[JsonObject], Collection[str]]) -> None:
        self._operator = operator
        self._owners = owners
        self._cordoned_by: dict[str, str] = {}

    def check_write(self, write: Write, state: State) -> Iterator[Violation]:
        del state
        was_cordoned = write.before is not None and is_cordoned(write.before)
        if write.after is None or was_cordoned == is_cordoned(write.after):
            return
        if not was_cordoned:
            # A recreated node with the annotation of its owners still belongs to them.
            if write.before is not None or not self._owners(write.after):
                self._cordoned_by[write.key] = write.username
            return
        by = self._cordoned_by.pop(write.key, "somebody before")
        if write.username not in self._operator:
            return
        if by not in self._operator:
            yield violation_of(write, f"{write.key} was uncordoned, which {by} had cordoned")
        elif left := sorted(self._owners(write.after)):
            yield violation_of(write, f"{write.key} was uncordoned, though {', '.join(left)} still wanted it cordoned")
