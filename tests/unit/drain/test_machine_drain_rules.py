"""MachineDrainRules of a node, and labels of pods, in a drain."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.clusterapi import DRAIN, DRAIN_RULES
from haulout.api.objects import Node, ObjectMeta, Pod
from haulout.drain.blockers import BlockerKind
from haulout.drain.decision import DrainDecision, DrainObservation, decide
from haulout.drain.machine_drain_rules import parse_annotation, with_machine_drain_rules
from haulout.drain.pod_filters import PodFilters
from haulout.drain.pod_selection import LookupRequest
from haulout.drain.policy import Behavior, DrainPolicy, DrainRule
from haulout.drain.progress import OutcomeResult, PodDrainState
from haulout.drain.state import TrackedDrain
from haulout.kube.selectors import parse

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
NMO = DrainPolicy.like_nmo()


def a_pod(name: str, *, owner: str = "ReplicaSet", phase: str = "Running", **labels: str) -> Pod:
    reference = {"apiVersion": "apps/v1", "kind": owner, "name": "own", "uid": "u", "controller": True}
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": name, "labels": {"app": name} | labels}
    metadata |= {"ownerReferences": [reference] if owner else []}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": phase}}, Pod)


def a_labelled_pod(name: str, value: str, **more: Any) -> Pod:
    return a_pod(name, **{DRAIN: value}, **more)


def pod_selection(app: str) -> list[dict[str, Any]]:
    return [{"selector": {"matchLabels": {"app": app}}}]


def a_rule(name: str, behavior: str = "Drain", *, app: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "behavior": behavior} | ({"pods": pod_selection(app)} if app else {}) | more


def a_node(annotation: Any) -> Node:
    text = annotation if isinstance(annotation, str) else msgspec.json.encode({"rules": annotation}).decode()
    return Node(metadata=ObjectMeta(name="n1", annotations={DRAIN_RULES: text}))


def decide_for(
    *pods: Pod, rules: Any = (), policy: DrainPolicy = NMO, memory: TrackedDrain | None = None, **view: Any
) -> DrainDecision:
    memory = TrackedDrain(started=NOW) if memory is None else memory
    return decide(
        DrainObservation(node="n1", pods=pods, **view),
        memory,
        with_machine_drain_rules(policy, a_node(list(rules) or "")),
        now=NOW,
    )


def requested_pods(plan: DrainDecision) -> list[str]:
    return [action.pod.name for action in plan.actions]


def waiting(plan: DrainDecision) -> dict[str, tuple[BlockerKind, str]]:
    return {it.blocker.pod.removeprefix("shop/"): (it.blocker.kind, it.blocker.reason) for it in plan.progress.blockers}


# Skip


def test_pod_with_label_drain_skip_stays_and_is_reported() -> None:
    plan = decide_for(a_labelled_pod("db", "skip"), a_pod("web"))
    assert requested_pods(plan) == ["web"]
    assert [it.pod for it in plan.progress.pods] == ["shop/web"]
    assert plan.progress.warning == "skipping Pods by label cluster.x-k8s.io/drain=skip: shop/db"
    assert decide_for(a_labelled_pod("db", "skip")).result is OutcomeResult.DRAINED


def test_pod_skipped_by_a_machine_drain_rule_stays_and_is_reported() -> None:
    plan = decide_for(a_pod("db"), a_pod("web"), rules=[a_rule("keep-db", "Skip", app="db")])
    assert requested_pods(plan) == ["web"]
    assert plan.progress.warning == "skipping Pods by MachineDrainRule keep-db: shop/db"


def test_skipped_pod_does_not_refuse_the_drain() -> None:
    bare = a_labelled_pod("bare", "skip", owner="")
    assert decide_for(bare, policy=DrainPolicy()).result is OutcomeResult.DRAINED
    assert decide_for(a_pod("bare", owner=""), policy=DrainPolicy()).result is OutcomeResult.REFUSED


# WaitCompleted


def test_pod_with_wait_completed_is_awaited_and_not_evicted() -> None:
    job, web = a_labelled_pod("job", "wait-completed"), a_pod("web")
    plan = decide_for(job, web)
    assert requested_pods(plan) == ["web"], "other pods do not wait"
    assert waiting(plan) == {
        "job": (
            BlockerKind.COMPLETION,
            "label cluster.x-k8s.io/drain=wait-completed waits until the pod has completed",
        )
    }
    left = decide_for(job, memory=plan.state)
    assert (left.result, [it.state for it in left.progress.pods]) == (None, [PodDrainState.FINISHING])
    done = a_labelled_pod("job", "wait-completed", phase="Succeeded")
    assert decide_for(done, memory=left.state).result is OutcomeResult.DRAINED


def test_machine_drain_rule_that_waits_for_completion_is_named() -> None:
    plan = decide_for(a_pod("job"), rules=[a_rule("jobs", "WaitCompleted", app="job")])
    (active,) = plan.progress.blockers
    assert active.blocker.object == "MachineDrainRule jobs"
    assert str(active.blocker) == "shop/job: MachineDrainRule jobs waits until the pod has completed"


def test_pod_with_wait_completed_is_never_deleted_whatever_the_policy_allows() -> None:
    hard = replace(NMO, eviction_timeout=timedelta(minutes=1), deletion_timeout=timedelta(minutes=1), force_delete=True)
    policy = with_machine_drain_rules(hard, a_node([a_rule("jobs", "WaitCompleted")]))
    first = decide(DrainObservation(node="n1", pods=[a_pod("job")]), TrackedDrain(started=NOW), policy, now=NOW)
    later = decide(DrainObservation(node="n1", pods=[a_pod("job")]), first.state, policy, now=NOW + timedelta(hours=9))
    assert (first.actions, later.actions) == ((), ())


# WaitCompleted with a limit

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
LIMITED = replace(NMO, wait_completed_timeout=HOUR)
WAITS = a_rule("jobs", "WaitCompleted", app="job")


def at(when: datetime, *pods: Pod, rules: Any = (), policy: DrainPolicy = LIMITED, **more: Any) -> DrainDecision:
    """Decide at an instant about a drain that started at NOW."""
    view = DrainObservation(node="n1", pods=pods, **more)
    return decide(
        view, TrackedDrain(started=NOW), with_machine_drain_rules(policy, a_node(list(rules) or "")), now=when
    )


@pytest.mark.parametrize(
    ("job", "rules"),
    [(a_pod("job"), [WAITS]), (a_labelled_pod("job", "wait-completed"), ())],
    ids=["by a MachineDrainRule", "by a label"],
)
def test_pod_that_has_not_completed_within_wait_completed_timeout_is_evicted(job: Pod, rules: Any) -> None:
    before = at(NOW + HOUR - MINUTE, job, rules=rules)
    assert (requested_pods(before), before.requeue_at) == ([], NOW + HOUR)
    (row,) = before.progress.pods
    assert (row.state, row.next_at) == (PodDrainState.FINISHING, NOW + HOUR)
    reason = "waits until the pod has completed; it is evicted at 2026-01-05 10:00:00 UTC if it has not"
    assert waiting(before)["job"][1].endswith(reason)
    after = at(NOW + HOUR, job, rules=rules)
    assert (requested_pods(after), after.progress.blockers) == (["job"], ())


def test_completed_pod_stays_after_wait_completed_timeout() -> None:
    done = a_pod("job", phase="Succeeded")
    assert at(NOW + 2 * HOUR, done, rules=[WAITS]).result is OutcomeResult.DRAINED


def test_wait_completed_timeout_of_a_policy_rule_takes_precedence() -> None:
    own = DrainRule(
        name="jobs", pods=parse("app=job"), behavior=Behavior.WAIT_COMPLETED, wait_completed_timeout=2 * HOUR
    )
    policy = replace(LIMITED, rules=(own,))
    for rules in ((), [WAITS]):
        assert requested_pods(at(NOW + HOUR, a_pod("job"), rules=rules, policy=policy)) == []
        assert requested_pods(at(NOW + 2 * HOUR, a_pod("job"), rules=rules, policy=policy)) == ["job"]


def test_pod_skipped_by_another_rule_stays_after_wait_completed_timeout() -> None:
    policy = replace(LIMITED, rules=(DrainRule(name="keep", behavior=Behavior.SKIP),))
    for job, rules in ((a_pod("job"), [WAITS]), (a_labelled_pod("job", "wait-completed"), ())):
        plan = at(NOW + HOUR, job, rules=rules, policy=policy)
        assert (plan.result, plan.progress.warning) == (OutcomeResult.DRAINED, "skipping Pods by rule keep: shop/job")
    odd = a_rule("odd", "Explode", app="job")
    plan = at(NOW + HOUR, a_labelled_pod("job", "wait-completed"), rules=[odd])
    assert waiting(plan)["job"][0] is BlockerKind.RULE


def test_namespace_rules_apply_to_a_labelled_pod_after_wait_completed_timeout() -> None:
    policy = replace(LIMITED, rules=(DrainRule(name="k", namespace_selector=parse("tier=x"), behavior=Behavior.SKIP),))
    job = a_labelled_pod("job", "wait-completed")
    assert at(NOW, job, policy=policy).lookups == (LookupRequest("namespace", "shop"),)
    plan = at(NOW + HOUR, job, policy=policy, namespaces={"shop": {"tier": "x"}})
    assert plan.result is OutcomeResult.DRAINED
    unlimited = replace(policy, wait_completed_timeout=None)
    assert at(NOW, job, policy=unlimited).lookups == ()


def test_order_of_a_rule_applies_after_wait_completed_timeout() -> None:
    policy = replace(LIMITED, rules=(DrainRule(name="late", pods=parse("app=job"), order=5),))
    plan = at(NOW + HOUR, a_pod("job"), a_pod("web"), rules=[WAITS], policy=policy)
    assert requested_pods(plan) == ["web"]
    plan = at(NOW + HOUR, a_pod("job"), a_pod("web"), rules=[WAITS])
    assert requested_pods(plan) == ["job", "web"]


def test_wait_completed_timeout_leaves_the_grace_period_before_the_deadline() -> None:
    policy = replace(LIMITED, timeout=HOUR + timedelta(seconds=10))
    plan = at(NOW, a_pod("job"), rules=[WAITS], policy=policy)
    assert plan.requeue_at == NOW + HOUR - timedelta(seconds=35)


def test_pod_that_the_policy_refuses_is_not_evicted_after_wait_completed_timeout() -> None:
    """Until then it refuses no other pod: it may still complete."""
    kubectl = DrainPolicy(wait_completed_timeout=HOUR)
    bare, web = a_labelled_pod("bare", "wait-completed", owner=""), a_pod("web")
    before = at(NOW, bare, web, policy=kubectl)
    assert (requested_pods(before), before.result) == (["web"], None)
    after = decide(DrainObservation(node="n1", pods=[bare, web]), before.state, kubectl, now=NOW + HOUR)
    assert (requested_pods(after), after.result, waiting(after)["bare"][0]) == (["web"], None, BlockerKind.POLICY)


# Order


def test_lower_orders_leave_first_and_higher_orders_wait() -> None:
    rules = [a_rule("first", app="web", order=-1), a_rule("last", app="db", order=10)]
    pods = a_pod("db"), a_pod("plain"), a_pod("web")
    plan = decide_for(*pods, rules=rules)
    assert requested_pods(plan) == ["web"]
    assert {it.pod: it.message for it in plan.progress.pods if it.state is PodDrainState.QUEUED} == {
        "shop/db": "waiting for earlier pods to leave: order -1",
        "shop/plain": "waiting for earlier pods to leave: order -1",
    }
    assert requested_pods(decide_for(*pods[:2], rules=rules, memory=plan.state)) == ["plain"]
    assert requested_pods(decide_for(pods[0], rules=rules, memory=plan.state)) == ["db"]


def test_pods_of_a_higher_order_wait_for_pods_that_are_to_complete() -> None:
    rules = [a_rule("last", app="db", order=1)]
    plan = decide_for(a_pod("db"), a_labelled_pod("job", "wait-completed"), rules=rules)
    assert requested_pods(plan) == []
    assert requested_pods(decide_for(a_pod("db"), rules=rules, memory=plan.state)) == ["db"]


# Precedence


def test_first_rule_by_name_applies_and_the_pod_label_takes_precedence() -> None:
    rules = [a_rule("b", "Skip", app="db"), a_rule("a", app="db", order=3)]
    (rule,) = {with_machine_drain_rules(NMO, a_node(rules)).rule_for(a_pod("db"), {})}
    assert (rule.behavior, rule.order) == (Behavior.DRAIN, 3)
    assert waiting(decide_for(a_labelled_pod("db", "wait-completed"), rules=[a_rule("a", "Skip")])).keys() == {"db"}


def test_pod_leaves_only_if_policy_and_machine_drain_rules_allow_it() -> None:
    calm = DrainRule(name="calm", pods=parse("app=db"), behavior=Behavior.SKIP)
    own = replace(NMO, rules=(calm,))
    drain, wait = a_rule("m", app="db", order=2), a_rule("m", "WaitCompleted", app="db")
    assert decide_for(a_pod("db"), rules=[drain], policy=own).result is OutcomeResult.DRAINED
    assert waiting(decide_for(a_pod("db"), rules=[wait], policy=own)).keys() == {"db"}, (
        "if both keep the pod, the MachineDrainRule applies"
    )


def test_timeouts_come_from_the_policy_rule_and_the_order_from_the_machine_drain_rule() -> None:
    slow = DrainRule(name="slow", order=7, eviction_timeout=timedelta(hours=1))
    policy = replace(NMO, rules=(slow,))
    rule = with_machine_drain_rules(policy, a_node([a_rule("m", order=2)])).rule_for(a_pod("db"), {})
    assert (rule.order, rule.eviction_timeout) == (2, timedelta(hours=1))
    assert with_machine_drain_rules(policy, a_node([a_rule("m")])).rule_for(a_pod("db"), {}).order == 7


def test_daemon_set_pods_and_static_pods_are_exempt_from_rules_and_labels() -> None:
    """Neither a rule nor a label evicts a pod that kubectl's filters keep, or waits for such a pod."""
    agent = a_labelled_pod("agent", "wait-completed", owner="DaemonSet")
    static = msgspec.convert(
        {"metadata": {"name": "etcd", "uid": "e", "annotations": {"kubernetes.io/config.mirror": "x"}}}, Pod
    )
    spare = replace(NMO, filters=PodFilters(force=True, ignore_daemonsets=True, keep_any_daemonset=True))
    plan = decide_for(agent, static, rules=[a_rule("all", "WaitCompleted")], policy=spare)
    assert plan.result is OutcomeResult.DRAINED


# Namespaces


def test_namespace_labels_are_looked_up_only_if_an_applicable_rule_needs_them() -> None:
    calm = a_rule("calm", "Skip", pods=[{"namespaceSelector": {"matchLabels": {"tier": "calm"}}}])
    assert decide_for(a_pod("db"), rules=[a_rule("all", pods=[{"namespaceSelector": {}}])]).lookups == ()
    assert decide_for(a_pod("db"), rules=[calm]).lookups == (LookupRequest("namespace", "shop"),)
    assert decide_for(a_labelled_pod("db", "skip"), rules=[calm]).lookups == (), "its label decides"
    assert decide_for(a_pod("db"), rules=[calm], namespaces={"shop": {"tier": "calm"}}).result is OutcomeResult.DRAINED
    assert requested_pods(decide_for(a_pod("db"), rules=[calm], namespaces={"shop": {}})) == ["db"]
    held = decide_for(
        a_pod("db"), a_labelled_pod("web", "skip"), rules=[calm], namespaces={"shop": "namespaces is forbidden"}
    )
    assert waiting(held) == {"db": (BlockerKind.API, "cannot decide whether to evict it: namespaces is forbidden")}


# Invalid rules


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        ("{", "invalid JSON: Input data was truncated"),
        ("[" * 100_000, "invalid JSON: "),
        ("[]", "found [], expected rules"),
        ('{"rules":{}}', "found {'rules': {}}, expected rules"),
        ('{"rules":[],"more":1}', "expected rules"),
        ('{"rules":[7]}', "found 7, expected a rule with a name"),
        ('{"rules":[{"behavior":"Skip"}]}', "expected a rule with a name"),
        ('{"problem":"too many"}', "too many"),
    ],
)
def test_invalid_machine_drain_rules_annotation_blocks_all_pods_with_a_reason(annotation: str, problem: str) -> None:
    policy = with_machine_drain_rules(NMO, a_node(annotation))
    plan = decide(
        DrainObservation(node="n1", pods=[a_pod("db"), a_labelled_pod("web", "skip")]),
        TrackedDrain(started=NOW),
        policy,
        now=NOW,
    )
    assert requested_pods(plan) == []
    ((kind, reason),) = waiting(plan).values()
    assert (kind, problem in reason) == (BlockerKind.RULE, True)
    assert reason.startswith("annotation haulout.dev/machine-drain-rules of the node is invalid: ")


@pytest.mark.parametrize(
    ("odd", "problem"),
    [
        ({"behavior": "Explode"}, "behavior: found 'Explode', expected one of Drain, Skip, WaitCompleted"),
        ({"behavior": ["Skip"]}, "behavior: found ['Skip'], expected one of"),
        ({"order": 2**31}, "order: found 2147483648, expected a whole number from -2147483648 to 2147483647"),
        ({"order": "first"}, "order: found 'first', expected a whole number"),
        ({"order": True}, "order: found True"),
        ({"behavior": "Skip", "order": 1}, "order: found with behavior Skip, expected only with Drain"),
        ({"whenever": 1}, "whenever: unknown, expected one of name, behavior, order, pods"),
        ({"problem": "spec.machines[0]: odd"}, "spec.machines[0]: odd"),
    ],
)
def test_rule_with_an_unknown_value_blocks_the_pods_it_selects(odd: dict[str, Any], problem: str) -> None:
    plan = decide_for(a_pod("db"), a_pod("web"), rules=[a_rule("odd", app="db") | odd])
    assert requested_pods(plan) == ["web"]
    ((pod, (kind, reason)),) = waiting(plan).items()
    assert (pod, kind) == ("db", BlockerKind.RULE)
    assert reason.startswith(f"MachineDrainRule odd is invalid: {problem}")


@pytest.mark.parametrize(
    "pods",
    [
        "all",
        [7],
        [{"selektor": {}}],
        [{"selector": "app=db"}],
        [{"selector": {"matchLabels": {"app": 7}}}],
        [{"selector": {"matchExpressions": [{"key": "app", "operator": ["In"]}]}}],
        [{"namespaceSelector": {"matchFields": {}}}],
    ],
)
def test_rule_with_an_invalid_selector_blocks_all_pods_that_no_earlier_rule_selects(pods: Any) -> None:
    rules = [a_rule("a", app="web"), a_rule("b", "Skip", pods=pods), a_rule("c", "Skip")]
    plan = decide_for(a_pod("db"), a_pod("web"), rules=rules)
    assert requested_pods(plan) == ["web"]
    assert waiting(plan)["db"][1].startswith("MachineDrainRule b is invalid: pods")


def test_label_with_an_unknown_value_blocks_its_pod() -> None:
    plan = decide_for(a_labelled_pod("db", "never"), a_pod("web"))
    assert requested_pods(plan) == ["web"]
    reason = "label cluster.x-k8s.io/drain is invalid: "
    assert waiting(plan) == {"db": (BlockerKind.RULE, f"{reason}found 'never', expected skip or wait-completed")}


def test_policy_is_unchanged_without_machine_drain_rules() -> None:
    assert with_machine_drain_rules(NMO, Node(metadata=ObjectMeta(name="n1"))) is NMO
    ruled = with_machine_drain_rules(NMO, a_node([a_rule("a", "Skip")]))
    assert with_machine_drain_rules(ruled, a_node([a_rule("a", "Skip")])) is ruled
    assert with_machine_drain_rules(ruled, Node(metadata=ObjectMeta(name="n1"))) == NMO
    assert parse_annotation("") == ()
