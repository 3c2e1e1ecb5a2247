"""Each invariant catches the history that breaks it, and is content with the one that does not."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from haulout.api.objects import RawObject
from haulout_sandbox.apiserver import Write
from haulout_sandbox.event_loops.virtual_time import EPOCH
from support.builders.objects import (
    KubernetesObject,
    PodObject,
    a_deployment,
    a_lease,
    a_node,
    a_pdb,
    a_pod,
    a_workload,
)
from support.builders.write_history import WriteHistory
from support.invariants import (
    CalledOnce,
    ControlPlaneOneAtATime,
    Converges,
    DeadProcessesReleaseAll,
    Delivery,
    DisruptionsWithinBudget,
    DrainRules,
    EndsOrExplainsItself,
    EventsBecomeObjects,
    Explanation,
    ExternalCall,
    ForeignMetadataUntouched,
    GracePeriodRespected,
    Invariant,
    Maintenances,
    MissedDeadlinesAnnounced,
    NodeBudget,
    OneMaintenancePerNode,
    OnlyOwnCordonsRemoved,
    PodDisruptionBudgetsRespected,
    PodsLeaveByPolicy,
    ProcessDeath,
    RecordEntry,
    RecordReplays,
    State,
    TimeWindow,
    check,
    cordon_owners_from,
)

OURS = frozenset({"operator"})
HOUR = timedelta(hours=1)
OWNERS = "haulout.dev/cordoned-by"


def violations(history: Sequence[Write], *invariants: Invariant, **options: Any) -> list[str]:
    return [violation.what for violation in check(history, *invariants, **options)]


def ready_nodes(*names: str, **labels: str) -> WriteHistory:
    history = WriteHistory()
    for name in names:
        history.put(a_node(name, labels=labels).ready())
    return history


def cordon(history: WriteHistory, name: str, *, by: str = "operator") -> WriteHistory:
    return history.put(a_node(name).ready().cordoned(), by=by)


def uncordon(history: WriteHistory, name: str, *, by: str = "operator") -> WriteHistory:
    return history.put(a_node(name).ready(), by=by)


# 1: disruptions within budgets

TWO = DisruptionsWithinBudget(operator=OURS, budgets=(NodeBudget(name="workers", at_most=2),))


def test_a_third_node_is_one_too_many_for_a_budget_of_two() -> None:
    history = ready_nodes("a", "b", "c", "d")
    for name in "abc":
        cordon(history, name)
    assert violations(history, TWO) == ["c was disrupted, and so 3 are (a, b, c): 2 of 4 nodes allowed by workers"]
    (violation,) = check(history, TWO)
    assert (violation.revision, violation.who, violation.invariant) == (7, "operator", "DisruptionsWithinBudget")


def test_nodes_that_are_down_already_count() -> None:
    history = ready_nodes("a", "b", "c", "d")
    history.put(a_node("a").ready("Unknown"), by="node-lifecycle")
    history.put(a_node("b").ready("False"), by="kubelets")
    assert violations(history, TWO) == []
    assert len(violations(cordon(history, "c"), TWO)) == 1


def test_one_after_the_other_fits_and_so_does_a_node_that_was_down_anyway() -> None:
    history = ready_nodes("a", "b", "c", "d")
    for name in "abcd":
        uncordon(cordon(history, name), name)
    history.put(a_node("a").ready("Unknown"), by="node-lifecycle")
    history.put(a_node("b").ready("Unknown"), by="node-lifecycle")
    history.put(a_node("c").ready("Unknown"), by="node-lifecycle")
    history.put(a_node("a").ready("Unknown").cordoned(), by="operator")
    assert violations(history, TWO) == []


def test_budgets_are_about_the_nodes_that_they_select_and_percentages_are_rounded_down() -> None:
    third = DisruptionsWithinBudget(operator=OURS, budgets=(NodeBudget(name="x", at_most="34%", labels="pool=x"),))
    history = ready_nodes("a", "b", "c", pool="x")
    history.put(a_node("y").ready().cordoned(), by="operator")
    assert violations(cordon(history, "a"), third) == []
    assert len(violations(cordon(history, "b"), third)) == 1


def test_a_budget_may_hold_for_each_group() -> None:
    each = NodeBudget(name="a zone", at_most=1, group_by=("zone",))
    held = DisruptionsWithinBudget(operator=OURS, budgets=(each,))
    history = ready_nodes("a1", "a2", zone="a")
    history.put(a_node("b1", labels={"zone": "b"}).ready().cordoned())
    history.put(a_node("a2", labels={"zone": "a"}).ready().cordoned(), by="operator")
    assert violations(history, held) == []
    history.put(a_node("a1", labels={"zone": "a"}).ready().cordoned(), by="operator")
    assert violations(history, held) == ["a1 was disrupted, and so 2 are (a1, a2): 1 of 2 nodes allowed by a zone"]


def test_what_people_do_is_their_own_business() -> None:
    history = ready_nodes("a", "b", "c")
    for name in "abc":
        cordon(history, name, by="people")
    assert violations(history, TWO) == []


# 2: cordons

CORDONS = OnlyOwnCordonsRemoved(operator=OURS, owners=cordon_owners_from(OWNERS))


def test_a_node_cordoned_by_a_person_must_stay_cordoned() -> None:
    history = uncordon(cordon(ready_nodes("a"), "a", by="people"), "a")
    assert violations(history, CORDONS) == ["a was uncordoned, which people had cordoned"]


@pytest.mark.parametrize(("mark", "blamed"), [("x", []), ("", ["a was uncordoned, which test had cordoned"])])
def test_a_recreated_node_with_the_annotation_of_its_owners_still_belongs_to_them(mark: str, blamed: list[str]) -> None:
    history = cordon(ready_nodes("a"), "a").delete("nodes", "a", by="test")
    for node, owners, who in (a_node("a").ready().cordoned(), mark, "test"), (a_node("a").ready(), "", "operator"):
        node["metadata"] = {**node["metadata"], "annotations": {OWNERS: owners}}
        history.put(node, by=who)
    assert violations(history, CORDONS) == blamed


def test_a_node_that_was_cordoned_before_all_history_was_not_cordoned_by_us() -> None:
    history = WriteHistory().put(a_node("a").cordoned())
    assert violations(uncordon(history, "a"), CORDONS) == ["a was uncordoned, which people had cordoned"]


def test_a_cordon_with_an_owner_left_must_not_be_lifted() -> None:
    history = ready_nodes("a")
    history.put(a_node("a").cordoned().annotated({OWNERS: "notice, order"}), by="operator")
    history.put(a_node("a").annotated({OWNERS: "order"}), by="operator")
    assert violations(history, CORDONS) == ["a was uncordoned, though order still wanted it cordoned"]


def test_a_cordon_of_ours_without_owners_may_be_lifted_and_people_may_lift_any() -> None:
    history = ready_nodes("a")
    history.put(a_node("a").cordoned().annotated({OWNERS: "notice"}), by="operator")
    history.put(a_node("a").annotated({OWNERS: ""}), by="operator")
    uncordon(cordon(history, "a", by="people"), "a", by="people")
    assert violations(history, CORDONS) == []


# 3: how pods leave


def a_cart(number: int = 0, *, owner: str = "ReplicaSet/cart") -> PodObject:
    return a_pod(f"shop/cart-{number}", on="a", labels={"app": "cart"}, owner=owner).running()


def leaving(pod: PodObject, *, at: str = "09:00:30", grace: int = 30) -> RawObject:
    meta = {"deletionTimestamp": f"2026-01-05T{at}Z", "deletionGracePeriodSeconds": grace}
    return {**pod, "metadata": {**pod["metadata"], **meta}}


def evict(history: WriteHistory, pod: PodObject, *, by: str = "operator", **how: Any) -> WriteHistory:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    marked = pod.with_status(conditions=[*pod["status"]["conditions"], target])
    return history.put(marked, by=by, verb="evict").put(leaving(marked, **how), by=by, verb="evict")


def test_an_eviction_in_its_window_is_by_policy() -> None:
    policy = DrainRules(
        windows=(TimeWindow(EPOCH, EPOCH + HOUR),), is_approved=lambda node: "ok" in node["metadata"]["labels"]
    )
    history = evict(ready_nodes("a", ok="").put(a_cart()), a_cart())
    assert violations(history, PodsLeaveByPolicy(operator=OURS, policy=policy)) == []


@pytest.mark.parametrize(
    ("policy", "objection"),
    [
        (DrainRules(windows=(TimeWindow(EPOCH + HOUR, EPOCH + 2 * HOUR),)), "outside of every window"),
        (DrainRules(windows=()), "outside of every window"),
        (DrainRules(is_approved=lambda _: False), "before its node was approved"),
        (DrainRules(is_skipped=lambda pod: pod["metadata"]["name"] == "cart-0"), "though the rules skip it"),
    ],
)
def test_an_eviction_outside_of_policy_is_caught(policy: DrainRules, objection: str) -> None:
    history = evict(ready_nodes("a").put(a_cart()), a_cart())
    found = violations(history, PodsLeaveByPolicy(operator=OURS, policy=policy))
    assert found == [f"pod shop/cart-0 was made to leave {objection}"]
    assert violations(history, PodsLeaveByPolicy(operator={"another"}, policy=policy)) == []


def test_pods_of_daemon_sets_are_skipped_by_default() -> None:
    pod = a_cart(owner="DaemonSet/logs")
    history = evict(ready_nodes("a").put(pod), pod)
    assert len(violations(history, PodsLeaveByPolicy(operator=OURS, policy=DrainRules()))) == 1


def test_a_deletion_while_the_escalation_allows_only_eviction_is_caught() -> None:
    history = ready_nodes("a").put(a_cart()).put(leaving(a_cart()), by="operator", verb="delete")
    (found,) = violations(history, PodsLeaveByPolicy(operator=OURS, policy=DrainRules()))
    assert "though the ladder says evict" in found
    deadline = DrainRules(may_delete=lambda _, at: at >= EPOCH)
    assert violations(history, PodsLeaveByPolicy(operator=OURS, policy=deadline)) == []
    gone_at_once = ready_nodes("a").put(a_cart()).delete("pods", "shop/cart-0", by="operator")
    assert len(violations(gone_at_once, PodsLeaveByPolicy(operator=OURS, policy=DrainRules()))) == 1


# PodDisruptionBudgets


def four_carts(**budget: Any) -> WriteHistory:
    history = ready_nodes("a")
    deployment = a_deployment("shop/cart", replicas=4).labelled({})
    history.put({**deployment, "metadata": {**deployment["metadata"], "uid": "uid-of-cart"}})
    replica_set = a_workload("ReplicaSet", "shop/cart", replicas=4).owned_by(deployment)
    history.put({**replica_set, "metadata": {**replica_set["metadata"], "uid": "uid-of-cart"}})
    history.put(a_pdb("shop/cart", **budget))
    for number in range(4):
        history.put(a_cart(number))
    return history


@pytest.mark.parametrize(
    "budget",
    [{"minAvailable": 3}, {"minAvailable": "75%"}, {"maxUnavailable": 1}, {"maxUnavailable": "25%"}],
)
def test_an_eviction_below_a_budget_is_caught_and_one_within_is_not(budget: dict[str, Any]) -> None:
    history = evict(four_carts(**budget), a_cart(0), by="anybody")
    assert violations(history, PodDisruptionBudgetsRespected()) == []
    evict(history, a_cart(1), by="anybody")
    assert violations(history, PodDisruptionBudgetsRespected()) == [
        "pod shop/cart-1 was evicted: 2 healthy are left, and shop/cart needs 3"
    ]


def test_an_unhealthy_pod_counts_against_a_budget_once_its_status_is_observable() -> None:
    ill = a_cart(3).running(ready=False)
    at_once = evict(four_carts(minAvailable=3).put(ill), a_cart(0))
    assert violations(at_once, PodDisruptionBudgetsRespected()) == []
    later = evict(four_carts(minAvailable=3).put(ill).advance(seconds=5), a_cart(0))
    assert len(violations(later, PodDisruptionBudgetsRespected())) == 1


def test_pods_that_are_not_healthy_and_pods_of_others_may_go() -> None:
    history = four_carts(minAvailable=4).put(a_cart(3).running(ready=False)).advance(seconds=5)
    evict(history, a_cart(3).running(ready=False))
    stranger = a_pod("shop/other", on="a").running()
    evict(history.put(stranger), stranger)
    assert violations(history, PodDisruptionBudgetsRespected()) == []


# 4: grace periods

GRACE = GracePeriodRespected(operator=OURS)


def test_a_pod_whose_kubelet_reports_that_it_stopped_may_be_deleted_early() -> None:
    history = ready_nodes("a").put(a_cart()).put(leaving(a_cart()), by="operator")
    history.advance(seconds=3).put(leaving(a_cart(), at="09:00:03", grace=0), by="kubelets")
    assert violations(history.delete("pods", "shop/cart-0", by="kubelets"), GRACE) == []


def test_a_pod_that_vanishes_before_its_time_is_caught() -> None:
    history = ready_nodes("a").put(a_cart()).put(leaving(a_cart()), by="operator")
    history.advance(seconds=10).delete("pods", "shop/cart-0", by="operator")
    assert violations(history, GRACE) == ["pod shop/cart-0 vanished 0:00:20 before its grace period was over"]
    assert violations(history, GracePeriodRespected(operator=OURS, may_force=OURS)) == []


def test_a_grace_period_cut_short_is_caught() -> None:
    asked = ready_nodes("a").put(a_cart()).put(leaving(a_cart(), at="09:00:05", grace=5), by="operator")
    assert violations(asked, GRACE) == ["pod shop/cart-0 was given 5 s to stop, and it asks for 30 s"]
    hurried = ready_nodes("a").put(a_cart()).put(leaving(a_cart()), by="operator").advance(seconds=1)
    hurried.put(leaving(a_cart(), at="09:00:02", grace=1), by="operator")
    assert violations(hurried, GRACE) == ["pod shop/cart-0 was hurried 0:00:29 before its grace period was over"]
    late = GracePeriodRespected(operator=OURS, may_shorten_grace=lambda _, at: at >= EPOCH)
    assert violations(hurried, late) == violations(asked, late) == []


def test_pods_of_which_nothing_runs_have_no_grace() -> None:
    ended = a_cart().with_status(phase="Succeeded")
    history = ready_nodes("a").put(ended).put(leaving(ended), by="operator").delete("pods", "shop/cart-0", by="gc")
    unbound = a_pod("shop/new")
    history.put(unbound).delete("pods", "shop/new", by="operator")
    lost = a_cart(1).on("nowhere")
    history.put(lost).put(leaving(lost), by="gc").delete("pods", "shop/cart-1", by="gc")
    assert violations(history, GRACE) == []


# 5 and 9: maintenances

ORDERS = Maintenances(
    plural="orders",
    node=lambda it: str(it["spec"]["node"]),
    is_active=lambda it: it["status"].get("phase") == "Active",
    has_ended=lambda it: it["status"].get("phase") == "Done",
)
ONE = OneMaintenancePerNode(maintenances=(ORDERS,))


def an_order(name: str, phase: str = "Waiting", *, node: str = "a", **status: Any) -> KubernetesObject:
    meta, state = {"name": name}, {"phase": phase, **status}
    return KubernetesObject(apiVersion="haulout.dev/v1", kind="Order", metadata=meta, spec={"node": node}, status=state)


def test_a_second_active_maintenance_of_a_node_is_caught() -> None:
    history = WriteHistory().put(an_order("one")).put(an_order("two")).put(an_order("elsewhere", node="b"))
    history.put(an_order("one", "Active")).put(an_order("elsewhere", "Active", node="b"))
    assert violations(history, ONE) == []
    assert violations(history.put(an_order("two", "Active")), ONE) == ["two became active on a, where one is active"]


def test_maintenances_come_in_their_order() -> None:
    jumped = WriteHistory().put(an_order("one")).put(an_order("two")).put(an_order("two", "Active"))
    assert violations(jumped, ONE) == ["two became active on a before one, which waited there longer"]
    fair = WriteHistory().put(an_order("one")).put(an_order("two")).put(an_order("one", "Active"))
    fair.put(an_order("one", "Done")).put(an_order("two", "Active")).delete("orders", "two")
    assert violations(fair.put(an_order("three")).put(an_order("three", "Active")), ONE) == []


def explanation(order: RawObject) -> Explanation | None:
    why = order["status"].get("why")
    return why and Explanation(reason=why[0], waits_for=why[1], next_reconcile_at=why[2])


ENDS = EndsOrExplainsItself(maintenances=ORDERS, explanation=explanation)


def test_a_maintenance_that_neither_ends_nor_explains_itself_is_caught() -> None:
    history = WriteHistory().put(an_order("one"))
    assert violations(history, ENDS, until=EPOCH + timedelta(seconds=30)) == []
    assert violations(history, ENDS, until=EPOCH + timedelta(seconds=31)) == [
        "one has neither an end nor an explanation since 09:00:00"
    ]
    half = WriteHistory().put(an_order("one", why=("budget", "", EPOCH + HOUR)))
    assert len(violations(half, ENDS, until=EPOCH + timedelta(minutes=1))) == 1


def test_a_waiting_maintenance_must_be_requeued_at_its_time() -> None:
    history = WriteHistory().put(an_order("one", why=("budget", "shop/cart", EPOCH + HOUR)))
    assert violations(history, ENDS, until=EPOCH + HOUR) == []
    assert violations(history, ENDS, until=EPOCH + 2 * HOUR) == ["one wanted to look again at 10:00:00, and did not"]
    assert violations(history.advance(hours=1).put(an_order("one", "Done")), ENDS, until=EPOCH + 24 * HOUR) == []


# 6: what belongs to others

FOREIGN = ForeignMetadataUntouched(operator=OURS, ours=("haulout.dev/*", "DrainInProgress"))


def test_our_own_marks_may_come_and_go() -> None:
    history = WriteHistory().put(a_node("a").labelled({"pool": "x"}).ready())
    ours = a_node("a").labelled({"pool": "x", "haulout.dev/state": "drain"}).annotated({"haulout.dev/why": "disk"})
    ours = ours.with_finalizers("haulout.dev/hold").tainted("haulout.dev/drain").cordoned().ready()
    history.put(ours, by="operator")
    conditions = [*ours["status"]["conditions"], {"type": "DrainInProgress", "status": "True"}]
    history.put(ours.with_status(conditions=conditions), by="operator")
    assert violations(history, FOREIGN) == []


def test_a_condition_may_be_ours_on_one_kind_and_others_on_another() -> None:
    ready = WriteHistory().put(a_node("a")).put(a_node("a").ready(), by="operator")
    assert violations(ready, ForeignMetadataUntouched(operator=OURS, ours=("nodes/Ready",))) == []
    assert violations(ready, ForeignMetadataUntouched(operator=OURS, ours=("pods/Ready",))) != []


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        (a_node("a").labelled({"pool": "y"}), "the label pool of others was changed"),
        (a_node("a").labelled({"pool": "x", "new": ""}), "the label new of others was added"),
        (a_node("a").annotated({"note": "mine"}), "the annotation note of others was changed"),
        (a_node("a").with_finalizers(), "the finalizer cloud.example/lb of others was removed"),
        (a_node("a").with_spec(taints=[]), "the taint dedicated:NoSchedule of others was removed"),
        (a_node("a").ready("False"), "the condition Ready of others was changed"),
    ],
)
def test_what_others_put_there_must_stay(change: KubernetesObject, violation: str) -> None:
    theirs = a_node("a").labelled({"pool": "x"}).annotated({"note": "theirs"}).with_finalizers("cloud.example/lb")
    theirs = theirs.tainted("dedicated").ready()
    changed = {
        **change,
        "spec": {**theirs["spec"], **change["spec"]},
        "status": {**theirs["status"], **change.get("status", {})},
    }
    history = WriteHistory().put(theirs).put(changed, by="operator")
    assert violations(history, FOREIGN) == [f"nodes a: {violation}"]
    assert violations(WriteHistory().put(theirs).put(changed), FOREIGN) == []


def test_what_the_operator_created_is_its_own_and_what_the_server_marks_for_it_is_not_its_doing() -> None:
    history = WriteHistory().put(a_lease("shop/lock"), by="operator")
    history.put(a_lease("shop/lock").labelled({"any": "thing"}), by="operator")
    assert violations(evict(history.put(a_cart()), a_cart()), FOREIGN) == []


# 7: calls


def test_a_call_repeated_for_the_same_transition_is_caught() -> None:
    calls = [ExternalCall(at=EPOCH, receiver=receiver, transition="a drained") for receiver in ("slack", "pager")]
    again = ExternalCall(at=EPOCH + HOUR, receiver="slack", transition="a drained", who="operator")
    assert violations(ready_nodes("a"), CalledOnce(calls=calls)) == []
    calls.append(again)
    assert violations(ready_nodes("a"), CalledOnce(calls=calls)) == [
        "slack was called again about a drained, after 09:00:00"
    ]
    assert violations(ready_nodes("a"), CalledOnce(calls=calls, deduplicating={"slack"})) == []


# 8: the control plane

PLANE = ControlPlaneOneAtATime(operator=OURS)
ROLE = {"node-role.kubernetes.io/control-plane": ""}


def test_two_nodes_of_the_control_plane_at_once_are_caught() -> None:
    history = ready_nodes("a", "b", "c", **ROLE)
    uncordon(cordon(history, "a"), "a")
    assert violations(cordon(history, "b"), PLANE) == []
    assert len(violations(cordon(history, "c"), PLANE)) == 1


@pytest.mark.parametrize("names", ["a", "ab"])
def test_a_control_plane_that_would_lose_its_quorum_is_left_alone(names: str) -> None:
    history = cordon(ready_nodes(*names, **ROLE), "a")
    assert len(violations(history, PLANE)) == 1
    assert violations(history, ControlPlaneOneAtATime(operator=OURS, quorum=False)) == []


# 10 to 12: liveness


def all_open(state: State) -> str:
    cordoned = [key for key, node in state.by_key("nodes").items() if node["spec"].get("unschedulable")]
    return f"{', '.join(cordoned)} cordoned" if cordoned else ""


def test_what_does_not_converge_in_time_is_caught() -> None:
    rule = Converges(problem=all_open, plurals=frozenset({"nodes"}), faults_stopped_at=EPOCH, within=HOUR)
    history = cordon(ready_nodes("a"), "a")
    assert violations(history, rule, until=EPOCH + HOUR / 2) == []
    assert violations(history, rule, until=EPOCH + HOUR) == ["not within 1:00:00 after faults stopped: a cordoned"]
    assert violations(uncordon(history.advance(minutes=50), "a"), rule, until=EPOCH + 2 * HOUR) == []
    relapse = history.advance(minutes=50).put(a_node("a").ready().cordoned()).put(a_node("b").ready())
    assert violations(relapse, rule) == ["it did not stay so: a cordoned"]


def test_what_converges_too_late_is_caught_though_it_is_well_in_the_end() -> None:
    rule = Converges(problem=all_open, plurals=frozenset({"nodes"}), faults_stopped_at=EPOCH, within=HOUR)
    late = uncordon(cordon(ready_nodes("a"), "a").advance(hours=2), "a")
    assert violations(late, rule) == ["not within 1:00:00 after faults stopped: a cordoned"]


def test_a_cloud_event_that_becomes_no_object_in_time_is_caught() -> None:
    deliveries = [Delivery(at=EPOCH, event="one"), Delivery(at=EPOCH, event="two")]
    rule = EventsBecomeObjects(deliveries=deliveries, plural="orders", event=lambda it: str(it["metadata"]["name"]))
    history = WriteHistory().put(an_order("one")).advance(seconds=11)
    assert violations(history, rule, until=EPOCH + timedelta(seconds=10)) == []
    assert violations(history, rule, until=EPOCH + HOUR) == ["event two was no object within 0:00:10 and still is none"]
    assert violations(history.put(an_order("two")), rule) == ["event two was no object within 0:00:10"]


def test_a_deadline_that_passes_in_silence_is_caught() -> None:
    due = EPOCH + HOUR
    rule = MissedDeadlinesAnnounced(
        plural="orders",
        deadline=lambda it: due if it["spec"]["node"] == "a" else None,
        is_met=ORDERS.has_ended,
        is_announced=lambda it: bool(it["status"].get("late")),
    )
    history = WriteHistory().put(an_order("one")).put(an_order("free", node="b"))
    assert violations(history, rule, until=due - timedelta(seconds=1)) == []
    assert violations(history, rule, until=due) == ["the deadline of one passed, and nothing was said before"]
    too_late = WriteHistory().put(an_order("one")).advance(hours=2).put(an_order("one", late=True))
    assert len(violations(too_late, rule)) == 1
    in_time = WriteHistory().put(an_order("one")).put(an_order("two")).put(an_order("one", late=True))
    assert violations(in_time.put(an_order("two", "Done")), rule, until=due) == []


def test_what_the_dead_still_hold_is_caught() -> None:
    rule = DeadProcessesReleaseAll(
        deaths=[ProcessDeath(who="op-1", at=EPOCH)],
        holders={"leases": lambda it: (it["spec"]["holderIdentity"],)},
        lease=timedelta(seconds=15),
    )
    history = WriteHistory().put(a_lease("shop/slot", holder="op-1")).put(a_lease("shop/free", holder=""))
    assert violations(history, rule, until=EPOCH + timedelta(seconds=15)) == []
    still = ["leases shop/slot is still held by op-1, which died at 09:00:00"]
    assert violations(history, rule, until=EPOCH + HOUR) == still
    taken = a_lease("shop/slot", holder="op-2")
    assert violations([*history, *WriteHistory().put(taken)], rule, until=EPOCH + HOUR) == []
    assert violations(history.advance(hours=1).put(taken), rule) == still


# 13: the record


def record(*entries: RecordEntry) -> KubernetesObject:
    return KubernetesObject(apiVersion="haulout.dev/v1", kind="Record", metadata={"name": "a"}, entries=entries)


def entry(old: str, new: str, *, minute: int = 0, **other: str) -> RecordEntry:
    words = {"who": "operator", "why": "disk", "result": "done", **other}
    return RecordEntry(at=EPOCH + timedelta(minutes=minute), old=old, new=new, **words)


REPLAYS = RecordReplays(
    plural="records",
    entries=lambda it: it["entries"],
    status=lambda _, state: str(state.by_key("orders")["one"]["status"]["phase"]),
)


def test_a_record_that_grows_in_order_to_the_status_there_is_is_good() -> None:
    first, second = entry("Waiting", "Active"), entry("Active", "Done", minute=5)
    history = WriteHistory().put(record(first)).put(record(first, second)).put(record(second))
    assert violations(history.put(an_order("one", "Done")), REPLAYS) == []


@pytest.mark.parametrize(
    ("records", "violation"),
    [
        ((record(entry("", "Active")),), "the record a ends with Active, and the status is Done"),
        ((record(entry("", "Active")), record(entry("", "Done"))), "was changed where it should only grow"),
        ((record(entry("", "Active"), entry("Waiting", "Done")),), "entry 2: it begins with Waiting"),
        ((record(entry("", "Active", minute=5), entry("Active", "Done")),), "entry 2: it is older than"),
        ((record(entry("", "Done", why="")),), "entry 1: it does not tell why"),
    ],
)
def test_a_record_that_does_not_lead_to_the_status_is_caught(
    records: tuple[KubernetesObject, ...], violation: str
) -> None:
    history = WriteHistory().put(an_order("one", "Done"))
    for it in records:
        history.put(it)
    (found,) = violations(history, REPLAYS)
    assert violation in found


# All of them


def test_violations_read_as_sentences_with_their_revision_and_time() -> None:
    (violation,) = check(uncordon(cordon(ready_nodes("a"), "a", by="people"), "a"), CORDONS)
    what = "a was uncordoned, which people had cordoned"
    assert str(violation) == f"OnlyOwnCordonsRemoved: {what} (revision 3, 2026-01-05 09:00:00, by operator)"


def test_an_invariant_can_be_checked_on_any_number_of_histories() -> None:
    wrong = uncordon(cordon(ready_nodes("a"), "a", by="people"), "a")
    assert violations(wrong, CORDONS) == violations(wrong, CORDONS) != []
    assert violations([], CORDONS) == []
