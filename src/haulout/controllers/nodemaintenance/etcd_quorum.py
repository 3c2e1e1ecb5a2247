"""Whether etcd keeps its quorum without a control-plane node.

    result = await check_quorum(client, node, nodes_in_maintenance={"n3": "disk-swap"})

There are two checks, both pure. On OpenShift, the etcd guard pods and their PodDisruptionBudget decide, by the rules of
the Node Maintenance Operator. Elsewhere, the members are counted: the static pods of kubeadm, RKE2 and kops, or the
pods of a PodDisruptionBudget for etcd.

A member counts as down when its pod is terminating or not ready, when its node is missing or not ready, and when its
node is in maintenance, however healthy it looks: a maintenance that was admitted a moment ago has not shut anything
down yet. A node whose member is down already may go. A result gives the reason with numbers and names. An unknown state
is reported as a reason, and is no refusal.

`check_quorum` reads everything from the API server, and only for control-plane nodes, which are few: with a cache that
is seconds old, two nodes could be admitted at once. Whether the cluster is OpenShift is looked up each time as well:
that is one small request, and a cluster whose APIs were not yet up when the operator started is not misjudged for ever.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from haulout.api.objects import Condition, Node, Pod
from haulout.api.resources import NODES, PODS
from haulout.drain.pdb_simulation import POD_DISRUPTION_BUDGETS, PodDisruptionBudget
from haulout.errors import NotFound
from haulout.kube import selectors
from haulout.kube.client import Client
from haulout.kube.selectors import Requirement, Selector, SelectorError
from haulout.kube.transport import Request

CONTROL_PLANE = ("node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane")
OPENSHIFT_ETCD = "openshift-etcd"
KUBE_SYSTEM = "kube-system"

# Labels of etcd's static pods: kubeadm and RKE2; kops, which runs two etcd clusters.
MEMBER_SELECTORS = (
    "component=etcd",
    "k8s-app in (etcd-manager-main,etcd-manager-events)",
)
_CLUSTER_LABELS = ("component", "k8s-app")  # their values tell etcd clusters apart
_ETCD_LABEL_VALUES = ("etcd", "etcd-manager-main", "etcd-manager-events")

# Nodes in maintenance, and the name of the NodeMaintenance.
NodesInMaintenance = Mapping[str, str]

_OPENSHIFT = "/apis/config.openshift.io/v1"


@dataclass(frozen=True, slots=True)
class QuorumResult:
    """Whether the node may go. `reason` is a sentence without a full stop, or empty."""

    allowed: bool
    reason: str = ""
    is_fixed_text: bool = False  # scripts match on the refusal message, so the reason becomes a warning


class QuorumUnknown(ValueError):
    """The check is impossible because of an invalid or unsupported selector."""


def is_control_plane(node: Node) -> bool:
    """Return whether a node has a control-plane label, whatever its value."""
    return any(label in node.metadata.labels for label in CONTROL_PLANE)


def refusal_message(node: str) -> str:
    """Return the refusal message, on which users of the Node Maintenance Operator match."""
    disrupting = f"disrupting node {node} will violate etcd quorum"
    return f"can not put master/control-plane node into maintenance at this moment, {disrupting}"


# OpenShift


def check_openshift(
    node: str,
    pdbs: Sequence[PodDisruptionBudget],
    pods: Sequence[Pod],
    *,
    nodes_in_maintenance: NodesInMaintenance | None = None,
) -> QuorumResult:
    """Check by the PodDisruptionBudget and guard pods in `OPENSHIFT_ETCD`.

    Raise `QuorumUnknown` for unsupported selectors.
    """
    if len(pdbs) != 1:
        found = ", ".join(item.name for item in pdbs) or "none"
        return QuorumResult(
            False, f"expected one PodDisruptionBudget in {OPENSHIFT_ETCD}, found {found}", is_fixed_text=True
        )
    (pdb,) = pdbs
    allowed = pdb.status.disruptions_allowed
    leaving = _nodes_with_leaving_guard(pdb, pods, others={*(nodes_in_maintenance or ())} - {node})
    if allowed - len(leaving) >= 1:
        return QuorumResult(True)
    selector = _plain_selector(pdb)
    running_guards = [
        item for item in pods if item.spec.node_name == node and _is_up(item) and selector.matches(item.metadata.labels)
    ]
    if not running_guards:
        return QuorumResult(True)
    reserved_text = f", which {_join_names(leaving)} in maintenance will use" if leaving else ""
    reason = (
        f"PodDisruptionBudget {pdb.key} allows {_format_disruptions(allowed)}{reserved_text}, "
        f"and pod {running_guards[0].key} is up"
    )
    return QuorumResult(False, reason, is_fixed_text=True)


def _nodes_with_leaving_guard(pdb: PodDisruptionBudget, pods: Sequence[Pod], *, others: Collection[str]) -> list[str]:
    """Return the nodes in maintenance whose guard pod is still up: the PodDisruptionBudget does not count them yet."""
    if not others:
        return []
    selector = _selector(pdb)
    guarded = {pod.spec.node_name for pod in pods if _is_up(pod) and selector.matches(pod.metadata.labels)}
    return sorted(guarded.intersection(others))


def _plain_selector(pdb: PodDisruptionBudget) -> Selector:
    """Return a selector that consists of labels only, as the check requires.

    Without a selector, it selects all pods.
    """
    selector = _selector(pdb)
    for requirement in selector.requirements:
        if requirement.operator != "In" or len(requirement.values) != 1:
            raise QuorumUnknown(
                f"PodDisruptionBudget {pdb.key} selects its pods by "
                f"more than labels ({requirement}), which the check of "
                "etcd's quorum does not support"
            )
    return selector


def _selector(pdb: PodDisruptionBudget) -> Selector:
    try:
        return selectors.from_label_selector(pdb.spec.selector or {})
    except SelectorError as error:
        raise QuorumUnknown(f"the selector of PodDisruptionBudget {pdb.key} is invalid: {error}") from None


def _is_up(pod: Pod) -> bool:
    """Return whether a guard pod is up. Condition Ready with status Unknown counts as up, no condition does not."""
    return _condition_status(pod.status.conditions, "Ready") in ("True", "Unknown")


# Other clusters


def etcd_selectors(pdbs: Sequence[PodDisruptionBudget]) -> list[Selector]:
    """Return the selectors of all PodDisruptionBudgets for etcd."""
    found = []
    for pdb in pdbs:
        try:
            selector = _selector(pdb)
        except QuorumUnknown:
            continue  # an invalid selector selects no pod, so this PodDisruptionBudget does not matter here
        if any(_names_etcd(requirement) for requirement in selector.requirements):
            found.append(selector)
    return found


def _names_etcd(requirement: Requirement) -> bool:
    return requirement.operator == "In" and any(value in _ETCD_LABEL_VALUES for value in requirement.values)


def check_members(
    node: str,
    members: Sequence[Pod],
    nodes: Mapping[str, Node | None],
    *,
    nodes_in_maintenance: NodesInMaintenance | None = None,
) -> QuorumResult:
    """Check by the member pods and their nodes. A node that does not exist is None."""
    if not members:
        return QuorumResult(
            True, f"no etcd pods found in {KUBE_SYSTEM}: cannot tell whether etcd keeps its quorum without {node}"
        )
    for name, pods in _clusters(members).items():
        problems = {pod.spec.node_name: _member_problem(pod, nodes, nodes_in_maintenance or {}) for pod in pods}
        result = _check_cluster(name, node, problems)
        if not result.allowed:
            return result
    return QuorumResult(True)


def _clusters(members: Sequence[Pod]) -> dict[str, list[Pod]]:
    clusters: dict[str, list[Pod]] = {}
    for pod in sorted({member.uid: member for member in members}.values(), key=lambda member: member.spec.node_name):
        labels = pod.metadata.labels
        named = (labels[label] for label in _CLUSTER_LABELS if labels.get(label) in _ETCD_LABEL_VALUES)
        clusters.setdefault(next(named, "etcd"), []).append(pod)
    return clusters


def _check_cluster(cluster: str, node: str, problems: Mapping[str, str]) -> QuorumResult:
    """Check one etcd cluster. `problems` has the problem of each node's member, empty if the member is up."""
    if problems.get(node, "no member"):
        return QuorumResult(True)
    others = {name: problem for name, problem in problems.items() if name != node}
    up = [name for name, problem in others.items() if not problem]
    # etcd needs a majority of all its members, whether they are up or not (etcd FAQ, "What is failure tolerance?").
    needed = len(problems) // 2 + 1
    if len(up) >= needed:
        return QuorumResult(True)
    descriptions = [f"{name} is up" for name in up] + [
        f"{name} {problem}" for name, problem in others.items() if problem
    ]
    listed = f" ({'; '.join(descriptions)})" if descriptions else ""
    member_count = "1 member" if len(problems) == 1 else f"{len(problems)} members"
    return QuorumResult(
        False, f"{cluster} has {member_count} and needs {needed}, without {node} it would have {len(up)}{listed}"
    )


def _member_problem(pod: Pod, nodes: Mapping[str, Node | None], nodes_in_maintenance: NodesInMaintenance) -> str:
    name = pod.spec.node_name
    node = nodes.get(name)
    if name in nodes_in_maintenance:
        return f"is in maintenance by NodeMaintenance {nodes_in_maintenance[name]}"
    if node is None:
        return "does not exist"
    if not node.is_ready:
        return "is not ready"
    if pod.is_being_deleted:
        return f"has {pod.name}, which is terminating"
    if not pod.is_ready:
        return f"has {pod.name}, which is not ready"
    return ""


def _condition_status(conditions: Collection[Condition], condition_type: str) -> str:
    return next((condition.status for condition in conditions if condition.type == condition_type), "")


def _format_disruptions(count: int) -> str:
    return "1 disruption" if count == 1 else f"{count} disruptions"


def _join_names(names: Sequence[str]) -> str:
    return " and ".join(names)


async def check_quorum(
    client: Client, node: Node, *, nodes_in_maintenance: NodesInMaintenance, check_without_openshift: bool = True
) -> QuorumResult | None:
    """Return whether a control-plane node may go. None for other nodes, and if the check is disabled.

    Raise `KubeError` if a lookup fails, and `QuorumUnknown` if the result makes no sense.
    """
    if not is_control_plane(node):
        return None
    if await is_openshift(client):
        budgets = await client.list(POD_DISRUPTION_BUDGETS, namespace=OPENSHIFT_ETCD)
        pods = await client.list(PODS, namespace=OPENSHIFT_ETCD)
        return check_openshift(node.name, budgets.items, pods.items, nodes_in_maintenance=nodes_in_maintenance)
    if not check_without_openshift:
        return None
    members = await _list_members(client)
    nodes = await _get_nodes(client, {pod.spec.node_name for pod in members})
    return check_members(node.name, members, nodes, nodes_in_maintenance=nodes_in_maintenance)


async def is_openshift(client: Client) -> bool:
    """Return whether the cluster serves OpenShift's configuration API."""
    try:
        await client.request(Request(method="GET", path=_OPENSHIFT), doing="asking whether this is OpenShift")
    except NotFound:
        return False
    return True


async def _list_members(client: Client) -> list[Pod]:
    budgets = await client.list(POD_DISRUPTION_BUDGETS, namespace=KUBE_SYSTEM)
    selectors = dict.fromkeys((*MEMBER_SELECTORS, *map(str, etcd_selectors(budgets.items))))
    return [
        pod for selector in selectors for pod in (await client.list(PODS, namespace=KUBE_SYSTEM, labels=selector)).items
    ]


async def _get_nodes(client: Client, names: Iterable[str]) -> dict[str, Node | None]:
    wanted = sorted(name for name in names if name)
    found = await asyncio.gather(*(client.find(NODES, name) for name in wanted))
    return dict(zip(wanted, found, strict=True))
