"""Budget metrics: the usage of each limit by each group of nodes."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from haulout.api.objects import Node
from haulout.budget.budget_check import GroupSizes
from haulout.budget.limits import Budget, LimitGroup
from haulout.budget.unavailable_nodes import is_unavailable
from haulout.core.metrics import MetricVec, gauge

_MORE = "`limit` is the limit as text, `group` selects the nodes that share it"

USED = gauge(
    "haulout_budget_used",
    "How many nodes that count against a limit are out of service.",
    "limit",
    "group",
    details=_MORE,
)
LIMIT = gauge(
    "haulout_budget_limit", "How many nodes a limit allows to be out of service.", "limit", "group", details=_MORE
)
WAITING = gauge(
    "haulout_budget_waiting",
    "How many nodes have a maintenance that waits only for the budget.",
    "controller",
    details="`controller` is `nodemaintenance` or `profiles`; another maintenance of the same node counts as well",
)
METRICS = (USED, LIMIT, WAITING)


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """The usage of a limit by one group of nodes."""

    group: LimitGroup
    used: int
    max_unavailable: int


def limit_usage(
    budget: Budget, *, candidates: Iterable[Node], sizes: GroupSizes, now: datetime
) -> tuple[LimitUsage, ...]:
    """Return the usage of each limit. `candidates` are the nodes that may be unavailable."""
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
    """The metrics of a budget at one moment. They are computed anew for each scrape."""

    def __init__(self, usage: Iterable[LimitUsage]) -> None:
        self.used = MetricVec(USED)
        self.max_unavailable = MetricVec(LIMIT)
        for entry in usage:
            labels = str(entry.group.limit), str(entry.group)
            self.used.set(*labels, to=entry.used)
            self.max_unavailable.set(*labels, to=entry.max_unavailable)

    def collect(self) -> tuple[MetricVec, ...]:
        return self.used, self.max_unavailable
