"""What a budget says: limits on how many nodes are out of service at once, all of which hold together.

    limit = BudgetLimit(most="10%")
    group = limit.group(node.metadata.labels)      # the nodes that share it with this one; None: it is not about it
    group.covers(other.metadata.labels), group.most(size)

A limit is over all nodes, over those that a selector means, or over each group of nodes with the same values of some
labels. A node that lacks such a label, or has it empty, is grouped by the others only: it has to fit everywhere.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from haulout.kube.selectors import Selector

_PERCENTAGE = re.compile(r"(?P<percent>[0-9]{1,3})\s*%")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]*)?")  # a fraction is cut off
_HUNDRED_PERCENT = 100


def parse_amount(written: int | str) -> int | str:
    """Return a number, or a share such as `20%`; raise ValueError if it is neither, or nothing."""
    text = str(written).strip()
    percentage = _PERCENTAGE.fullmatch(text)
    if percentage and 0 < int(percentage["percent"]) <= _HUNDRED_PERCENT:
        return f"{int(percentage['percent'])}%"
    number = int(text.partition(".")[0]) if _NUMBER.fullmatch(text) else 0
    if not number:
        raise ValueError  # whoever asks knows what was found, and what is expected
    return number


def parse_max_unavailable(written: str) -> int | str:
    """Return what a limit of a budget may be: a share, or a number that lets at least one node go."""
    amount = parse_amount(written)
    if "." in written or (isinstance(amount, int) and amount < 0):
        raise ValueError
    return amount


def scaled_value(amount: int | str, size: int) -> int:
    """Return how many nodes that are, of so many: a share is rounded down, and at least 1."""
    if isinstance(amount, int):
        return amount
    return max(size * int(amount.removesuffix("%")) // _HUNDRED_PERCENT, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimit:
    """One limit of a budget."""

    max_unavailable: int | str  # a number, or a share of the nodes in its group
    group_by: tuple[str, ...] = ()  # keys of labels
    selector: Selector | None = None

    def group(self, labels: Mapping[str, str]) -> "LimitGroup | None":
        """Return which nodes share this limit with one that has these labels; None if it is not about that one."""
        if self.selector is not None and not self.selector.matches(labels):
            return None
        return LimitGroup(self, tuple((key, labels[key]) for key in self.group_by if labels.get(key)))

    @property
    def is_percentage(self) -> bool:
        """Tell whether it depends on how many nodes there are."""
        return isinstance(self.max_unavailable, str)

    def label_keys(self) -> tuple[str, ...]:
        """Return the labels that it looks at."""
        selected = () if self.selector is None else tuple(requirement.key for requirement in self.selector.requirements)
        return tuple(dict.fromkeys((*self.group_by, *selected)))

    def __str__(self) -> str:
        """Return it for people: `at most 1 node in each topology.kubernetes.io/zone, of those with pool=gpu`."""
        most = f"at most {self.max_unavailable}" + (
            "" if self.is_percentage else " node" if self.max_unavailable == 1 else " nodes"
        )
        where = f" in each {' and '.join(self.group_by)}" if self.group_by else ""
        which = f", of those with {self.selector}" if self.selector is not None else ""
        return f"{most}{where}{which}" if where or which else f"{most} in the whole cluster"


@dataclass(frozen=True, slots=True)
class LimitGroup:
    """Nodes that share a limit."""

    limit: BudgetLimit
    labels: tuple[tuple[str, str], ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a node with these labels is one of them."""
        if any(labels.get(key) != value for key, value in self.labels):
            return False
        return self.limit.selector is None or self.limit.selector.matches(labels)

    def max_unavailable(self, size: int) -> int:
        """Return how many of them may be out of service, if there are so many."""
        return scaled_value(self.limit.max_unavailable, size)

    def __str__(self) -> str:
        """Return it for people, as a selector."""
        parts = [f"{key}={value}" for key, value in self.labels]
        parts += [str(self.limit.selector)] if self.limit.selector is not None else []
        return ",".join(parts) or "the whole cluster"


@dataclass(frozen=True, slots=True)
class Budget:
    """All limits; without any, there is no budget."""

    limits: tuple[BudgetLimit, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.limits)

    def groups(self, labels: Mapping[str, str]) -> list[LimitGroup]:
        """Return which nodes share limits with one that has these labels."""
        return [group for limit in self.limits if (group := limit.group(labels)) is not None]

    def label_keys(self) -> tuple[str, ...]:
        """Return the labels that it looks at."""
        return tuple(dict.fromkeys(key for limit in self.limits for key in limit.label_keys()))


NO_BUDGET = Budget()
