"""Metrics of a budget: usage and limit, for each limit and group."""

import msgspec

from haulout.api.objects import Node
from haulout.budget.budget_check import GroupSizes
from haulout.budget.limits import Budget, BudgetLimit
from haulout.budget.metrics import BudgetMetrics, limit_usage
from haulout.budget.unavailable_nodes import DRAIN_TAINT
from support.builders.objects import a_node
from support.fakes.cluster_view import NOW

EACH = BudgetLimit(max_unavailable=1, group_by=("zone",))
SHARE = BudgetLimit(max_unavailable="50%")


def node(name: str, *, unavailable: bool = False) -> Node:
    """Return a node; its zone is the first letter of its name."""
    made = a_node(name, labels={"zone": name[0]}).ready()
    return msgspec.convert(made.tainted(DRAIN_TAINT.key) if unavailable else made, Node)


def test_unavailable_nodes_count_in_each_group_they_belong_to() -> None:
    nodes = [node("a1", unavailable=True), node("a2", unavailable=True), node("a3"), node("b1")]
    found = limit_usage(Budget((EACH, SHARE)), candidates=nodes, sizes=GroupSizes(lambda: nodes), now=NOW)
    assert [(str(usage.group), usage.used, usage.max_unavailable) for usage in found] == [
        ("zone=a", 2, 1),
        ("zone=b", 0, 1),
        ("the whole cluster", 2, 2),
    ]


def test_budget_metrics_report_usage_and_limit() -> None:
    nodes = [node("a1", unavailable=True), node("a2")]
    found = limit_usage(Budget((EACH,)), candidates=nodes, sizes=GroupSizes(lambda: nodes), now=NOW)
    labels = ("at most 1 node in each zone", "zone=a")
    samples = [sample for metric in BudgetMetrics(found).collect() for sample in metric.samples()]
    assert [(sample.name, tuple(value for _, value in sample.labels), sample.number) for sample in samples] == [
        ("haulout_budget_used", labels, 1),
        ("haulout_budget_limit", labels, 1),
    ]
