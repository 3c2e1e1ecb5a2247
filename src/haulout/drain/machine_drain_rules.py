"""What Cluster API's MachineDrainRules, and labels of pods, say about how pods leave a node.

The rules are objects of a management cluster. Those that hold for a Machine are written by the hub into an annotation
of its Node, so whoever drains that node finds them there:

    policy = honoured(policy, node)

The label `cluster.x-k8s.io/drain` of a pod wins over all rules: `skip` or `wait-completed`, however that is written.

When in doubt nobody leaves. What is said of a pod and cannot be read makes that pod wait, with a reason: those that a
rule with an unknown behavior is about; if it cannot be read which these are, all that no earlier rule is about; and if
the annotation is no JSON at all, all pods. Cluster API drains a pod whose label has an unknown value; we ask first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from haulout.api.clusterapi import DRAIN, DRAIN_RULES
from haulout.api.objects import Node, Pod
from haulout.drain.policy import Behavior, DrainPolicy, DrainRule
from haulout.kube import selectors
from haulout.kube.selectors import EVERYTHING, Selector, SelectorError

_KEYS = ("name", "behavior", "order", "pods", "problem")
_VALID_ORDERS = range(-(2**31), 2**31)
_MAX_SHOWN_CHARACTERS = 80
_BY_LABEL = f"label {DRAIN}"
_ANNOTATION = f"annotation {DRAIN_RULES} of the node"


class _InvalidRule(ValueError):
    """What cannot be read, and what was expected."""


def with_machine_drain_rules(policy: DrainPolicy, node: Node) -> DrainPolicy:
    """Return a policy that keeps to the rules of the node's Machine, too."""
    rules = parse_annotation(node.metadata.annotations.get(DRAIN_RULES, ""))
    return policy if policy.machine_drain_rules == rules else replace(policy, machine_drain_rules=rules)


def rule_from_pod_label(pod: Pod) -> DrainRule | None:
    """Return what the label of a pod says, None without one."""
    value = pod.metadata.labels.get(DRAIN)
    return None if value is None else _rule_from_label_value(value)


@lru_cache(maxsize=64)
def _rule_from_label_value(value: str) -> DrainRule:
    """Return what a value of the label means; as in Cluster API case does not count, nor does the dash."""
    behaviors = {
        "skip": Behavior.SKIP,
        "wait-completed": Behavior.WAIT_COMPLETED,
        "waitcompleted": Behavior.WAIT_COMPLETED,
    }
    behavior = behaviors.get(value.lower())
    if behavior is not None:
        return DrainRule(name=DRAIN, behavior=behavior, source=f"{_BY_LABEL}={value}")
    return DrainRule(name=DRAIN, source=_BY_LABEL, problem=f"found {value!r}, expected skip or wait-completed")


@lru_cache(maxsize=256)
def parse_annotation(text: str) -> tuple[DrainRule, ...]:
    """Return the rules that an annotation holds, in their order; one that cannot be read keeps what it may be about."""
    if not text:
        return ()
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return (_invalid_annotation_rule(f"it is no JSON: {error}"),)
    match document:
        case {"rules": list(rules), **rest} if not rest:
            found = [rule for raw_rule in rules for rule in _parse_rule(raw_rule)]
            return tuple(sorted(found, key=lambda rule: rule.name))
        case {"problem": str(problem), **rest} if problem and not rest:
            return (_invalid_annotation_rule(problem),)
    return (_invalid_annotation_rule(f"found {_format_value(document)}, expected rules"),)


def _parse_rule(raw: Any) -> Iterator[DrainRule]:
    """Yield a rule, once for each of its selections of pods: whichever of them is about a pod, it says the same."""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("name"), str) or not raw["name"]:
        yield _invalid_annotation_rule(f"found {_format_value(raw)}, expected a rule with a name")
        return
    name, source = raw["name"], f"MachineDrainRule {raw['name']}"
    try:
        selections = list(_parse_selections(raw.get("pods")))
    except _InvalidRule as invalid:
        yield DrainRule(name=name, source=source, problem=str(invalid))
        return
    problem = _rule_problem(raw)
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
    """Return what cannot be read of what a rule says."""
    if problem := raw.get("problem"):
        return str(problem)
    if unknown := [key for key in raw if key not in _KEYS]:
        return f"{unknown[0]}: unknown, expected one of {', '.join(_KEYS[:4])}"
    if raw.get("behavior") not in list(Behavior):
        return f"behavior: found {_format_value(raw.get('behavior'))}, expected one of {', '.join(Behavior)}"
    return "" if raw.get("order") is None else _order_problem(raw["order"], raw["behavior"])


def _order_problem(order: Any, behavior: str) -> str:
    if not isinstance(order, int) or isinstance(order, bool) or order not in _VALID_ORDERS:
        return (
            f"order: found {_format_value(order)}, expected a whole number "
            f"from {_VALID_ORDERS.start} to {_VALID_ORDERS.stop - 1}"
        )
    if behavior != Behavior.DRAIN:
        return f"order: found with behavior {behavior}, expected only with {Behavior.DRAIN}"
    return ""


def _parse_selections(raw: Any) -> Iterator[tuple[Selector, Selector | None]]:
    """Yield which pods are meant: by their labels, and by those of their namespace."""
    if raw is None or raw == []:
        yield EVERYTHING, None
        return
    if not isinstance(raw, list):
        raise _InvalidRule(f"pods: found {_format_value(raw)}, expected a list")
    for number, selection in enumerate(raw):
        match selection:
            case {**keys} if keys.keys() <= {"selector", "namespaceSelector"}:
                pods = _parse_selector(keys.get("selector"), f"pods[{number}].selector")
                namespaces = _parse_selector(keys.get("namespaceSelector"), f"pods[{number}].namespaceSelector")
                yield pods, namespaces if namespaces.requirements else None
            case _:
                expected = "selector and namespaceSelector"
                raise _InvalidRule(f"pods[{number}]: found {_format_value(selection)}, expected {expected}")


def _parse_selector(raw: Any, path: str) -> Selector:
    if raw is None:
        return EVERYTHING
    if not isinstance(raw, Mapping):
        raise _InvalidRule(f"{path}: found {_format_value(raw)}, expected matchLabels and matchExpressions")
    try:
        return selectors.from_label_selector(raw)
    except SelectorError as error:
        raise _InvalidRule(f"{path}.{error}") from None


def _invalid_annotation_rule(problem: str) -> DrainRule:
    """Return a rule that is about all pods, before all others."""
    return DrainRule(name="", source=_ANNOTATION, problem=problem)


def _format_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
