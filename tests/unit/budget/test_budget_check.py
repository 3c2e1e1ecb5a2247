"""The budget check: all limits apply together and per group, and waiting NodeMaintenances take precedence."""

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
    """Return a budget check; `waiting` names nodes whose NodeMaintenances wait, oldest first."""
    nodes_index = NodeIndex(lambda _: {}, on_change=lambda *_: None, clock=clock)
    for each_node in nodes:
        nodes_index.on_watch_event(None, each_node)
    entries = {name: WaitingNodeMaintenance(NOW + timedelta(seconds=at), name, name) for at, name in enumerate(waiting)}
    return BudgetCheck(
        budget=Budget(limits),
        nodes=nodes_index,
        now=now,
        waiting=tuple(entries.values()),
        own_entry=entries.get(own_entry),
    )


def not_ready_node(name: str, *, at: datetime | None) -> Node:
    """Return a node that is not ready since an instant."""
    condition = {"type": "Ready", "status": "False", "lastTransitionTime": at}
    built = a_node(name, labels={ZONE: name[0]}).with_status(conditions=[condition])
    built["metadata"] |= {
        "uid": f"u-{name}",
        "resourceVersion": "7",
        "creationTimestamp": (at or NOW) - timedelta(days=1),
    }
    return msgspec.convert(built, Node)


def test_budget_check_applies_all_limits_together() -> None:
    view = a_budget_check(node("a1", unavailable=True), node("a2"), node("b1"), node("c1"), limits=(ALL, EACH))
    assert view.exhausted(node("b1")) is None
    assert str(view.exhausted(node("a2"))) == (
        "the budget is used up: 1 of at most 1 node in zone=a out of service: a1 (taint medik8s.io/drain)"
    )


def test_node_that_is_already_unavailable_needs_no_slot() -> None:
    view = a_budget_check(node("a1", unavailable=True), node("a2", unavailable=True), limits=(EACH,))
    assert view.exhausted(node("a2", unavailable=True)) is None
    assert view.slot_limits(node("a2", unavailable=True)) == []


@pytest.mark.parametrize("off", [timedelta(), timedelta(hours=3), timedelta(hours=-3)], ids=str)
async def test_not_ready_node_is_exempt_only_after_down_after_on_the_monotonic_clock(
    clock: Clock, off: timedelta
) -> None:
    down = not_ready_node("a1", at=NOW)
    view = a_budget_check(node("a2", unavailable=True), down, limits=(EACH,), now=NOW + off, clock=clock)
    exhausted = view.exhausted(down)
    assert exhausted is not None
    assert exhausted.requeue_at == NOW + off + DOWN_AFTER
    await clock.sleep(DOWN_AFTER)
    assert view.exhausted(down) is None
    assert view.slot_limits(down) == []
    again = not_ready_node(
        "a1", at=NOW + timedelta(seconds=50)
    )  # it was ready in between, or is not ready in another way
    assert isinstance(view.nodes, NodeIndex)
    view.nodes.on_watch_event(down, again)
    assert view.exhausted(again) is not None


async def test_down_time_is_measured_from_the_first_not_ready_observation(clock: Clock) -> None:
    down = not_ready_node("a1", at=NOW)
    view = a_budget_check(node("a2", unavailable=True), down, limits=(EACH,), clock=clock)
    assert isinstance(view.nodes, NodeIndex)
    for _ in range(2):
        await clock.sleep(DOWN_AFTER / 2)
        view.nodes.on_watch_event(down, not_ready_node("a1", at=NOW))
    assert view.exhausted(down) is None


async def test_down_time_restarts_when_a_node_was_ready_in_between_without_a_transition_time(
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
def test_other_nodes_that_may_be_down_count_as_unavailable(off: timedelta) -> None:
    view = a_budget_check(not_ready_node("a1", at=NOW), node("a2"), limits=(EACH,), now=NOW + off)
    assert view.exhausted(node("a2")) is not None


async def test_other_nodes_observed_down_count_as_unavailable_although_the_wall_clock_stands_still(
    clock: Clock,
) -> None:
    view = a_budget_check(not_ready_node("a1", at=NOW), node("a2"), limits=(EACH,), clock=clock)
    assert view.exhausted(node("a2")) is None
    await clock.sleep(DOWN_AFTER)
    assert view.exhausted(node("a2")) is not None


def test_budget_check_without_a_clock_trusts_the_transition_time_of_the_node() -> None:
    down = not_ready_node("a1", at=NOW)
    nodes = node("a2", unavailable=True), down
    assert a_budget_check(*nodes, limits=(EACH,), now=NOW + timedelta(seconds=59)).exhausted(down) is not None
    assert a_budget_check(*nodes, limits=(EACH,), now=NOW + DOWN_AFTER).exhausted(down) is None


def test_node_without_the_group_label_counts_in_every_group() -> None:
    bare = msgspec.convert({"metadata": {"name": "x", "uid": "u-x", "resourceVersion": "7"}}, Node)
    view = a_budget_check(node("a1", unavailable=True), bare, limits=(EACH,))
    assert view.exhausted(bare) is not None


def test_limit_with_a_selector_applies_only_to_selected_nodes() -> None:
    gpu = BudgetLimit(max_unavailable=1, selector=selectors.parse("pool=gpu"))
    view = a_budget_check(node("a1", unavailable=True, pool="gpu"), node("a2", pool="gpu"), node("a3"), limits=(gpu,))
    assert view.exhausted(node("a3")) is None
    assert "in pool=gpu out of service" in str(view.exhausted(node("a2", pool="gpu")))


@pytest.mark.parametrize(("share", "nodes", "most"), [("10%", 5, 1), ("34%", 6, 2), ("100%", 3, 3), ("50%", 3, 1)])
def test_percentage_is_rounded_down_and_at_least_one(share: str, nodes: int, most: int) -> None:
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


def test_waiting_node_maintenances_take_precedence_as_far_as_their_limits_allow() -> None:
    nodes = [node("a1", unavailable=True), node("a2"), node("b1"), node("b2"), node("c1")]
    # a2 waits for its zone and blocks no other node; b1 gets the last slot.
    profile = a_budget_check(*nodes, limits=(ALL, EACH), waiting=("a2", "b1"))
    assert "b1 (NodeMaintenance b1 is next)" in str(profile.exhausted(node("c1")))
    assert (
        a_budget_check(*nodes, limits=(ALL, EACH), waiting=("a2", "b1"), own_entry="b1").exhausted(node("b1")) is None
    )
    late = a_budget_check(*nodes, limits=(ALL, EACH), waiting=("a2", "b1", "c1"), own_entry="c1")
    assert late.exhausted(node("c1")) is not None


def test_waiting_node_maintenance_for_a_deleted_or_unavailable_node_blocks_no_other_node() -> None:
    view = a_budget_check(node("a1", unavailable=True), node("b1"), limits=(ALL,), waiting=("gone", "a1"))
    assert view.exhausted(node("b1")) is None


def test_waiting_list_notifies_subscribers_when_an_entry_is_removed() -> None:
    waiting_list, notifications = WaitingList(), list[str]()
    end = waiting_list.subscribe(lambda: notifications.append("room"))
    for at, name in ((2, "b"), (1, "a")):
        waiting_list.add(WaitingNodeMaintenance(NOW + timedelta(seconds=at), name, name))
    assert [entry.name for entry in waiting_list.entries()] == ["a", "b"]
    waiting_list.remove("nobody")
    assert not notifications
    waiting_list.remove("a")
    end()
    waiting_list.remove("b")
    assert notifications == ["room"]


def a_slot(name: str) -> Slot:
    return Slot(uid=f"u-{name}", name=name, since=NOW)


def test_budget_exhausted_names_the_nodes_of_slots_that_look_available() -> None:
    """Another controller holds the slot but has not patched its node yet, or the cached node is stale."""
    view = a_budget_check(node("a1"), node("a2"), node("b1"), limits=(EACH,))
    exhausted = view.exhausted_by(node("a2"), [a_slot("a1")])
    assert (exhausted.unavailable, exhausted.reasons, exhausted.max_unavailable) == (
        ("a1",),
        ("slot already reserved",),
        1,
    )
    assert exhausted.group is not None


def test_full_slots_make_a_node_wait_although_none_of_their_nodes_is_known() -> None:
    view = a_budget_check(node("a1"), limits=(ALL,))
    exhausted = view.exhausted_by(node("a1"), [a_slot("gone"), a_slot("gone"), a_slot("away")])
    assert (exhausted.unavailable, exhausted.reasons, exhausted.group) == (("gone", "away"), ("", ""), None)
    assert str(exhausted) == "the budget is used up: gone, away"


def test_slot_in_another_group_does_not_count() -> None:
    view = a_budget_check(node("a1"), node("b1"), limits=(EACH,))
    (limit,) = view.slot_limits(node("a1"))
    assert limit.counts(a_slot("b1")) is False
    assert limit.counts(a_slot("gone")) is True
    assert limit.counts(Slot(uid="before", name="b1", since=NOW)) is True, (
        "until the API server reports that the node is deleted"
    )


def test_node_does_not_count_against_itself() -> None:
    view = a_budget_check(node("a1", unavailable=True), node("a2"), node("b1", unavailable=True), limits=(EACH,))
    (limit,) = view.slot_limits(node("a2"))
    assert limit.unavailable_uids == {"u-a1"}


def test_group_sizes_are_recounted_only_when_labels_change() -> None:
    nodes, recounts = [node("a1"), node("b1")], list[int]()

    def all_nodes() -> list[Node]:
        recounts.append(1)
        return nodes

    sizes = GroupSizes(all_nodes)
    group = EACH.group({ZONE: "a"})
    assert group is not None
    assert (sizes.size(group), sizes.size(group)) == (1, 1)
    sizes.on_node_change(nodes[0], node("a1", unavailable=True))
    assert (sizes.size(group), len(recounts)) == (1, 1)
    nodes.append(node("a2"))
    sizes.on_node_change(None, nodes[-1])
    assert (sizes.size(group), len(recounts)) == (2, 2)


def test_groups_are_added_and_removed_with_their_nodes() -> None:
    nodes = [node("a1"), node("b1")]
    sizes = GroupSizes(lambda: nodes)
    assert [str(group) for group in sizes.groups(EACH)] == ["zone=a", "zone=b"]
    added, removed = node("c1"), nodes.pop(0)
    nodes.append(added)
    sizes.on_node_change(None, added)
    sizes.on_node_change(removed, None)
    assert [str(group) for group in sizes.groups(EACH)] == ["zone=b", "zone=c"]


def test_may_free_slot_detects_node_changes_that_can_free_a_slot() -> None:
    budget = Budget((EACH,))
    assert may_free_slot(budget, node("a1", unavailable=True), node("a1"))
    assert may_free_slot(budget, None, node("a1"))
    assert may_free_slot(budget, node("a1"), node("a1", zone="b"))
    assert not may_free_slot(budget, node("a1"), node("a1", other="label"))
    assert not may_free_slot(budget, node("a1"), node("a1", unavailable=True))


@pytest.mark.parametrize("written", ["0", "-1", "2.5", "0%", "101%", "many", ""])
def test_limit_below_one_node_is_invalid(written: str) -> None:
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
def test_limit_is_formatted_as_a_sentence(limit: BudgetLimit, words: str) -> None:
    assert str(limit) == words


def test_parse_amount_accepts_negative_numbers_and_percentages_with_spaces() -> None:
    assert parse_amount("-1") == -1
    assert parse_max_unavailable(" 10 % ") == "10%"
