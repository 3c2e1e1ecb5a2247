"""How much of a budget is used, for `/metrics`: each of its limits, for each group of nodes that shares it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from haulout.api.objects import Node
from haulout.budget.budget_check import GroupSizes
from haulout.budget.limits import Budget, LimitGroup
from haulout.budget.unavailable_nodes import is_unavailable
from haulout.core.metrics import Metric, MetricKind, MetricVec

_LABELS = ("limit", "group")
_MORE = "`limit` is the rule in words, `group` the nodes that share it"

USED = Metric(
    "haulout_budget_used",
    "How many nodes are out of service that count against a limit.",
    _LABELS,
    MetricKind.GAUGE,
    details=_MORE,
)
LIMIT = Metric(
    "haulout_budget_limit", "How many nodes may be out of service by a limit.", _LABELS, MetricKind.GAUGE, details=_MORE
)
WAITING = Metric(
    "haulout_budget_waiting",
    "How many nodes wait for room, though nothing else stands in the way of their maintenance.",
    ("by",),
    MetricKind.GAUGE,
    details="`by` is `order` or `profile`; another maintenance of the same node counts as well",
)
METRICS = (USED, LIMIT, WAITING)


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """How much of a limit is used by those who share it."""

    group: LimitGroup
    used: int
    max_unavailable: int


def limit_usage(
    budget: Budget, *, candidates: Iterable[Node], sizes: GroupSizes, now: datetime
) -> tuple[LimitUsage, ...]:
    """Return how much of each limit is used; `candidates` are the nodes that may be out of service."""
    unavailable_labels = [node.metadata.labels for node in candidates if is_unavailable(node, now)]
    groups = [group for limit in budget.limits for group in sizes.groups(limit)]
    return tuple(
        LimitUsage(
            group,
            sum(map(group.matches, unavailable_labels)),
            group.max_unavailable(sizes.size(group) if group.limit.is_percentage else 0),
        )
        for group in groups
    )


class BudgetMetrics:
    """What is told of a budget."""

    def __init__(self, usage: Iterable[LimitUsage]) -> None:
        self.used = MetricVec(USED)
        self.max_unavailable = MetricVec(LIMIT)
        for entry in usage:
            labels = str(entry.group.limit), str(entry.group)
            self.used.set(*labels, to=entry.used)
            self.max_unavailable.set(*labels, to=entry.max_unavailable)

    def collect(self) -> tuple[MetricVec, ...]:
        """Return all of them."""
        return self.used, self.max_unavailable
