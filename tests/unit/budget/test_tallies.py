"""What `/metrics` says of a budget: each limit, for each group that shares it."""

import msgspec

from haulout.budget.away import DRAIN_TAINT
from haulout.budget.limits import Budget, BudgetLimit
from haulout.budget.room import Sizes
from haulout.budget.tallies import BudgetTallies, uses
from haulout.kube.objects import Node
from support.builders import a_node
from support.scenes import NOW

EACH = BudgetLimit(most=1, group_by=("zone",))
SHARE = BudgetLimit(most="50%")


def node(name: str, *, out: bool = False) -> Node:
    """Return a node; its zone is the first letter of its name."""
    made = a_node(name, labels={"zone": name[0]}).ready()
    return msgspec.convert(made.tainted(DRAIN_TAINT.key) if out else made, Node)


def test_nodes_that_are_out_of_service_count_in_each_group_that_they_belong_to() -> None:
    nodes = [node("a1", out=True), node("a2", out=True), node("a3"), node("b1")]
    found = uses(Budget((EACH, SHARE)), candidates=nodes, sizes=Sizes(lambda: nodes), now=NOW)
    assert [(str(it.group), it.used, it.most) for it in found] == [
        ("zone=a", 2, 1),
        ("zone=b", 0, 1),
        ("the whole cluster", 2, 2),
    ]


def test_metrics_have_what_is_used_and_what_is_allowed() -> None:
    nodes = [node("a1", out=True), node("a2")]
    found = uses(Budget((EACH,)), candidates=nodes, sizes=Sizes(lambda: nodes), now=NOW)
    labels = ("at most 1 node in each zone", "zone=a")
    told = [sample for tally in BudgetTallies(found).all() for sample in tally.samples()]
    assert [(it.name, tuple(value for _, value in it.labels), it.number) for it in told] == [
        ("haulout_budget_used", labels, 1),
        ("haulout_budget_limit", labels, 1),
    ]
