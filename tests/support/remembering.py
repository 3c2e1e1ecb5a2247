"""What the history of a node says, in words that tests compare."""

import msgspec

from haulout.history.record import Entry
from support.live import LiveCluster

PLURAL = "maintenancerecords"


def remembered(cluster: LiveCluster, node: str, what: str) -> list[Entry]:
    """Return the entries about one thing."""
    if not cluster.has(PLURAL, node):
        return []
    found = msgspec.convert(cluster.get(PLURAL, node)["entries"], tuple[Entry, ...])
    return [it for it in found if it.what == what]


def words(cluster: LiveCluster, node: str, what: str) -> list[str]:
    """Return what changed, or the result of what was done between: `→ Running`, `Drained`, `Running → Ended`."""
    told = remembered(cluster, node, what)
    return [f"{it.from_} → {it.to}".strip() if it.to else it.result for it in told]


def replays(entries: list[Entry]) -> bool:
    """Tell whether each change begins where the one before it led; a thing that has ended may begin anew."""
    stands = ""
    for it in (it for it in entries if it.to):
        if it.from_ not in (stands, "" if stands == "Ended" else stands):
            return False
        stands = it.to
    return True
