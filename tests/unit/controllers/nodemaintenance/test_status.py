"""The status: compatible fields by the old rules, new fields, and no unnecessary writes."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.nodemaintenance import NodeMaintenance, NodeMaintenanceConditionType, NodeMaintenanceStatus
from haulout.api.objects import RawObject
from haulout.api.reasons import NodeMaintenanceConditionReason
from haulout.controllers.nodemaintenance.decision import decide
from haulout.controllers.nodemaintenance.observation import Failure, NodeMaintenanceDecision, Observation
from haulout.controllers.nodemaintenance.status import build_status, status_patch
from haulout.drain.blockers import Blocker, BlockerKind
from haulout.drain.cordon import CORDON_ANNOTATION
from haulout.drain.progress import BLOCKED_AFTER, ActiveBlocker, OutcomeResult, PodDrainState, PodProgress
from support.builders.nodemaintenance_observation import (
    HOUR,
    NOW,
    RUNNING_CONDITIONS,
    a_drain,
    a_lease,
    a_maintenance,
    a_node,
    an_observation,
    apply_merge_patch,
)

SECOND = timedelta(seconds=1)
BUDGET = Blocker(
    kind=BlockerKind.DISRUPTION_BUDGET,
    pod="shop/cart",
    uid="uid-of-shop/cart",
    object="PodDisruptionBudget shop/cart",
    workload="ReplicaSet shop/cart",
    reason="2 of 2 healthy pods needed",
    remedy="scale it up",
)


def built_status(
    what: Observation, decision: NodeMaintenanceDecision | None = None, **more: Any
) -> NodeMaintenanceStatus:
    return build_status(what, decide(what) if decision is None else decision, **more).status


def blocked(since: timedelta = SECOND, blocker: Blocker = BUDGET) -> Observation:
    row = PodProgress(
        pod=blocker.pod,
        uid=blocker.uid,
        state=PodDrainState.BLOCKED,
        message=blocker.reason,
        active_blocker=ActiveBlocker(blocker, NOW - since),
        next_at=NOW + timedelta(seconds=20),
    )
    return an_observation(drain=a_drain(gone=1, pods=(row,), total=2, percent=50))


def apply_status(maintenance: NodeMaintenance, status: NodeMaintenanceStatus) -> NodeMaintenance:
    """Return the maintenance once the status was written, as the server returns it."""
    change = status_patch(maintenance, status, now=NOW)
    raw = msgspec.json.decode(msgspec.json.encode(maintenance))
    return msgspec.convert(
        apply_merge_patch(raw, msgspec.json.decode(msgspec.json.encode(change or {}))), NodeMaintenance
    )


# The old fields


def test_initial_status_names_the_present_pods() -> None:
    """A01."""
    fresh = a_maintenance(phase="")
    drain = a_drain("shop/cart-0", "shop/cart-1", waiting=True)
    built = built_status(an_observation(fresh, node=a_node(), lease=None, drain=drain), NodeMaintenanceDecision())
    assert built.phase == "Running"
    assert built.pending_pods == ("cart-0", "cart-1")
    assert [(it.namespace, it.name) for it in built.pending_pods_refs] == [("shop", "cart-0"), ("shop", "cart-1")]
    assert (built.eviction_pods, built.total_pods, built.drain_progress) == (2, 2, 0)


def test_pod_counters_are_set_once() -> None:
    """A02."""
    counted = a_maintenance(conditions=RUNNING_CONDITIONS, totalpods=5, evictionPods=3)
    built = built_status(an_observation(counted, drain=a_drain("shop/a", "shop/b", gone=7)))
    assert (built.total_pods, built.eviction_pods) == (5, 3)


@given(counted=st.integers(1, 5), gone=st.integers(0, 9), left=st.integers(0, 9), before=st.integers(0, 100))
def test_drain_progress_stays_within_its_bounds(counted: int, gone: int, left: int, before: int) -> None:
    """B13: whatever comes and goes."""
    maintenance = a_maintenance(conditions=RUNNING_CONDITIONS, evictionPods=counted, drainProgress=before)
    drain = a_drain(*(f"shop/p{number}" for number in range(left)), gone=gone)
    assert 0 <= built_status(an_observation(maintenance, drain=drain)).drain_progress <= 100


def test_succeeded_status_has_100_percent_and_no_pending_pods() -> None:
    """A06."""
    built = built_status(an_observation(drain=a_drain(gone=2, ending=OutcomeResult.DRAINED, percent=99)))
    assert (built.phase, built.drain_progress, built.pending_pods, built.pending_pods_refs) == (
        "Succeeded",
        100,
        (),
        (),
    )
    assert (built.last_error, built.error_on_lease_count) == ("", 0)


def test_resolved_error_is_cleared() -> None:
    """B14."""
    recovered = a_maintenance(conditions=RUNNING_CONDITIONS, lastError="nodes is forbidden", errorOnLeaseCount=3)
    built = built_status(an_observation(recovered))
    assert (built.last_error, built.error_on_lease_count) == ("", 0)


def test_lost_lease_is_counted() -> None:
    lost = a_maintenance(conditions={"Leased": ("False", "Lost")}, since=NOW - timedelta(seconds=25))
    built = built_status(an_observation(lost, lease=a_lease("other"), drain=a_drain("shop/a", waiting=True)))
    assert built.error_on_lease_count == 3
    assert built.last_error.startswith("failed to extend a lease that used to be owned by us")
    assert built.phase == "Running"


def test_failed_status_keeps_the_lease_error_count() -> None:
    """A12."""
    given_up = a_maintenance(
        phase="Failed", conditions={"Failed": ("True", "LeaseLost")}, errorOnLeaseCount=7, drainProgress=50
    )
    built = built_status(an_observation(given_up, node=a_node(), lease=a_lease("other"), drain=None))
    assert (built.phase, built.error_on_lease_count, built.drain_progress) == ("Failed", 7, 50)


PHASES: list[tuple[str, str, dict[str, Any], str]] = [
    ("it waits", "Running", {"drain": a_drain("shop/a", waiting=True)}, "Running"),
    ("it drains", "Running", {"drain": a_drain("shop/a")}, "Running"),
    ("it is done", "Running", {"drain": a_drain(gone=1, ending=OutcomeResult.DRAINED)}, "Succeeded"),
    ("it was done, and nobody has looked yet", "Succeeded", {"drain": a_drain(is_known=False)}, "Succeeded"),
    ("it was done, and has begun to look", "Succeeded", {"drain": a_drain("shop/a", waiting=True)}, "Succeeded"),
    ("it was done, and a pod came", "Succeeded", {"drain": a_drain("shop/a")}, "Running"),
    ("time is up", "Running", {"drain": a_drain("shop/a", ending=OutcomeResult.TIMED_OUT)}, "Failed"),
    ("the node is gone", "Succeeded", {"node": None, "drain": None}, "Failed"),
    ("the node is back", "Failed", {"drain": a_drain("shop/a")}, "Running"),
]


@pytest.mark.parametrize(("what", "before", "fields", "expected"), PHASES, ids=[row[0] for row in PHASES])
def test_phase_follows_the_drain(what: str, before: str, fields: dict[str, Any], expected: str) -> None:
    del what
    assert (
        built_status(an_observation(a_maintenance(phase=before, conditions=RUNNING_CONDITIONS), **fields)).phase
        == expected
    )


def test_successor_keeps_the_status_until_pods_are_listed() -> None:
    pending: dict[str, Any] = {"pendingPods": ["a"], "pendingPodsRefs": [{"namespace": "shop", "name": "a"}]}
    drain = {"startTime": NOW - HOUR, "gone": 3, "turns": {"uid": NOW}}
    before = a_maintenance(
        conditions=RUNNING_CONDITIONS, drainProgress=40, drain=drain, totalpods=5, evictionPods=4, **pending
    )
    built = built_status(an_observation(before, drain=a_drain(is_known=False)))
    for field in ("drain_progress", "pending_pods", "pending_pods_refs", "drain", "total_pods", "eviction_pods"):
        assert getattr(built, field) == getattr(before.status, field)


# Blockers


def test_blocker_becomes_the_last_error_after_blocked_after() -> None:
    assert built_status(blocked(SECOND)).last_error == ""
    assert build_status(blocked(SECOND), NodeMaintenanceDecision()).requeue_at == NOW - SECOND + BLOCKED_AFTER
    long = blocked(BLOCKED_AFTER)
    assert built_status(long).last_error == "shop/cart: 2 of 2 healthy pods needed; scale it up"
    assert build_status(long, NodeMaintenanceDecision()).requeue_at == built_status(long).next_reconcile


def test_progress_of_others_is_not_an_error() -> None:
    migrating = replace(BUDGET, kind=BlockerKind.MIGRATION)
    assert migrating.is_progress
    assert built_status(blocked(HOUR, migrating)).last_error == ""


def test_blockers_are_reported_with_all_fields() -> None:
    (it,) = built_status(blocked()).blockers
    assert (it.kind, it.pod, it.object) == ("DisruptionBudget", "shop/cart", "PodDisruptionBudget shop/cart")
    assert (it.workload, it.reason, it.remedy) == ("ReplicaSet shop/cart", "2 of 2 healthy pods needed", "scale it up")
    assert it.since == NOW - SECOND


def test_drained_condition_counts_blocked_pods_and_names_the_blocker() -> None:
    built = built_status(blocked(since=BLOCKED_AFTER)).condition(NodeMaintenanceConditionType.DRAINED)
    assert built is not None
    assert built.message == "1 of 2 pods have left, 1 blocked by PodDisruptionBudget shop/cart"


def test_stale_pod_informer_is_reported_and_requeued() -> None:
    blind = an_observation(drain=a_drain(is_known=False, stale_reason="pods is forbidden"))
    report = build_status(blind, decide(blind))
    assert report.status.last_error == "pods is forbidden"
    assert report.requeue_at == NOW + BLOCKED_AFTER


def ending(*names: str, state: PodDrainState = PodDrainState.LEAVING) -> Observation:
    pods = tuple(PodProgress(pod=it, uid=f"uid-of-{it}", state=state, message="") for it in names)
    return an_observation(drain=a_drain(gone=1, pods=pods, total=3, percent=33))


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (blocked(), "PodDisruptionBudget shop/cart"),
        (ending("shop/cart"), "pod shop/cart to end"),
        (ending("shop/cart", "shop/till", state=PodDrainState.FINISHING), "2 pods to end"),
        (ending("shop/cart", state=PodDrainState.EVICTING), ""),
    ],
)
def test_status_names_what_it_waits_for_until_the_last_pod_has_terminated(what: Observation, expected: str) -> None:
    assert built_status(what).waiting_for == expected


def test_crd_that_prunes_a_field_causes_no_more_writes() -> None:
    what = ending("shop/cart")
    kept = msgspec.structs.replace(built_status(what), waiting_for="")
    assert status_patch(apply_status(what.maintenance, kept), built_status(what), now=NOW) is None


def test_number_of_blockers_is_limited() -> None:
    rows = tuple(
        PodProgress(
            pod=f"shop/{number}",
            uid=str(number),
            state=PodDrainState.BLOCKED,
            message="",
            active_blocker=ActiveBlocker(BUDGET, NOW),
        )
        for number in range(500)
    )
    assert len(built_status(an_observation(drain=a_drain(pods=rows, total=500))).blockers) == 50


# Conditions


CONDITIONS: list[tuple[str, Observation, str, tuple[str, str]]] = [
    ("held", an_observation(), "Leased", ("True", "Acquired")),
    ("nobody's", an_observation(a_maintenance(), lease=None, node=a_node()), "Leased", ("False", "NotAcquired")),
    (
        "another's",
        an_observation(a_maintenance(), lease=a_lease("x"), node=a_node()),
        "Leased",
        ("False", "HeldByOther"),
    ),
    ("cordoned", an_observation(), "Cordoned", ("True", "Cordoned")),
    ("not yet", an_observation(node=a_node()), "Cordoned", ("False", "CordonNotHeld")),
    ("no node", an_observation(node=None, drain=None), "Cordoned", ("False", "NodeMissing")),
    (
        "garbled",
        an_observation(node=a_node(metadata={"annotations": {CORDON_ANNOTATION: "?"}})),
        "Cordoned",
        ("False", "CordonAnnotationInvalid"),
    ),
    ("draining", an_observation(), "Drained", ("False", "DrainInProgress")),
    ("blocked", blocked(), "Drained", ("False", "Blocked")),
    ("waiting", an_observation(drain=a_drain("shop/a", waiting=True)), "Drained", ("False", "Waiting")),
    (
        "empty",
        an_observation(drain=a_drain(gone=1, ending=OutcomeResult.DRAINED)),
        "Drained",
        ("True", "DrainCompleted"),
    ),
    ("failed", an_observation(node=None, drain=None), "Failed", ("True", "NodeMissing")),
]


@pytest.mark.parametrize(
    ("what", "state", "kind", "expected"), CONDITIONS, ids=[f"{it[2]} {it[0]}" for it in CONDITIONS]
)
def test_conditions_have_status_reason_and_message(
    what: str, state: Observation, kind: str, expected: tuple[str, str]
) -> None:
    del what
    decision = decide(state)
    (it,) = [it for it in built_status(state, replace(decision, action=None)).conditions if it.type == kind]
    assert (it.status, it.reason) == expected
    assert it.message
    assert it.observed_generation == 1


def test_condition_keeps_its_transition_time_until_it_changes() -> None:
    (leased,) = [it for it in built_status(an_observation()).conditions if it.type == "Leased"]
    assert leased.last_transition_time == NOW - HOUR
    lost = an_observation(lease=a_lease("other"), drain=a_drain("shop/a", waiting=True))
    (leased,) = [it for it in built_status(lost).conditions if it.type == "Leased"]
    assert (leased.status, leased.last_transition_time) == ("False", NOW)


def test_failed_condition_is_absent_before_the_first_failure() -> None:
    assert all(it.type != "Failed" for it in built_status(an_observation()).conditions)
    resumed = a_maintenance(phase="Failed", conditions={**RUNNING_CONDITIONS, "Failed": ("True", "NodeMissing")})
    (it,) = [it for it in built_status(an_observation(resumed)).conditions if it.type == "Failed"]
    assert (it.status, it.reason) == ("False", "Resumed")


def test_error_status_has_the_reason_retrying_and_the_next_look() -> None:
    decision = NodeMaintenanceDecision(requeue_at=NOW + timedelta(minutes=6))
    built = built_status(an_observation(drain=None), decision, error="patching nodes n1: forbidden")
    assert built.last_error == "patching nodes n1: forbidden"
    (drained,) = [it for it in built.conditions if it.type == "Drained"]
    assert drained.reason == "Retrying"
    assert built.next_reconcile == NOW + timedelta(minutes=7)


def test_drained_condition_names_the_lease_holder_it_waits_for() -> None:
    waiting = an_observation(
        a_maintenance(), node=a_node(), lease=a_lease("NodeHealthCheck-x"), drain=a_drain(waiting=True)
    )
    (drained,) = [it for it in built_status(waiting).conditions if it.type == "Drained"]
    assert drained.message == "waiting for NodeHealthCheck-x to release the lease of node n1"


def test_maintenance_to_be_adopted_has_no_conditions_yet() -> None:
    """Conditions distinguish a status of Haulout from one of the Node Maintenance Operator."""
    theirs = a_maintenance(phase="Succeeded", drainProgress=100)
    assert (
        built_status(
            an_observation(theirs, node=a_node(adopted=True), drain=None), NodeMaintenanceDecision(), error="oops"
        ).conditions
        == ()
    )
    assert (
        built_status(
            an_observation(theirs, node=None, drain=None), NodeMaintenanceDecision(), error="nodes are not known"
        ).conditions
        == ()
    )
    gone = NodeMaintenanceDecision(failure=Failure(NodeMaintenanceConditionReason.NODE_MISSING, "gone"))
    assert built_status(an_observation(theirs, node=None, drain=None), gone).conditions != ()


# What is written


def test_unchanged_status_yields_no_patch() -> None:
    states = [it[1] for it in CONDITIONS]
    for state in states:
        maintenance = apply_status(state.maintenance, built_status(state))
        later = replace(state, maintenance=maintenance)
        assert status_patch(maintenance, built_status(later), now=NOW + HOUR) is None


def test_status_patch_is_minimal_and_requires_uid_and_resource_version() -> None:
    maintenance = apply_status(a_maintenance(conditions=RUNNING_CONDITIONS), built_status(an_observation()))
    state = an_observation(maintenance, drain=a_drain("shop/cart", gone=1))
    change = status_patch(maintenance, built_status(state), now=NOW + SECOND)
    assert change is not None
    assert change["metadata"] == {"uid": "uid-of-patch", "resourceVersion": "7"}
    assert set(change["status"]) == {"drainProgress", "lastUpdate", "conditions", "drain"}
    assert change["status"]["drainProgress"] == 50
    assert change["status"]["lastUpdate"] == "2026-01-05T09:00:01Z"


def test_zero_and_empty_values_are_not_written() -> None:
    """1.2: readers take absent for zero."""
    maintenance = apply_status(
        a_maintenance(conditions=RUNNING_CONDITIONS),
        built_status(an_observation(drain=a_drain(gone=1, ending=OutcomeResult.DRAINED))),
    )
    raw: RawObject = msgspec.to_builtins(maintenance.status)
    assert not {"pendingPods", "pendingPodsRefs", "lastError", "errorOnLeaseCount", "blockers"} & set(raw)
    assert list(raw) == [key for key in raw if raw[key] not in (0, "", [], None)]


def test_timestamps_are_written_with_second_precision() -> None:
    odd = NOW + timedelta(milliseconds=250)
    maintenance = a_maintenance(conditions=RUNNING_CONDITIONS)
    state = replace(an_observation(maintenance, lease=None), now=odd)
    change = status_patch(maintenance, built_status(state, NodeMaintenanceDecision()), now=odd)
    assert change is not None
    times = {it["lastTransitionTime"] for it in change["status"]["conditions"]}
    assert times == {"2026-01-05T08:00:00Z", "2026-01-05T09:00:00Z"}


def test_next_look_does_not_change_every_second() -> None:
    next_looks = {
        built_status(replace(an_observation(), now=NOW + number * SECOND)).next_reconcile for number in range(59)
    }
    assert len(next_looks) == 1
