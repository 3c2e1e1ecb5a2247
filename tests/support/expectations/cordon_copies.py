"""The copies of cordon owners on the API server."""

from haulout.budget.cordon_copies import CONFIG_MAP
from haulout.errors import NotFound
from haulout.kube.slot_ledger import CONFIG_MAPS
from support.clusters.live_cluster import LiveCluster


async def cordon_copies(cluster: LiveCluster, namespace: str) -> dict[str, str]:
    """Return the copies for the nodes of a cluster; other tests on the same control plane leave copies, too."""
    try:
        found = await cluster.admin.get(CONFIG_MAPS, CONFIG_MAP, namespace=namespace)
    except NotFound:
        return {}
    uids = {node["metadata"]["uid"] for node in cluster.by_key("nodes").values()}
    return {key: node for key, node in found.data.items() if key.partition(".")[0] in uids}
