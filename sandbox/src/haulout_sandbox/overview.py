"""Summary of a sandbox's objects: counts, and the first node whose drain a PodDisruptionBudget blocks."""

from collections.abc import Iterable
from dataclasses import dataclass

from haulout.api.objects import RawObject
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.nodes.scheduler.framework import CONTROL_PLANE_LABEL, ZONE_LABEL


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedNode:
    """A node whose drain a PodDisruptionBudget blocks."""

    node: str
    budget: str  # namespace/name


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Counts of objects, and the nodes to suggest to the user."""

    nodes: int
    zones: int
    pods: int
    running: int
    budgets: int
    first_node: str
    blocked: BlockedNode | None


def overview(api: ApiServer) -> Overview:
    nodes, pods = api.objects("nodes"), api.objects("pods")
    budgets = api.objects("poddisruptionbudgets")
    live_pods = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
    return Overview(
        nodes=len(nodes),
        zones=len({node["metadata"].get("labels", {}).get(ZONE_LABEL) for node in nodes}),
        pods=len(live_pods),
        running=sum(pod["status"].get("phase") == "Running" for pod in live_pods),
        budgets=len(budgets),
        first_node=min(nodes, key=_suggestion_order)["metadata"]["name"] if nodes else "",
        blocked=_first_blocked_node(budgets, live_pods),
    )


def _suggestion_order(node: RawObject) -> tuple[bool, str]:
    """Return the sort key for the node suggested to users: workers come before control plane nodes."""
    return CONTROL_PLANE_LABEL in node["metadata"].get("labels", {}), node["metadata"]["name"]


def _first_blocked_node(budgets: Iterable[RawObject], pods: Iterable[RawObject]) -> BlockedNode | None:
    """Return the first node with a pod whose PodDisruptionBudget allows no disruption."""
    blocked_nodes = [
        BlockedNode(
            node=pod["spec"]["nodeName"], budget=f"{budget['metadata']['namespace']}/{budget['metadata']['name']}"
        )
        for budget in budgets
        if not budget.get("status", {}).get("disruptionsAllowed")
        for pod in pods
        if pod["spec"].get("nodeName") and _selects(budget, pod)
    ]
    return min(blocked_nodes, key=lambda blocked: blocked.node, default=None)


def _selects(budget: RawObject, pod: RawObject) -> bool:
    selector, labels = budget["spec"].get("selector", {}).get("matchLabels", {}), pod["metadata"].get("labels", {})
    same_namespace = budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return bool(selector) and same_namespace and all(labels.get(key) == value for key, value in selector.items())
