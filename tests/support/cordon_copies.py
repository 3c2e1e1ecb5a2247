"""Copies of cordon marks, as they are on the server."""

from haulout.budget.cordon_copies import CONFIG_MAP
from haulout.errors import NotFound
from haulout.kube.ledger import LEDGERS
from support.live import LiveCluster


async def copies(cluster: LiveCluster, namespace: str) -> dict[str, str]:
    """Return the copies for the nodes of a cluster; other tests on the same control plane leave copies, too."""
    try:
        found = await cluster.me.get(LEDGERS, CONFIG_MAP, namespace=namespace)
    except NotFound:
        return {}
    uids = {it["metadata"]["uid"] for it in cluster.all("nodes").values()}
    return {key: it for key, it in found.data.items() if key.partition(".")[0] in uids}
