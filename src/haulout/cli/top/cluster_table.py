"""The clusters of a hub as a table, problems first."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from haulout.cli.tables import format_table
from haulout.cli.top.api_client import ApiClient
from haulout.cli.top.fleet_cache import decode
from haulout.cli.top.text_format import format_age, one_line
from haulout.dashboard.api.types import ClusterConnection, ClusterList, ClusterState, ClusterSummary, Summary

_HEADER = ("CLUSTER", "CONNECTION", "DURATION", "STATE", "ACTIVE", "ENABLED", "NODES", "MESSAGE")
_STATES = (ClusterState.IN_MAINTENANCE, ClusterState.WAITING, ClusterState.IDLE)
_REACHES = (
    ClusterConnection.UNREACHABLE,
    ClusterConnection.UNREADABLE,
    ClusterConnection.CONNECTING,
    ClusterConnection.CONNECTED,
)


async def fetch_clusters(client: ApiClient) -> ClusterList:
    """Get the clusters of a hub; raise `HauloutError`."""
    return decode(ClusterList, await client.get("clusters"))


def table_lines(summary: Summary, clusters: ClusterList, *, now: datetime, width: int | None) -> Iterator[str]:
    """Yield the header and the table of clusters."""
    leader = one_line(summary.leader.identity) or "no leader"
    yield f"Haulout {one_line(summary.cluster)}  a hub, leader {leader}  {now:%H:%M:%S} UTC"
    yield from (
        f"budget {item.text}: {item.used} of {item.limit}{_waiting_text(len(item.waiting))}" for item in summary.budgets
    )
    yield from (f"{item.level}: {one_line(item.message)}" for item in summary.banners)
    if not clusters.clusters:
        yield "No cluster has enabled Machines."
        return
    yield from format_table([_HEADER, *_rows(clusters.clusters, now)], width=width)


def _rows(clusters: Iterable[ClusterSummary], now: datetime) -> Iterator[tuple[str, ...]]:
    for cluster in sorted(
        clusters, key=lambda cluster: (_REACHES.index(cluster.connection), _STATES.index(cluster.state), cluster.key)
    ):
        active, enabled = str(cluster.active_count or ""), f"{cluster.enabled}/{cluster.machines}"
        yield (
            one_line(cluster.key),
            cluster.connection,
            format_age(cluster.since, now),
            cluster.state,
            active,
            enabled,
            str(cluster.nodes),
            one_line(_why(cluster)),
        )


def _why(tile: ClusterSummary) -> str:
    machines = (
        f"{machine.name}: {machine.message}" for machine in tile.active if not machine.is_approved and machine.message
    )
    return tile.message or tile.waiting_for or next(machines, "")


def _waiting_text(count: int) -> str:
    return f", {count} waiting" if count else ""
