"""What there is in a sandbox, for the one who starts it: how much of what, and which drain a budget will stop."""

from collections.abc import Iterable
from dataclasses import dataclass

from haulout.kube.objects import RawObject
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.nodes.placement import CONTROL_PLANE, ZONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A node that cannot be drained, and the budget that is why."""

    node: str
    budget: str  # namespace/name


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What there is."""

    nodes: int
    zones: int
    pods: int
    running: int
    budgets: int
    first_node: str
    blocked: Blocked | None


def overview(api: ApiServer) -> Overview:
    """Count what there is now."""
    nodes, pods = api.objects("nodes"), api.objects("pods")
    budgets = api.objects("poddisruptionbudgets")
    live = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
    return Overview(
        nodes=len(nodes),
        zones=len({node["metadata"].get("labels", {}).get(ZONE) for node in nodes}),
        pods=len(live),
        running=sum(pod["status"].get("phase") == "Running" for pod in live),
        budgets=len(budgets),
        first_node=min(nodes, key=_rank)["metadata"]["name"] if nodes else "",
        blocked=_blocked(budgets, live),
    )


def _rank(node: RawObject) -> tuple[bool, str]:
    """Return by what the node is chosen that people may try things on: nobody begins with the control plane."""
    return CONTROL_PLANE in node["metadata"].get("labels", {}), node["metadata"]["name"]


def _blocked(budgets: Iterable[RawObject], pods: Iterable[RawObject]) -> Blocked | None:
    """Return the first node that a budget without room keeps from being drained."""
    found = [
        Blocked(node=pod["spec"]["nodeName"], budget=f"{budget['metadata']['namespace']}/{budget['metadata']['name']}")
        for budget in budgets
        if not budget.get("status", {}).get("disruptionsAllowed")
        for pod in pods
        if pod["spec"].get("nodeName") and _covers(budget, pod)
    ]
    return min(found, key=lambda blocked: blocked.node, default=None)


def _covers(budget: RawObject, pod: RawObject) -> bool:
    selector, labels = budget["spec"].get("selector", {}).get("matchLabels", {}), pod["metadata"].get("labels", {})
    same_namespace = budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return bool(selector) and same_namespace and all(labels.get(key) == value for key, value in selector.items())
