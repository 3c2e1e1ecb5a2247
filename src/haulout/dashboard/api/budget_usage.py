"""The usage of budgets for users: slots taken, holders, and waiting nodes, from informers.

The group sizes need a scan of all nodes, so they are cached for some seconds.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta

from haulout.api.objects import Node
from haulout.budget.limits import Budget, BudgetLimit, LimitGroup
from haulout.budget.unavailable_nodes import is_unavailable
from haulout.controllers.nodemaintenance.informers import unavailable_nodes
from haulout.controllers.profiles.observation import ProfileReport
from haulout.dashboard.api.nodes.informers import Informers
from haulout.dashboard.api.types import BudgetUsage

_COUNT_INTERVAL = timedelta(seconds=5)
_MAX_GROUPS = 24  # per limit, shown although unused
_MAX_NAMES = 100


class BudgetUsageView:
    """Computes the usage of budgets."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._sizes: dict[BudgetLimit, Counter[LimitGroup]] = {}
        self._counted_budget: Budget | None = None
        self._counted_until = 0.0

    def uses(self, planned: Iterable[str]) -> tuple[BudgetUsage, ...]:
        """Return the usage of each limit, per group of nodes.

        Waiting nodes are searched among the `planned` nodes.
        """
        budget, now = self._informers.budget(), self._informers.clock.now()
        if not budget:
            return ()
        self._count(budget)
        unavailable = sorted(
            (item for item in unavailable_nodes(self._informers.nodes) if is_unavailable(item, now)),
            key=lambda item: item.name,
        )
        waiting = [node for item in self._waiting(planned) if (node := self._informers.nodes.get(item)) is not None]
        return tuple(use for limit in budget.limits for use in self._uses_of(limit, unavailable, waiting))

    def _uses_of(self, limit: BudgetLimit, unavailable: list[Node], waiting: list[Node]) -> Iterator[BudgetUsage]:
        sizes = self._sizes[limit]
        used, waiting_by_group = _by_group(limit, unavailable), _by_group(limit, waiting)
        groups = (
            sizes
            if len(sizes) <= _MAX_GROUPS
            else {key: sizes[key] for key in sizes if key in used or key in waiting_by_group}
        )
        for group in sorted(groups, key=str):
            yield BudgetUsage(
                name=str(group),
                used=len(used.get(group, ())),
                limit=group.max_unavailable(sizes[group]),
                text=str(limit),
                holders=tuple(used.get(group, ())[:_MAX_NAMES]),
                waiting=tuple(waiting_by_group.get(group, ())[:_MAX_NAMES]),
            )

    def _waiting(self, planned: Iterable[str]) -> list[str]:
        """Return the waiting nodes: those of NodeMaintenances first, then those of profiles."""
        orders = [item.node for item in self._informers.waiting_list.entries()]
        profiles = self._informers.profiles()
        infos = () if profiles is None else filter(None, map(profiles.statuses.get, planned))
        refused = sorted(item.name for item in infos if _waits_for_budget(item.reports))
        return list(dict.fromkeys((*orders, *refused)))

    def _count(self, budget: Budget) -> None:
        now = self._informers.clock.monotonic()
        if budget == self._counted_budget and now < self._counted_until:
            return
        self._counted_budget, self._counted_until = budget, now + _COUNT_INTERVAL.total_seconds()
        self._sizes = {limit: Counter() for limit in budget.limits}
        for node in self._informers.nodes.all():
            for group in budget.groups(node.metadata.labels):
                self._sizes[group.limit][group] += 1


def _by_group(limit: BudgetLimit, nodes: Iterable[Node]) -> dict[LimitGroup, list[str]]:
    found: dict[LimitGroup, list[str]] = {}
    for node in nodes:
        group = limit.group(node.metadata.labels)
        if group is not None:
            found.setdefault(group, []).append(node.name)
    return found


def _waits_for_budget(reports: Iterable[ProfileReport]) -> bool:
    return any(transition.is_budget_exhausted for report in reports for transition in report.transitions)
