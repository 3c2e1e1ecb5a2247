"""The MachineDrainRules annotation of a node, and its meaning compared with Cluster API."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.clusterapi import DRAIN_RULES, MachineDrainRule
from haulout.api.objects import Node, ObjectMeta, Pod
from haulout.controllers.clusterapi.machine_drain_rules import MAX_BYTES, DrainRulesAnnotation, build_annotation
from haulout.drain.machine_drain_rules import rule_from_pod_label, with_machine_drain_rules
from haulout.drain.policy import Behavior, DrainPolicy

LINUX = {"os": "linux"}
PROD = {"stage": "production"}


def a_rule(name: str, behavior: str = "Drain", *, machines: Any = (), pods: Any = (), **drain: Any) -> MachineDrainRule:
    spec = {"drain": {"behavior": behavior, **drain}, "machines": machines, "pods": pods}
    return msgspec.convert({"metadata": {"name": name, "namespace": "fleet"}, "spec": spec}, MachineDrainRule)


def annotation_for(
    *rules: MachineDrainRule, cluster: dict[str, str] | None = PROD, machine: dict[str, str] = LINUX
) -> DrainRulesAnnotation:
    return build_annotation(rules, cluster=cluster, machine=machine)


def names(annotation: DrainRulesAnnotation) -> list[str]:
    return [] if annotation.text is None else [rule["name"] for rule in msgspec.json.decode(annotation.text)["rules"]]


def test_no_matching_rule_means_no_annotation() -> None:
    assert annotation_for() == DrainRulesAnnotation(None)
    assert annotation_for(
        a_rule("windows", machines=[{"selector": {"matchLabels": {"os": "windows"}}}])
    ) == DrainRulesAnnotation(None)


def test_rule_applies_to_all_machines_or_to_machines_matched_by_both_selectors() -> None:
    os = {"selector": {"matchLabels": LINUX}}
    stage = {"clusterSelector": {"matchExpressions": [{"key": "stage", "operator": "In", "values": ["production"]}]}}
    other = {"selector": {"matchLabels": {"os": "windows"}}, **stage}
    rules = (
        a_rule("all"),
        a_rule("empty", machines=[{"selector": {}}]),
        a_rule("both", machines=[os | stage]),
        a_rule("one-of", machines=[other, os]),
        a_rule("neither", machines=[other]),
    )
    assert names(annotation_for(*rules)) == ["all", "both", "empty", "one-of"]
    assert names(annotation_for(*rules, cluster={})) == ["all", "empty", "one-of"]
    assert names(annotation_for(*rules, machine={})) == ["all", "empty"]


def test_annotation_is_compact_and_independent_of_the_rule_order() -> None:
    pods = [{"selector": {"matchLabels": {"b": "2", "a": "1"}}, "namespaceSelector": {}}]
    rules = (a_rule("b", "Skip"), a_rule("a", order=-3, pods=pods))
    expected = (
        '{"rules":[{"behavior":"Drain","name":"a","order":-3,'
        '"pods":[{"namespaceSelector":{},"selector":{"matchLabels":{"a":"1","b":"2"}}}]},'
        '{"behavior":"Skip","name":"b"}]}'
    )
    assert annotation_for(*rules) == annotation_for(*reversed(rules)) == DrainRulesAnnotation(expected)


def test_rule_with_an_invalid_machine_selector_is_annotated_with_its_problem() -> None:
    bad = {"matchExpressions": [{"key": "os", "operator": "Near"}]}
    found = annotation_for(a_rule("odd", "Skip", machines=[{"selector": bad}]))
    problem = "spec.machines[0].selector.matchExpressions[0].operator: "
    assert found.problem.startswith(f"MachineDrainRule odd: {problem}")
    (rule,) = with_machine_drain_rules(DrainPolicy(), a_node(found.text)).machine_drain_rules
    assert rule.keeps_pods
    assert rule.problem.startswith(problem)
    assert names(annotation_for(a_rule("odd", machines=[{"selector": bad}, {"selector": {}}]))) == ["odd"], (
        "another selector matches"
    )


def test_unknown_cluster_labels_affect_only_rules_with_a_cluster_selector() -> None:
    by_stage = a_rule("stage", machines=[{"clusterSelector": {"matchLabels": PROD}}])
    found = annotation_for(a_rule("all"), by_stage, cluster=None)
    assert names(found) == ["all", "stage"]
    assert found.problem == (
        "MachineDrainRule stage: spec.machines[0].clusterSelector: the labels of its Cluster are not known"
    )


def test_annotation_with_too_many_rules_states_the_problem_and_keeps_all_pods() -> None:
    rules = [a_rule(f"{number:04}", pods=[{"selector": {"matchLabels": {"app": "x" * 60}}}]) for number in range(700)]
    found = annotation_for(*rules)
    assert found.text is not None
    assert len(found.text) < 200
    assert f"expected at most {MAX_BYTES}" in found.problem
    (rule,) = with_machine_drain_rules(DrainPolicy(), a_node(found.text)).machine_drain_rules
    assert (rule.problem, rule.keeps_pods) == (found.problem, True)
    assert annotation_for(*rules[:300]).problem == ""


# From the rule to the pod, against what Cluster API does


def a_node(text: str | None) -> Node:
    return Node(metadata=ObjectMeta(name="n1", annotations={} if text is None else {DRAIN_RULES: text}))


def a_pod(labels: dict[str, str]) -> Pod:
    return Pod(metadata=ObjectMeta(name="cart", namespace="shop", labels=labels))


LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"))
SELECTORS = st.none() | st.fixed_dictionaries({"matchLabels": LABELS})
MACHINES = st.fixed_dictionaries({"selector": SELECTORS, "clusterSelector": SELECTORS})
PODS = st.fixed_dictionaries({"selector": SELECTORS, "namespaceSelector": SELECTORS})
DRAINS = st.sampled_from(({"behavior": "Skip"}, {"behavior": "WaitCompleted"})) | st.fixed_dictionaries(
    {"behavior": st.just("Drain"), "order": st.none() | st.integers(-(2**31), 2**31 - 1)}
)
SPECS = st.fixed_dictionaries(
    {"drain": DRAINS, "machines": st.lists(MACHINES, max_size=2), "pods": st.lists(PODS, max_size=2)}
)


def selects(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    return selector is None or selector["matchLabels"].items() <= labels.items()


@given(st.dictionaries(st.text("mn", min_size=1, max_size=3), SPECS, max_size=4), LABELS, LABELS, LABELS, LABELS)
def test_rule_for_a_pod_matches_cluster_api(
    specs: dict[str, Any],
    cluster: dict[str, str],
    machine: dict[str, str],
    namespace: dict[str, str],
    pod: dict[str, str],
) -> None:
    expected: dict[str, Any] = {"behavior": "Drain"}
    for name in sorted(specs):
        spec = specs[name]
        holds = not spec["machines"] or any(
            selects(selection["selector"], machine) and selects(selection["clusterSelector"], cluster)
            for selection in spec["machines"]
        )
        if holds and (
            not spec["pods"]
            or any(
                selects(selection["selector"], pod) and selects(selection["namespaceSelector"], namespace)
                for selection in spec["pods"]
            )
        ):
            expected = spec["drain"]
            break
    rules = [
        msgspec.convert({"metadata": {"name": name}, "spec": spec}, MachineDrainRule) for name, spec in specs.items()
    ]
    found = build_annotation(rules, cluster=cluster, machine=machine)
    policy = with_machine_drain_rules(DrainPolicy(), a_node(found.text))
    rule = policy.rule_for(a_pod(pod), namespace)
    assert (found.problem, rule.problem) == ("", "")
    assert (rule.behavior, rule.order or 0) == (Behavior(expected["behavior"]), expected.get("order") or 0)


def test_pod_drain_labels_are_parsed_like_in_cluster_api() -> None:
    found = {
        value: rule_from_pod_label(a_pod({"cluster.x-k8s.io/drain": value}))
        for value in ("Skip", "WaitCompleted", "wait-completed")
    }
    assert [None if rule is None else rule.behavior for rule in found.values()] == [
        Behavior.SKIP,
        Behavior.WAIT_COMPLETED,
        Behavior.WAIT_COMPLETED,
    ]
    assert rule_from_pod_label(a_pod({})) is None
