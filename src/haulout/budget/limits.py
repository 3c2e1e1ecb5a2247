"""The limits of a budget: how many nodes may be unavailable at once. All limits apply together.

    limit = BudgetLimit(max_unavailable="10%")
    group = limit.group(node.metadata.labels)      # the nodes that share it with this one; None: it does not apply
    group.matches(other.metadata.labels), group.max_unavailable(size)

A limit applies to all nodes, to those that a selector matches, or to each group of nodes with the same values of some
labels. A node that lacks one of these labels, or has it empty, is grouped by the others only: the limit must hold for
that whole larger group.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from haulout.kube.selectors import Selector

_PERCENTAGE = re.compile(r"(?P<percent>[0-9]{1,3})\s*%")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]*)?")  # a fraction is cut off
_HUNDRED_PERCENT = 100


def parse_amount(written: int | str) -> int | str:
    """Return a number or a percentage such as `20%`; raise ValueError if it is neither, or zero."""
    text = str(written).strip()
    percentage = _PERCENTAGE.fullmatch(text)
    if percentage and 0 < int(percentage["percent"]) <= _HUNDRED_PERCENT:
        return f"{int(percentage['percent'])}%"
    number = int(text.partition(".")[0]) if _NUMBER.fullmatch(text) else 0
    if not number:
        raise ValueError  # the caller adds the value found and the value expected
    return number


def parse_max_unavailable(written: str) -> int | str:
    """Return the limit of a budget: a percentage or a positive integer. Raise ValueError otherwise."""
    amount = parse_amount(written)
    if "." in written or (isinstance(amount, int) and amount < 0):
        raise ValueError
    return amount


def scaled_value(amount: int | str, size: int) -> int:
    """Return the number of nodes; a percentage of `size` is rounded down, and at least 1."""
    if isinstance(amount, int):
        return amount
    # At least 1, unlike `intstr.GetScaledValueFromIntOrPercent`: a budget of 10 % would otherwise stop all maintenance
    # in a cluster of nine nodes.
    return max(size * int(amount.removesuffix("%")) // _HUNDRED_PERCENT, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimit:
    """One limit of a budget: a maximum, and the nodes that it is about."""

    max_unavailable: int | str  # a number, or a percentage of the nodes in the group
    group_by: tuple[str, ...] = ()  # label keys
    selector: Selector | None = None

    def group(self, labels: Mapping[str, str]) -> "LimitGroup | None":
        """Return the group of a node with these labels; None if the limit does not apply to it."""
        if self.selector is not None and not self.selector.matches(labels):
            return None
        # A node without the label is in the larger group of those that match the other labels. In doubt, fewer nodes
        # may be unavailable.
        return LimitGroup(self, tuple((key, labels[key]) for key in self.group_by if labels.get(key)))

    @property
    def is_percentage(self) -> bool:
        """Whether the limit depends on the number of nodes."""
        return isinstance(self.max_unavailable, str)

    def label_keys(self) -> tuple[str, ...]:
        selected = () if self.selector is None else tuple(requirement.key for requirement in self.selector.requirements)
        return tuple(dict.fromkeys((*self.group_by, *selected)))

    def __str__(self) -> str:
        """Return a text such as `at most 1 node in each topology.kubernetes.io/zone, of those with pool=gpu`."""
        most = f"at most {self.max_unavailable}" + (
            "" if self.is_percentage else " node" if self.max_unavailable == 1 else " nodes"
        )
        where = f" in each {' and '.join(self.group_by)}" if self.group_by else ""
        which = f", of those with {self.selector}" if self.selector is not None else ""
        return f"{most}{where}{which}" if where or which else f"{most} in the whole cluster"


@dataclass(frozen=True, slots=True)
class LimitGroup:
    """Nodes that share a limit: all that have the same values of its labels."""

    limit: BudgetLimit
    labels: tuple[tuple[str, str], ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        if any(labels.get(key) != value for key, value in self.labels):
            return False
        return self.limit.selector is None or self.limit.selector.matches(labels)

    def max_unavailable(self, size: int) -> int:
        """Return how many nodes of a group of this size may be unavailable."""
        return scaled_value(self.limit.max_unavailable, size)

    def __str__(self) -> str:
        """Return the group as a selector, for messages."""
        parts = [f"{key}={value}" for key, value in self.labels]
        parts += [str(self.limit.selector)] if self.limit.selector is not None else []
        return ",".join(parts) or "the whole cluster"


@dataclass(frozen=True, slots=True)
class Budget:
    """All limits. Without limits, there is no budget."""

    limits: tuple[BudgetLimit, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.limits)

    def groups(self, labels: Mapping[str, str]) -> list[LimitGroup]:
        """Return the groups of a node with these labels, one per limit that applies."""
        return [group for limit in self.limits if (group := limit.group(labels)) is not None]

    def label_keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key for limit in self.limits for key in limit.label_keys()))


NO_BUDGET = Budget()
