"""How tools that go by kstatus see a NodeMaintenance: never as done before its node is empty."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from haulout.budget.room import Crowded
from haulout.drain.blockers import Blocker, Kind
from haulout.drain.lasting import BLOCKED_AFTER, STALLED_AFTER
from haulout.drain.progress import Ending, PodProgress, Standing, State
from haulout.kinds.hold import Hold
from haulout.kube.admission import Admission
from haulout.kube.objects import RawObject
from haulout.maintenance.decision import decide
from haulout.maintenance.resource import NODE_MAINTENANCES, ConditionType, NodeMaintenance
from haulout.maintenance.seen import Cause, Decision, Failure, Seen
from haulout.maintenance.status import change_of, describe
from support.argocd import HEALTH, health
from support.kstatus import CURRENT, FAILED, IN_PROGRESS, TERMINATING, kstatus
from support.seeing import HOUR, NOW, RUNNING, a_drain, a_maintenance, a_node, merged, seen

SECOND = timedelta(seconds=1)
BUDGET = Blocker(
    kind=Kind.BUDGET,
    pod="shop/cart",
    uid="uid-of-shop/cart",
    object="PodDisruptionBudget shop/cart",
    workload="ReplicaSet shop/cart",
    reason="2 of 2 healthy pods needed",
    advice="scale it up",
)
FINALIZER = replace(BUDGET, kind=Kind.FINALIZER, object="finalizer example.com/wait")
JOB = replace(BUDGET, kind=Kind.COMPLETION)
STALLED = {**RUNNING, "Stalled": ("True", "Blocked")}


def written(what: Seen, decision: Decision | None = None, **more: Any) -> RawObject:
    """Return the object once its status was written, as the server has it."""
    maintenance = what.maintenance
    status = describe(what, decide(what) if decision is None else decision, **more).status
    change = change_of(maintenance, status, now=NOW) or {}
    raw: RawObject = msgspec.json.decode(msgspec.json.encode(maintenance))
    raw |= {"apiVersion": NODE_MAINTENANCES.api_version, "kind": NODE_MAINTENANCES.kind}
    return merged(raw, msgspec.json.decode(msgspec.json.encode(change)))


def says(obj: RawObject, *kinds: str) -> list[tuple[str, str, str]]:
    """Return type, status and reason of the conditions that kstatus reads."""
    wanted = kinds or ("Ready", "Reconciling", "Stalled")
    return [(it["type"], it["status"], it["reason"]) for it in obj["status"]["conditions"] if it["type"] in wanted]


def a_pod(
    *,
    turn: timedelta | None = HOUR,
    blocked: timedelta | None = None,
    by: Blocker = BUDGET,
    state: State = State.BLOCKED,
) -> PodProgress:
    """Return a pod that has had its turn to leave for so long, and is blocked for so long."""
    return PodProgress(
        pod="shop/cart",
        uid="uid-of-shop/cart",
        state=state,
        words="it stays",
        since=None if turn is None else NOW - turn,
        standing=None if blocked is None else Standing(by, NOW - blocked),
        next_at=NOW + 20 * SECOND,
    )


def draining(*pods: PodProgress, conditions: Any = RUNNING, **more: Any) -> Seen:
    return seen(a_maintenance(conditions=conditions), drain=a_drain(pods=pods, total=2, **more))


WAITS = Decision(problem="node n1 is busy", waits_for="NodeMaintenance other")
CROWDED = Crowded(("n2", "n3"), ("", ""))
CASES: list[tuple[str, Seen, Decision | None, str, list[tuple[str, str, str]]]] = [
    (
        "it was accepted",
        seen(a_maintenance(phase=""), node=a_node(), lease=None, drain=a_drain("shop/cart", waiting=True)),
        Decision(),
        IN_PROGRESS,
        [("Ready", "False", "Waiting"), ("Reconciling", "True", "Waiting")],
    ),
    ("it waits", seen(), WAITS, IN_PROGRESS, [("Ready", "False", "Waiting"), ("Reconciling", "True", "Waiting")]),
    (
        "it waits for the budget",
        seen(),
        Decision(problem=str(CROWDED), waits_for="room", crowded=CROWDED),
        IN_PROGRESS,
        [("Ready", "False", "BudgetUsedUp"), ("Reconciling", "True", "BudgetUsedUp")],
    ),
    (
        "it is held",
        seen(),
        Decision(problem="node n1 is held", waits_for="ann", hold=Hold(by="ann")),
        IN_PROGRESS,
        [("Ready", "False", "Held"), ("Reconciling", "True", "Held")],
    ),
    (
        "it drains",
        seen(),
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
        seen(drain=a_drain(gone=1, ending=Ending.DRAINED)),
        None,
        CURRENT,
        [("Ready", "True", "DrainCompleted")],
    ),
    (
        "time is up",
        seen(drain=a_drain("shop/cart", ending=Ending.TIMED_OUT)),
        None,
        FAILED,
        [("Ready", "False", "DrainTimedOut"), ("Stalled", "True", "DrainTimedOut")],
    ),
    (
        "the node is missing",
        seen(node=None, drain=None),
        None,
        FAILED,
        [("Ready", "False", "NodeMissing"), ("Stalled", "True", "NodeMissing")],
    ),
]


@pytest.mark.parametrize(("what", "sight", "decision", "expected", "said"), CASES, ids=[row[0] for row in CASES])
def test_each_state_is_what_kstatus_makes_of_it(
    what: str, sight: Seen, decision: Decision | None, expected: str, said: list[tuple[str, str, str]]
) -> None:
    del what
    obj = written(sight, decision)
    assert kstatus(obj) == expected
    assert health(obj)[0] == HEALTH[expected]
    assert says(obj) == said


def test_a_deletion_is_a_deletion_whatever_it_says() -> None:
    blocked = written(draining(a_pod(blocked=HOUR)))
    blocked["metadata"]["deletionTimestamp"] = "2026-01-05T09:00:00Z"
    assert kstatus(blocked) == TERMINATING


def test_an_edit_that_nobody_has_seen_is_in_progress() -> None:
    done = written(seen(drain=a_drain(gone=1, ending=Ending.DRAINED)))
    assert kstatus(done) == CURRENT
    done["metadata"]["generation"] += 1
    assert kstatus(done) == IN_PROGRESS


def test_the_conditions_say_which_generation_they_are_about() -> None:
    obj = written(seen(a_maintenance(conditions=RUNNING, meta={"generation": 4})))
    assert obj["status"]["observedGeneration"] == 4
    assert {it["observedGeneration"] for it in obj["status"]["conditions"]} == {4}


def test_what_the_node_maintenance_operator_left_is_in_progress_until_it_is_taken_over() -> None:
    left = a_maintenance(phase="Running")
    obj = written(seen(left, node=a_node(adopted=True), drain=None), Decision(), error="nodes is forbidden")
    assert "conditions" not in obj["status"] or not obj["status"]["conditions"]
    assert kstatus(obj) == IN_PROGRESS


# Since when


def test_it_stalls_at_the_instant_that_is_named() -> None:
    """Nothing else happens when a pod that has a finalizer has stayed for too long."""
    early = draining(replace_next(a_pod(turn=STALLED_AFTER - SECOND, blocked=STALLED_AFTER - SECOND, by=FINALIZER)))
    report = describe(early, decide(early))
    assert report.wakes_at == NOW + SECOND


def replace_next(pod: PodProgress) -> PodProgress:
    return msgspec.structs.replace(pod, next_at=None)


LATER: list[tuple[str, PodProgress, str]] = [
    ("blocked a moment ago, long after its turn", a_pod(blocked=BLOCKED_AFTER - SECOND), IN_PROGRESS),
    ("blocked long after its turn", a_pod(blocked=BLOCKED_AFTER), FAILED),
    ("its turn was a while ago", a_pod(turn=STALLED_AFTER - SECOND, blocked=HOUR), IN_PROGRESS),
    ("it is asked", a_pod(state=State.EVICTING), IN_PROGRESS),
    ("it has time to end", a_pod(state=State.LEAVING), IN_PROGRESS),
    ("it finishes its work", a_pod(turn=None, blocked=HOUR, by=JOB, state=State.FINISHING), IN_PROGRESS),
    ("overdue for a while", a_pod(blocked=STALLED_AFTER - SECOND, by=FINALIZER, state=State.OVERDUE), IN_PROGRESS),
    ("overdue for long", a_pod(blocked=STALLED_AFTER, by=FINALIZER, state=State.OVERDUE), FAILED),
    ("it may not leave, for a while", a_pod(turn=None, blocked=STALLED_AFTER - SECOND), IN_PROGRESS),
    ("it may not leave, for long", a_pod(turn=None, blocked=STALLED_AFTER), FAILED),
]


@pytest.mark.parametrize(("what", "pod", "expected"), LATER, ids=[row[0] for row in LATER])
def test_it_stalls_when_a_pod_is_in_the_way_for_too_long(what: str, pod: PodProgress, expected: str) -> None:
    del what
    assert kstatus(written(draining(pod))) == expected


TAKEN_OVER: list[tuple[str, Seen, str]] = [
    ("nobody has looked", draining(conditions=STALLED, is_known=False), FAILED),
    ("it is asked", draining(a_pod(state=State.EVICTING), conditions=STALLED), FAILED),
    ("it says no again", draining(a_pod(blocked=SECOND), conditions=STALLED), FAILED),
    ("it leaves", draining(a_pod(state=State.LEAVING), conditions=STALLED), IN_PROGRESS),
    ("another is asked", draining(a_pod(turn=SECOND, state=State.EVICTING), conditions=STALLED), IN_PROGRESS),
]


@pytest.mark.parametrize(("what", "sight", "expected"), TAKEN_OVER, ids=[row[0] for row in TAKEN_OVER])
def test_what_has_stalled_stays_so_under_a_successor_until_it_goes_on(what: str, sight: Seen, expected: str) -> None:
    """A successor does not know since when a pod is blocked."""
    del what
    assert kstatus(written(sight)) == expected


def test_what_failed_and_is_tried_again_has_not_stalled() -> None:
    said = {**RUNNING, "Failed": ("True", "NodeMissing"), "Stalled": ("True", "NodeMissing")}
    failed = a_maintenance(phase="Failed", conditions=said)
    assert kstatus(written(seen(failed, drain=a_drain(is_known=False)))) == IN_PROGRESS


@pytest.mark.parametrize(("ago", "expected"), [(STALLED_AFTER - SECOND, IN_PROGRESS), (STALLED_AFTER, FAILED)])
def test_a_webhook_that_refuses_for_long_has_it_stall(ago: timedelta, expected: str) -> None:
    refusing = {"kind": "AdmissionDenied", "since": NOW - ago}
    what = seen(a_maintenance(conditions=RUNNING, blockers=[refusing]))
    admission = Admission(object="webhook guard.example.com", says="no", advice="ask its owner")
    obj = written(what, Decision(), error="denied", error_reason="AdmissionDenied", admission=admission)
    assert kstatus(obj) == expected


# What a condition costs


def transitions(*sights: Seen) -> Iterator[list[tuple[str, str]]]:
    """Yield since when each of the three conditions is as it is, one look after the other."""
    maintenance: NodeMaintenance | None = None
    for each in sights:
        now = replace(each, maintenance=maintenance or each.maintenance)
        obj = written(now)
        maintenance = msgspec.convert(obj, NodeMaintenance)
        said = [it for it in obj["status"]["conditions"] if it["type"] in ("Ready", "Reconciling", "Stalled")]
        yield [(it["type"], it["lastTransitionTime"]) for it in said]


def test_the_time_of_a_condition_changes_only_with_its_status() -> None:
    """From draining to blocked only the reason changes; stalled is another condition; then it is ready."""
    blocked, stalled = a_pod(turn=SECOND, blocked=SECOND), a_pod(blocked=HOUR)
    looks = (
        seen(drain=a_drain("shop/cart")),
        replace(draining(blocked), now=NOW + 1 * SECOND),
        replace(draining(stalled), now=NOW + 2 * SECOND),
        replace(seen(drain=a_drain(gone=1, ending=Ending.DRAINED)), now=NOW + 3 * SECOND),
    )
    at = [f"2026-01-05T09:00:0{second}Z" for second in range(4)]
    assert list(transitions(*looks)) == [
        [("Ready", at[0]), ("Reconciling", at[0])],
        [("Ready", at[0]), ("Reconciling", at[0])],
        [("Ready", at[0]), ("Stalled", at[2])],
        [("Ready", at[3])],
    ]


@pytest.mark.parametrize("sight", [row[1] for row in CASES], ids=[row[0] for row in CASES])
def test_what_is_said_is_not_written_again(sight: Seen) -> None:
    told = replace(sight, maintenance=msgspec.convert(written(sight, Decision()), NodeMaintenance))
    again = describe(told, Decision()).status
    assert change_of(told.maintenance, again, now=NOW + SECOND) is None


def test_it_never_is_reconciling_and_stalled() -> None:
    failure = Decision(failure=Failure(Cause.LEASE_LOST, "the lease is lost"))
    obj = written(draining(a_pod(blocked=HOUR)), failure)
    assert says(obj, ConditionType.RECONCILING) == []
    assert kstatus(obj) == FAILED
