"""How Cluster API empties a node: which pods leave, in what order, and which are waited for. Pure.

What a pod's label `cluster.x-k8s.io/drain` says goes before any MachineDrainRule; of the rules that hold for a Machine
and a pod the first by name counts. Pods of a lower order are gone before those of a higher one are touched.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.kinds.clusterapi import DRAIN
from haulout_sandbox.clusterapi.objects import Cluster, DrainRule, HowToDrain, Machine, MachineChoice, PodChoice
from haulout_sandbox.controllers.objects import LabelSelector, Pod

_MIRROR = "kubernetes.io/config.mirror"
_BY_LABEL = {"skip": HowToDrain(behavior="Skip"), "wait-completed": HowToDrain(behavior="WaitCompleted")}
_USUAL = HowToDrain()
_GIVEN_UP_AFTER = timedelta(minutes=5)  # of a pod on a node that nobody hears of

Namespaces = Mapping[str, Mapping[str, str]]  # their labels, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What there is to do about the pods of a node."""

    evicted: tuple[Pod, ...] = ()  # now
    awaited: tuple[Pod, ...] = ()  # they end by themselves, or are ending
    later: tuple[Pod, ...] = ()

    @property
    def is_done(self) -> bool:
        """Tell whether the node is empty."""
        return not (self.evicted or self.awaited or self.later)

    @property
    def message(self) -> str:
        """What it waits for, for people."""
        told = {"to evict": self.evicted, "to wait for": self.awaited, "for later": self.later}
        return "; ".join(f"{len(pods)} {what}: {_listed(pods)}" for what, pods in told.items() if pods)


def rules_for(machine: Machine, cluster: Cluster | None, rules: Iterable[DrainRule]) -> list[DrainRule]:
    """Return the rules that hold for a Machine, in the order in which they count."""
    labels = {} if cluster is None else cluster.labels
    here = (it for it in rules if it.namespace == machine.namespace)
    return sorted((it for it in here if _is_for(it.spec.machines, machine, labels)), key=lambda it: it.name)


def planned(
    pods: Iterable[Pod], rules: Sequence[DrainRule], namespaces: Namespaces, *, is_silent: bool, now: datetime
) -> Plan:
    """Return what there is to do; `is_silent` is a node that nobody hears of, which ends no pod any more."""
    left = [
        (how, pod)
        for pod in sorted(pods, key=lambda it: it.key)
        if not _stays(pod) and not (is_silent and _is_given_up(pod, now))
        if (how := how_to_drain(pod, rules, namespaces)).behavior != "Skip"
    ]
    first = min((how.order for how, _ in left), default=0)
    now_due = [(how, pod) for how, pod in left if how.order == first]
    return Plan(
        evicted=tuple(pod for how, pod in now_due if how.behavior == "Drain" and not pod.deleting),
        awaited=tuple(pod for how, pod in now_due if how.behavior == "WaitCompleted" or pod.deleting),
        later=tuple(pod for how, pod in left if how.order != first),
    )


def how_to_drain(pod: Pod, rules: Sequence[DrainRule], namespaces: Namespaces) -> HowToDrain:
    """Return what becomes of a pod."""
    label = _BY_LABEL.get(pod.labels.get(DRAIN, "").lower())
    if label is not None:
        return label
    return next((it.spec.drain for it in rules if _is_about(it.spec.pods, pod, namespaces)), _USUAL)


def _is_for(choices: Sequence[MachineChoice], machine: Machine, of_cluster: Mapping[str, str]) -> bool:
    fits = (_fits(it.selector, machine.labels) and _fits(it.cluster_selector, of_cluster) for it in choices)
    return not choices or any(fits)


def _is_about(choices: Sequence[PodChoice], pod: Pod, namespaces: Namespaces) -> bool:
    labels = namespaces.get(pod.namespace, {})
    fits = (_fits(it.selector, pod.labels) and _fits(it.namespace_selector, labels) for it in choices)
    return not choices or any(fits)


def _fits(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    return selector is None or selector.matches(labels)


def _stays(pod: Pod) -> bool:
    owner = pod.controller
    return _MIRROR in pod.metadata.annotations or pod.finished or (owner is not None and owner.kind == "DaemonSet")


def _is_given_up(pod: Pod, now: datetime) -> bool:
    ends = pod.metadata.deletion_timestamp
    return ends is not None and now - ends >= _GIVEN_UP_AFTER


def _listed(pods: Sequence[Pod]) -> str:
    shown = ", ".join(it.key for it in pods[:3])
    return f"{shown}, ..." if len(pods) > 3 else shown  # noqa: PLR2004 - as many as are shown
