"""A hub in the terminal: its clusters as a table, those that need a look first."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from haulout.cli.tables import columns
from haulout.cli.topping.picture import read
from haulout.cli.topping.ways import Way
from haulout.cli.topping.words import lasting, safe
from haulout.web.api.shapes import ClusterList, ClusterReach, ClusterState, ClusterTile, Summary

_HEAD = ("CLUSTER", "REACH", "FOR", "STATE", "ACTIVE", "ENABLED", "NODES", "WHY")
_STATES = (ClusterState.IN_MAINTENANCE, ClusterState.WAITING, ClusterState.IDLE)
_REACHES = (ClusterReach.UNREACHABLE, ClusterReach.UNREADABLE, ClusterReach.CONNECTING, ClusterReach.CONNECTED)


async def clusters_of(way: Way) -> ClusterList:
    """Ask a hub for its clusters; raises `HauloutError`."""
    return read(ClusterList, await way.get("clusters"))


def table(summary: Summary, clusters: ClusterList, *, now: datetime, width: int | None) -> Iterator[str]:
    """Yield lines about all clusters."""
    leader = safe(summary.leader.identity) or "nobody leads"
    yield f"Haulout {safe(summary.cluster)}  a hub, leader {leader}  {now:%H:%M:%S} UTC"
    yield from (f"budget {it.text}: {it.used} of {it.limit}{_waiting(len(it.waiting))}" for it in summary.budgets)
    yield from (f"{it.level}: {safe(it.text)}" for it in summary.banners)
    if not clusters.clusters:
        yield "There are no clusters with Machines that are enabled."
        return
    yield from columns([_HEAD, *_rows(clusters.clusters, now)], width=width)


def _rows(clusters: Iterable[ClusterTile], now: datetime) -> Iterator[tuple[str, ...]]:
    for it in sorted(clusters, key=lambda it: (_REACHES.index(it.reach), _STATES.index(it.state), it.key)):
        active, enabled = str(it.active_count or ""), f"{it.enabled}/{it.machines}"
        yield safe(it.key), it.reach, lasting(it.since, now), it.state, active, enabled, str(it.nodes), safe(_why(it))


def _why(tile: ClusterTile) -> str:
    machines = (f"{it.name}: {it.reason}" for it in tile.active if not it.is_approved and it.reason)
    return tile.why or tile.waits_for or next(machines, "")


def _waiting(count: int) -> str:
    return f", {count} waiting" if count else ""
