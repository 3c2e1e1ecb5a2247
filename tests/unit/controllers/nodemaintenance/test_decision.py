"""The decision about a NodeMaintenance: the order of actions, and what blocks them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs

from haulout.api import hold
from haulout.api.nodemaintenance import FINALIZER, NodeMaintenance
from haulout.api.reasons import NodeMaintenanceConditionReason
from haulout.controllers.nodemaintenance import actions
from haulout.controllers.nodemaintenance.decision import (
    FIRST_POD_LIST_TIMEOUT,
    LEASE_CHECK_INTERVAL,
    LEASE_LOST_TIMEOUT,
    MIN_LEASE_RENEWAL_INTERVAL,
    MIN_RESTORE_INTERVAL,
    RESYNC_INTERVAL,
    decide,
)
from haulout.controllers.nodemaintenance.node_cordon import CORDON_REQUEST, owner_name
from haulout.controllers.nodemaintenance.observation import (
    NodeMaintenanceDecision,
    Observation,
    StrayNode,
)
from haulout.drain import cordon
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import OutcomeResult
from support.builders.nodemaintenance_observation import (
    HOUR,
    NOW,
    RUNNING_CONDITIONS,
    a_drain,
    a_lease,
    a_maintenance,
    a_node,
    an_observation,
    patched_node,
)

OTHER = "NodeHealthCheck-workers"
SECOND = timedelta(seconds=1)


def action_of(what: Observation) -> type[object]:
    return type(decide(what).action)


def decision_without_action(what: Observation) -> NodeMaintenanceDecision:
    decision = decide(what)
    assert decision.action is None
    return decision


# The order


NEW = a_maintenance(phase="", meta={"finalizers": ()})
KNOWN = a_maintenance(phase="")
BARE = a_node()
RECORDED = a_maintenance(conditions={"Leased": ("True", "Acquired")}, nodeBefore={"uid": "uid-of-n1"})
LOOKED = a_drain("shop/cart", waiting=True)
UNKNOWN = a_drain(waiting=True, is_known=False)

ORDER: list[tuple[str, dict[str, Any], type[object]]] = [
    ("pods are looked at", {"maintenance": NEW, "node": BARE, "lease": None, "drain": None}, actions.PrepareDrain),
    (
        "its end is ours to allow",
        {"maintenance": NEW, "node": BARE, "lease": None, "drain": UNKNOWN},
        actions.AddFinalizer,
    ),
    (
        "pods are looked at anew",
        {"maintenance": KNOWN, "node": BARE, "lease": None, "drain": None},
        actions.PrepareDrain,
    ),
    (
        "the first status",
        {"maintenance": KNOWN, "node": BARE, "lease": None, "drain": LOOKED},
        actions.WriteInitialStatus,
    ),
    ("the lease", {"node": BARE, "lease": None, "drain": LOOKED}, actions.AcquireLease),
    ("the lease, half an hour later", {"lease": a_lease(age=timedelta(minutes=31))}, actions.AcquireLease),
    ("a lease that ran out", {"lease": a_lease(OTHER, age=2 * HOUR)}, actions.AcquireLease),
    ("how the node is", {"node": BARE, "drain": LOOKED}, actions.RecordNodeState),
    ("cordon, taints and label", {"maintenance": RECORDED, "node": BARE, "drain": LOOKED}, actions.CordonNode),
    ("conditions of the node", {"drain": LOOKED, "may_publish_conditions": True}, actions.PublishConditions),
    ("pods leave", {"drain": LOOKED}, actions.StartEvictions),
    ("pods go on leaving", {"drain": a_drain("shop/cart")}, type(None)),
    ("no pod is left", {"drain": a_drain(gone=1, ending=OutcomeResult.DRAINED)}, type(None)),
    ("a successor looks anew", {"drain": None}, actions.PrepareDrain),
    ("another policy", {"drain": a_drain("shop/cart", policy=DrainPolicy(parallel=3))}, actions.ChangePolicy),
    ("another node of that name", {"drain": a_drain("shop/cart", node="n0")}, actions.StopDrain),
]


@pytest.mark.parametrize(("what", "fields", "expected"), ORDER, ids=[row[0] for row in ORDER])
def test_each_action_follows_in_order(what: str, fields: dict[str, Any], expected: type[object]) -> None:
    del what
    assert action_of(an_observation(**fields)) is expected


LEAVING = a_maintenance(conditions=RUNNING_CONDITIONS, is_terminating=True)
BACK: list[tuple[str, dict[str, Any], type[object]]] = [
    ("the drain stops", {}, actions.StopDrain),
    ("the node is given back", {"drain": None}, actions.ReleaseNode),
    ("the lease", {"drain": None, "node": BARE}, actions.ReleaseLease),
    ("the object goes", {"drain": None, "node": BARE, "lease": None}, actions.RemoveFinalizer),
    ("the object goes without a node", {"drain": None, "node": None, "lease": None}, actions.RemoveFinalizer),
    ("the lease goes without a node", {"drain": None, "node": None}, actions.ReleaseLease),
    ("another's lease stays", {"drain": None, "node": BARE, "lease": a_lease(OTHER)}, actions.RemoveFinalizer),
    (
        "even if it ran out",
        {"drain": None, "node": BARE, "lease": a_lease(OTHER, age=2 * HOUR)},
        actions.RemoveFinalizer,
    ),
    ("a lease of nobody goes", {"drain": None, "node": BARE, "lease": a_lease("")}, actions.ReleaseLease),
]


@pytest.mark.parametrize(("what", "fields", "expected"), BACK, ids=[row[0] for row in BACK])
def test_each_release_action_follows_in_order(what: str, fields: dict[str, Any], expected: type[object]) -> None:
    del what
    assert action_of(an_observation(LEAVING, **fields)) is expected


def test_conditions_are_cleared_before_the_node_is_released() -> None:
    conditions = [{"type": "MaintenanceInProgress", "status": "True", "message": "Haulout: NodeMaintenance patch"}]
    node = a_node(held_by=("patch",), status={"conditions": conditions})
    decision = decide(an_observation(LEAVING, node=node, drain=None, may_publish_conditions=True))
    assert isinstance(decision.action, actions.PublishConditions)
    assert decision.action.is_last


def test_object_with_foreign_finalizers_is_left_alone() -> None:
    gone = a_maintenance(is_terminating=True, meta={"finalizers": ("example.com/other",)})
    assert decide(an_observation(gone, node=BARE, drain=None)) == NodeMaintenanceDecision()


def test_lease_is_requeued_before_it_expires() -> None:
    assert decision_without_action(an_observation()).requeue_at == NOW + timedelta(minutes=29)


def test_initial_status_waits_for_the_first_pod_list_up_to_a_timeout() -> None:
    waiting = an_observation(KNOWN, node=BARE, lease=None, drain=UNKNOWN)
    assert decision_without_action(waiting).requeue_at == NOW + FIRST_POD_LIST_TIMEOUT
    assert action_of(replace(waiting, now=NOW + FIRST_POD_LIST_TIMEOUT)) is actions.WriteInitialStatus
    assert (
        action_of(replace(waiting, drain=a_drain(waiting=True, is_known=False, stale_reason="forbidden")))
        is actions.WriteInitialStatus
    )


@pytest.mark.parametrize("node", ["", "n7"])
def test_maintenance_without_a_node_gets_an_initial_status(node: str) -> None:
    """It shows Running and then Failed, as before."""
    assert (
        action_of(an_observation(a_maintenance(phase="", spec={"nodeName": node}), node=None, lease=None, drain=None))
        is actions.WriteInitialStatus
    )


# Failures of a maintenance


FAILING: list[tuple[str, NodeMaintenance, dict[str, Any], NodeMaintenanceConditionReason, str]] = [
    (
        "no name",
        a_maintenance(spec={"nodeName": ""}),
        {"node": None},
        NodeMaintenanceConditionReason.NODE_UNNAMED,
        "spec.nodeName is empty",
    ),
    ("no node", a_maintenance(), {"node": None}, NodeMaintenanceConditionReason.NODE_MISSING, 'nodes "n1" not found'),
    (
        "no sense",
        a_maintenance(spec={"drain": {"timeuot": "1m"}}),
        {"node": BARE},
        NodeMaintenanceConditionReason.POLICY_INVALID,
        "did you mean timeout?",
    ),
]


@pytest.mark.parametrize(("what", "maintenance", "fields", "cause", "text"), FAILING, ids=[row[0] for row in FAILING])
def test_impossible_maintenance_fails_with_a_reason(
    what: str, maintenance: NodeMaintenance, fields: dict[str, Any], cause: NodeMaintenanceConditionReason, text: str
) -> None:
    del what
    failure = decision_without_action(an_observation(maintenance, lease=None, drain=None, **fields)).failure
    assert failure is not None
    assert failure.reason is cause
    assert text in failure.message


@pytest.mark.parametrize(
    ("what", "maintenance", "fields"), [row[:3] for row in FAILING], ids=[row[0] for row in FAILING]
)
def test_drain_is_stopped_before_a_maintenance_fails(
    what: str, maintenance: NodeMaintenance, fields: dict[str, Any]
) -> None:
    del what
    assert action_of(an_observation(maintenance, **fields)) is actions.StopDrain


def test_failure_is_cleared_when_its_cause_is_gone() -> None:
    for cause in (
        NodeMaintenanceConditionReason.NODE_MISSING,
        NodeMaintenanceConditionReason.NODE_UNNAMED,
        NodeMaintenanceConditionReason.POLICY_INVALID,
    ):
        failed = a_maintenance(phase="Failed", conditions={"Failed": ("True", cause)})
        assert action_of(an_observation(failed, node=BARE, lease=None, drain=None)) is actions.PrepareDrain


@pytest.mark.parametrize("ending", [OutcomeResult.TIMED_OUT, OutcomeResult.REFUSED])
def test_failed_drain_fails_the_maintenance_and_keeps_the_node_cordoned(ending: OutcomeResult) -> None:
    decision = decision_without_action(an_observation(drain=a_drain("shop/cart", ending=ending)))
    assert decision.failure is not None
    assert decision.failure.reason == f"Drain{ending}"
    assert decision.requeue_at is not None, "the lease is still renewed"


STICKY = (
    NodeMaintenanceConditionReason.LEASE_LOST,
    NodeMaintenanceConditionReason.DRAIN_TIMED_OUT,
    NodeMaintenanceConditionReason.DRAIN_REFUSED,
)


def failed(cause: str, **more: Any) -> NodeMaintenance:
    return a_maintenance(phase="Failed", conditions={**RUNNING_CONDITIONS, "Failed": ("True", cause)}, **more)


@pytest.mark.parametrize("cause", STICKY)
def test_failure_is_kept_until_the_object_is_edited(cause: NodeMaintenanceConditionReason) -> None:
    node = BARE if cause is NodeMaintenanceConditionReason.LEASE_LOST else a_node(held_by=("patch",))
    decision = decision_without_action(an_observation(failed(cause), node=node, drain=None))
    assert decision.failure is not None
    assert decision.failure.reason is cause
    assert decision.failure.message == f"{cause} it is"
    assert (
        action_of(an_observation(failed(cause, meta={"generation": 2}), node=node, drain=None)) is actions.PrepareDrain
    )


def test_edit_restarts_a_failed_drain() -> None:
    edited = failed(NodeMaintenanceConditionReason.DRAIN_TIMED_OUT, meta={"generation": 2})
    assert (
        action_of(an_observation(edited, drain=a_drain("shop/cart", ending=OutcomeResult.TIMED_OUT)))
        is actions.StopDrain
    )
    again = decide(an_observation(edited, drain=None)).action
    assert isinstance(again, actions.PrepareDrain)
    assert again.checkpoint is None


def test_policy_that_becomes_invalid_keeps_lease_and_node() -> None:
    broken = a_maintenance(conditions=RUNNING_CONDITIONS, spec={"drain": {"deletionTimeout": "1m"}})
    assert action_of(an_observation(broken)) is actions.StopDrain
    assert (
        action_of(an_observation(broken, drain=None, lease=a_lease(age=timedelta(minutes=31)))) is actions.AcquireLease
    )
    decision = decision_without_action(an_observation(broken, drain=None))
    assert decision.failure is not None
    assert decision.requeue_at is not None


# The lease


HELD = a_lease(OTHER)


def test_lease_of_another_holder_is_awaited() -> None:
    waiting = an_observation(a_maintenance(), node=BARE, lease=HELD, drain=LOOKED)
    decision = decision_without_action(waiting)
    assert decision.problem.startswith("failed to obtain a lease that is not owned by us : can't update or invalidate")
    assert decision.problem.endswith(f"held by different owner: {OTHER} errorOnLeaseCount 0")
    assert OTHER in decision.waits_for
    assert decision.requeue_at == NOW + timedelta(minutes=59, seconds=1)
    assert decision.lease_failures == 0


def test_valid_lease_without_a_holder_counts_as_held() -> None:
    assert (
        "unknown"
        in decision_without_action(an_observation(a_maintenance(), node=BARE, lease=a_lease(""), drain=LOOKED)).problem
    )


def with_lost_lease(since: timedelta) -> NodeMaintenance:
    return a_maintenance(conditions={"Leased": ("False", "Lost")}, since=NOW - since)


def test_lost_lease_stops_the_drain_at_once() -> None:
    assert action_of(an_observation(lease=HELD)) is actions.StopDrain


@pytest.mark.parametrize(
    ("ago", "count"), [(0, 1), (9, 1), (10, 2), (59, 6)], ids=["now", "9 s ago", "10 s ago", "59 s ago"]
)
def test_lost_lease_is_checked_every_ten_seconds(ago: int, count: int) -> None:
    since = timedelta(seconds=ago)
    decision = decision_without_action(an_observation(with_lost_lease(since), lease=HELD, drain=LOOKED))
    assert decision.problem.startswith("failed to extend a lease that used to be owned by us, incrementing error")
    assert decision.problem.endswith(f"errorOnLeaseCount: {count}")
    assert decision.lease_failures == count
    assert decision.requeue_at is not None
    assert NOW < decision.requeue_at <= NOW + LEASE_CHECK_INTERVAL


def test_lost_lease_counts_from_the_first_observation() -> None:
    decision = decision_without_action(an_observation(lease=HELD, drain=LOOKED))
    assert decision.lease_lost_since == NOW
    assert decision.lease_failures == 1


def test_lease_lost_for_a_minute_fails_the_maintenance_after_the_node_is_released() -> None:
    given_up = an_observation(with_lost_lease(LEASE_LOST_TIMEOUT), lease=HELD, drain=LOOKED)
    assert action_of(given_up) is actions.ReleaseNode
    decision = decision_without_action(replace(given_up, node=BARE))
    assert decision.failure is not None
    assert decision.failure.reason is NodeMaintenanceConditionReason.LEASE_LOST
    assert decision.failure.message == "maintenance failed: lease could not be extended after 7 attempts"


def test_free_lease_is_acquired_again() -> None:
    for lease in (None, a_lease(OTHER, age=2 * HOUR)):
        assert action_of(an_observation(with_lost_lease(SECOND), lease=lease, drain=LOOKED)) is actions.AcquireLease
    assert action_of(an_observation(with_lost_lease(SECOND), drain=LOOKED)) is actions.StartEvictions


def test_maintenance_without_its_lease_holds_nothing() -> None:
    over = failed(NodeMaintenanceConditionReason.LEASE_LOST)
    assert action_of(an_observation(over, lease=HELD)) is actions.StopDrain
    assert action_of(an_observation(over, lease=HELD, drain=None)) is actions.ReleaseNode
    assert decision_without_action(an_observation(over, lease=None, drain=None, node=BARE)).failure is not None


def test_lease_is_not_renewed_too_often_when_clocks_differ() -> None:
    """With different clocks, each of two processes would find the other's renewal time wrong."""
    ahead = a_lease(age=-3 * HOUR)
    assert action_of(an_observation(lease=ahead)) is actions.AcquireLease
    assert (
        decision_without_action(an_observation(lease=ahead, leased_at=NOW - SECOND)).requeue_at
        == NOW - SECOND + MIN_LEASE_RENEWAL_INTERVAL
    )
    assert action_of(an_observation(lease=ahead, leased_at=NOW - MIN_LEASE_RENEWAL_INTERVAL)) is actions.AcquireLease
    assert action_of(an_observation(lease=ahead, leased_at=NOW + HOUR)) is actions.AcquireLease, (
        "that was before the clock was set"
    )


@pytest.mark.parametrize("ago", [timedelta(), SECOND], ids=str)
def test_lease_deleted_right_after_it_was_acquired_is_not_acquired_again_at_once(ago: timedelta) -> None:
    decision = decision_without_action(an_observation(lease=None, leased_at=NOW - ago))
    assert "was deleted right after the operator acquired it" in decision.problem
    assert decision.requeue_at == NOW - ago + MIN_LEASE_RENEWAL_INTERVAL


@pytest.mark.parametrize(
    ("lease", "expected"),
    [(None, type(None)), (a_lease(OTHER), type(None)), (a_lease(), actions.ReleaseLease)],
    ids=["none", "another's", "ours"],
)
def test_hold_releases_only_the_own_lease(lease: Any, expected: type[object]) -> None:
    annotated = structs.replace(BARE.metadata, annotations={hold.ANNOTATION: "by=alice; migration"})
    node = structs.replace(BARE, metadata=annotated)
    assert action_of(an_observation(RECORDED, node=node, lease=lease, drain=LOOKED)) is expected


def test_missing_lease_blocks_all_actions() -> None:
    decision = decision_without_action(an_observation(lease=None, leased_at=NOW - SECOND, drain=LOOKED))
    assert decision.problem == "the lease of node n1 was deleted right after the operator acquired it"
    assert decision.requeue_at is not None


# Several maintenances of one node


OLDER = a_maintenance("older", since=NOW - 2 * HOUR)
YOUNGER = a_maintenance("younger", since=NOW)


def test_older_maintenance_goes_first_and_the_younger_cordons_with_it() -> None:
    waiting = an_observation(rivals=(OLDER,), node=a_node(held_by=("older",)), drain=LOOKED)
    assert action_of(waiting) is actions.RecordNodeState
    waiting = replace(waiting, maintenance=RECORDED)
    assert action_of(waiting) is actions.CordonNode
    decision = decision_without_action(replace(waiting, node=a_node(held_by=("older", "patch"))))
    assert "already in maintenance by NodeMaintenance older" in decision.problem
    assert decision.waits_for == "NodeMaintenance older"
    assert decision.requeue_at is not None
    assert action_of(an_observation(rivals=(YOUNGER,), drain=LOOKED)) is actions.StartEvictions


def test_younger_maintenance_does_not_cordon_a_node_the_older_has_not_cordoned() -> None:
    assert decision_without_action(an_observation(rivals=(OLDER,), node=BARE, drain=LOOKED)).problem


def test_maintenances_of_the_same_second_are_ordered_by_name() -> None:
    first = a_maintenance("a", conditions=RUNNING_CONDITIONS)
    second = a_maintenance("b", conditions=RUNNING_CONDITIONS)
    assert action_of(an_observation(first, rivals=(second,), drain=LOOKED)) is actions.StartEvictions
    assert decision_without_action(an_observation(second, rivals=(first,), drain=LOOKED)).problem


def test_running_drain_stops_for_an_older_maintenance() -> None:
    assert action_of(an_observation(rivals=(OLDER,))) is actions.StopDrain


def test_younger_maintenance_continues_when_the_older_is_deleted() -> None:
    leaving = a_maintenance("older", since=NOW - 2 * HOUR, is_terminating=True)
    shared = a_node(held_by=("older", "patch"))
    assert action_of(an_observation(rivals=(leaving,), node=shared, drain=LOOKED)) is actions.StartEvictions


def test_first_of_two_maintenances_leaves_lease_and_conditions_to_the_other() -> None:
    conditions = [{"type": "MaintenanceInProgress", "status": "True", "message": "Haulout: NodeMaintenance patch"}]
    shared = a_node(held_by=("patch", "younger"), status={"conditions": conditions})
    leaving = an_observation(LEAVING, rivals=(YOUNGER,), node=shared, drain=None, may_publish_conditions=True)
    assert action_of(leaving) is actions.ReleaseNode
    left = patched_node(shared, cordon.release(shared, owner_name(LEAVING)))
    assert left.spec.unschedulable
    assert action_of(replace(leaving, node=left)) is actions.RemoveFinalizer


# The node


def test_previously_named_node_is_released_first() -> None:
    stray = StrayNode(node=a_node("n0", held_by=("patch",)), lease=a_lease(node="n0"))
    assert action_of(an_observation(stray_nodes=(stray,))) is actions.ResetStatus, (
        "what the status says is about the other node"
    )
    assert (
        action_of(an_observation(KNOWN, stray_nodes=(stray,), drain=a_drain("shop/cart", node="n0")))
        is actions.StopDrain
    )
    moved = an_observation(KNOWN, stray_nodes=(stray,), node=BARE, lease=None, drain=None)
    assert decide(moved).action == actions.ReleaseLease(a_lease(node="n0"))
    released = decide(replace(moved, stray_nodes=(replace(stray, lease=None),))).action
    assert isinstance(released, actions.ReleaseNode)
    assert released.node == "n0"
    assert action_of(replace(moved, maintenance=LEAVING)) is actions.ReleaseLease


def test_stray_node_held_by_others_keeps_its_lease() -> None:
    stray = StrayNode(node=a_node("n0", held_by=("patch", "other")), lease=a_lease(node="n0"))
    assert action_of(an_observation(KNOWN, stray_nodes=(stray,))) is actions.ReleaseNode


def test_changes_undone_by_others_are_restored_after_a_pause() -> None:
    undone = patched_node(a_node(held_by=("patch",)), {"spec": {"unschedulable": None}})
    hold = decide(an_observation(node=undone)).action
    assert isinstance(hold, actions.CordonNode)
    assert not hold.is_first
    again = decision_without_action(an_observation(node=undone, restored_at=NOW - SECOND))
    assert "keeps undoing" in again.problem
    assert again.requeue_at == NOW - SECOND + MIN_RESTORE_INTERVAL
    assert action_of(an_observation(node=undone, restored_at=NOW - MIN_RESTORE_INTERVAL)) is actions.CordonNode


def test_quorum_problem_counts_only_before_the_node_is_cordoned() -> None:
    decision = decision_without_action(
        an_observation(node=BARE, drain=LOOKED, quorum_problem="etcd would lose its quorum")
    )
    assert decision.problem == "etcd would lose its quorum"
    assert decision.requeue_at is not None
    assert (
        action_of(an_observation(drain=LOOKED, quorum_problem="etcd would lose its quorum")) is actions.StartEvictions
    )


def test_unreadable_cordon_annotation_awaits_repair() -> None:
    garbled = a_node(metadata={"annotations": {cordon.CORDON_ANNOTATION: "?"}})
    for maintenance in (a_maintenance(), LEAVING):
        decision = decision_without_action(
            an_observation(maintenance, node=garbled, drain=None if maintenance is LEAVING else LOOKED)
        )
        assert cordon.CORDON_ANNOTATION in decision.problem
        assert "repair the cordon annotation" in decision.waits_for
        assert decision.requeue_at is not None
        assert NOW < decision.requeue_at <= NOW + RESYNC_INTERVAL


# After the Node Maintenance Operator


NMO_STATES: list[tuple[str, Mapping[str, Any]]] = [
    ("in the middle", {"phase": "Running", "drainProgress": 50}),
    ("done", {"phase": "Succeeded", "drainProgress": 100}),
    ("being deleted", {"phase": "Succeeded", "leaving": True}),
]


@pytest.mark.parametrize(("what", "fields"), NMO_STATES, ids=[row[0] for row in NMO_STATES])
@pytest.mark.parametrize("lease", [None, a_lease(), HELD], ids=["no lease", "our lease", "another's lease"])
def test_node_cordoned_by_nmo_is_adopted_first(what: str, fields: Mapping[str, Any], lease: Any) -> None:
    del what
    maintenance = a_maintenance(**fields)
    drain = None if maintenance.is_being_deleted else LOOKED
    taken = a_node(adopted=True)
    hold = decide(an_observation(maintenance, node=taken, lease=lease, drain=drain)).action
    assert isinstance(hold, actions.CordonNode)
    adopted = patched_node(taken, hold.change)
    free = patched_node(adopted, cordon.release(adopted, owner_name(maintenance)))
    assert not free.spec.unschedulable
    assert free.spec.taints == ()


def test_new_maintenance_adopts_leftover_cordon_and_taints() -> None:
    """The node has no owner, so no taint of a maintenance may stay."""
    fresh = a_maintenance(conditions={"Leased": ("False", "NotAcquired")}, nodeBefore={"uid": "uid-of-n1"})
    tainted = a_node(adopted=True)
    assert action_of(an_observation(fresh, node=tainted, drain=LOOKED, lease=None)) is actions.AcquireLease, (
        "it is new to the node"
    )
    hold = decide(an_observation(fresh, node=tainted, drain=LOOKED)).action
    assert isinstance(hold, actions.CordonNode)
    held = patched_node(tainted, hold.change)
    assert patched_node(held, cordon.release(held, owner_name(fresh))) == a_node()


def test_node_that_lost_its_annotation_before_the_status_update_is_released() -> None:
    copy = {"uid": "uid-of-n1", "unschedulable": True}
    ending = a_maintenance(conditions={"Cordoned": ("False", "CordonNotHeld")}, is_terminating=True, nodeBefore=copy)
    release = decide(an_observation(ending, node=a_node(adopted=True), drain=None)).action
    assert isinstance(release, actions.ReleaseNode)
    back = patched_node(a_node(adopted=True), release.change)
    assert (back.spec.unschedulable, back.spec.taints) == (True, ())
    rival = a_maintenance("other", conditions=RUNNING_CONDITIONS)
    shared = decide(an_observation(ending, node=a_node(adopted=True), drain=None, rivals=(rival,))).action
    assert not isinstance(shared, actions.ReleaseNode), "the taint may be the other's"


def test_failure_of_nmo_stays_failed() -> None:
    text = "maintenance failed: lease could not be extended after 4 attempts"
    given_up = a_maintenance(phase="Failed", lastError=text, errorOnLeaseCount=4)
    decision = decision_without_action(an_observation(given_up, node=BARE, lease=None, drain=None))
    assert decision.failure is not None
    assert (decision.failure.reason, decision.failure.message) == (NodeMaintenanceConditionReason.LEASE_LOST, text)


# After a restart


def test_resumed_drain_continues_from_the_status() -> None:
    turns = {"uid-1": NOW - SECOND}
    drain = {"startTime": NOW - HOUR, "removed": 2, "podStartTimes": turns}
    status: dict[str, Any] = {"drainProgress": 40, "drain": drain}
    action = decide(an_observation(a_maintenance(conditions=RUNNING_CONDITIONS, **status), drain=None)).action
    assert isinstance(action, actions.PrepareDrain)
    assert action.checkpoint is not None
    assert (action.checkpoint.started, action.checkpoint.gone, action.checkpoint.percent) == (NOW - HOUR, 2, 40)
    assert dict(action.checkpoint.since) == turns


def test_completed_drain_starts_a_new_drain_time() -> None:
    status: dict[str, Any] = {"drainProgress": 100, "drain": {"startTime": NOW - 9 * HOUR, "removed": 2}}
    done = a_maintenance(phase="Succeeded", conditions=RUNNING_CONDITIONS, **status)
    action = decide(an_observation(done, drain=None)).action
    assert isinstance(action, actions.PrepareDrain)
    assert action.checkpoint is not None
    assert (action.checkpoint.started, action.checkpoint.gone, action.checkpoint.percent) == (NOW, 2, 99)


def test_every_observation_yields_an_action_a_failure_or_a_requeue() -> None:
    nodes = (None, BARE, a_node(held_by=("patch",)), a_node(held_by=("older", "patch")), a_node(adopted=True))
    drains = (None, LOOKED, UNKNOWN, a_drain("shop/cart"), a_drain(gone=1, ending=OutcomeResult.DRAINED))
    leases = (None, a_lease(), HELD, a_lease(OTHER, age=HOUR), a_lease(OTHER, age=2 * HOUR))
    maintenances = (
        KNOWN,
        a_maintenance(conditions=RUNNING_CONDITIONS),
        a_maintenance(phase="Succeeded"),
        with_lost_lease(SECOND),
    )
    for maintenance in maintenances:
        for node in nodes:
            for drain in drains:
                for lease in leases:
                    for rivals in ((), (OLDER,), (YOUNGER,)):
                        what = an_observation(
                            maintenance, node=node, drain=drain, lease=lease, rivals=rivals, may_publish_conditions=True
                        )
                        decision = decide(what)
                        assert decision.action or decision.failure or decision.requeue_at, what
                        assert decision.action or decision.requeue_at is None or decision.requeue_at > NOW, (
                            "no hot loop"
                        )


def test_finalizer_is_added_before_any_other_action() -> None:
    for fields in ({}, {"node": None}, {"lease": HELD}, {"drain": None}):
        assert (
            action_of(an_observation(a_maintenance(meta={"finalizers": ("example.com/x",)}), **fields))
            is actions.AddFinalizer
        )
    assert FINALIZER == "foregroundDeleteNodeMaintenance"


def test_cordon_request_has_the_taints_and_labels_of_medik8s() -> None:
    taints = [f"{it.key}={it.value}:{it.effect}" for it in CORDON_REQUEST.taints]
    assert taints == ["node.kubernetes.io/unschedulable=:NoSchedule", "medik8s.io/drain=:NoSchedule"]
    assert msgspec.to_builtins(CORDON_REQUEST.labels) == {"remediation.medik8s.io/exclude-from-remediation": "true"}
