"""The history of a node as text that tests compare."""

import msgspec

from haulout.api.maintenancerecord import Entry
from support.clusters.live_cluster import LiveCluster

PLURAL = "maintenancerecords"


def entries_about(cluster: LiveCluster, node: str, subject: str) -> list[Entry]:
    """Return the entries about one thing."""
    if not cluster.has(PLURAL, node):
        return []
    found = msgspec.convert(cluster.get(PLURAL, node)["entries"], tuple[Entry, ...])
    return [entry for entry in found if entry.object == subject]


def transition_texts(cluster: LiveCluster, node: str, subject: str) -> list[str]:
    """Return what changed, or the result of what was done between: `→ Running`, `Drained`, `Running → Ended`."""
    entries = entries_about(cluster, node, subject)
    return [f"{entry.from_} → {entry.to}".strip() if entry.to else entry.result for entry in entries]


def is_consistent(entries: list[Entry]) -> bool:
    """Return whether each transition starts in the state that the one before led to; after an end another may start."""
    state = ""
    for entry in (entry for entry in entries if entry.to):
        if entry.from_ not in (state, "" if state == "Ended" else state):
            return False
        state = entry.to
    return True
