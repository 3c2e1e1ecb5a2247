"""MachineDrainRules of a node, and labels of pods, in a drain."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.drain.blockers import Kind
from haulout.drain.machine_rules import honoured, read
from haulout.drain.memory import Memory
from haulout.drain.plan import Plan, View, decide
from haulout.drain.policy import Behavior, Policy, Rule
from haulout.drain.progress import Ending, State
from haulout.drain.selection import Filters
from haulout.drain.sorting import Question
from haulout.kinds.clusterapi import DRAIN, DRAIN_RULES
from haulout.kube.objects import Metadata, Node, Pod
from haulout.kube.selectors import parse

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
NMO = Policy.like_nmo()


def a_pod(name: str, *, owner: str = "ReplicaSet", phase: str = "Running", **labels: str) -> Pod:
    reference = {"apiVersion": "apps/v1", "kind": owner, "name": "own", "uid": "u", "controller": True}
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": name, "labels": {"app": name} | labels}
    metadata |= {"ownerReferences": [reference] if owner else []}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": phase}}, Pod)


def labelled(name: str, value: str, **more: Any) -> Pod:
    return a_pod(name, **{DRAIN: value}, **more)


def about(app: str) -> list[dict[str, Any]]:
    return [{"selector": {"matchLabels": {"app": app}}}]


def a_rule(name: str, behavior: str = "Drain", *, app: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "behavior": behavior} | ({"pods": about(app)} if app else {}) | more


def a_node(annotation: Any) -> Node:
    text = annotation if isinstance(annotation, str) else msgspec.json.encode({"rules": annotation}).decode()
    return Node(metadata=Metadata(name="n1", annotations={DRAIN_RULES: text}))


def look(*pods: Pod, rules: Any = (), policy: Policy = NMO, memory: Memory | None = None, **view: Any) -> Plan:
    memory = Memory(started=NOW) if memory is None else memory
    return decide(View(node="n1", pods=pods, **view), memory, honoured(policy, a_node(list(rules) or "")), now=NOW)


def asked(plan: Plan) -> list[str]:
    return [action.pod.name for action in plan.actions]


def waiting(plan: Plan) -> dict[str, tuple[Kind, str]]:
    return {it.blocker.pod.removeprefix("shop/"): (it.blocker.kind, it.blocker.reason) for it in plan.progress.blockers}


# Skip


def test_a_pod_that_is_labelled_so_stays_and_that_is_told() -> None:
    plan = look(labelled("db", "skip"), a_pod("web"))
    assert asked(plan) == ["web"]
    assert [it.pod for it in plan.progress.pods] == ["shop/web"]
    assert plan.progress.warning == "skipping Pods by label cluster.x-k8s.io/drain=skip: shop/db"
    assert look(labelled("db", "skip")).ending is Ending.DRAINED


def test_a_pod_that_a_rule_skips_stays_and_that_is_told() -> None:
    plan = look(a_pod("db"), a_pod("web"), rules=[a_rule("keep-db", "Skip", app="db")])
    assert asked(plan) == ["web"]
    assert plan.progress.warning == "skipping Pods by MachineDrainRule keep-db: shop/db"


def test_a_pod_that_would_forbid_the_drain_does_not_if_it_is_skipped() -> None:
    bare = labelled("bare", "skip", owner="")
    assert look(bare, policy=Policy()).ending is Ending.DRAINED
    assert look(a_pod("bare", owner=""), policy=Policy()).ending is Ending.REFUSED


# WaitCompleted


def test_a_pod_that_is_to_finish_is_waited_for_and_not_asked() -> None:
    job, web = labelled("job", "wait-completed"), a_pod("web")
    plan = look(job, web)
    assert asked(plan) == ["web"], "those beside it do not wait"
    assert waiting(plan) == {
        "job": (
            Kind.COMPLETION,
            "label cluster.x-k8s.io/drain=wait-completed lets it run until it has finished by itself",
        )
    }
    left = look(job, memory=plan.memory)
    assert (left.ending, [it.state for it in left.progress.pods]) == (None, [State.FINISHING])
    done = labelled("job", "wait-completed", phase="Succeeded")
    assert look(done, memory=left.memory).ending is Ending.DRAINED


def test_who_lets_a_pod_finish_is_named() -> None:
    plan = look(a_pod("job"), rules=[a_rule("jobs", "WaitCompleted", app="job")])
    (standing,) = plan.progress.blockers
    assert standing.blocker.object == "MachineDrainRule jobs"
    assert str(standing.blocker) == "shop/job: MachineDrainRule jobs lets it run until it has finished by itself"


def test_a_pod_that_is_to_finish_is_never_deleted_whatever_the_policy_says() -> None:
    hard = replace(NMO, eviction_timeout=timedelta(minutes=1), deletion_timeout=timedelta(minutes=1), force_delete=True)
    policy = honoured(hard, a_node([a_rule("jobs", "WaitCompleted")]))
    first = decide(View(node="n1", pods=[a_pod("job")]), Memory(started=NOW), policy, now=NOW)
    later = decide(View(node="n1", pods=[a_pod("job")]), first.memory, policy, now=NOW + timedelta(hours=9))
    assert (first.actions, later.actions) == ((), ())


# WaitCompleted with a limit

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
LIMITED = replace(NMO, wait_completed_timeout=HOUR)
WAITS = a_rule("jobs", "WaitCompleted", app="job")


def at(when: datetime, *pods: Pod, rules: Any = (), policy: Policy = LIMITED, **more: Any) -> Plan:
    """Decide at an instant about a drain that began at NOW."""
    view = View(node="n1", pods=pods, **more)
    return decide(view, Memory(started=NOW), honoured(policy, a_node(list(rules) or "")), now=when)


@pytest.mark.parametrize(
    ("job", "rules"),
    [(a_pod("job"), [WAITS]), (labelled("job", "wait-completed"), ())],
    ids=["by a MachineDrainRule", "by a label"],
)
def test_a_pod_that_has_not_completed_in_time_is_evicted(job: Pod, rules: Any) -> None:
    before = at(NOW + HOUR - MINUTE, job, rules=rules)
    assert (asked(before), before.wakes_at) == ([], NOW + HOUR)
    (row,) = before.progress.pods
    assert (row.state, row.next_at) == (State.FINISHING, NOW + HOUR)
    reason = "lets it run until it has finished by itself; if it has not by 2026-01-05 10:00:00 UTC, it is evicted"
    assert waiting(before)["job"][1].endswith(reason)
    after = at(NOW + HOUR, job, rules=rules)
    assert (asked(after), after.progress.blockers) == (["job"], ())


def test_what_has_completed_in_time_stays_when_the_time_is_over() -> None:
    done = a_pod("job", phase="Succeeded")
    assert at(NOW + 2 * HOUR, done, rules=[WAITS]).ending is Ending.DRAINED


def test_the_policys_own_rule_says_for_how_long_its_pods_may_complete() -> None:
    own = Rule(name="jobs", pods=parse("app=job"), behavior=Behavior.WAIT_COMPLETED, wait_completed_timeout=2 * HOUR)
    policy = replace(LIMITED, rules=(own,))
    for rules in ((), [WAITS]):
        assert asked(at(NOW + HOUR, a_pod("job"), rules=rules, policy=policy)) == []
        assert asked(at(NOW + 2 * HOUR, a_pod("job"), rules=rules, policy=policy)) == ["job"]


def test_a_pod_that_another_rule_skips_stays_when_the_time_is_over() -> None:
    policy = replace(LIMITED, rules=(Rule(name="keep", behavior=Behavior.SKIP),))
    for job, rules in ((a_pod("job"), [WAITS]), (labelled("job", "wait-completed"), ())):
        plan = at(NOW + HOUR, job, rules=rules, policy=policy)
        assert (plan.ending, plan.progress.warning) == (Ending.DRAINED, "skipping Pods by rule keep: shop/job")
    odd = a_rule("odd", "Explode", app="job")
    plan = at(NOW + HOUR, labelled("job", "wait-completed"), rules=[odd])
    assert waiting(plan)["job"][0] is Kind.RULE


def test_rules_about_namespaces_count_when_a_labelled_pod_has_had_its_time() -> None:
    policy = replace(LIMITED, rules=(Rule(name="k", namespace_selector=parse("tier=x"), behavior=Behavior.SKIP),))
    job = labelled("job", "wait-completed")
    assert at(NOW, job, policy=policy).questions == (Question("namespace", "shop"),)
    plan = at(NOW + HOUR, job, policy=policy, namespaces={"shop": {"tier": "x"}})
    assert plan.ending is Ending.DRAINED
    unlimited = replace(policy, wait_completed_timeout=None)
    assert at(NOW, job, policy=unlimited).questions == ()


def test_the_order_of_a_rule_counts_when_the_time_is_over() -> None:
    policy = replace(LIMITED, rules=(Rule(name="late", pods=parse("app=job"), order=5),))
    plan = at(NOW + HOUR, a_pod("job"), a_pod("web"), rules=[WAITS], policy=policy)
    assert asked(plan) == ["web"]
    plan = at(NOW + HOUR, a_pod("job"), a_pod("web"), rules=[WAITS])
    assert asked(plan) == ["job", "web"]


def test_the_grace_period_fits_between_the_end_of_the_wait_and_the_deadline() -> None:
    policy = replace(LIMITED, timeout=HOUR + timedelta(seconds=10))
    plan = at(NOW, a_pod("job"), rules=[WAITS], policy=policy)
    assert plan.wakes_at == NOW + HOUR - timedelta(seconds=35)


def test_a_pod_that_the_policy_does_not_let_go_is_not_evicted_either() -> None:
    """Nothing else is refused because of it before: it may well complete."""
    kubectl = Policy(wait_completed_timeout=HOUR)
    bare, web = labelled("bare", "wait-completed", owner=""), a_pod("web")
    before = at(NOW, bare, web, policy=kubectl)
    assert (asked(before), before.ending) == (["web"], None)
    after = decide(View(node="n1", pods=[bare, web]), before.memory, kubectl, now=NOW + HOUR)
    assert (asked(after), after.ending, waiting(after)["bare"][0]) == (["web"], None, Kind.POLICY)


# Order


def test_lower_orders_leave_first_and_higher_ones_wait_until_they_are_gone() -> None:
    rules = [a_rule("first", app="web", order=-1), a_rule("last", app="db", order=10)]
    pods = a_pod("db"), a_pod("plain"), a_pod("web")
    plan = look(*pods, rules=rules)
    assert asked(plan) == ["web"]
    assert {it.pod: it.words for it in plan.progress.pods if it.state is State.QUEUED} == {
        "shop/db": "leaves after those of order -1",
        "shop/plain": "leaves after those of order -1",
    }
    assert asked(look(*pods[:2], rules=rules, memory=plan.memory)) == ["plain"]
    assert asked(look(pods[0], rules=rules, memory=plan.memory)) == ["db"]


def test_pods_of_a_higher_order_wait_for_those_that_are_to_finish() -> None:
    rules = [a_rule("last", app="db", order=1)]
    plan = look(a_pod("db"), labelled("job", "wait-completed"), rules=rules)
    assert asked(plan) == []
    assert asked(look(a_pod("db"), rules=rules, memory=plan.memory)) == ["db"]


# Who counts


def test_the_first_rule_by_name_counts_and_the_label_before_all_rules() -> None:
    rules = [a_rule("b", "Skip", app="db"), a_rule("a", app="db", order=3)]
    (rule,) = {honoured(NMO, a_node(rules)).rule_for(a_pod("db"), {})}
    assert (rule.behavior, rule.order) == (Behavior.DRAIN, 3)
    assert waiting(look(labelled("db", "wait-completed"), rules=[a_rule("a", "Skip")])).keys() == {"db"}


def test_a_pod_leaves_only_if_the_policy_and_the_rules_of_the_machine_let_it_go() -> None:
    calm = Rule(name="calm", pods=parse("app=db"), behavior=Behavior.SKIP)
    own = replace(NMO, rules=(calm,))
    drain, wait = a_rule("m", app="db", order=2), a_rule("m", "WaitCompleted", app="db")
    assert look(a_pod("db"), rules=[drain], policy=own).ending is Ending.DRAINED
    assert waiting(look(a_pod("db"), rules=[wait], policy=own)).keys() == {"db"}, (
        "if both keep it, the Machine's counts"
    )


def test_times_are_those_of_the_policys_rule_and_the_order_is_the_machines() -> None:
    slow = Rule(name="slow", order=7, eviction_timeout=timedelta(hours=1))
    policy = replace(NMO, rules=(slow,))
    rule = honoured(policy, a_node([a_rule("m", order=2)])).rule_for(a_pod("db"), {})
    assert (rule.order, rule.eviction_timeout) == (2, timedelta(hours=1))
    assert honoured(policy, a_node([a_rule("m")])).rule_for(a_pod("db"), {}).order == 7


def test_what_is_on_every_node_stays_out_of_it() -> None:
    """Neither a rule nor a label makes a pod leave that kubectl's filters keep, or wait for one that never ends."""
    agent = labelled("agent", "wait-completed", owner="DaemonSet")
    static = msgspec.convert(
        {"metadata": {"name": "etcd", "uid": "e", "annotations": {"kubernetes.io/config.mirror": "x"}}}, Pod
    )
    spare = replace(NMO, filters=Filters(force=True, ignore_daemonsets=True, spare_daemonsets=True))
    plan = look(agent, static, rules=[a_rule("all", "WaitCompleted")], policy=spare)
    assert plan.ending is Ending.DRAINED


# Namespaces


def test_labels_of_namespaces_are_asked_for_only_if_a_rule_in_force_needs_them() -> None:
    calm = a_rule("calm", "Skip", pods=[{"namespaceSelector": {"matchLabels": {"tier": "calm"}}}])
    assert look(a_pod("db"), rules=[a_rule("all", pods=[{"namespaceSelector": {}}])]).questions == ()
    assert look(a_pod("db"), rules=[calm]).questions == (Question("namespace", "shop"),)
    assert look(labelled("db", "skip"), rules=[calm]).questions == (), "its label decides"
    assert look(a_pod("db"), rules=[calm], namespaces={"shop": {"tier": "calm"}}).ending is Ending.DRAINED
    assert asked(look(a_pod("db"), rules=[calm], namespaces={"shop": {}})) == ["db"]
    held = look(a_pod("db"), labelled("web", "skip"), rules=[calm], namespaces={"shop": "namespaces is forbidden"})
    assert waiting(held) == {"db": (Kind.API, "cannot tell what may be done with it: namespaces is forbidden")}


# What cannot be read


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        ("{", "it is no JSON: Input data was truncated"),
        ("[" * 100_000, "it is no JSON: "),
        ("[]", "found [], expected rules"),
        ('{"rules":{}}', "found {'rules': {}}, expected rules"),
        ('{"rules":[],"more":1}', "expected rules"),
        ('{"rules":[7]}', "found 7, expected a rule with a name"),
        ('{"rules":[{"behavior":"Skip"}]}', "expected a rule with a name"),
        ('{"problem":"too many"}', "too many"),
    ],
)
def test_an_annotation_that_cannot_be_read_makes_all_pods_wait_with_a_reason(annotation: str, problem: str) -> None:
    policy = honoured(NMO, a_node(annotation))
    plan = decide(View(node="n1", pods=[a_pod("db"), labelled("web", "skip")]), Memory(started=NOW), policy, now=NOW)
    assert asked(plan) == []
    ((kind, reason),) = waiting(plan).values()
    assert (kind, problem in reason) == (Kind.RULE, True)
    assert reason.startswith("annotation haulout.dev/machine-drain-rules of the node says something about it")


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
def test_a_rule_that_says_something_unknown_holds_up_the_pods_that_it_is_about(
    odd: dict[str, Any], problem: str
) -> None:
    plan = look(a_pod("db"), a_pod("web"), rules=[a_rule("odd", app="db") | odd])
    assert asked(plan) == ["web"]
    ((pod, (kind, reason)),) = waiting(plan).items()
    assert (pod, kind) == ("db", Kind.RULE)
    assert reason.startswith(f"MachineDrainRule odd says something about it that cannot be read: {problem}")


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
def test_a_rule_of_which_cannot_be_told_whom_it_is_about_holds_up_all_that_no_earlier_one_is_about(pods: Any) -> None:
    rules = [a_rule("a", app="web"), a_rule("b", "Skip", pods=pods), a_rule("c", "Skip")]
    plan = look(a_pod("db"), a_pod("web"), rules=rules)
    assert asked(plan) == ["web"]
    assert waiting(plan)["db"][1].startswith("MachineDrainRule b says something about it that cannot be read: pods")


def test_a_label_with_an_unknown_value_makes_its_pod_wait() -> None:
    plan = look(labelled("db", "never"), a_pod("web"))
    assert asked(plan) == ["web"]
    reason = "label cluster.x-k8s.io/drain says something about it that cannot be read: "
    assert waiting(plan) == {"db": (Kind.RULE, f"{reason}found 'never', expected skip or wait-completed")}


def test_nothing_is_another_policy_if_nothing_is_said() -> None:
    assert honoured(NMO, Node(metadata=Metadata(name="n1"))) is NMO
    ruled = honoured(NMO, a_node([a_rule("a", "Skip")]))
    assert honoured(ruled, a_node([a_rule("a", "Skip")])) is ruled
    assert honoured(ruled, Node(metadata=Metadata(name="n1"))) == NMO
    assert read("") == ()
