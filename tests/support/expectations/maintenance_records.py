"""The recorded history of nodes in a whole cluster.

async with with_record_crd(a_cluster()).with_nodes(1).running() as cluster:
    …
    assert transitions(cluster, "n1") == [("profile/os", "operational", "maintenance-required")]
"""

from haulout.api.maintenancerecord import MAINTENANCE_RECORDS, custom_resource_definition
from haulout.api.objects import RawObject
from support.clusters.cluster_plan import ClusterPlan
from support.clusters.live_cluster import LiveCluster

PLURAL = MAINTENANCE_RECORDS.plural
CRD: RawObject = custom_resource_definition()


def with_record_crd(plan: ClusterPlan) -> ClusterPlan:
    """Return the plan of a cluster that keeps the history of its nodes."""
    return plan.with_crd(CRD)


def entries(cluster: LiveCluster, node: str) -> list[RawObject]:
    """Return the recorded entries of a node."""
    if not cluster.has(PLURAL, node):
        return []
    found: list[RawObject] = cluster.get(PLURAL, node)["entries"]
    return found


def transitions(cluster: LiveCluster, node: str) -> list[tuple[str, str, str]]:
    """Return the changes of state: of what, from where, to where."""
    changes = [entry for entry in entries(cluster, node) if "to" in entry]
    return [(entry["object"], entry.get("from", ""), entry["to"]) for entry in changes]


def drain_records(cluster: LiveCluster, node: str) -> list[RawObject]:
    """Return the drain facts of a node."""
    return [entry["drain"] for entry in entries(cluster, node) if "drain" in entry]


def write_count(cluster: LiveCluster, node: str) -> int:
    """Return how often the history of a node was written."""
    return sum(write.kind.plural == PLURAL and write.key == node for write in cluster.history)
