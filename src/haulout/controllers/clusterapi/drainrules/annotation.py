"""Which MachineDrainRules hold for a Machine, as its Node is to carry them. Pure.

    held = held_for(rules_of_the_namespace, cluster=cluster.metadata.labels, machine=machine.metadata.labels)
    held.text       what the annotation `haulout.dev/machine-drain-rules` of the Node is to be; None: not there
    held.problem    for people, an event on the Machine: why pods will wait; mostly empty

The rules are objects of the management cluster, and pods leave in the workload cluster: what holds for a Machine goes
to its Node, and whoever drains that honours it (`haulout.drain.machine_drain_rules`). It is the same text for the same
rules, whatever order they come in, so that nothing is written unless something changed.

When in doubt nobody leaves. A rule of which cannot be told whether it holds is written with what is wrong about it, and
pods that it is about wait. Rules that are too many for an annotation make all pods wait.
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
    """What a Node is to carry."""

    text: str | None = None
    problem: str = ""


class _UndecidedRule(ValueError):
    """It cannot be told whether a rule holds."""


def build_annotation(
    rules: Iterable[MachineDrainRule], *, cluster: Labels | None, machine: Labels
) -> DrainRulesAnnotation:
    """Return the rules of a Machine's namespace that hold for it, by its labels and its Cluster's; None: not known."""
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
    problem = f"{len(documents)} MachineDrainRules hold, and take {size} bytes, expected at most {MAX_BYTES}"
    return DrainRulesAnnotation(_encode({"problem": problem}), problem)


def permissions() -> tuple[Permission, ...]:
    """Return what is needed to follow the rules."""
    return (Permission(("list", "watch"), GROUP, "machinedrainrules", None, "honour MachineDrainRules"),)


def _applies(rule: MachineDrainRule, cluster: Labels | None, machine: Labels) -> bool:
    """Tell whether one of the selections of a rule means the Machine; one that cannot be read may do so."""
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
    """Tell whether a selector means an object; one that is not there does."""
    try:
        return selectors.from_label_selector(selector or {}).matches(labels)
    except SelectorError as error:
        full_path = f"{path}.{error.path}" if error.path else path
        raise SelectorError(error.problem, path=full_path) from None


def _rule_document(rule: MachineDrainRule) -> RawObject:
    """Return what a rule says of pods; of which Machines it says so is settled."""
    document: RawObject = {"name": rule.name, "behavior": rule.spec.drain.behavior}
    if rule.spec.drain.order is not None:
        document["order"] = rule.spec.drain.order
    if rule.spec.pods:
        document["pods"] = msgspec.to_builtins(rule.spec.pods)
    return document


def _encode(document: RawObject) -> str:
    return msgspec.json.encode(document, order="sorted").decode()
