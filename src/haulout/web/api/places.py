"""Where a node is and what it belongs with, by the labels that clouds and installers give."""

from collections.abc import Mapping

_ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_POOLS = (
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
_LIKE_POOLS = ("/pool", "nodepool", "node-pool", "nodegroup", "node-group", "worker-pool")  # how others' labels end
_ROLE = "node-role.kubernetes.io/"
_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_PLAIN_ROLES = ("worker", "node")  # which say nothing


def zone_of(labels: Mapping[str, str]) -> str:
    """Return the zone of a node with these labels; empty if nothing tells."""
    return _first(labels, _ZONES)


def pool_of(labels: Mapping[str, str]) -> str:
    """Return the pool; if nobody names one, the role of the node, or what kind of machine it is."""
    return _first(labels, _POOLS) or _like_a_pool(labels) or _role(labels) or _first(labels, _TYPES)


def _first(labels: Mapping[str, str], keys: tuple[str, ...]) -> str:
    for key in keys:
        if value := labels.get(key):
            return value
    return ""


def _like_a_pool(labels: Mapping[str, str]) -> str:
    return next((labels[key] for key in sorted(labels) if key.endswith(_LIKE_POOLS) and labels[key]), "")


def _role(labels: Mapping[str, str]) -> str:
    roles = sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))
    return next((it for it in roles if it and it not in _PLAIN_ROLES), "")
