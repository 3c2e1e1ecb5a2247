"""NodeMaintenances in kstatus: never Current before the node is drained."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.hold import Hold
from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenance, NodeMaintenanceConditionType
from haulout.api.objects import RawObject
from haulout.api.reasons import NodeMaintenanceConditionReason
from haulout.budget.budget_check import BudgetExhausted
from haulout.controllers.nodemaintenance.decision import decide
from haulout.controllers.nodemaintenance.observation import Failure, NodeMaintenanceDecision, Observation
from haulout.controllers.nodemaintenance.status import build_status, status_patch
from haulout.drain.blockers import Blocker, BlockerKind
from haulout.drain.progress import (
    BLOCKED_AFTER,
    STALLED_AFTER,
    ActiveBlocker,
    OutcomeResult,
    PodDrainState,
    PodProgress,
)
from haulout.kube.responses import AdmissionFailure
from support.builders.nodemaintenance_observation import (
    HOUR,
    NOW,
    RUNNING_CONDITIONS,
    a_drain,
    a_maintenance,
    a_node,
    an_observation,
    apply_merge_patch,
)
from support.expectations.kstatus import CURRENT, FAILED, IN_PROGRESS, TERMINATING, kstatus
from support.packaging.argocd import HEALTH, health

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
FINALIZER = replace(BUDGET, kind=BlockerKind.FINALIZER, object="finalizer example.com/wait")
JOB = replace(BUDGET, kind=BlockerKind.COMPLETION)
STALLED = {**RUNNING_CONDITIONS, "Stalled": ("True", "Blocked")}


def written_status(what: Observation, decision: NodeMaintenanceDecision | None = None, **more: Any) -> RawObject:
    """Return the object once its status was written, as the server has it."""
    maintenance = what.maintenance
    status = build_status(what, decide(what) if decision is None else decision, **more).status
    change = status_patch(maintenance, status, now=NOW) or {}
    raw: RawObject = msgspec.json.decode(msgspec.json.encode(maintenance))
    raw |= {"apiVersion": NODE_MAINTENANCES.api_version, "kind": NODE_MAINTENANCES.kind}
    return apply_merge_patch(raw, msgspec.json.decode(msgspec.json.encode(change)))


def kstatus_conditions(obj: RawObject, *kinds: str) -> list[tuple[str, str, str]]:
    """Return type, status and reason of the conditions that kstatus reads."""
    wanted = kinds or ("Ready", "Reconciling", "Stalled")
    return [(it["type"], it["status"], it["reason"]) for it in obj["status"]["conditions"] if it["type"] in wanted]


def a_pod(
    *,
    turn: timedelta | None = HOUR,
    blocked: timedelta | None = None,
    by: Blocker = BUDGET,
    state: PodDrainState = PodDrainState.BLOCKED,
) -> PodProgress:
    """Return a pod whose eviction started `turn` ago, and which is blocked since `blocked` ago."""
    return PodProgress(
        pod="shop/cart",
        uid="uid-of-shop/cart",
        state=state,
        message="it stays",
        turn_since=None if turn is None else NOW - turn,
        active_blocker=None if blocked is None else ActiveBlocker(by, NOW - blocked),
        next_at=NOW + 20 * SECOND,
    )


def draining(*pods: PodProgress, conditions: Any = RUNNING_CONDITIONS, **more: Any) -> Observation:
    return an_observation(a_maintenance(conditions=conditions), drain=a_drain(pods=pods, total=2, **more))


WAITS = NodeMaintenanceDecision(problem="node n1 is busy", waits_for="NodeMaintenance other")
EXHAUSTED = BudgetExhausted(("n2", "n3"), ("", ""))
CASES: list[tuple[str, Observation, NodeMaintenanceDecision | None, str, list[tuple[str, str, str]]]] = [
    (
        "it was accepted",
        an_observation(a_maintenance(phase=""), node=a_node(), lease=None, drain=a_drain("shop/cart", waiting=True)),
        NodeMaintenanceDecision(),
        IN_PROGRESS,
        [("Ready", "False", "Waiting"), ("Reconciling", "True", "Waiting")],
    ),
    (
        "it waits",
        an_observation(),
        WAITS,
        IN_PROGRESS,
        [("Ready", "False", "Waiting"), ("Reconciling", "True", "Waiting")],
    ),
    (
        "it waits for the budget",
        an_observation(),
        NodeMaintenanceDecision(problem=str(EXHAUSTED), waits_for="room", budget_exhausted=EXHAUSTED),
        IN_PROGRESS,
        [("Ready", "False", "BudgetExhausted"), ("Reconciling", "True", "BudgetExhausted")],
    ),
    (
        "it is held",
        an_observation(),
        NodeMaintenanceDecision(problem="node n1 is held", waits_for="ann", hold=Hold(by="ann")),
        IN_PROGRESS,
        [("Ready", "False", "Held"), ("Reconciling", "True", "Held")],
    ),
    (
        "it drains",
        an_observation(),
        None,
        IN_PROGRESS,
        [("Ready", "False", "DrainInProgress"), ("Reconciling", "True", "DrainInProgress")],
    ),
    (
        "it is blocked for a while",
        draining(a_pod(turn=STALLED_AFTER - SECOND, blocked=STALLED_AFTER - SECOND)),
        None,
        IN_PROGRESS,
        [("Ready", "False", "Blocked"), ("Reconciling", "True", "Blocked")],
    ),
    (
        "it is blocked for long",
        draining(a_pod(turn=STALLED_AFTER, blocked=STALLED_AFTER)),
        None,
        FAILED,
        [("Ready", "False", "Blocked"), ("Stalled", "True", "Blocked")],
    ),
    (
        "it is done",
        an_observation(drain=a_drain(gone=1, ending=OutcomeResult.DRAINED)),
        None,
        CURRENT,
        [("Ready", "True", "DrainCompleted")],
    ),
    (
        "time is up",
        an_observation(drain=a_drain("shop/cart", ending=OutcomeResult.TIMED_OUT)),
        None,
        FAILED,
        [("Ready", "False", "DrainTimedOut"), ("Stalled", "True", "DrainTimedOut")],
    ),
    (
        "the node is missing",
        an_observation(node=None, drain=None),
        None,
        FAILED,
        [("Ready", "False", "NodeMissing"), ("Stalled", "True", "NodeMissing")],
    ),
]


@pytest.mark.parametrize(
    ("what", "observation", "decision", "expected", "expected_conditions"), CASES, ids=[row[0] for row in CASES]
)
def test_each_state_has_its_kstatus(
    what: str,
    observation: Observation,
    decision: NodeMaintenanceDecision | None,
    expected: str,
    expected_conditions: list[tuple[str, str, str]],
) -> None:
    del what
    obj = written_status(observation, decision)
    assert kstatus(obj) == expected
    assert health(obj)[0] == HEALTH[expected]
    assert kstatus_conditions(obj) == expected_conditions


def test_terminating_object_has_kstatus_terminating_whatever_its_conditions() -> None:
    blocked = written_status(draining(a_pod(blocked=HOUR)))
    blocked["metadata"]["deletionTimestamp"] = "2026-01-05T09:00:00Z"
    assert kstatus(blocked) == TERMINATING


def test_unobserved_generation_has_kstatus_in_progress() -> None:
    done = written_status(an_observation(drain=a_drain(gone=1, ending=OutcomeResult.DRAINED)))
    assert kstatus(done) == CURRENT
    done["metadata"]["generation"] += 1
    assert kstatus(done) == IN_PROGRESS


def test_conditions_have_the_observed_generation() -> None:
    obj = written_status(an_observation(a_maintenance(conditions=RUNNING_CONDITIONS, meta={"generation": 4})))
    assert obj["status"]["observedGeneration"] == 4
    assert {it["observedGeneration"] for it in obj["status"]["conditions"]} == {4}


def test_maintenance_of_nmo_has_kstatus_in_progress_until_it_is_adopted() -> None:
    left = a_maintenance(phase="Running")
    obj = written_status(
        an_observation(left, node=a_node(adopted=True), drain=None),
        NodeMaintenanceDecision(),
        error="nodes is forbidden",
    )
    assert "conditions" not in obj["status"] or not obj["status"]["conditions"]
    assert kstatus(obj) == IN_PROGRESS


# Since when


def test_stalled_condition_requeues_at_the_instant_it_becomes_true() -> None:
    """A pod with a finalizer causes no other event."""
    early = draining(replace_next(a_pod(turn=STALLED_AFTER - SECOND, blocked=STALLED_AFTER - SECOND, by=FINALIZER)))
    report = build_status(early, decide(early))
    assert report.requeue_at == NOW + SECOND


def replace_next(pod: PodProgress) -> PodProgress:
    return msgspec.structs.replace(pod, next_at=None)


LATER: list[tuple[str, PodProgress, str]] = [
    ("blocked a moment ago, long after its turn", a_pod(blocked=BLOCKED_AFTER - SECOND), IN_PROGRESS),
    ("blocked long after its turn", a_pod(blocked=BLOCKED_AFTER), FAILED),
    ("its turn was a while ago", a_pod(turn=STALLED_AFTER - SECOND, blocked=HOUR), IN_PROGRESS),
    ("it is asked", a_pod(state=PodDrainState.EVICTING), IN_PROGRESS),
    ("it has time to end", a_pod(state=PodDrainState.LEAVING), IN_PROGRESS),
    ("it finishes its work", a_pod(turn=None, blocked=HOUR, by=JOB, state=PodDrainState.FINISHING), IN_PROGRESS),
    (
        "overdue for a while",
        a_pod(blocked=STALLED_AFTER - SECOND, by=FINALIZER, state=PodDrainState.OVERDUE),
        IN_PROGRESS,
    ),
    ("overdue for long", a_pod(blocked=STALLED_AFTER, by=FINALIZER, state=PodDrainState.OVERDUE), FAILED),
    ("it may not leave, for a while", a_pod(turn=None, blocked=STALLED_AFTER - SECOND), IN_PROGRESS),
    ("it may not leave, for long", a_pod(turn=None, blocked=STALLED_AFTER), FAILED),
]


@pytest.mark.parametrize(("what", "pod", "expected"), LATER, ids=[row[0] for row in LATER])
def test_maintenance_stalls_when_a_pod_blocks_for_too_long(what: str, pod: PodProgress, expected: str) -> None:
    del what
    assert kstatus(written_status(draining(pod))) == expected


TAKEN_OVER: list[tuple[str, Observation, str]] = [
    ("nobody has looked", draining(conditions=STALLED, is_known=False), FAILED),
    ("it is asked", draining(a_pod(state=PodDrainState.EVICTING), conditions=STALLED), FAILED),
    ("it says no again", draining(a_pod(blocked=SECOND), conditions=STALLED), FAILED),
    ("it leaves", draining(a_pod(state=PodDrainState.LEAVING), conditions=STALLED), IN_PROGRESS),
    ("another is asked", draining(a_pod(turn=SECOND, state=PodDrainState.EVICTING), conditions=STALLED), IN_PROGRESS),
]


@pytest.mark.parametrize(("what", "observation", "expected"), TAKEN_OVER, ids=[row[0] for row in TAKEN_OVER])
def test_stalled_condition_is_kept_by_a_successor_until_the_drain_proceeds(
    what: str, observation: Observation, expected: str
) -> None:
    """A successor does not know since when a pod is blocked."""
    del what
    assert kstatus(written_status(observation)) == expected


def test_retried_failure_is_not_stalled() -> None:
    conditions = {**RUNNING_CONDITIONS, "Failed": ("True", "NodeMissing"), "Stalled": ("True", "NodeMissing")}
    failed = a_maintenance(phase="Failed", conditions=conditions)
    assert kstatus(written_status(an_observation(failed, drain=a_drain(is_known=False)))) == IN_PROGRESS


@pytest.mark.parametrize(("ago", "expected"), [(STALLED_AFTER - SECOND, IN_PROGRESS), (STALLED_AFTER, FAILED)])
def test_maintenance_stalls_when_a_webhook_refuses_for_too_long(ago: timedelta, expected: str) -> None:
    refusing = {"kind": "AdmissionDenied", "since": NOW - ago}
    what = an_observation(a_maintenance(conditions=RUNNING_CONDITIONS, blockers=[refusing]))
    admission = AdmissionFailure(object="webhook guard.example.com", message="no", advice="ask its owner")
    obj = written_status(
        what, NodeMaintenanceDecision(), error="denied", error_reason="AdmissionDenied", admission=admission
    )
    assert kstatus(obj) == expected


# Status writes


def transitions(*observations: Observation) -> Iterator[list[tuple[str, str]]]:
    """Yield the transition times of the three conditions after each observation."""
    maintenance: NodeMaintenance | None = None
    for each in observations:
        now = replace(each, maintenance=maintenance or each.maintenance)
        obj = written_status(now)
        maintenance = msgspec.convert(obj, NodeMaintenance)
        conditions = [it for it in obj["status"]["conditions"] if it["type"] in ("Ready", "Reconciling", "Stalled")]
        yield [(it["type"], it["lastTransitionTime"]) for it in conditions]


def test_transition_time_of_a_condition_changes_only_with_its_status() -> None:
    """From draining to blocked only the reason changes; stalled is another condition; then it is ready."""
    blocked, stalled = a_pod(turn=SECOND, blocked=SECOND), a_pod(blocked=HOUR)
    observations = (
        an_observation(drain=a_drain("shop/cart")),
        replace(draining(blocked), now=NOW + 1 * SECOND),
        replace(draining(stalled), now=NOW + 2 * SECOND),
        replace(an_observation(drain=a_drain(gone=1, ending=OutcomeResult.DRAINED)), now=NOW + 3 * SECOND),
    )
    at = [f"2026-01-05T09:00:0{second}Z" for second in range(4)]
    assert list(transitions(*observations)) == [
        [("Ready", at[0]), ("Reconciling", at[0])],
        [("Ready", at[0]), ("Reconciling", at[0])],
        [("Ready", at[0]), ("Stalled", at[2])],
        [("Ready", at[3])],
    ]


@pytest.mark.parametrize("observation", [row[1] for row in CASES], ids=[row[0] for row in CASES])
def test_unchanged_status_is_not_written_again(observation: Observation) -> None:
    observed = replace(
        observation,
        maintenance=msgspec.convert(written_status(observation, NodeMaintenanceDecision()), NodeMaintenance),
    )
    again = build_status(observed, NodeMaintenanceDecision()).status
    assert status_patch(observed.maintenance, again, now=NOW + SECOND) is None


def test_maintenance_is_never_both_reconciling_and_stalled() -> None:
    failure = NodeMaintenanceDecision(failure=Failure(NodeMaintenanceConditionReason.LEASE_LOST, "the lease is lost"))
    obj = written_status(draining(a_pod(blocked=HOUR)), failure)
    assert kstatus_conditions(obj, NodeMaintenanceConditionType.RECONCILING) == []
    assert kstatus(obj) == FAILED
