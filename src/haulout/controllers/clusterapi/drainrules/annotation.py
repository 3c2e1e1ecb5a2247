"""The annotation of a Node with the MachineDrainRules that apply to its Machine. Pure.

    result = build_annotation(rules, cluster=cluster.metadata.labels, machine=machine.metadata.labels)
    result.text       the annotation `haulout.dev/machine-drain-rules` of the Node; None: no annotation
    result.problem    for an event on the Machine: why pods will wait; usually empty

The rules are objects of the management cluster, and the drain happens in the workload cluster. So the rules that apply
to a Machine are copied to its Node, where the drain honours them (`haulout.drain.machine_drain_rules`). The text does
not depend on the order of the rules, so nothing is written unless a rule changed.

When in doubt pods stay. If it cannot be determined whether a rule applies, it is included with its problem, and the
pods that it selects wait. If the rules are too large for an annotation, all pods wait.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from haulout.api.clusterapi import GROUP, MachineDrainRule, MachineDrainRuleMachineSelector
from haulout.api.objects import RawObject
from haulout.kube import selectors
from haulout.kube.rbac import Permission
from haulout.kube.selectors import SelectorError

MAX_BYTES = 64 * 1024
"""Of the annotation. All annotations of an object together may have 256 KiB, and other people's are among them."""

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DrainRulesAnnotation:
    """The annotation value for a Node, and a problem to report."""

    text: str | None = None
    problem: str = ""


class _UndecidedRule(ValueError):
    """It cannot be determined whether a rule applies."""


def build_annotation(
    rules: Iterable[MachineDrainRule], *, cluster: Labels | None, machine: Labels
) -> DrainRulesAnnotation:
    """Return the annotation for a Machine from the rules in its namespace.

    `cluster` are the labels of the Machine's Cluster; None: unknown.
    """
    documents, problems = [], []
    for rule in sorted(rules, key=lambda rule: rule.name):
        try:
            if _applies(rule, cluster, machine):
                documents.append(_rule_document(rule))
        except _UndecidedRule as undecided:
            documents.append(_rule_document(rule) | {"problem": str(undecided)})
            problems.append(f"MachineDrainRule {rule.name}: {undecided}")
    if not documents:
        return DrainRulesAnnotation()
    text = _encode({"rules": documents})
    size = len(text.encode())
    if size <= MAX_BYTES:
        return DrainRulesAnnotation(text, "; ".join(problems))
    problem = f"{len(documents)} MachineDrainRules apply, and take {size} bytes, expected at most {MAX_BYTES}"
    return DrainRulesAnnotation(_encode({"problem": problem}), problem)


def permissions() -> tuple[Permission, ...]:
    """Return the permissions to watch the rules."""
    return (Permission(("list", "watch"), GROUP, "machinedrainrules", None, "watch MachineDrainRules"),)


def _applies(rule: MachineDrainRule, cluster: Labels | None, machine: Labels) -> bool:
    """Return whether one of a rule's selectors matches the Machine; raise if one is invalid and none matches."""
    undecided: _UndecidedRule | None = None
    for number, selection in enumerate(rule.spec.machines):
        try:
            if _selects(selection, cluster, machine):
                return True
        except SelectorError as error:
            undecided = _UndecidedRule(f"spec.machines[{number}].{error}")
    if undecided is not None:
        raise undecided
    return not rule.spec.machines


def _selects(selection: MachineDrainRuleMachineSelector, cluster: Labels | None, machine: Labels) -> bool:
    if not _matches(selection.selector, machine, "selector"):
        return False
    if cluster is None and selection.cluster_selector:
        raise SelectorError("the labels of its Cluster are not known", path="clusterSelector")
    return _matches(selection.cluster_selector, cluster or {}, "clusterSelector")


def _matches(selector: RawObject | None, labels: Labels, path: str) -> bool:
    """Return whether a selector matches; an absent one does."""
    try:
        return selectors.from_label_selector(selector or {}).matches(labels)
    except SelectorError as error:
        full_path = f"{path}.{error.path}" if error.path else path
        raise SelectorError(error.problem, path=full_path) from None


def _rule_document(rule: MachineDrainRule) -> RawObject:
    """Return the part of a rule that is about pods; its Machine selectors were evaluated already."""
    document: RawObject = {"name": rule.name, "behavior": rule.spec.drain.behavior}
    if rule.spec.drain.order is not None:
        document["order"] = rule.spec.drain.order
    if rule.spec.pods:
        document["pods"] = msgspec.to_builtins(rule.spec.pods)
    return document


def _encode(document: RawObject) -> str:
    return msgspec.json.encode(document, order="sorted").decode()
