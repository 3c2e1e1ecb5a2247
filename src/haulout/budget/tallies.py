"""How much of a budget is used, for `/metrics`: each of its limits, for each group of nodes that shares it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from haulout.budget.away import is_away
from haulout.budget.limits import Budget, Group
from haulout.budget.room import Sizes
from haulout.core.metering import Kind, Metric, Tally
from haulout.kube.objects import Node

_LIMIT = ("limit", "group")
_MORE = "`limit` is the rule in words, `group` the nodes that share it"

USED = Metric(
    "haulout_budget_used",
    "How many nodes are out of service that count against a limit.",
    _LIMIT,
    Kind.GAUGE,
    more=_MORE,
)
MOST = Metric(
    "haulout_budget_limit", "How many nodes may be out of service by a limit.", _LIMIT, Kind.GAUGE, more=_MORE
)
WAITING = Metric(
    "haulout_budget_waiting",
    "How many nodes wait for room, though nothing else stands in the way of their maintenance.",
    ("by",),
    Kind.GAUGE,
    more="`by` is `order` or `profile`; another maintenance of the same node counts as well",
)
METRICS = (USED, MOST, WAITING)


@dataclass(frozen=True, slots=True)
class Use:
    """How much of a limit is used by those who share it."""

    group: Group
    used: int
    most: int


def uses(budget: Budget, *, candidates: Iterable[Node], sizes: Sizes, now: datetime) -> tuple[Use, ...]:
    """Return how much of each limit is used; `candidates` are the nodes that may be out of service."""
    away = [it.metadata.labels for it in candidates if is_away(it, now)]
    groups = [group for limit in budget.limits for group in sizes.groups(limit)]
    return tuple(
        Use(group, sum(map(group.covers, away)), group.most(sizes.of(group) if group.limit.is_share else 0))
        for group in groups
    )


class BudgetTallies:
    """What is told of a budget."""

    def __init__(self, found: Iterable[Use]) -> None:
        self.used = Tally(USED)
        self.most = Tally(MOST)
        for use in found:
            labels = str(use.group.limit), str(use.group)
            self.used.set(*labels, to=use.used)
            self.most.set(*labels, to=use.most)

    def all(self) -> tuple[Tally, ...]:
        """Return all of them."""
        return self.used, self.most
