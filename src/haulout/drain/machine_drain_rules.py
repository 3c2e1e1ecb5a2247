"""Cluster API's MachineDrainRules, and the drain label of pods.

The rules are objects of a management cluster. The hub writes those that apply to a Machine into an annotation of its
Node:

    policy = with_machine_drain_rules(policy, node)

The pod label `cluster.x-k8s.io/drain` takes precedence over all rules: `skip` or `wait-completed`, in any case.

When in doubt, pods stay. What cannot be parsed makes the pods concerned wait, with a reason: the pods of a rule with an
unknown behavior; if the selectors cannot be parsed, all pods without an earlier match; if the annotation is no JSON,
all pods. Cluster API drains a pod whose label has an unknown value; Haulout makes it wait.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from haulout.api.clusterapi import DRAIN, DRAIN_RULES
from haulout.api.objects import Node, Pod
from haulout.drain.policy import Behavior, DrainPolicy, DrainRule
from haulout.drain.policy_parser import format_value
from haulout.kube import selectors
from haulout.kube.selectors import EVERYTHING, Selector, SelectorError

_KEYS = ("name", "behavior", "order", "pods", "problem")
_VALID_ORDERS = range(-(2**31), 2**31)
_BY_LABEL = f"label {DRAIN}"
_ANNOTATION = f"annotation {DRAIN_RULES} of the node"


class _InvalidRule(ValueError):
    """A rule that cannot be parsed; the message tells what was found and expected."""


def with_machine_drain_rules(policy: DrainPolicy, node: Node) -> DrainPolicy:
    """Return the policy with the MachineDrainRules of the node's Machine."""
    rules = parse_annotation(node.metadata.annotations.get(DRAIN_RULES, ""))
    return policy if policy.machine_drain_rules == rules else replace(policy, machine_drain_rules=rules)


def rule_from_pod_label(pod: Pod) -> DrainRule | None:
    """Return the rule that the label of a pod sets; None without the label."""
    value = pod.metadata.labels.get(DRAIN)
    return None if value is None else _rule_from_label_value(value)


@lru_cache(maxsize=64)
def _rule_from_label_value(value: str) -> DrainRule:
    """Return the rule for a label value. As in Cluster API, case does not matter, nor does the dash."""
    behaviors = {
        "skip": Behavior.SKIP,
        "wait-completed": Behavior.WAIT_COMPLETED,
        "waitcompleted": Behavior.WAIT_COMPLETED,
    }
    behavior = behaviors.get(value.lower())
    if behavior is not None:
        return DrainRule(name=DRAIN, behavior=behavior, source=f"{_BY_LABEL}={value}")
    return DrainRule(name=DRAIN, source=_BY_LABEL, problem=f"found {value!r}, expected skip or wait-completed")


# Decisions are made many times for each node, and nodes of one MachineDeployment have the same annotation.
@lru_cache(maxsize=256)
def parse_annotation(text: str) -> tuple[DrainRule, ...]:
    """Return the rules of an annotation in their order. An invalid rule makes all pods wait that it may concern."""
    if not text:
        return ()
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return (_invalid_annotation_rule(f"invalid JSON: {error}"),)
    match document:
        # An unknown key may be a restriction that a later version of the hub knows, so it is not ignored.
        case {"rules": list(rules), **rest} if not rest:
            found = [rule for raw_rule in rules for rule in _parse_rule(raw_rule)]
            return tuple(sorted(found, key=lambda rule: rule.name))
        # The hub writes this if it cannot read the rules. No rules would mean that all pods may leave.
        case {"problem": str(problem), **rest} if problem and not rest:
            return (_invalid_annotation_rule(problem),)
    return (_invalid_annotation_rule(f"found {format_value(document)}, expected rules"),)


def _parse_rule(raw: Any) -> Iterator[DrainRule]:
    """Yield one rule for each pod selection of a MachineDrainRule, with the same behavior."""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("name"), str) or not raw["name"]:
        yield _invalid_annotation_rule(f"found {format_value(raw)}, expected a rule with a name")
        return
    name, source = raw["name"], f"MachineDrainRule {raw['name']}"
    try:
        selections = list(_parse_selections(raw.get("pods")))
    except _InvalidRule as invalid:
        yield DrainRule(name=name, source=source, problem=str(invalid))
        return
    problem = _rule_problem(raw)
    # The behavior of an invalid rule does not matter: `problem` makes its pods wait.
    behavior = Behavior.DRAIN if problem else Behavior(raw["behavior"])
    for pods, namespaces in selections:
        yield DrainRule(
            name=name,
            pods=pods,
            namespace_selector=namespaces,
            behavior=behavior,
            order=None if problem else raw.get("order"),
            source=source,
            problem=problem,
        )


def _rule_problem(raw: Mapping[str, Any]) -> str:
    """Return why a rule is invalid; empty if it is valid."""
    if problem := raw.get("problem"):
        return str(problem)
    if unknown := [key for key in raw if key not in _KEYS]:
        return f"{unknown[0]}: unknown, expected one of {', '.join(_KEYS[:4])}"
    if raw.get("behavior") not in list(Behavior):
        return f"behavior: found {format_value(raw.get('behavior'))}, expected one of {', '.join(Behavior)}"
    return "" if raw.get("order") is None else _order_problem(raw["order"], raw["behavior"])


def _order_problem(order: Any, behavior: str) -> str:
    if not isinstance(order, int) or isinstance(order, bool) or order not in _VALID_ORDERS:
        return (
            f"order: found {format_value(order)}, expected a whole number "
            f"from {_VALID_ORDERS.start} to {_VALID_ORDERS.stop - 1}"
        )
    if behavior != Behavior.DRAIN:
        return f"order: found with behavior {behavior}, expected only with {Behavior.DRAIN}"
    return ""


def _parse_selections(raw: Any) -> Iterator[tuple[Selector, Selector | None]]:
    if raw is None or raw == []:
        yield EVERYTHING, None
        return
    if not isinstance(raw, list):
        raise _InvalidRule(f"pods: found {format_value(raw)}, expected a list")
    for number, selection in enumerate(raw):
        match selection:
            case {**keys} if keys.keys() <= {"selector", "namespaceSelector"}:
                pods = _parse_selector(keys.get("selector"), f"pods[{number}].selector")
                namespaces = _parse_selector(keys.get("namespaceSelector"), f"pods[{number}].namespaceSelector")
                yield pods, namespaces if namespaces.requirements else None
            case _:
                expected = "selector and namespaceSelector"
                raise _InvalidRule(f"pods[{number}]: found {format_value(selection)}, expected {expected}")


def _parse_selector(raw: Any, path: str) -> Selector:
    if raw is None:
        return EVERYTHING
    if not isinstance(raw, Mapping):
        raise _InvalidRule(f"{path}: found {format_value(raw)}, expected matchLabels and matchExpressions")
    try:
        return selectors.from_label_selector(raw)
    except SelectorError as error:
        raise _InvalidRule(f"{path}.{error}") from None


def _invalid_annotation_rule(problem: str) -> DrainRule:
    """Return a rule that makes all pods wait, sorted before all others."""
    return DrainRule(name="", source=_ANNOTATION, problem=problem)
