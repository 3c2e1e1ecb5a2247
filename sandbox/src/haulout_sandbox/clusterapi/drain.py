"""Decisions of Cluster API's node drain: which pods are evicted, in what order, and which are waited for. Pure.

A pod's label `cluster.x-k8s.io/drain` takes precedence over MachineDrainRules. Of the rules that match a Machine and a
pod, the first by name applies. Pods of a lower order are gone before those of a higher order are evicted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.clusterapi import DRAIN
from haulout_sandbox.clusterapi.objects import (
    Cluster,
    Machine,
    MachineDrainRule,
    MachineDrainRuleDrainConfig,
    MachineDrainRuleMachineSelector,
    MachineDrainRulePodSelector,
)
from haulout_sandbox.controllers.objects import Pod
from haulout_sandbox.nodes.pod_spec import LabelSelector

_MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_BY_LABEL = {
    "skip": MachineDrainRuleDrainConfig(behavior="Skip"),
    "wait-completed": MachineDrainRuleDrainConfig(behavior="WaitCompleted"),
}
_DEFAULT_DRAIN = MachineDrainRuleDrainConfig()
_SKIP_TERMINATING_AFTER = timedelta(minutes=5)  # for a pod on an unreachable node

Namespaces = Mapping[str, Mapping[str, str]]  # labels of namespaces, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainDecision:
    """What to do about the pods of a node."""

    to_evict: tuple[Pod, ...] = ()  # evict now
    to_wait_for: tuple[Pod, ...] = ()  # completing by themselves, or terminating
    for_later: tuple[Pod, ...] = ()

    @property
    def is_done(self) -> bool:
        return not (self.to_evict or self.to_wait_for or self.for_later)

    @property
    def message(self) -> str:
        """Return what the drain waits for, as text."""
        groups = {"to evict": self.to_evict, "to wait for": self.to_wait_for, "for later": self.for_later}
        return "; ".join(f"{len(pods)} {what}: {_format_pods(pods)}" for what, pods in groups.items() if pods)


def rules_for(machine: Machine, cluster: Cluster | None, rules: Iterable[MachineDrainRule]) -> list[MachineDrainRule]:
    """Return the rules that match a Machine, in order of precedence."""
    labels = {} if cluster is None else cluster.labels
    same_namespace = (rule for rule in rules if rule.namespace == machine.namespace)
    return sorted(
        (rule for rule in same_namespace if _selects_machine(rule.spec.machines, machine, labels)),
        key=lambda rule: rule.name,
    )


def decide_drain(
    pods: Iterable[Pod],
    rules: Sequence[MachineDrainRule],
    namespaces: Namespaces,
    *,
    is_unreachable: bool,
    now: datetime,
) -> DrainDecision:
    """Return the next step of the drain; an `is_unreachable` node no longer terminates its pods."""
    remaining = [
        (behavior, pod)
        for pod in sorted(pods, key=lambda pod_candidate: pod_candidate.key)
        if not _is_ignored(pod) and not (is_unreachable and _is_skipped(pod, now))
        if (behavior := drain_behavior(pod, rules, namespaces)).behavior != "Skip"
    ]
    lowest_order = min((behavior.order for behavior, _ in remaining), default=0)
    now_due = [(behavior, pod) for behavior, pod in remaining if behavior.order == lowest_order]
    return DrainDecision(
        to_evict=tuple(pod for behavior, pod in now_due if behavior.behavior == "Drain" and not pod.is_being_deleted),
        to_wait_for=tuple(
            pod for behavior, pod in now_due if behavior.behavior == "WaitCompleted" or pod.is_being_deleted
        ),
        for_later=tuple(pod for behavior, pod in remaining if behavior.order != lowest_order),
    )


def drain_behavior(pod: Pod, rules: Sequence[MachineDrainRule], namespaces: Namespaces) -> MachineDrainRuleDrainConfig:
    """Return the drain behavior of a pod."""
    labeled = _BY_LABEL.get(pod.labels.get(DRAIN, "").lower())
    if labeled is not None:
        return labeled
    return next((rule.spec.drain for rule in rules if _selects_pod(rule.spec.pods, pod, namespaces)), _DEFAULT_DRAIN)


def _selects_machine(
    selectors: Sequence[MachineDrainRuleMachineSelector], machine: Machine, cluster_labels: Mapping[str, str]
) -> bool:
    matches = (
        _matches(selector.selector, machine.labels) and _matches(selector.cluster_selector, cluster_labels)
        for selector in selectors
    )
    return not selectors or any(matches)


def _selects_pod(selectors: Sequence[MachineDrainRulePodSelector], pod: Pod, namespaces: Namespaces) -> bool:
    labels = namespaces.get(pod.namespace, {})
    matches = (
        _matches(selector.selector, pod.labels) and _matches(selector.namespace_selector, labels)
        for selector in selectors
    )
    return not selectors or any(matches)


def _matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    return selector is None or selector.matches(labels)


def _is_ignored(pod: Pod) -> bool:
    owner = pod.controller
    return (
        _MIRROR_ANNOTATION in pod.metadata.annotations
        or pod.is_finished
        or (owner is not None and owner.kind == "DaemonSet")
    )


def _is_skipped(pod: Pod, now: datetime) -> bool:
    deletion_time = pod.metadata.deletion_timestamp
    return deletion_time is not None and now - deletion_time >= _SKIP_TERMINATING_AFTER


def _format_pods(pods: Sequence[Pod]) -> str:
    names = ", ".join(pod.key for pod in pods[:3])
    return f"{names}, ..." if len(pods) > 3 else names  # noqa: PLR2004 - as many as are shown
