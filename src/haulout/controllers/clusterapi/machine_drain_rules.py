"""MachineDrainRules: watch those of a management cluster, and provide the annotation of each Machine's node.

    drain_rules = MachineDrainRuleInformer(client, events=events, on_change=controller.enqueue_all)
    controller.drain_rules = drain_rules.annotation_for
    await drain_rules.run((await controller.wait_for_machines()).resource.version)

If the cluster does not serve MachineDrainRules, since its Cluster API is too old, no rules apply. While the rules are
unknown (not listed yet, forbidden, or one of them cannot be decoded), nodes keep their annotation.

`build_annotation` is pure:

    result = build_annotation(rules, cluster=cluster.metadata.labels, machine=machine.metadata.labels)
    result.text       the annotation `haulout.dev/machine-drain-rules` of the Node; None: no annotation
    result.problem    for an event on the Machine: why pods will wait; usually empty

The rules are objects of the management cluster, and the drain happens in the workload cluster. So the rules that apply
to a Machine are copied to its Node, where the drain honours them (`haulout.drain.machine_drain_rules`). The text does
not depend on the order of the rules, so nothing is written unless a rule changed.

When in doubt pods stay. If it cannot be determined whether a rule applies, it is included with its problem, and the
pods that it selects wait. If the rules are too large for an annotation, all pods wait.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from haulout.api import clusterapi
from haulout.api.clusterapi import GROUP, Cluster, Machine, MachineDrainRule, MachineDrainRuleMachineSelector
from haulout.api.objects import RawObject
from haulout.api.reasons import HubEventReason
from haulout.core.backoff import Backoff
from haulout.kube import selectors
from haulout.kube.client import Client
from haulout.kube.discovery import wait_until_served
from haulout.kube.informer import Informer, as_is
from haulout.kube.rbac import Permission
from haulout.kube.recorder import EventRecorder, object_reference
from haulout.kube.reflector import ListWatch
from haulout.kube.selectors import SelectorError
from haulout.runtime.journal import Journal, Transition

_BY_NAMESPACE = "namespace"
_DISCOVERY_BACKOFF = Backoff(
    first=timedelta(seconds=30), limit=timedelta(minutes=5), jitter=0.2
)  # while MachineDrainRules are not served
_DEBOUNCE = timedelta(seconds=1)  # applying a folder of rules changes many at once

# Of our annotation. All annotations of an object together may have 256 KiB (TotalAnnotationSizeLimitB in
# staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go), and other people's are among them.
MAX_BYTES = 64 * 1024

Labels = Mapping[str, str]


class MachineDrainRuleInformer:
    """Watches the rules; `on_change` is called when they may have changed. Call `run` at most once."""

    def __init__(self, client: Client, *, events: EventRecorder, on_change: Callable[[], object]) -> None:
        self._client = client
        self._clock = client.clock
        self._journal = Journal("MachineDrainRules", events, metrics=client.metrics)
        self._on_change = on_change
        self._rules: Informer[MachineDrainRule] | None = None  # None until the informer has synced
        self._is_unsupported = False  # the cluster does not serve the resource
        self._has_changed = asyncio.Event()

    async def run(self, version: str) -> None:
        """Watch the rules until cancelled, in the API version of the Machines."""
        resource = clusterapi.machine_drain_rule_resource(version)
        await wait_until_served(
            self._client,
            resource,
            product="the MachineDrainRule API",
            backoff=_DISCOVERY_BACKOFF,
            on_absent=self._on_absent,
        )
        rules: Informer[MachineDrainRule] = Informer(
            self._client, ListWatch(resource), transform=as_is, indexes={_BY_NAMESPACE: lambda rule: [rule.namespace]}
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(rules.run())
            await rules.wait_synced()
            self._rules, self._is_unsupported = rules, False
            rules.subscribe(lambda *_: self._has_changed.set())
            self._has_changed.set()
            while True:
                await self._has_changed.wait()
                self._has_changed.clear()
                self._on_change()
                await self._clock.sleep(_DEBOUNCE)

    def annotation_for(self, machine: Machine, cluster: Cluster | None) -> str | None:
        """Return the annotation of a Machine's node. "": remove it. None: keep what is there."""
        if self._is_unsupported:
            return ""
        if self._rules is None or any(key.startswith(f"{machine.namespace}/") for key in self._rules.undecodable):
            return None
        rules = self._rules.by_index(_BY_NAMESPACE, machine.namespace)
        labels = None if cluster is None else cluster.metadata.labels
        selected = build_annotation(rules, cluster=labels, machine=machine.metadata.labels)
        self._report_problem(machine, selected.problem, self._rules.resource.version)
        return selected.text or ""

    def _on_absent(self) -> None:
        if not self._is_unsupported:
            self._is_unsupported = True
            self._on_change()

    def _report_problem(self, machine: Machine, problem: str, version: str) -> None:
        """Record one event that says why pods of a Machine will wait."""
        topic = (machine.key, "drain rules")
        if not problem:
            self._journal.clear(topic)
            return
        transition = Transition(
            regarding=(object_reference(clusterapi.machine_resource(version), machine),),
            subject=f"Machine {machine.key}",
            reason=HubEventReason.DRAIN_RULE_UNREADABLE,
            message=f"a drain of its node cannot evict all pods: {problem}",
            action="Drain",
            is_warning=True,
        )
        self._journal.record_once(topic, transition)


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
