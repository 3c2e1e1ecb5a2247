"""Whether there is room for one more: limits hold together, in each group, and orders that wait go first."""

from datetime import datetime, timedelta

import msgspec
import pytest

from haulout.api.objects import Node
from haulout.budget.budget_check import BudgetCheck, GroupSizes, WaitingList, WaitingNodeMaintenance, may_free_slot
from haulout.budget.limits import Budget, BudgetLimit, parse_amount, parse_max_unavailable
from haulout.budget.unavailable_nodes import DOWN_AFTER, DRAIN_TAINT
from haulout.controllers.profiles.view.node_index import NodeIndex
from haulout.core.clock import Clock
from haulout.kube import selectors
from haulout.kube.slot_ledger import Slot
from support.builders.objects import a_node
from support.fakes.cluster_view import NOW

ZONE = "zone"
ALL = BudgetLimit(max_unavailable=2)
EACH = BudgetLimit(max_unavailable=1, group_by=(ZONE,))


def node(name: str, *, unavailable: bool = False, **labels: str) -> Node:
    """Return a node; its zone is the first letter of its name."""
    built = a_node(name, labels={ZONE: name[0], **labels}).ready()
    built = built.tainted(DRAIN_TAINT.key) if unavailable else built
    built["metadata"] = {**built["metadata"], "uid": f"u-{name}", "resourceVersion": "7"}
    return msgspec.convert(built, Node)


def a_budget_check(
    *nodes: Node,
    limits: tuple[BudgetLimit, ...],
    waiting: tuple[str, ...] = (),
    own_entry: str = "",
    now: datetime = NOW,
    clock: Clock | None = None,
) -> BudgetCheck:
    """Return a view; orders are for the nodes of their names, in this order."""
    sights = NodeIndex(lambda _: {}, on_change=lambda *_: None, clock=clock)
    for each_node in nodes:
        sights.on_watch_event(None, each_node)
    entries = {name: WaitingNodeMaintenance(NOW + timedelta(seconds=at), name, name) for at, name in enumerate(waiting)}
    return BudgetCheck(
        budget=Budget(limits), nodes=sights, now=now, waiting=tuple(entries.values()), own_entry=entries.get(own_entry)
    )


def not_ready_node(name: str, *, at: datetime | None) -> Node:
    """Return a node that is not ready since then."""
    condition = {"type": "Ready", "status": "False", "lastTransitionTime": at}
    built = a_node(name, labels={ZONE: name[0]}).with_status(conditions=[condition])
    built["metadata"] |= {
        "uid": f"u-{name}",
        "resourceVersion": "7",
        "creationTimestamp": (at or NOW) - timedelta(days=1),
    }
    return msgspec.convert(built, Node)


def test_all_limits_hold_together() -> None:
    view = a_budget_check(node("a1", unavailable=True), node("a2"), node("b1"), node("c1"), limits=(ALL, EACH))
    assert view.exhausted(node("b1")) is None
    assert str(view.exhausted(node("a2"))) == (
        "the budget is used up: 1 of at most 1 node in zone=a out of service: a1 (taint medik8s.io/drain)"
    )


def test_a_node_that_is_out_of_service_already_takes_no_room() -> None:
    view = a_budget_check(node("a1", unavailable=True), node("a2", unavailable=True), limits=(EACH,))
    assert view.exhausted(node("a2", unavailable=True)) is None
    assert view.slot_limits(node("a2", unavailable=True)) == []


@pytest.mark.parametrize("off", [timedelta(), timedelta(hours=3), timedelta(hours=-3)], ids=str)
async def test_a_node_is_down_beyond_doubt_only_when_we_have_seen_it_so_whatever_our_clock_says(
    clock: Clock, off: timedelta
) -> None:
    down = not_ready_node("a1", at=NOW)
    view = a_budget_check(node("a2", unavailable=True), down, limits=(EACH,), now=NOW + off, clock=clock)
    crowded = view.exhausted(down)
    assert crowded is not None
    assert crowded.requeue_at == NOW + off + DOWN_AFTER
    await clock.sleep(DOWN_AFTER)
    assert view.exhausted(down) is None
    assert view.slot_limits(down) == []
    again = not_ready_node(
        "a1", at=NOW + timedelta(seconds=50)
    )  # it was ready in between, or is not ready in another way
    assert isinstance(view.nodes, NodeIndex)
    view.nodes.on_watch_event(down, again)
    assert view.exhausted(again) is not None


async def test_a_node_that_stays_down_is_measured_from_the_start_whatever_else_changes(clock: Clock) -> None:
    down = not_ready_node("a1", at=NOW)
    view = a_budget_check(node("a2", unavailable=True), down, limits=(EACH,), clock=clock)
    assert isinstance(view.nodes, NodeIndex)
    for _ in range(2):
        await clock.sleep(DOWN_AFTER / 2)
        view.nodes.on_watch_event(down, not_ready_node("a1", at=NOW))
    assert view.exhausted(down) is None


async def test_a_node_that_was_ready_in_between_is_measured_anew_though_it_names_no_time(
    clock: Clock,
) -> None:
    down, ready = not_ready_node("a1", at=None), node("a1")
    view = a_budget_check(node("a2", unavailable=True), down, limits=(EACH,), clock=clock)
    assert isinstance(view.nodes, NodeIndex)
    await clock.sleep(DOWN_AFTER)
    assert view.exhausted(down) is None
    view.nodes.on_watch_event(down, ready)
    view.nodes.on_watch_event(ready, down)
    assert view.exhausted(down) is not None


@pytest.mark.parametrize("off", [timedelta(minutes=1), timedelta(hours=-3)], ids=str)
def test_others_that_may_be_down_count(off: timedelta) -> None:
    view = a_budget_check(not_ready_node("a1", at=NOW), node("a2"), limits=(EACH,), now=NOW + off)
    assert view.exhausted(node("a2")) is not None


async def test_others_count_that_we_have_seen_down_though_our_clock_stands_still(clock: Clock) -> None:
    view = a_budget_check(not_ready_node("a1", at=NOW), node("a2"), limits=(EACH,), clock=clock)
    assert view.exhausted(node("a2")) is None
    await clock.sleep(DOWN_AFTER)
    assert view.exhausted(node("a2")) is not None


def test_who_takes_one_look_believes_what_a_node_says() -> None:
    down = not_ready_node("a1", at=NOW)
    nodes = node("a2", unavailable=True), down
    assert a_budget_check(*nodes, limits=(EACH,), now=NOW + timedelta(seconds=59)).exhausted(down) is not None
    assert a_budget_check(*nodes, limits=(EACH,), now=NOW + DOWN_AFTER).exhausted(down) is None


def test_a_node_without_the_label_of_a_group_has_to_fit_everywhere() -> None:
    bare = msgspec.convert({"metadata": {"name": "x", "uid": "u-x", "resourceVersion": "7"}}, Node)
    view = a_budget_check(node("a1", unavailable=True), bare, limits=(EACH,))
    assert view.exhausted(bare) is not None


def test_a_limit_with_a_selector_is_about_those_nodes_alone() -> None:
    gpu = BudgetLimit(max_unavailable=1, selector=selectors.parse("pool=gpu"))
    view = a_budget_check(node("a1", unavailable=True, pool="gpu"), node("a2", pool="gpu"), node("a3"), limits=(gpu,))
    assert view.exhausted(node("a3")) is None
    assert "in pool=gpu out of service" in str(view.exhausted(node("a2", pool="gpu")))


@pytest.mark.parametrize(("share", "nodes", "most"), [("10%", 5, 1), ("34%", 6, 2), ("100%", 3, 3), ("50%", 3, 1)])
def test_a_share_is_rounded_down_and_at_least_one(share: str, nodes: int, most: int) -> None:
    names = [f"a{number}" for number in range(nodes)]
    limit = BudgetLimit(max_unavailable=share)
    fits = [
        a_budget_check(
            *(node(name, unavailable=at < gone) for at, name in enumerate(names)), limits=(limit,)
        ).exhausted(node(names[-1]))
        is None
        for gone in range(nodes)
    ]
    assert sum(fits) == most


def test_orders_go_first_each_as_far_as_there_is_room_for_it() -> None:
    nodes = [node("a1", unavailable=True), node("a2"), node("b1"), node("b2"), node("c1")]
    # a2 waits for its zone and keeps nobody else; b1 takes the last place of all.
    profile = a_budget_check(*nodes, limits=(ALL, EACH), waiting=("a2", "b1"))
    assert "b1 (NodeMaintenance b1 is next)" in str(profile.exhausted(node("c1")))
    assert (
        a_budget_check(*nodes, limits=(ALL, EACH), waiting=("a2", "b1"), own_entry="b1").exhausted(node("b1")) is None
    )
    late = a_budget_check(*nodes, limits=(ALL, EACH), waiting=("a2", "b1", "c1"), own_entry="c1")
    assert late.exhausted(node("c1")) is not None


def test_an_order_for_a_node_that_is_gone_or_out_keeps_nobody() -> None:
    view = a_budget_check(node("a1", unavailable=True), node("b1"), limits=(ALL,), waiting=("gone", "a1"))
    assert view.exhausted(node("b1")) is None


def test_who_leaves_the_line_is_told_to_those_behind() -> None:
    line, told = WaitingList(), list[str]()
    end = line.subscribe(lambda: told.append("room"))
    for at, name in ((2, "b"), (1, "a")):
        line.add(WaitingNodeMaintenance(NOW + timedelta(seconds=at), name, name))
    assert [entry.name for entry in line.entries()] == ["a", "b"]
    line.remove("nobody")
    assert not told
    line.remove("a")
    end()
    line.remove("b")
    assert told == ["room"]


def a_slot(name: str) -> Slot:
    return Slot(uid=f"u-{name}", name=name, since=NOW)


def test_the_ledger_names_nodes_that_look_as_if_nothing_was_done_to_them() -> None:
    """Another controller has taken the slot and not written to its node yet, or our copy of the node is old."""
    view = a_budget_check(node("a1"), node("a2"), node("b1"), limits=(EACH,))
    crowded = view.exhausted_by(node("a2"), [a_slot("a1")])
    assert (crowded.unavailable, crowded.reasons, crowded.max_unavailable) == (("a1",), ("slot already reserved",), 1)
    assert crowded.group is not None


def test_slots_that_are_full_keep_a_node_waiting_though_none_of_their_nodes_is_known() -> None:
    view = a_budget_check(node("a1"), limits=(ALL,))
    crowded = view.exhausted_by(node("a1"), [a_slot("gone"), a_slot("gone"), a_slot("away")])
    assert (crowded.unavailable, crowded.reasons, crowded.group) == (("gone", "away"), ("", ""), None)
    assert str(crowded) == "the budget is used up: gone, away"


def test_a_slot_in_another_group_keeps_nobody_waiting() -> None:
    view = a_budget_check(node("a1"), node("b1"), limits=(EACH,))
    (limit,) = view.slot_limits(node("a1"))
    assert limit.counts(a_slot("b1")) is False
    assert limit.counts(a_slot("gone")) is True
    assert limit.counts(Slot(uid="before", name="b1", since=NOW)) is True, "until the server says that it is gone"


def test_a_node_does_not_count_against_itself() -> None:
    view = a_budget_check(node("a1", unavailable=True), node("a2"), node("b1", unavailable=True), limits=(EACH,))
    (limit,) = view.slot_limits(node("a2"))
    assert limit.unavailable_uids == {"u-a1"}


def test_nodes_of_a_group_are_counted_again_only_when_labels_change() -> None:
    nodes, looks = [node("a1"), node("b1")], list[int]()

    def all_nodes() -> list[Node]:
        looks.append(1)
        return nodes

    sizes = GroupSizes(all_nodes)
    group = EACH.group({ZONE: "a"})
    assert group is not None
    assert (sizes.size(group), sizes.size(group)) == (1, 1)
    sizes.on_node_change(nodes[0], node("a1", unavailable=True))
    assert (sizes.size(group), len(looks)) == (1, 1)
    nodes.append(node("a2"))
    sizes.on_node_change(None, nodes[-1])
    assert (sizes.size(group), len(looks)) == (2, 2)


def test_groups_come_and_go_with_their_nodes() -> None:
    nodes = [node("a1"), node("b1")]
    sizes = GroupSizes(lambda: nodes)
    assert [str(group) for group in sizes.groups(EACH)] == ["zone=a", "zone=b"]
    added, removed = node("c1"), nodes.pop(0)
    nodes.append(added)
    sizes.on_node_change(None, added)
    sizes.on_node_change(removed, None)
    assert [str(group) for group in sizes.groups(EACH)] == ["zone=b", "zone=c"]


def test_what_may_make_room_wakes_those_who_wait() -> None:
    budget = Budget((EACH,))
    assert may_free_slot(budget, node("a1", unavailable=True), node("a1"))
    assert may_free_slot(budget, None, node("a1"))
    assert may_free_slot(budget, node("a1"), node("a1", zone="b"))
    assert not may_free_slot(budget, node("a1"), node("a1", other="label"))
    assert not may_free_slot(budget, node("a1"), node("a1", unavailable=True))


@pytest.mark.parametrize("written", ["0", "-1", "2.5", "0%", "101%", "many", ""])
def test_a_limit_lets_at_least_one_node_go(written: str) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        parse_max_unavailable(written)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (BudgetLimit(max_unavailable=1), "at most 1 node in the whole cluster"),
        (BudgetLimit(max_unavailable=2), "at most 2 nodes in the whole cluster"),
        (BudgetLimit(max_unavailable="10%"), "at most 10% in the whole cluster"),
        (BudgetLimit(max_unavailable=1, group_by=(ZONE, "rack")), "at most 1 node in each zone and rack"),
        (
            BudgetLimit(max_unavailable=3, selector=selectors.parse("pool=gpu")),
            "at most 3 nodes, of those with pool=gpu",
        ),
    ],
)
def test_a_limit_reads_as_a_sentence(limit: BudgetLimit, words: str) -> None:
    assert str(limit) == words


def test_a_check_may_have_a_limit_that_never_passes() -> None:
    assert parse_amount("-1") == -1
    assert parse_max_unavailable(" 10 % ") == "10%"
