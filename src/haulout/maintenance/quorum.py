"""Whether etcd keeps its quorum when a control-plane node goes.

Two ways to tell, both pure. On OpenShift the guard pods of etcd and their disruption budget say it, by the rules of the
Node Maintenance Operator. Elsewhere the members themselves are counted: their static pods, as kubeadm, RKE2 and kops
make them, or the pods of a budget about etcd.

A member counts as down when its pod is not ready or going, when its node is gone or not ready, and when its node is in
maintenance, however well it may still look: whoever was let in a moment ago has not shut down anything yet. A member
that is down already can go.

A judgement says why, with numbers and names. What cannot be told is said, too, and is no refusal.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from haulout.drain.budgets import Budget
from haulout.kube import selectors
from haulout.kube.objects import Condition, Node, Pod
from haulout.kube.selectors import Requirement, Selector, SelectorError

CONTROL_PLANE = ("node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane")
OPENSHIFT_ETCD = "openshift-etcd"
KUBE_SYSTEM = "kube-system"

MEMBERS = (  # what static pods of etcd are labelled with: by kubeadm and RKE2; by kops, which runs two clusters
    "component=etcd",
    "k8s-app in (etcd-manager-main,etcd-manager-events)",
)
_CLUSTER_LABELS = ("component", "k8s-app")  # whose value tells clusters of etcd apart
_ABOUT_ETCD = ("etcd", "etcd-manager-main", "etcd-manager-events")

Maintained = Mapping[str, str]
"""Nodes in maintenance, and the name of the NodeMaintenance."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether the node may go; `why` is a sentence without an end mark, and empty if there is nothing to say."""

    allowed: bool
    why: str = ""
    bare: bool = False  # a refusal's text is one that others match on: why goes beside it


class QuorumUnknown(ValueError):
    """The check could not be made: what there is makes no sense."""


def is_control_plane(node: Node) -> bool:
    """Tell whether a node is of the control plane: by its labels, whatever their value."""
    return any(label in node.metadata.labels for label in CONTROL_PLANE)


def refusal(node: str) -> str:
    """Return the sentence with which a node is refused, which others match on."""
    disrupting = f"disrupting node {node} will violate etcd quorum"
    return f"can not put master/control-plane node into maintenance at this moment, {disrupting}"


# On OpenShift


def on_openshift(
    node: str, budgets: Sequence[Budget], pods: Sequence[Pod], *, maintained: Maintained | None = None
) -> Judgement:
    """Judge by the budgets and the pods in `OPENSHIFT_ETCD`; raise `QuorumUnknown` if a selector is not a plain one."""
    if len(budgets) != 1:
        found = ", ".join(it.name for it in budgets) or "none"
        return Judgement(False, f"expected one PodDisruptionBudget in {OPENSHIFT_ETCD}, found {found}", bare=True)
    (budget,) = budgets
    allowed = budget.status.disruptions_allowed
    leaving = _leaving(budget, pods, others={*(maintained or ())} - {node})
    if allowed - len(leaving) >= 1:
        return Judgement(True)
    selector = _plain(budget)
    here = [it for it in pods if it.spec.node_name == node and _stands(it) and selector.matches(it.metadata.labels)]
    if not here:
        return Judgement(True)
    taken = f", which {_joined(leaving)} in maintenance will use" if leaving else ""
    why = f"PodDisruptionBudget {budget.key} allows {_disruptions(allowed)}{taken}, and pod {here[0].key} is up"
    return Judgement(False, why, bare=True)


def _leaving(budget: Budget, pods: Sequence[Pod], *, others: Collection[str]) -> list[str]:
    """Return the nodes in maintenance whose guard is still up: the budget does not know yet that it will go."""
    if not others:
        return []
    selector = _selector(budget)
    guarded = {it.spec.node_name for it in pods if _stands(it) and selector.matches(it.metadata.labels)}
    return sorted(guarded.intersection(others))


def _plain(budget: Budget) -> Selector:
    """Return whom a budget is about, if that can be said by labels alone; without a selector it is everybody."""
    selector = _selector(budget)
    for it in selector.requirements:
        if it.operator != "In" or len(it.values) != 1:
            raise QuorumUnknown(
                f"PodDisruptionBudget {budget.key} selects its pods by more than labels ({it}), which the check of "
                "etcd's quorum does not support"
            )
    return selector


def _selector(budget: Budget) -> Selector:
    try:
        return selectors.from_object(budget.spec.selector or {})
    except SelectorError as error:
        raise QuorumUnknown(f"the selector of PodDisruptionBudget {budget.key} makes no sense: {error}") from None


def _stands(pod: Pod) -> bool:
    """Tell whether a guard is up as far as is known; one that never said so is not."""
    return _status(pod.status.conditions, "Ready") in ("True", "Unknown")


# Elsewhere


def about_etcd(budgets: Sequence[Budget]) -> list[Selector]:
    """Return what those budgets select that are about etcd."""
    found = []
    for budget in budgets:
        try:
            selector = _selector(budget)
        except QuorumUnknown:
            continue  # somebody else's trouble: a budget that selects nobody
        if any(_names_etcd(it) for it in selector.requirements):
            found.append(selector)
    return found


def _names_etcd(requirement: Requirement) -> bool:
    return requirement.operator == "In" and any(value in _ABOUT_ETCD for value in requirement.values)


def elsewhere(
    node: str, members: Sequence[Pod], nodes: Mapping[str, Node | None], *, maintained: Maintained | None = None
) -> Judgement:
    """Judge by the members themselves and the nodes that they are on; None is a node that does not exist."""
    if not members:
        return Judgement(True, f"no etcd pods found in {KUBE_SYSTEM}: whether etcd can do without {node} is not known")
    for name, pods in _clusters(members).items():
        states = {pod.spec.node_name: _trouble(pod, nodes, maintained or {}) for pod in pods}
        judgement = _judge(name, node, states)
        if not judgement.allowed:
            return judgement
    return Judgement(True)


def _clusters(members: Sequence[Pod]) -> dict[str, list[Pod]]:
    clusters: dict[str, list[Pod]] = {}
    for pod in sorted({it.uid: it for it in members}.values(), key=lambda it: it.spec.node_name):
        labels = pod.metadata.labels
        named = (labels[label] for label in _CLUSTER_LABELS if labels.get(label) in _ABOUT_ETCD)
        clusters.setdefault(next(named, "etcd"), []).append(pod)
    return clusters


def _judge(cluster: str, node: str, states: Mapping[str, str]) -> Judgement:
    """Judge by what is wrong with the member on each node, which is nothing (empty) if it is up."""
    if states.get(node, "no member"):
        return Judgement(True)
    others = {name: trouble for name, trouble in states.items() if name != node}
    up = [name for name, trouble in others.items() if not trouble]
    needed = len(states) // 2 + 1
    if len(up) >= needed:
        return Judgement(True)
    told = [f"{name} is up" for name in up] + [f"{name} {trouble}" for name, trouble in others.items() if trouble]
    listed = f" ({'; '.join(told)})" if told else ""
    has = "1 member" if len(states) == 1 else f"{len(states)} members"
    return Judgement(False, f"{cluster} has {has} and needs {needed}, without {node} it would have {len(up)}{listed}")


def _trouble(pod: Pod, nodes: Mapping[str, Node | None], maintained: Maintained) -> str:
    name = pod.spec.node_name
    node = nodes.get(name)
    if name in maintained:
        return f"is in maintenance by NodeMaintenance {maintained[name]}"
    if node is None:
        return "does not exist"
    if _status(node.status.conditions, "Ready") != "True":
        return "is not ready"
    if pod.metadata.deletion_timestamp is not None:
        return f"has {pod.name}, which is going"
    if _status(pod.status.conditions, "Ready") != "True":
        return f"has {pod.name}, which is not ready"
    return ""


def _status(conditions: Collection[Condition], wanted: str) -> str:
    return next((it.status for it in conditions if it.type == wanted), "")


def _disruptions(count: int) -> str:
    return "1 disruption" if count == 1 else f"{count} disruptions"


def _joined(names: Sequence[str]) -> str:
    return " and ".join(names)
