"""How much of a budget is taken, by whom, and who waits: for people, from what is seen.

How many nodes there are in each group takes a look at all of them, and is counted anew only every few seconds.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta

from haulout.budget.away import is_away
from haulout.budget.limits import Budget, BudgetLimit, Group
from haulout.kube.objects import Node
from haulout.maintenance.sight import out_of_service
from haulout.profiles.steps import ProfileReport
from haulout.web.api.shapes import BudgetUse
from haulout.web.api.sight import Sight

_COUNTED_EVERY = timedelta(seconds=5)
_MOST_GROUPS = 24  # of one limit, that are shown though nobody uses them
_MOST_NAMES = 100
_CROWDED = "the budget is used up"  # how `haulout.budget.room.Crowded` says it


class Budgets:
    """What is known of budgets."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self._sizes: dict[BudgetLimit, Counter[Group]] = {}
        self._of: Budget | None = None
        self._until = 0.0

    def uses(self, planned: Iterable[str]) -> tuple[BudgetUse, ...]:
        """Return how much is taken of each limit, for each group of nodes that it is about.

        Who waits is looked for among the nodes that are `planned`.
        """
        budget, now = self._sight.budget(), self._sight.clock.now()
        if not budget:
            return ()
        self._count(budget)
        away = sorted((it for it in out_of_service(self._sight.nodes) if is_away(it, now)), key=lambda it: it.name)
        waiting = [node for it in self._waiting(planned) if (node := self._sight.nodes.get(it)) is not None]
        return tuple(use for limit in budget.limits for use in self._uses_of(limit, away, waiting))

    def _uses_of(self, limit: BudgetLimit, away: list[Node], waiting: list[Node]) -> Iterator[BudgetUse]:
        sizes = self._sizes[limit]
        used, wanted = _by_group(limit, away), _by_group(limit, waiting)
        groups = sizes if len(sizes) <= _MOST_GROUPS else {it: sizes[it] for it in sizes if it in used or it in wanted}
        for group in sorted(groups, key=str):
            yield BudgetUse(
                name=str(group),
                used=len(used.get(group, ())),
                limit=group.most(sizes[group]),
                text=str(limit),
                holders=tuple(used.get(group, ())[:_MOST_NAMES]),
                waiting=tuple(wanted.get(group, ())[:_MOST_NAMES]),
            )

    def _waiting(self, planned: Iterable[str]) -> list[str]:
        """Return the nodes for which somebody waits: orders first, then profiles."""
        orders = [it.node for it in self._sight.line.orders()]
        profiles = self._sight.profiles()
        infos = () if profiles is None else filter(None, map(profiles.info.get, planned))
        refused = sorted(it.name for it in infos if _waits_for_room(it.reports))
        return list(dict.fromkeys((*orders, *refused)))

    def _count(self, budget: Budget) -> None:
        now = self._sight.clock.monotonic()
        if budget == self._of and now < self._until:
            return
        self._of, self._until = budget, now + _COUNTED_EVERY.total_seconds()
        self._sizes = {limit: Counter() for limit in budget.limits}
        for node in self._sight.nodes.all():
            for group in budget.groups(node.metadata.labels):
                self._sizes[group.limit][group] += 1


def _by_group(limit: BudgetLimit, nodes: Iterable[Node]) -> dict[Group, list[str]]:
    found: dict[Group, list[str]] = {}
    for node in nodes:
        group = limit.group(node.metadata.labels)
        if group is not None:
            found.setdefault(group, []).append(node.name)
    return found


def _waits_for_room(reports: Iterable[ProfileReport]) -> bool:
    return any(_CROWDED in way.veto for it in reports for way in it.transitions if way.veto)
