"""The history of a node as text that tests compare."""

import msgspec

from haulout.api.maintenancerecord import Entry
from support.clusters.live_cluster import LiveCluster

PLURAL = "maintenancerecords"


def entries_about(cluster: LiveCluster, node: str, what: str) -> list[Entry]:
    """Return the entries about one thing."""
    if not cluster.has(PLURAL, node):
        return []
    found = msgspec.convert(cluster.get(PLURAL, node)["entries"], tuple[Entry, ...])
    return [entry for entry in found if entry.object == what]


def transition_texts(cluster: LiveCluster, node: str, what: str) -> list[str]:
    """Return what changed, or the result of what was done between: `→ Running`, `Drained`, `Running → Ended`."""
    entries = entries_about(cluster, node, what)
    return [f"{entry.from_} → {entry.to}".strip() if entry.to else entry.result for entry in entries]


def is_consistent(entries: list[Entry]) -> bool:
    """Tell whether each change begins where the one before it led; a thing that has ended may begin anew."""
    state = ""
    for entry in (entry for entry in entries if entry.to):
        if entry.from_ not in (state, "" if state == "Ended" else state):
            return False
        state = entry.to
    return True
