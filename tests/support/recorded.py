"""Histories of nodes in a whole cluster: what was written down about a node.

async with recorded(a_cluster()).with_nodes(1).running() as cluster:
    …
    assert moves(cluster, "n1") == [("profile/os", "operational", "maintenance-required")]
"""

from haulout.history.record import MAINTENANCE_RECORDS, definition
from haulout.kube.objects import RawObject
from support.clusters import ClusterPlan
from support.live import LiveCluster

PLURAL = MAINTENANCE_RECORDS.plural
DEFINITION: RawObject = definition()


def recorded(plan: ClusterPlan) -> ClusterPlan:
    """Return the plan of a cluster that keeps the history of its nodes."""
    return plan.with_definition(DEFINITION)


def entries(cluster: LiveCluster, node: str) -> list[RawObject]:
    """Return what is written down about a node."""
    if not cluster.has(PLURAL, node):
        return []
    found: list[RawObject] = cluster.get(PLURAL, node)["entries"]
    return found


def moves(cluster: LiveCluster, node: str) -> list[tuple[str, str, str]]:
    """Return the changes of state: of what, from where, to where."""
    changes = [it for it in entries(cluster, node) if "to" in it]
    return [(it["what"], it.get("from", ""), it["to"]) for it in changes]


def drains(cluster: LiveCluster, node: str) -> list[RawObject]:
    """Return what drains took."""
    return [it["drain"] for it in entries(cluster, node) if "drain" in it]


def writes(cluster: LiveCluster, node: str) -> int:
    """Return how often the history of a node was written."""
    return sum(it.kind.plural == PLURAL and it.key == node for it in cluster.history)
