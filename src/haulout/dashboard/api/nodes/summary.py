"""The summary of a node: its state at a glance, and its zone and pool, from labels of clouds and installers. Pure."""

from collections.abc import Mapping

from haulout.dashboard.api.nodes.informers import NodeSnapshot
from haulout.dashboard.api.nodes.state import NodeAssessment, assess_node
from haulout.dashboard.api.types import NodeState, NodeSummary

_ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_POOL_LABELS = (
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "oci.oraclecloud.com/node-pool-name",
    "oke.oraclecloud.com/pool.name",
    "name.oke.oraclecloud.com/pool",
    "karpenter.sh/nodepool",
    "karpenter.sh/provisioner-name",
    "machine.openshift.io/machineset",
    "cluster.x-k8s.io/deployment-name",
    "cluster.x-k8s.io/pool-name",
    "worker.gardener.cloud/pool",
    "doks.digitalocean.com/node-pool",
    "pool",
)
_POOL_LABEL_SUFFIXES = (
    "/pool",
    "nodepool",
    "node-pool",
    "nodegroup",
    "node-group",
    "worker-pool",
)  # suffixes of other labels
_ROLE_PREFIX = "node-role.kubernetes.io/"
_INSTANCE_TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_GENERIC_ROLES = ("worker", "node")  # roles without information


def summarize_node(observation: NodeSnapshot) -> tuple[NodeSummary, NodeAssessment]:
    """Return the tile of a node, and its assessment."""
    assessment, node = assess_node(observation), observation.node
    labels = node.metadata.labels
    tile = NodeSummary(
        name=node.name,
        state=assessment.state,
        since=assessment.since,
        message=assessment.why,
        next_at=assessment.at,
        progress=assessment.progress,
        zone=zone_of(labels),
        pool=pool_of(labels),
        is_ready=observation.node.is_ready,
        is_cordoned=node.spec.unschedulable,
        profiles={name: entry.current for name, entry in observation.entries.items()},
        notices=len(observation.notices),
        maintenance=next((maintenance.name for maintenance in observation.orders), ""),
        hold="" if (held := observation.hold) is None else str(held),
        labels={} if observation.info is None else dict(observation.info.labels),
    )
    return tile, assessment


def failed_node_summary(name: str, problem: str) -> NodeSummary:
    """Return the tile of a node whose assessment failed with a bug."""
    return NodeSummary(name=name, state=NodeState.BLOCKED, message=f"internal error in the operator: {problem}")


def zone_of(labels: Mapping[str, str]) -> str:
    """Return the zone of a node with these labels; empty if unknown."""
    return _first(labels, _ZONE_LABELS)


def pool_of(labels: Mapping[str, str]) -> str:
    """Return the pool; without a label for it, the role or the instance type."""
    return (
        _first(labels, _POOL_LABELS)
        or _pool_by_suffix(labels)
        or _role(labels)
        or _first(labels, _INSTANCE_TYPE_LABELS)
    )


def _first(labels: Mapping[str, str], keys: tuple[str, ...]) -> str:
    for key in keys:
        if value := labels.get(key):
            return value
    return ""


def _pool_by_suffix(labels: Mapping[str, str]) -> str:
    return next((labels[key] for key in sorted(labels) if key.endswith(_POOL_LABEL_SUFFIXES) and labels[key]), "")


def _role(labels: Mapping[str, str]) -> str:
    roles = sorted(key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX))
    return next((role for role in roles if role and role not in _GENERIC_ROLES), "")
