"""What to do next about a maintenance: each row of the order, and what stands in its way."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs

from haulout.drain import cordon
from haulout.drain.policy import Policy
from haulout.drain.progress import Ending
from haulout.kinds import hold
from haulout.maintenance import steps
from haulout.maintenance.decision import (
    FIRST_LOOK_WITHIN,
    LEASE_LOOKED_AT_EVERY,
    LEASE_LOST_FOR,
    LEASE_TAKEN_AT_MOST_EVERY,
    LOOKED_AT_EVERY,
    RESTORED_AT_MOST_EVERY,
    decide,
)
from haulout.maintenance.holding import WISHES, owner_name
from haulout.maintenance.resource import FINALIZER, NodeMaintenance
from haulout.maintenance.seen import Cause, Decision, Seen, Stray
from support.seeing import (
    HOUR,
    NOW,
    RUNNING,
    a_drain,
    a_lease,
    a_maintenance,
    a_node,
    changed,
    seen,
)

OTHER = "NodeHealthCheck-workers"
SECOND = timedelta(seconds=1)


def step(what: Seen) -> type[object]:
    return type(decide(what).step)


def rests(what: Seen) -> Decision:
    decision = decide(what)
    assert decision.step is None
    return decision


# The order


NEW = a_maintenance(phase="", meta={"finalizers": ()})
KNOWN = a_maintenance(phase="")
BARE = a_node()
RECORDED = a_maintenance(conditions={"Leased": ("True", "Acquired")}, nodeBefore={"uid": "uid-of-n1"})
LOOKED = a_drain("shop/cart", waiting=True)
UNKNOWN = a_drain(waiting=True, is_known=False)

ORDER: list[tuple[str, dict[str, Any], type[object]]] = [
    ("pods are looked at", {"maintenance": NEW, "node": BARE, "lease": None, "drain": None}, steps.StartDrain),
    (
        "its end is ours to allow",
        {"maintenance": NEW, "node": BARE, "lease": None, "drain": UNKNOWN},
        steps.AddFinalizer,
    ),
    ("pods are looked at anew", {"maintenance": KNOWN, "node": BARE, "lease": None, "drain": None}, steps.StartDrain),
    ("the first status", {"maintenance": KNOWN, "node": BARE, "lease": None, "drain": LOOKED}, steps.Accept),
    ("the lease", {"node": BARE, "lease": None, "drain": LOOKED}, steps.TakeLease),
    ("the lease, half an hour later", {"lease": a_lease(age=timedelta(minutes=31))}, steps.TakeLease),
    ("a lease that ran out", {"lease": a_lease(OTHER, age=2 * HOUR)}, steps.TakeLease),
    ("how the node is", {"node": BARE, "drain": LOOKED}, steps.RecordNode),
    ("cordon, taints and label", {"maintenance": RECORDED, "node": BARE, "drain": LOOKED}, steps.Hold),
    ("conditions of the node", {"drain": LOOKED, "may_publish": True}, steps.Publish),
    ("pods leave", {"drain": LOOKED}, steps.BeginDrain),
    ("pods go on leaving", {"drain": a_drain("shop/cart")}, type(None)),
    ("no pod is left", {"drain": a_drain(gone=1, ending=Ending.DRAINED)}, type(None)),
    ("a successor looks anew", {"drain": None}, steps.StartDrain),
    ("another policy", {"drain": a_drain("shop/cart", policy=Policy(parallel=3))}, steps.ChangePolicy),
    ("another node of that name", {"drain": a_drain("shop/cart", node="n0")}, steps.StopDrain),
]


@pytest.mark.parametrize(("what", "fields", "expected"), ORDER, ids=[row[0] for row in ORDER])
def test_each_step_comes_in_its_turn(what: str, fields: dict[str, Any], expected: type[object]) -> None:
    del what
    assert step(seen(**fields)) is expected


LEAVING = a_maintenance(conditions=RUNNING, leaving=True)
BACK: list[tuple[str, dict[str, Any], type[object]]] = [
    ("the drain stops", {}, steps.StopDrain),
    ("the node is given back", {"drain": None}, steps.Release),
    ("the lease", {"drain": None, "node": BARE}, steps.ReleaseLease),
    ("the object goes", {"drain": None, "node": BARE, "lease": None}, steps.RemoveFinalizer),
    ("the object goes without a node", {"drain": None, "node": None, "lease": None}, steps.RemoveFinalizer),
    ("the lease goes without a node", {"drain": None, "node": None}, steps.ReleaseLease),
    ("another's lease stays", {"drain": None, "node": BARE, "lease": a_lease(OTHER)}, steps.RemoveFinalizer),
    ("even if it ran out", {"drain": None, "node": BARE, "lease": a_lease(OTHER, age=2 * HOUR)}, steps.RemoveFinalizer),
    ("a lease of nobody goes", {"drain": None, "node": BARE, "lease": a_lease("")}, steps.ReleaseLease),
]


@pytest.mark.parametrize(("what", "fields", "expected"), BACK, ids=[row[0] for row in BACK])
def test_each_step_back_comes_in_its_turn(what: str, fields: dict[str, Any], expected: type[object]) -> None:
    del what
    assert step(seen(LEAVING, **fields)) is expected


def test_conditions_are_cleared_before_the_node_is_given_back() -> None:
    conditions = [{"type": "MaintenanceInProgress", "status": "True", "message": "Haulout: NodeMaintenance patch"}]
    node = a_node(held_by=("patch",), status={"conditions": conditions})
    decision = decide(seen(LEAVING, node=node, drain=None, may_publish=True))
    assert isinstance(decision.step, steps.Publish)
    assert decision.step.is_last


def test_what_others_keep_alive_is_not_touched_again() -> None:
    gone = a_maintenance(leaving=True, meta={"finalizers": ("example.com/other",)})
    assert decide(seen(gone, node=BARE, drain=None)) == Decision()


def test_a_lease_is_looked_at_again_before_it_ends() -> None:
    assert rests(seen()).wakes_at == NOW + timedelta(minutes=29)


def test_the_first_status_waits_for_the_pods_but_not_for_ever() -> None:
    waiting = seen(KNOWN, node=BARE, lease=None, drain=UNKNOWN)
    assert rests(waiting).wakes_at == NOW + FIRST_LOOK_WITHIN
    assert step(replace(waiting, now=NOW + FIRST_LOOK_WITHIN)) is steps.Accept
    assert step(replace(waiting, drain=a_drain(waiting=True, is_known=False, trouble="forbidden"))) is steps.Accept


@pytest.mark.parametrize("node", ["", "n7"])
def test_a_maintenance_without_a_node_has_a_first_status_too(node: str) -> None:
    """It shows Running and then Failed, as ever."""
    assert (
        step(seen(a_maintenance(phase="", spec={"nodeName": node}), node=None, lease=None, drain=None)) is steps.Accept
    )


# What fails


FAILING: list[tuple[str, NodeMaintenance, dict[str, Any], Cause, str]] = [
    ("no name", a_maintenance(spec={"nodeName": ""}), {"node": None}, Cause.NODE_UNNAMED, "spec.nodeName is empty"),
    ("no node", a_maintenance(), {"node": None}, Cause.NODE_MISSING, 'nodes "n1" not found'),
    (
        "no sense",
        a_maintenance(spec={"drain": {"timeuot": "1m"}}),
        {"node": BARE},
        Cause.POLICY_INVALID,
        "did you mean timeout?",
    ),
]


@pytest.mark.parametrize(("what", "maintenance", "fields", "cause", "text"), FAILING, ids=[row[0] for row in FAILING])
def test_what_cannot_be_done_fails(
    what: str, maintenance: NodeMaintenance, fields: dict[str, Any], cause: Cause, text: str
) -> None:
    del what
    failure = rests(seen(maintenance, lease=None, drain=None, **fields)).failure
    assert failure is not None
    assert failure.cause is cause
    assert text in failure.text


@pytest.mark.parametrize(
    ("what", "maintenance", "fields"), [row[:3] for row in FAILING], ids=[row[0] for row in FAILING]
)
def test_a_drain_is_stopped_before_a_maintenance_fails(
    what: str, maintenance: NodeMaintenance, fields: dict[str, Any]
) -> None:
    del what
    assert step(seen(maintenance, **fields)) is steps.StopDrain


def test_these_failures_are_left_when_what_they_say_is_not_so_any_more() -> None:
    for cause in (Cause.NODE_MISSING, Cause.NODE_UNNAMED, Cause.POLICY_INVALID):
        failed = a_maintenance(phase="Failed", conditions={"Failed": ("True", cause)})
        assert step(seen(failed, node=BARE, lease=None, drain=None)) is steps.StartDrain


@pytest.mark.parametrize("ending", [Ending.TIMED_OUT, Ending.REFUSED])
def test_a_drain_that_gave_up_fails_the_maintenance_and_the_node_stays_held(ending: Ending) -> None:
    decision = rests(seen(drain=a_drain("shop/cart", ending=ending)))
    assert decision.failure is not None
    assert decision.failure.cause == f"Drain{ending}"
    assert decision.wakes_at is not None, "the lease is still renewed"


STICKY = (Cause.LEASE_LOST, Cause.DRAIN_TIMED_OUT, Cause.DRAIN_REFUSED)


def failed(cause: str, **more: Any) -> NodeMaintenance:
    return a_maintenance(phase="Failed", conditions={**RUNNING, "Failed": ("True", cause)}, **more)


@pytest.mark.parametrize("cause", STICKY)
def test_these_failures_stay_until_the_object_is_edited(cause: Cause) -> None:
    node = BARE if cause is Cause.LEASE_LOST else a_node(held_by=("patch",))
    decision = rests(seen(failed(cause), node=node, drain=None))
    assert decision.failure is not None
    assert decision.failure.cause is cause
    assert decision.failure.text == f"{cause} it is"
    assert step(seen(failed(cause, meta={"generation": 2}), node=node, drain=None)) is steps.StartDrain


def test_an_edit_has_a_drain_that_gave_up_start_anew() -> None:
    edited = failed(Cause.DRAIN_TIMED_OUT, meta={"generation": 2})
    assert step(seen(edited, drain=a_drain("shop/cart", ending=Ending.TIMED_OUT))) is steps.StopDrain
    again = decide(seen(edited, drain=None)).step
    assert isinstance(again, steps.StartDrain)
    assert again.checkpoint is None


def test_a_policy_that_stops_making_sense_keeps_lease_and_node() -> None:
    broken = a_maintenance(conditions=RUNNING, spec={"drain": {"deletionTimeout": "1m"}})
    assert step(seen(broken)) is steps.StopDrain
    assert step(seen(broken, drain=None, lease=a_lease(age=timedelta(minutes=31)))) is steps.TakeLease
    decision = rests(seen(broken, drain=None))
    assert decision.failure is not None
    assert decision.wakes_at is not None


# The lease


HELD = a_lease(OTHER)


def test_the_lease_of_another_is_waited_for() -> None:
    waiting = seen(a_maintenance(), node=BARE, lease=HELD, drain=LOOKED)
    decision = rests(waiting)
    assert decision.problem.startswith("failed to obtain a lease that is not owned by us : can't update or invalidate")
    assert decision.problem.endswith(f"held by different owner: {OTHER} errorOnLeaseCount 0")
    assert OTHER in decision.waits_for
    assert decision.wakes_at == NOW + timedelta(minutes=59, seconds=1)
    assert decision.lease_failures == 0


def test_a_lease_in_force_that_names_nobody_is_somebodys() -> None:
    assert "unknown" in rests(seen(a_maintenance(), node=BARE, lease=a_lease(""), drain=LOOKED)).problem


def lost(since: timedelta) -> NodeMaintenance:
    return a_maintenance(conditions={"Leased": ("False", "Lost")}, since=NOW - since)


def test_a_lease_that_was_lost_stops_the_drain_at_once() -> None:
    assert step(seen(lease=HELD)) is steps.StopDrain


@pytest.mark.parametrize(
    ("ago", "count"), [(0, 1), (9, 1), (10, 2), (59, 6)], ids=["now", "9 s ago", "10 s ago", "59 s ago"]
)
def test_a_lease_that_was_lost_is_looked_at_every_ten_seconds(ago: int, count: int) -> None:
    since = timedelta(seconds=ago)
    decision = rests(seen(lost(since), lease=HELD, drain=LOOKED))
    assert decision.problem.startswith("failed to extend a lease that used to be owned by us, incrementing error")
    assert decision.problem.endswith(f"errorOnLeaseCount: {count}")
    assert decision.lease_failures == count
    assert decision.wakes_at is not None
    assert NOW < decision.wakes_at <= NOW + LEASE_LOOKED_AT_EVERY


def test_a_lease_that_was_lost_is_missed_from_the_first_look_on() -> None:
    decision = rests(seen(lease=HELD, drain=LOOKED))
    assert decision.lease_lost_since == NOW
    assert decision.lease_failures == 1


def test_a_lease_lost_for_a_minute_ends_the_maintenance_after_the_node_was_given_back() -> None:
    given_up = seen(lost(LEASE_LOST_FOR), lease=HELD, drain=LOOKED)
    assert step(given_up) is steps.Release
    decision = rests(replace(given_up, node=BARE))
    assert decision.failure is not None
    assert decision.failure.cause is Cause.LEASE_LOST
    assert decision.failure.text == "maintenance failed: lease could not be extended after 7 attempts"


def test_a_lease_that_is_free_again_is_taken_again() -> None:
    for lease in (None, a_lease(OTHER, age=2 * HOUR)):
        assert step(seen(lost(SECOND), lease=lease, drain=LOOKED)) is steps.TakeLease
    assert step(seen(lost(SECOND), drain=LOOKED)) is steps.BeginDrain


def test_a_maintenance_that_gave_up_its_lease_holds_nothing_and_follows_nobody() -> None:
    over = failed(Cause.LEASE_LOST)
    assert step(seen(over, lease=HELD)) is steps.StopDrain
    assert step(seen(over, lease=HELD, drain=None)) is steps.Release
    assert rests(seen(over, lease=None, drain=None, node=BARE)).failure is not None


def test_nobody_is_fought_for_a_lease() -> None:
    """Of two processes with different clocks each would find that the other's renewal is in the wrong time."""
    ahead = a_lease(age=-3 * HOUR)
    assert step(seen(lease=ahead)) is steps.TakeLease
    assert rests(seen(lease=ahead, leased_at=NOW - SECOND)).wakes_at == NOW - SECOND + LEASE_TAKEN_AT_MOST_EVERY
    assert step(seen(lease=ahead, leased_at=NOW - LEASE_TAKEN_AT_MOST_EVERY)) is steps.TakeLease
    assert step(seen(lease=ahead, leased_at=NOW + HOUR)) is steps.TakeLease, "that was before the clock was set"


@pytest.mark.parametrize("ago", [timedelta(), SECOND], ids=str)
def test_a_lease_that_is_deleted_right_after_it_was_taken_is_not_taken_again_at_once(ago: timedelta) -> None:
    decision = rests(seen(lease=None, leased_at=NOW - ago))
    assert "was deleted right after it was taken" in decision.problem
    assert decision.wakes_at == NOW - ago + LEASE_TAKEN_AT_MOST_EVERY


@pytest.mark.parametrize(
    ("lease", "expected"),
    [(None, type(None)), (a_lease(OTHER), type(None)), (a_lease(), steps.ReleaseLease)],
    ids=["none", "another's", "ours"],
)
def test_while_a_person_holds_the_node_only_our_own_lease_is_released(lease: Any, expected: type[object]) -> None:
    annotated = structs.replace(BARE.metadata, annotations={hold.ANNOTATION: "by=alice; migration"})
    node = structs.replace(BARE, metadata=annotated)
    assert step(seen(RECORDED, node=node, lease=lease, drain=LOOKED)) is expected


def test_without_a_lease_nothing_goes_on() -> None:
    decision = rests(seen(lease=None, leased_at=NOW - SECOND, drain=LOOKED))
    assert decision.problem == "the lease of node n1 was deleted right after it was taken"
    assert decision.wakes_at is not None


# Others who want the same node


OLDER = a_maintenance("older", since=NOW - 2 * HOUR)
YOUNGER = a_maintenance("younger", since=NOW)


def test_the_older_of_two_goes_first_and_the_younger_holds_with_it() -> None:
    waiting = seen(rivals=(OLDER,), node=a_node(held_by=("older",)), drain=LOOKED)
    assert step(waiting) is steps.RecordNode
    waiting = replace(waiting, maintenance=RECORDED)
    assert step(waiting) is steps.Hold
    decision = rests(replace(waiting, node=a_node(held_by=("older", "patch"))))
    assert "already in maintenance by NodeMaintenance older" in decision.problem
    assert decision.waits_for == "NodeMaintenance older"
    assert decision.wakes_at is not None
    assert step(seen(rivals=(YOUNGER,), drain=LOOKED)) is steps.BeginDrain


def test_the_younger_does_not_hold_what_the_older_does_not() -> None:
    assert rests(seen(rivals=(OLDER,), node=BARE, drain=LOOKED)).problem


def test_of_two_made_in_the_same_second_the_name_decides() -> None:
    first = a_maintenance("a", conditions=RUNNING)
    second = a_maintenance("b", conditions=RUNNING)
    assert step(seen(first, rivals=(second,), drain=LOOKED)) is steps.BeginDrain
    assert rests(seen(second, rivals=(first,), drain=LOOKED)).problem


def test_a_drain_under_way_stops_for_an_older_one() -> None:
    assert step(seen(rivals=(OLDER,))) is steps.StopDrain


def test_the_younger_goes_on_when_the_older_leaves() -> None:
    leaving = a_maintenance("older", since=NOW - 2 * HOUR, leaving=True)
    shared = a_node(held_by=("older", "patch"))
    assert step(seen(rivals=(leaving,), node=shared, drain=LOOKED)) is steps.BeginDrain


def test_who_leaves_first_leaves_lease_and_conditions_to_the_other() -> None:
    conditions = [{"type": "MaintenanceInProgress", "status": "True", "message": "Haulout: NodeMaintenance patch"}]
    shared = a_node(held_by=("patch", "younger"), status={"conditions": conditions})
    leaving = seen(LEAVING, rivals=(YOUNGER,), node=shared, drain=None, may_publish=True)
    assert step(leaving) is steps.Release
    left = changed(shared, cordon.release(shared, owner_name(LEAVING)))
    assert left.spec.unschedulable
    assert step(replace(leaving, node=left)) is steps.RemoveFinalizer


# The node


def test_a_node_that_the_object_named_before_is_given_back_first() -> None:
    stray = Stray(node=a_node("n0", held_by=("patch",)), lease=a_lease(node="n0"))
    assert step(seen(strays=(stray,))) is steps.StartOver, "what the status says is about the other node"
    assert step(seen(KNOWN, strays=(stray,), drain=a_drain("shop/cart", node="n0"))) is steps.StopDrain
    moved = seen(KNOWN, strays=(stray,), node=BARE, lease=None, drain=None)
    assert decide(moved).step == steps.ReleaseLease(a_lease(node="n0"))
    released = decide(replace(moved, strays=(replace(stray, lease=None),))).step
    assert isinstance(released, steps.Release)
    assert released.node == "n0"
    assert step(replace(moved, maintenance=LEAVING)) is steps.ReleaseLease


def test_a_stray_that_others_hold_keeps_its_lease() -> None:
    stray = Stray(node=a_node("n0", held_by=("patch", "other")), lease=a_lease(node="n0"))
    assert step(seen(KNOWN, strays=(stray,))) is steps.Release


def test_what_somebody_undid_is_done_again_but_not_without_pause() -> None:
    undone = changed(a_node(held_by=("patch",)), {"spec": {"unschedulable": None}})
    hold = decide(seen(node=undone)).step
    assert isinstance(hold, steps.Hold)
    assert not hold.is_first
    again = rests(seen(node=undone, restored_at=NOW - SECOND))
    assert "keeps undoing" in again.problem
    assert again.wakes_at == NOW - SECOND + RESTORED_AT_MOST_EVERY
    assert step(seen(node=undone, restored_at=NOW - RESTORED_AT_MOST_EVERY)) is steps.Hold


def test_an_objection_counts_only_before_the_node_is_taken() -> None:
    decision = rests(seen(node=BARE, drain=LOOKED, objection="etcd would lose its quorum"))
    assert decision.problem == "etcd would lose its quorum"
    assert decision.wakes_at is not None
    assert step(seen(drain=LOOKED, objection="etcd would lose its quorum")) is steps.BeginDrain


def test_a_mark_that_nobody_can_read_waits_for_a_person() -> None:
    garbled = a_node(metadata={"annotations": {cordon.MARK: "?"}})
    for maintenance in (a_maintenance(), LEAVING):
        decision = rests(seen(maintenance, node=garbled, drain=None if maintenance is LEAVING else LOOKED))
        assert cordon.MARK in decision.problem
        assert "person" in decision.waits_for
        assert decision.wakes_at is not None
        assert NOW < decision.wakes_at <= NOW + LOOKED_AT_EVERY


# After the Node Maintenance Operator


NMO_STATES: list[tuple[str, Mapping[str, Any]]] = [
    ("in the middle", {"phase": "Running", "drainProgress": 50}),
    ("done", {"phase": "Succeeded", "drainProgress": 100}),
    ("being deleted", {"phase": "Succeeded", "leaving": True}),
]


@pytest.mark.parametrize(("what", "fields"), NMO_STATES, ids=[row[0] for row in NMO_STATES])
@pytest.mark.parametrize("lease", [None, a_lease(), HELD], ids=["no lease", "our lease", "another's lease"])
def test_a_node_that_it_took_is_adopted_before_all_else(what: str, fields: Mapping[str, Any], lease: Any) -> None:
    del what
    maintenance = a_maintenance(**fields)
    drain = None if maintenance.is_leaving else LOOKED
    taken = a_node(adopted=True)
    hold = decide(seen(maintenance, node=taken, lease=lease, drain=drain)).step
    assert isinstance(hold, steps.Hold)
    adopted = changed(taken, hold.change)
    free = changed(adopted, cordon.release(adopted, owner_name(maintenance)))
    assert not free.spec.unschedulable
    assert free.spec.taints == ()


def test_a_new_maintenance_clears_away_what_one_that_is_gone_left() -> None:
    """Nobody holds the node, so nothing of a maintenance is to stay on it."""
    fresh = a_maintenance(conditions={"Leased": ("False", "NotAcquired")}, nodeBefore={"uid": "uid-of-n1"})
    tainted = a_node(adopted=True)
    assert step(seen(fresh, node=tainted, drain=LOOKED, lease=None)) is steps.TakeLease, "it is new to the node"
    hold = decide(seen(fresh, node=tainted, drain=LOOKED)).step
    assert isinstance(hold, steps.Hold)
    held = changed(tainted, hold.change)
    assert changed(held, cordon.release(held, owner_name(fresh))) == a_node()


def test_a_node_that_lost_its_mark_before_the_status_told_of_it_is_given_back() -> None:
    copy = {"uid": "uid-of-n1", "unschedulable": True}
    ending = a_maintenance(conditions={"Cordoned": ("False", "NotHeld")}, leaving=True, nodeBefore=copy)
    release = decide(seen(ending, node=a_node(adopted=True), drain=None)).step
    assert isinstance(release, steps.Release)
    back = changed(a_node(adopted=True), release.change)
    assert (back.spec.unschedulable, back.spec.taints) == (True, ())
    rival = a_maintenance("other", conditions=RUNNING)
    shared = decide(seen(ending, node=a_node(adopted=True), drain=None, rivals=(rival,))).step
    assert not isinstance(shared, steps.Release), "the taint may be the other's"


def test_what_it_gave_up_stays_given_up() -> None:
    text = "maintenance failed: lease could not be extended after 4 attempts"
    given_up = a_maintenance(phase="Failed", lastError=text, errorOnLeaseCount=4)
    decision = rests(seen(given_up, node=BARE, lease=None, drain=None))
    assert decision.failure is not None
    assert (decision.failure.cause, decision.failure.text) == (Cause.LEASE_LOST, text)


# What a successor knows


def test_a_successor_goes_on_from_what_the_status_says() -> None:
    turns = {"uid-1": NOW - SECOND}
    status: dict[str, Any] = {"drainProgress": 40, "drain": {"startTime": NOW - HOUR, "gone": 2, "turns": turns}}
    begun = decide(seen(a_maintenance(conditions=RUNNING, **status), drain=None)).step
    assert isinstance(begun, steps.StartDrain)
    assert begun.checkpoint is not None
    assert (begun.checkpoint.started, begun.checkpoint.gone, begun.checkpoint.percent) == (NOW - HOUR, 2, 40)
    assert dict(begun.checkpoint.since) == turns


def test_the_time_of_a_drain_that_was_done_does_not_count() -> None:
    status: dict[str, Any] = {"drainProgress": 100, "drain": {"startTime": NOW - 9 * HOUR, "gone": 2}}
    done = a_maintenance(phase="Succeeded", conditions=RUNNING, **status)
    begun = decide(seen(done, drain=None)).step
    assert isinstance(begun, steps.StartDrain)
    assert begun.checkpoint is not None
    assert (begun.checkpoint.started, begun.checkpoint.gone, begun.checkpoint.percent) == (NOW, 2, 99)


def test_whatever_is_seen_there_is_a_step_a_failure_or_a_time_to_look_again() -> None:
    nodes = (None, BARE, a_node(held_by=("patch",)), a_node(held_by=("older", "patch")), a_node(adopted=True))
    drains = (None, LOOKED, UNKNOWN, a_drain("shop/cart"), a_drain(gone=1, ending=Ending.DRAINED))
    leases = (None, a_lease(), HELD, a_lease(OTHER, age=HOUR), a_lease(OTHER, age=2 * HOUR))
    maintenances = (KNOWN, a_maintenance(conditions=RUNNING), a_maintenance(phase="Succeeded"), lost(SECOND))
    for maintenance in maintenances:
        for node in nodes:
            for drain in drains:
                for lease in leases:
                    for rivals in ((), (OLDER,), (YOUNGER,)):
                        what = seen(maintenance, node=node, drain=drain, lease=lease, rivals=rivals, may_publish=True)
                        decision = decide(what)
                        assert decision.step or decision.failure or decision.wakes_at, what
                        assert decision.step or decision.wakes_at is None or decision.wakes_at > NOW, "no hot loop"


def test_nothing_but_the_finalizer_is_done_before_it_is_there() -> None:
    for fields in ({}, {"node": None}, {"lease": HELD}, {"drain": None}):
        assert step(seen(a_maintenance(meta={"finalizers": ("example.com/x",)}), **fields)) is steps.AddFinalizer
    assert FINALIZER == "foregroundDeleteNodeMaintenance"


def test_what_is_wished_is_what_other_systems_know() -> None:
    taints = [f"{it.key}={it.value}:{it.effect}" for it in WISHES.taints]
    assert taints == ["node.kubernetes.io/unschedulable=:NoSchedule", "medik8s.io/drain=:NoSchedule"]
    assert msgspec.to_builtins(WISHES.labels) == {"remediation.medik8s.io/exclude-from-remediation": "true"}
