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

from haulout.drain.policy import Behavior, Policy, Rule
from haulout.kinds.clusterapi import DRAIN, DRAIN_RULES
from haulout.kube import selectors
from haulout.kube.objects import Node, Pod
from haulout.kube.selectors import EVERYTHING, Selector, SelectorError

_KEYS = ("name", "behavior", "order", "pods", "problem")
_ORDERS = range(-(2**31), 2**31)
_SHOWN = 80
_BY_LABEL = f"label {DRAIN}"
_ANNOTATION = f"annotation {DRAIN_RULES} of the node"


class _Wrong(ValueError):
    """What cannot be read, and what was expected."""


def honoured(policy: Policy, node: Node) -> Policy:
    """Return a policy that keeps to the rules of the node's Machine, too."""
    rules = read(node.metadata.annotations.get(DRAIN_RULES, ""))
    return policy if policy.machine_rules == rules else replace(policy, machine_rules=rules)


def wish_of(pod: Pod) -> Rule | None:
    """Return what the label of a pod says, None without one."""
    value = pod.metadata.labels.get(DRAIN)
    return None if value is None else _labelled(value)


@lru_cache(maxsize=64)
def _labelled(value: str) -> Rule:
    """Return what a value of the label means; as in Cluster API case does not count, nor does the dash."""
    meant = {"skip": Behavior.SKIP, "wait-completed": Behavior.WAIT_COMPLETED, "waitcompleted": Behavior.WAIT_COMPLETED}
    behavior = meant.get(value.lower())
    if behavior is not None:
        return Rule(name=DRAIN, behavior=behavior, by=f"{_BY_LABEL}={value}")
    return Rule(name=DRAIN, by=_BY_LABEL, problem=f"found {value!r}, expected skip or wait-completed")


@lru_cache(maxsize=256)
def read(text: str) -> tuple[Rule, ...]:
    """Return the rules that an annotation holds, in their order; one that cannot be read keeps what it may be about."""
    if not text:
        return ()
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return (_unreadable(f"it is no JSON: {error}"),)
    match document:
        case {"rules": list(rules), **rest} if not rest:
            found = [rule for each in rules for rule in _rules(each)]
            return tuple(sorted(found, key=lambda rule: rule.name))
        case {"problem": str(problem), **rest} if problem and not rest:
            return (_unreadable(problem),)
    return (_unreadable(f"found {_shown(document)}, expected rules"),)


def _rules(raw: Any) -> Iterator[Rule]:
    """Yield a rule, once for each of its selections of pods: whichever of them is about a pod, it says the same."""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("name"), str) or not raw["name"]:
        yield _unreadable(f"found {_shown(raw)}, expected a rule with a name")
        return
    name, by = raw["name"], f"MachineDrainRule {raw['name']}"
    try:
        selections = list(_selections(raw.get("pods")))
    except _Wrong as wrong:
        yield Rule(name=name, by=by, problem=str(wrong))
        return
    problem = _problem(raw)
    behavior = Behavior.DRAIN if problem else Behavior(raw["behavior"])
    for pods, namespaces in selections:
        yield Rule(
            name=name,
            pods=pods,
            namespace_selector=namespaces,
            behavior=behavior,
            order=None if problem else raw.get("order"),
            by=by,
            problem=problem,
        )


def _problem(raw: Mapping[str, Any]) -> str:
    """Return what cannot be read of what a rule says."""
    if problem := raw.get("problem"):
        return str(problem)
    if unknown := [key for key in raw if key not in _KEYS]:
        return f"{unknown[0]}: unknown, expected one of {', '.join(_KEYS[:4])}"
    if raw.get("behavior") not in list(Behavior):
        return f"behavior: found {_shown(raw.get('behavior'))}, expected one of {', '.join(Behavior)}"
    return "" if raw.get("order") is None else _problem_of_order(raw["order"], raw["behavior"])


def _problem_of_order(order: Any, behavior: str) -> str:
    if not isinstance(order, int) or isinstance(order, bool) or order not in _ORDERS:
        return f"order: found {_shown(order)}, expected a whole number from {_ORDERS.start} to {_ORDERS.stop - 1}"
    if behavior != Behavior.DRAIN:
        return f"order: found with behavior {behavior}, expected only with {Behavior.DRAIN}"
    return ""


def _selections(raw: Any) -> Iterator[tuple[Selector, Selector | None]]:
    """Yield which pods are meant: by their labels, and by those of their namespace."""
    if raw is None or raw == []:
        yield EVERYTHING, None
        return
    if not isinstance(raw, list):
        raise _Wrong(f"pods: found {_shown(raw)}, expected a list")
    for number, each in enumerate(raw):
        match each:
            case {**keys} if keys.keys() <= {"selector", "namespaceSelector"}:
                pods = _selector(keys.get("selector"), f"pods[{number}].selector")
                namespaces = _selector(keys.get("namespaceSelector"), f"pods[{number}].namespaceSelector")
                yield pods, namespaces if namespaces.requirements else None
            case _:
                expected = "selector and namespaceSelector"
                raise _Wrong(f"pods[{number}]: found {_shown(each)}, expected {expected}")


def _selector(raw: Any, path: str) -> Selector:
    if raw is None:
        return EVERYTHING
    if not isinstance(raw, Mapping):
        raise _Wrong(f"{path}: found {_shown(raw)}, expected matchLabels and matchExpressions")
    try:
        return selectors.from_object(raw)
    except SelectorError as error:
        raise _Wrong(f"{path}.{error}") from None


def _unreadable(problem: str) -> Rule:
    """Return a rule that is about all pods, before all others."""
    return Rule(name="", by=_ANNOTATION, problem=problem)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
