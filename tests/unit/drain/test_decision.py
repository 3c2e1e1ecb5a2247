"""The decision of a drain: its next actions from one observation."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from haulout.api.objects import Pod, Taint
from haulout.drain.blockers import BlockerKind, refusal_blocker
from haulout.drain.decision import DrainDecision, DrainObservation, decide
from haulout.drain.escalation import EscalationStep
from haulout.drain.pod_filters import DaemonSetInfo, PodFilters, Toleration
from haulout.drain.pod_selection import LookupRequest
from haulout.drain.policy import Behavior, DrainOrder, DrainPolicy, DrainRule
from haulout.drain.progress import OutcomeResult, PodDrainState
from haulout.drain.state import Checkpoint, TrackedDrain, pdb_of_retry_key, retry_key_of
from haulout.errors import Cause, Forbidden, KubeError, ServerFailure, TooManyRequests, Unreachable
from haulout.kube.selectors import parse

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
NMO = DrainPolicy.like_nmo()
DAEMON = "apps/v1 DaemonSet"


def a_pod(
    name: str, *, owner: str = "apps/v1 ReplicaSet", app: str = "cart", phase: str = "Running", **meta: Any
) -> Pod:
    api_version, _, kind = owner.partition(" ")
    reference = {"apiVersion": api_version, "kind": kind, "name": app, "uid": f"uid-{app}", "controller": True}
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "labels": {"app": app}}
    metadata |= {"ownerReferences": [reference] if owner else [], "creationTimestamp": NOW - MINUTE}
    raw = {"metadata": metadata | meta, "spec": {"nodeName": "n1"}, "status": {"phase": phase}}
    return msgspec.convert(raw, Pod)


def leaving(pod: Pod, *, at: datetime, grace: int = 30) -> Pod:
    ends = at + grace * SECOND
    metadata = msgspec.structs.replace(
        pod.metadata, deletion_timestamp=ends, deletion_grace_period_seconds=grace, resource_version="9"
    )
    return msgspec.structs.replace(pod, metadata=metadata)


def decide_for(
    *pods: Pod, memory: TrackedDrain | None = None, policy: DrainPolicy = NMO, at: datetime = NOW, **view: Any
) -> DrainDecision:
    memory = TrackedDrain(started=NOW) if memory is None else memory
    return decide(DrainObservation(node="n1", pods=pods, **view), memory, policy, now=at)


def requested_pods(plan: DrainDecision) -> list[tuple[str, str]]:
    return [(action.step, action.pod.name) for action in plan.actions]


def record_attempts(plan: DrainDecision, *, at: datetime = NOW) -> TrackedDrain:
    memory = plan.state
    for action in plan.actions:
        memory = memory.record_attempt(action.pod.uid, action.step, at=at, retry_key=action.retry_key)
    return memory


def by_budget(name: str = "cart") -> TooManyRequests:
    cause = Cause("DisruptionBudget", "", f"The disruption budget {name} needs 2 healthy pods and has 2 currently")
    return TooManyRequests("Cannot evict pod", code=429, causes=[cause])


def refuse(memory: TrackedDrain, pod: Pod, error: KubeError, *, at: datetime = NOW) -> TrackedDrain:
    return memory.record_refusal(pod.uid, refusal_blocker(pod, error), at=at, wait=5 * SECOND)


PODS = tuple(a_pod(f"cart-{number}") for number in range(5))


def test_all_pods_are_evicted_at_once_up_to_the_parallel_limit() -> None:
    assert requested_pods(decide_for(*PODS)) == [(EscalationStep.EVICT, pod.name) for pod in PODS]
    few = decide_for(*PODS, policy=replace(NMO, parallel=2))
    assert requested_pods(few) == [("evict", "cart-0"), ("evict", "cart-1")]
    memory = record_attempts(few)
    assert requested_pods(decide_for(*PODS, memory=memory, policy=replace(NMO, parallel=2))) == []
    memory = memory.record_accepted("uid-cart-0", at=NOW)
    assert requested_pods(decide_for(*PODS, memory=memory, policy=replace(NMO, parallel=2))) == [("evict", "cart-2")]


def test_pods_with_the_longest_grace_period_are_evicted_first() -> None:
    slow = msgspec.structs.replace(
        PODS[3], spec=msgspec.structs.replace(PODS[3].spec, termination_grace_period_seconds=600)
    )
    plan = decide_for(*PODS[:3], slow, policy=replace(NMO, parallel=2))
    assert requested_pods(plan) == [("evict", "cart-3"), ("evict", "cart-0")]


def test_pods_of_a_scheduling_group_leave_with_the_last_of_their_group() -> None:
    """Pods of a scheduling group work only together; pods of other groups, or of none, do not wait for them."""
    gang = {"podGroupName": "train"}

    def member(name: str, priority: int, group: dict[str, str] | None = gang) -> Pod:
        pod = a_pod(name)
        return msgspec.structs.replace(
            pod, spec=msgspec.structs.replace(pod.spec, priority=priority, scheduling_group=group)
        )

    single, other = member("single", 0, None), member("other", 5, {"podGroupName": "other"})
    pods = (single, member("a", 0), member("b", 10), other)
    by_priority = replace(NMO, order=DrainOrder(by_priority=True))
    assert requested_pods(decide_for(*pods)) == [("evict", pod.name) for pod in pods], (
        "without an order all are evicted at once"
    )
    assert requested_pods(decide_for(*pods, policy=by_priority)) == [("evict", "single")]
    assert requested_pods(decide_for(*pods[1:], policy=by_priority)) == [("evict", "other")]
    assert requested_pods(decide_for(*pods[1:3], policy=by_priority)) == [("evict", "a"), ("evict", "b")]


# Pods of DaemonSets that leave last

LAST = replace(NMO, order=DrainOrder(daemon_sets_last=True))
TAINTED = (Taint(key="medik8s.io/drain", effect="NoSchedule"),)
TOLERANT = DaemonSetInfo(tolerations=(Toleration(operator="Exists"),))
LOGS, CNI = a_pod("logs", owner=DAEMON, app="logs"), a_pod("cni", owner=DAEMON, app="cni")
DAEMONS: dict[str, Any] = {
    "daemon_sets": {"shop/logs": DaemonSetInfo(), "shop/cni": TOLERANT},
    "taints": TAINTED,
    "node_ready": True,
}


def test_daemon_set_pods_leave_last_unless_they_would_be_recreated() -> None:
    plan = decide_for(LOGS, CNI, PODS[0], policy=LAST, **DAEMONS)
    assert requested_pods(plan) == [("evict", "cart-0")]
    assert {it.pod: it.message for it in plan.progress.pods} == {
        "shop/logs": "waiting for earlier pods to leave: order 0",
        "shop/cart-0": "is being evicted",
    }
    warning = "ignoring DaemonSet-managed Pods that tolerate all taints of the node and would come back: shop/cni"
    assert plan.progress.warning == warning
    going = leaving(PODS[0], at=NOW)
    assert requested_pods(decide_for(LOGS, CNI, going, policy=LAST, memory=plan.state, **DAEMONS)) == []
    alone = decide_for(LOGS, CNI, policy=LAST, memory=plan.state, **DAEMONS)
    assert requested_pods(alone) == [("evict", "logs")]
    assert decide_for(CNI, policy=LAST, memory=alone.state, **DAEMONS).result is OutcomeResult.DRAINED


def test_daemon_set_pods_stay_without_daemon_sets_last_and_the_node_is_not_looked_up() -> None:
    plan = decide_for(LOGS, CNI, daemon_sets=DAEMONS["daemon_sets"])
    assert (plan.result, plan.lookups) == (OutcomeResult.DRAINED, ())
    assert plan.progress.warning == "ignoring DaemonSet-managed Pods: shop/logs, shop/cni"


@pytest.mark.parametrize(
    "taints",
    [
        (),
        (Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),),
        (Taint(key="node.kubernetes.io/network-unavailable", effect="NoSchedule"),),
        (Taint(key="soft", effect="PreferNoSchedule"),),
    ],
    ids=["none", "the unschedulable taint", "a taint that is set and removed", "a PreferNoSchedule taint"],
)
def test_daemon_set_pod_stays_if_no_lasting_taint_prevents_its_return(taints: tuple[Taint, ...]) -> None:
    plan = decide_for(LOGS, policy=LAST, **DAEMONS | {"taints": taints})
    assert (plan.result, requested_pods(plan)) == (OutcomeResult.DRAINED, [])


@pytest.mark.parametrize(
    ("toleration", "comes_back"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "medik8s.io/drain", "operator": "Exists"}, True),
        ({"key": "medik8s.io/drain", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "medik8s.io/drain"}, True),
        ({"key": "medik8s.io/drain", "operator": "Lt", "value": "5"}, True),
        ({"key": "medik8s.io/drain", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "medik8s.io/drain", "operator": "Equal", "value": "now"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations_match_taints_like_in_the_scheduler(toleration: dict[str, str], comes_back: bool) -> None:  # noqa: FBT001 - what is expected
    answer = DaemonSetInfo(tolerations=(msgspec.convert(toleration, Toleration),))
    plan = decide_for(LOGS, policy=LAST, **DAEMONS | {"daemon_sets": {"shop/logs": answer}})
    assert (requested_pods(plan) == []) is comes_back


def test_node_is_looked_up_for_its_taints_and_again_before_daemon_set_pods_leave() -> None:
    known = DAEMONS | {"taints": None, "node_ready": None}
    first = decide_for(LOGS, PODS[0], policy=LAST, **known)
    assert (first.lookups, requested_pods(first)) == ((LookupRequest("node", "n1"),), [])
    old = DAEMONS | {"node_ready": None}
    assert requested_pods(decide_for(LOGS, PODS[0], policy=LAST, **old)) == [("evict", "cart-0")]
    turn = decide_for(LOGS, policy=LAST, **old)
    assert (turn.lookups, requested_pods(turn)) == ((LookupRequest("node", "n1"),), [])
    unknown = decide_for(LOGS, PODS[0], policy=LAST, **DAEMONS | {"taints": "it does not say"})
    assert requested_pods(unknown) == [("evict", "cart-0")]
    assert [it.blocker.kind for it in unknown.progress.blockers] == [BlockerKind.API]


def test_daemon_set_pods_that_would_return_refuse_the_drain_as_in_kubectl() -> None:
    kubectl = DrainPolicy(filters=PodFilters(force=True), order=DrainOrder(daemon_sets_last=True))
    assert decide_for(CNI, PODS[0], policy=kubectl, **DAEMONS).result is OutcomeResult.REFUSED
    assert requested_pods(decide_for(LOGS, PODS[0], policy=kubectl, **DAEMONS)) == [("evict", "cart-0")]


def test_drain_rules_keep_daemon_set_pods_without_waiting_for_completion() -> None:
    for behavior in (Behavior.SKIP, Behavior.WAIT_COMPLETED):
        rule = DrainRule(name="keep", pods=parse("app=logs"), behavior=behavior, wait_completed_timeout=SECOND)
        plan = decide_for(LOGS, policy=replace(LAST, rules=(rule,)), at=NOW + MINUTE, **DAEMONS)
        assert (plan.result, plan.progress.warning) == (OutcomeResult.DRAINED, "skipping Pods by rule keep: shop/logs")


def test_pods_of_other_kinds_named_daemon_set_stay() -> None:
    """Like the default of profiles, which have no permission to read such sets."""
    smc = replace(DrainPolicy.like_smc(), order=DrainOrder(daemon_sets_last=True))
    kruise = a_pod("kruise", owner="apps.kruise.io/v1alpha1 DaemonSet", app="kruise")
    assert requested_pods(decide_for(LOGS, CNI, kruise, policy=smc, **DAEMONS)) == [("evict", "logs")]
    done = a_pod("done", owner=DAEMON, app="logs", phase="Succeeded")
    assert decide_for(done, policy=smc, **DAEMONS).result is OutcomeResult.DRAINED


def test_node_without_pods_is_drained() -> None:
    plan = decide_for()
    assert (plan.result, plan.progress.percent) == (OutcomeResult.DRAINED, 0)


def test_accepted_eviction_is_not_requested_again() -> None:
    memory = record_attempts(decide_for(PODS[0])).record_accepted("uid-cart-0", at=NOW)
    plan = decide_for(PODS[0], memory=memory, at=NOW + SECOND)
    assert (plan.actions, plan.progress.leaving, plan.result) == ((), 1, None)
    plan = decide_for(leaving(PODS[0], at=NOW), memory=memory, at=NOW + 2 * SECOND)
    assert plan.actions == ()
    assert plan.progress.pods[0].message == "is terminating; its grace period ends at 09:00:31 UTC"
    assert decide_for(memory=plan.state, at=NOW + 3 * SECOND).result is OutcomeResult.DRAINED


def test_accepted_eviction_without_effect_is_verified_and_requested_again() -> None:
    memory = record_attempts(decide_for(PODS[0])).record_accepted("uid-cart-0", at=NOW)
    plan = decide_for(PODS[0], memory=memory, at=NOW)
    assert (plan.needs_list, plan.requeue_at) == (False, NOW + 10 * SECOND)
    plan = decide_for(PODS[0], memory=memory, at=NOW + 10 * SECOND)
    assert plan.needs_list
    memory = plan.state.record_verified(at=NOW + 11 * SECOND)
    assert requested_pods(decide_for(PODS[0], memory=memory, at=NOW + 11 * SECOND)) == [("evict", "cart-0")]


def test_pod_that_the_server_does_not_find_is_verified_at_once() -> None:
    memory = record_attempts(decide_for(PODS[0])).record_not_found("uid-cart-0", at=NOW, wait=5 * SECOND)
    plan = decide_for(PODS[0], memory=memory)
    assert (plan.needs_list, plan.actions) == (True, ())
    memory = plan.state.record_verified(at=NOW)
    plan = decide_for(PODS[0], memory=memory)
    assert (plan.needs_list, plan.actions, plan.requeue_at) == (False, (), NOW + 5 * SECOND)


# Retries


def test_pods_behind_one_pdb_are_tried_one_at_a_time_in_turn() -> None:
    memory = record_attempts(decide_for(*PODS[:3]))
    for pod in PODS[:3]:
        memory = refuse(memory, pod, by_budget())
    plan = decide_for(*PODS, memory=memory, at=NOW + 4 * SECOND)
    assert (plan.actions, plan.requeue_at) == ((), NOW + 5 * SECOND)
    turns = []
    now = NOW
    for _ in range(5):
        now += 5 * SECOND
        plan = decide_for(*PODS, memory=memory, at=now)
        assert len(plan.actions) == 1
        turns.append(plan.actions[0].pod)
        memory = refuse(record_attempts(plan, at=now), turns[-1], by_budget(), at=now)
    assert len({pod.name for pod in turns}) == 5


def test_next_pod_is_evicted_at_once_when_one_passes_the_pdb() -> None:
    memory = record_attempts(decide_for(*PODS[:2]))
    for pod in PODS[:2]:
        memory = refuse(memory, pod, by_budget())
    later = NOW + 5 * SECOND
    memory = record_attempts(decide_for(*PODS[:2], memory=memory, at=later), at=later)
    assert requested_pods(decide_for(*PODS[:2], memory=memory, at=later)) == []
    memory = memory.record_accepted("uid-cart-0", at=later)
    assert requested_pods(decide_for(*PODS[:2], memory=memory, at=later)) == [("evict", "cart-1")]


def test_retry_now_evicts_at_once_when_the_pdb_allows_it() -> None:
    memory = refuse(record_attempts(decide_for(PODS[0])), PODS[0], by_budget())
    assert requested_pods(decide_for(PODS[0], memory=memory, at=NOW + SECOND)) == []
    memory = memory.retry_now("PodDisruptionBudget shop/cart", at=NOW + SECOND)
    assert requested_pods(decide_for(PODS[0], memory=memory, at=NOW + SECOND)) == [("evict", "cart-0")]


def test_pods_of_one_owner_wait_for_the_pod_its_pdb_refused() -> None:
    policy = replace(NMO, parallel=1)
    memory = refuse(record_attempts(decide_for(*PODS, policy=policy)), PODS[0], by_budget())
    other = a_pod("web-0", app="web")
    assert requested_pods(decide_for(*PODS, other, memory=memory, policy=policy)) == [("evict", "web-0")]


@pytest.mark.parametrize(
    ("error", "shared"),
    [
        (by_budget(), True),
        (TooManyRequests("slow down", code=429), True),
        (Unreachable("connection refused", sent=False), True),
        (Forbidden("no", code=403, causes=[Cause("NamespaceTerminating", "", "")]), True),
        (Forbidden("you may not", code=403), True),
        (ServerFailure("etcd is away", code=500), False),
        (ServerFailure("This pod has more than one PodDisruptionBudget", code=500), False),
        (Forbidden('admission webhook "w" denied the request: no', code=403), False),
    ],
)
def test_pods_share_a_backoff_when_the_next_request_would_fail_the_same_way(error: KubeError, *, shared: bool) -> None:
    memory = record_attempts(decide_for(*PODS[:2]))
    for pod in PODS[:2]:
        memory = refuse(memory, pod, error)
    plan = decide_for(*PODS[:2], memory=memory, at=NOW + 5 * SECOND)
    assert len(plan.actions) == (1 if shared else 2)
    paces = {retry_key_of(trace) for trace in memory.tracked_pods.values()}
    assert len(paces) == (1 if shared else 2)
    assert all(it.state is PodDrainState.BLOCKED for it in plan.progress.pods)


def test_refusals_at_the_same_time_count_as_one() -> None:
    memory = record_attempts(decide_for(*PODS))
    blocker = refusal_blocker(PODS[0], by_budget())
    for pod in PODS:
        memory = refuse(memory, pod, by_budget())
    assert memory.refusal_count(PODS[0].uid, blocker) == 1
    assert pdb_of_retry_key(retry_key_of(memory.tracked_pods[PODS[0].uid])) == "PodDisruptionBudget shop/cart"


def test_blocker_keeps_its_start_time_until_another_blocker_replaces_it() -> None:
    memory = refuse(record_attempts(decide_for(PODS[0])), PODS[0], by_budget())
    later = NOW + MINUTE
    memory = refuse(
        record_attempts(decide_for(PODS[0], memory=memory, at=later), at=later), PODS[0], by_budget(), at=later
    )
    assert decide_for(PODS[0], memory=memory, at=later).progress.blockers[0].since == NOW
    memory = refuse(memory, PODS[0], ServerFailure("no", code=500), at=later)
    assert decide_for(PODS[0], memory=memory, at=later).progress.blockers[0].since == later


# Escalation

LADDER = replace(NMO, eviction_timeout=10 * MINUTE, force_delete=True, deletion_timeout=5 * MINUTE, timeout=60 * MINUTE)


def test_pod_refused_beyond_the_eviction_timeout_is_deleted() -> None:
    plan = decide_for(PODS[0], policy=LADDER)
    memory = refuse(record_attempts(plan), PODS[0], by_budget())
    plan = decide_for(PODS[0], memory=memory, policy=LADDER, at=NOW + SECOND)
    assert plan.progress.pods[0].message.endswith("; it is deleted at 09:10:00 UTC unless this changes")
    plan = decide_for(PODS[0], memory=memory, policy=LADDER, at=NOW + 10 * MINUTE)
    assert [(it.step, it.grace) for it in plan.actions] == [(EscalationStep.DELETE, None)]


def test_pod_is_evicted_before_it_is_deleted() -> None:
    hasty = replace(LADDER, timeout=16 * MINUTE, grace_period=30 * MINUTE)
    plan = decide_for(PODS[0], policy=hasty)
    assert requested_pods(plan) == [("evict", "cart-0")]
    memory = refuse(record_attempts(plan), PODS[0], by_budget())
    assert requested_pods(decide_for(PODS[0], memory=memory, policy=hasty)) == [("delete", "cart-0")]


def test_refused_deletion_has_its_own_backoff() -> None:
    memory = refuse(record_attempts(decide_for(PODS[0], policy=LADDER)), PODS[0], by_budget())
    late = NOW + 10 * MINUTE
    memory = record_attempts(decide_for(PODS[0], memory=memory, policy=LADDER, at=late), at=late)
    memory = refuse(memory, PODS[0], Forbidden('admission webhook "w" denied the request: no', code=403), at=late)
    assert requested_pods(decide_for(PODS[0], memory=memory, policy=LADDER, at=late)) == []
    assert requested_pods(decide_for(PODS[0], memory=memory, policy=LADDER, at=late + 5 * SECOND)) == [
        ("delete", "cart-0")
    ]


def test_pod_that_does_not_terminate_is_force_deleted_once() -> None:
    pod = leaving(PODS[0], at=NOW, grace=30)
    assert decide_for(pod, policy=LADDER, at=NOW + 5 * MINUTE).actions == ()
    late = NOW + 5 * MINUTE + SECOND
    plan = decide_for(pod, policy=LADDER, at=late)
    assert [(it.step, it.grace) for it in plan.actions] == [(EscalationStep.FORCE_DELETE, timedelta())]
    memory = record_attempts(plan, at=late).record_accepted(pod.uid, at=late)
    assert decide_for(pod, memory=memory, policy=LADDER, at=late + MINUTE).actions == ()


def test_refused_force_deletion_is_retried_after_a_backoff() -> None:
    pod, late = leaving(PODS[0], at=NOW), NOW + 6 * MINUTE
    memory = record_attempts(decide_for(pod, policy=LADDER, at=late), at=late)
    memory = refuse(memory, pod, ServerFailure("no", code=500), at=late)
    plan = decide_for(pod, memory=memory, policy=LADDER, at=late)
    assert plan.actions == ()
    assert plan.requeue_at == late + 5 * SECOND
    assert requested_pods(decide_for(pod, memory=memory, policy=LADDER, at=late + 5 * SECOND)) == [
        ("force-delete", "cart-0")
    ]


def test_timeout_ends_the_drain_with_all_remaining_pods() -> None:
    plan = decide_for(*PODS, policy=replace(NMO, timeout=MINUTE))
    assert plan.requeue_at == NOW + MINUTE
    plan = decide_for(*PODS, memory=plan.state, policy=replace(NMO, timeout=MINUTE), at=NOW + MINUTE)
    assert (plan.result, plan.actions, len(plan.progress.pods)) == (OutcomeResult.TIMED_OUT, (), 5)


# Pod selection


def test_policy_refuses_the_drain_before_any_eviction() -> None:
    plan = decide_for(a_pod("bare", owner=""), *PODS, policy=DrainPolicy())
    assert (plan.result, plan.actions) == (OutcomeResult.REFUSED, ())
    assert plan.problems == ("cannot delete Pods that declare no controller (use --force to override): shop/bare",)
    assert [it.pod for it in plan.progress.pods] == ["shop/bare"]


def test_late_pod_that_the_policy_refuses_does_not_stop_the_others() -> None:
    memory = record_attempts(decide_for(*PODS[:1], policy=DrainPolicy()))
    bare = a_pod("bare", owner="")
    plan = decide_for(*PODS, bare, memory=memory, policy=DrainPolicy(), at=NOW + SECOND)
    assert len(plan.actions) == 4
    assert [it.blocker.kind for it in plan.progress.blockers] == [BlockerKind.POLICY]
    memory = memory.record_accepted(PODS[0].uid, at=NOW)
    plan = decide_for(bare, memory=memory, policy=DrainPolicy(), at=NOW + MINUTE)
    assert (plan.result, plan.problems[0][:13]) == (OutcomeResult.REFUSED, "cannot delete")


def test_daemon_sets_are_not_looked_up_when_the_policy_keeps_them() -> None:
    agent = a_pod("agent-0", owner=DAEMON, app="agent")
    plan = decide_for(agent, *PODS, policy=DrainPolicy.like_smc())
    assert (plan.lookups, len(plan.actions)) == ((), 5)


def test_no_pod_is_evicted_before_daemon_sets_are_looked_up() -> None:
    agent = a_pod("agent-0", owner=DAEMON, app="agent")
    plan = decide_for(agent, *PODS)
    assert (plan.lookups, plan.actions, plan.result) == ((LookupRequest("daemonset", "shop/agent"),), (), None)
    plan = decide_for(agent, *PODS, memory=plan.state, daemon_sets={"shop/agent": DaemonSetInfo()})
    assert len(plan.actions) == 5
    assert plan.progress.warning == "ignoring DaemonSet-managed Pods: shop/agent-0"
    assert plan.progress.total == 5


def test_daemon_set_that_cannot_be_looked_up_blocks_only_its_own_pods() -> None:
    agent = a_pod("agent-0", owner=DAEMON, app="agent")
    plan = decide_for(agent, PODS[0], daemon_sets={"shop/agent": DaemonSetInfo("the server is out of order")})
    assert requested_pods(plan) == [("evict", "cart-0")]
    assert [it.pod for it in plan.progress.pods if it.state is PodDrainState.BLOCKED] == ["shop/agent-0"]
    assert decide_for(agent, memory=plan.state, daemon_sets={"shop/agent": DaemonSetInfo("no")}).result is None


def test_pods_of_a_deleted_daemon_set_leave_if_the_policy_allows_it() -> None:
    agent, missing = a_pod("agent-0", owner=DAEMON, app="agent"), {"shop/agent": DaemonSetInfo("gone", True)}
    assert requested_pods(decide_for(agent, daemon_sets=missing)) == [("evict", "agent-0")]
    careful = DrainPolicy(filters=PodFilters(ignore_daemonsets=True))
    assert decide_for(agent, daemon_sets=missing, policy=careful).result is OutcomeResult.REFUSED


def test_namespace_labels_are_looked_up_and_block_only_pods_of_that_namespace() -> None:
    keep = DrainRule(name="keep", namespace_selector=parse("tier=calm"), behavior=Behavior.SKIP)
    policy = replace(NMO, rules=(keep,))
    assert decide_for(*PODS, policy=policy).lookups == (LookupRequest("namespace", "shop"),)
    assert decide_for(*PODS, policy=policy, namespaces={"shop": {"tier": "calm"}}).result is OutcomeResult.DRAINED
    assert len(decide_for(*PODS, policy=policy, namespaces={"shop": {}}).actions) == 5
    held = decide_for(*PODS, policy=policy, namespaces={"shop": "the server is out of order"})
    assert (held.actions, len(held.progress.blockers)) == ((), 5)


def test_skip_rule_overrides_the_refusal_of_its_pod() -> None:
    keep = DrainRule(name="keep", pods=parse("app=bare"), behavior=Behavior.SKIP)
    plan = decide_for(a_pod("bare", owner="", app="bare"), policy=DrainPolicy(rules=(keep,)))
    assert (plan.result, plan.progress.warning) == (OutcomeResult.DRAINED, "skipping Pods by rule keep: shop/bare")


def test_pods_outside_the_pod_selector_are_ignored() -> None:
    plan = decide_for(*PODS, a_pod("bare", owner="", app="bare"), policy=DrainPolicy(pod_selector=parse("app=cart")))
    assert len(plan.actions) == 5


def test_pod_skipped_after_skip_wait_for_delete_counts_as_gone() -> None:
    policy = replace(NMO, filters=replace(NMO.filters, skip_wait_for_delete=MINUTE))
    pod = leaving(PODS[0], at=NOW)
    plan = decide_for(pod, policy=policy, at=NOW)
    assert plan.progress.total == 1
    later = decide_for(pod, memory=plan.state, policy=policy, at=NOW + 92 * SECOND)
    assert (later.result, later.progress.gone) == (OutcomeResult.DRAINED, 1)


def test_skip_wait_for_delete_requeues_the_drain_when_it_elapses() -> None:
    policy = replace(NMO, filters=replace(NMO.filters, skip_wait_for_delete=MINUTE))
    pod, now = leaving(PODS[0], at=NOW), NOW
    plan = decide_for(pod, policy=policy, at=now)
    while plan.result is None:
        assert plan.requeue_at is not None
        now = plan.requeue_at
        memory = plan.state.record_verified(at=now) if plan.needs_list else plan.state
        plan = decide_for(pod, memory=memory, policy=policy, at=now, node_ready=True)
    assert now == NOW + 91 * SECOND


# Recreated pods


def test_recreated_pod_is_evicted_once_and_its_replacement_stays() -> None:
    memory = record_attempts(decide_for(PODS[0])).record_accepted(PODS[0].uid, at=NOW)
    second = a_pod("cart-b", creationTimestamp=NOW + SECOND)
    plan = decide_for(second, memory=memory, at=NOW + SECOND)
    assert requested_pods(plan) == [("evict", "cart-b")]
    memory = record_attempts(plan).record_accepted(second.uid, at=NOW + SECOND)
    third = a_pod("cart-c", creationTimestamp=NOW + 2 * SECOND)
    plan = decide_for(third, memory=memory, at=NOW + 2 * SECOND)
    assert (plan.result, plan.progress.returning) == (OutcomeResult.DRAINED, ("shop/cart-c",))


def test_several_pods_created_at_the_same_time_are_all_evicted() -> None:
    memory = record_attempts(decide_for(PODS[0])).record_accepted(PODS[0].uid, at=NOW)
    late = [a_pod(f"late-{number}", creationTimestamp=NOW + SECOND) for number in range(3)]
    assert len(decide_for(*late, memory=memory, at=NOW + SECOND).actions) == 3


def test_recreated_pod_that_terminates_by_itself_is_awaited() -> None:
    memory = record_attempts(decide_for(PODS[0])).record_accepted(PODS[0].uid, at=NOW)
    second = a_pod("cart-b", creationTimestamp=NOW + SECOND)
    memory = record_attempts(decide_for(second, memory=memory, at=NOW + SECOND)).record_accepted(
        second.uid, at=NOW + SECOND
    )
    third = leaving(a_pod("cart-c"), at=NOW)
    plan = decide_for(third, memory=memory, at=NOW + 2 * SECOND)
    assert (plan.result, plan.progress.leaving) == (None, 1)


def test_resumed_drain_recognizes_late_pods_by_their_creation_time() -> None:
    checkpoint = Checkpoint(started=NOW - MINUTE, since={"uid-cart-0": NOW - MINUTE}, gone=5, percent=80)
    young = a_pod("young", creationTimestamp=NOW)
    plan = decide_for(PODS[0], young, memory=TrackedDrain.resume(checkpoint))
    assert [trace.replacement_count for trace in plan.state.tracked_pods.values()] == [0, 1]
    assert (plan.progress.total, plan.progress.gone, plan.progress.percent) == (7, 5, 80)
    assert plan.state.tracked_pods["uid-cart-0"].turn_since == NOW - MINUTE


# Progress


def test_overdue_pod_is_reported_and_its_node_looked_up() -> None:
    pod = leaving(PODS[0], at=NOW)
    late = NOW + 45 * SECOND
    plan = decide_for(pod, at=late)
    assert plan.progress.pods[0].state is PodDrainState.OVERDUE
    assert LookupRequest("node", "n1") in plan.lookups
    plan = decide_for(pod, memory=plan.state, at=late, node_ready=False)
    assert "is not ready" in plan.progress.blockers[0].blocker.remedy
    assert plan.lookups == ()


def test_verification_lists_back_off() -> None:
    pod, memory, now, waits = leaving(PODS[0], at=NOW), TrackedDrain(started=NOW), NOW, []
    for _ in range(300):
        plan = decide_for(pod, memory=memory, at=now, node_ready=True)
        memory = plan.state
        if plan.needs_list:
            waits.append(now)
            memory = memory.record_verified(at=now)
            plan = decide_for(pod, memory=memory, at=now, node_ready=True)
        assert plan.requeue_at is not None
        now = plan.requeue_at
    pauses = [(after - before).total_seconds() for before, after in pairwise(waits)]
    assert waits[0] == NOW + 36 * SECOND
    assert pauses[:5] == [10, 20, 40, 60, 60]


def test_unchanged_observation_yields_an_equal_progress() -> None:
    memory = record_attempts(decide_for(*PODS))
    first = decide_for(*PODS, memory=memory, at=NOW + SECOND)
    assert decide_for(*PODS, memory=first.state, at=NOW + 2 * SECOND).progress == first.progress


def test_percent_does_not_decrease_when_pods_are_added() -> None:
    memory = record_attempts(decide_for(*PODS))
    for pod in PODS:
        memory = memory.record_accepted(pod.uid, at=NOW)
    plan = decide_for(PODS[0], memory=memory, at=NOW + SECOND)
    assert (plan.progress.percent, plan.progress.gone, plan.progress.total) == (80, 4, 5)
    more = [a_pod(f"web-{number}", app="web") for number in range(20)]
    plan = decide_for(PODS[0], *more, memory=plan.state, at=NOW + SECOND)
    assert (plan.progress.percent, plan.progress.total) == (80, 25)


def test_each_pod_is_in_exactly_one_progress_count() -> None:
    memory = (
        record_attempts(decide_for(*PODS)).record_accepted(PODS[0].uid, at=NOW).record_accepted(PODS[1].uid, at=NOW)
    )
    memory = refuse(memory, PODS[2], by_budget())
    progress = decide_for(leaving(PODS[1], at=NOW), *PODS[2:], memory=memory, at=NOW + SECOND).progress
    assert (progress.total, progress.gone, progress.leaving, progress.waiting) == (5, 1, 1, 3)
    assert [it.state for it in progress.pods] == [
        PodDrainState.LEAVING,
        PodDrainState.BLOCKED,
        PodDrainState.EVICTING,
        PodDrainState.EVICTING,
    ]
    assert str(progress.pods[1]).startswith("shop/cart-2: PodDisruptionBudget shop/cart needs 2")
    assert str(progress.blockers[0]).endswith("(since 09:00:00 UTC)")


def test_pod_created_in_the_instant_of_an_eviction_counts_as_its_replacement() -> None:
    memory = replace(decide_for(PODS[0]).state, passed_precheck=True)
    for number in range(3):
        memory = memory.observe(PODS[: number + 1], now=NOW).record_accepted(PODS[number].uid, at=NOW)
    assert [memory.tracked_pods[it.uid].replacement_count for it in PODS[:3]] == [0, 1, 2]


def test_request_that_was_not_sent_does_not_count_as_an_attempt() -> None:
    memory = record_attempts(decide_for(PODS[0])).record_not_sent(PODS[0].uid)
    assert (memory.tracked_pods[PODS[0].uid].attempts, memory.requests_in_flight) == (0, 0)
    assert requested_pods(decide_for(PODS[0], memory=memory)) == [("evict", PODS[0].name)]
