"""Realistic clusters of a hub, the same in every run: `some_clusters()` has eleven, `some_clusters(200)` has more.

They are built from cluster statuses as a hub builds them, so that their texts are the real ones.
"""

from dataclasses import replace

import msgspec

from haulout.api.clusterapi import ClusterKey
from haulout.controllers.clusterapi.cluster_budget import LimitUsage, parse_limit
from haulout.controllers.clusterapi.status import (
    ConnectionState,
    MachineRequestStatus,
    RequestType,
    WorkloadClusterStatus,
)
from haulout.dashboard.api.cluster_summary import budget_uses, cluster_banners, summarize_cluster
from haulout.dashboard.api.types import ClusterList, ClusterSummary, Leader, Mode, Summary
from support.dashboard.fleet import LEADER, NOW, ago, ahead

LIMIT_USAGE = (
    LimitUsage(limit=parse_limit("2"), holders=("shop/prod-eu", "shop/prod-us"), waiting=("bank/prod",)),
    LimitUsage(limit=parse_limit("env=prod:2"), holders=("shop/prod-eu", "shop/prod-us"), waiting=("bank/prod",)),
)
_MACHINE = MachineRequestStatus(name="md-0-7xk2p", node="md-0-7xk2p")
_STATUS_BY_CLUSTER: dict[str, dict[str, object]] = {
    "shop/prod-eu": {
        "requests": (
            MachineRequestStatus(
                name="prod-eu-md-0-4qhzn",
                node="prod-eu-md-0-4qhzn",
                request_type=RequestType.DELETION,
                reason="waits for approve-deletion on node prod-eu-md-0-4qhzn; its maintenance-state is in-maintenance",
                since=ago(minutes=12),
                until=ahead(minutes=48),
            ),
            MachineRequestStatus(
                name="prod-eu-md-0-9wd7c",
                node="prod-eu-md-0-9wd7c",
                is_approved=True,
                reason="approved: whoever asked for it may begin",
                since=ago(hours=1, minutes=3),
            ),
        )
    },
    "shop/prod-us": {
        "requests": (
            MachineRequestStatus(
                name="prod-us-md-1-bb41x",
                node="prod-us-md-1-bb41x",
                reason="waits for approve-maintenance on node prod-us-md-1-bb41x",
                since=ago(minutes=4),
            ),
        )
    },
    "bank/prod": {
        "requests": (replace(_MACHINE, reason="waits for the budget across clusters", since=ago(minutes=2)),),
        "waiting_reason": "2 of 2 clusters are in maintenance: shop/prod-eu, shop/prod-us",
    },
    "bank/stage": {
        "connection_state": ConnectionState.UNREACHABLE,
        "reason": "https://10.20.0.8:6443: connection refused",
        "since": ago(minutes=17),
        "last_response_at": ago(minutes=17),
        "nodes": 0,
        "version": "",
        "requests": (
            replace(
                _MACHINE,
                request_type=RequestType.DELETION,
                reason="the cluster cannot be reached",
                since=ago(minutes=20),
            ),
        ),
    },
    "edge/store-07": {
        "connection_state": ConnectionState.CONNECTING,
        "since": ago(seconds=9),
        "nodes": 0,
        "version": "",
    },
    "edge/store-04": {"is_being_deleted": True},
}
_KEYS = (
    "bank/prod",
    "bank/stage",
    "edge/store-01",
    "edge/store-02",
    "edge/store-04",
    "edge/store-07",
    "edge/store-11",
    "shop/dev",
    "shop/prod-eu",
    "shop/prod-us",
    "shop/stage",
)


def some_clusters(count: int = len(_KEYS)) -> ClusterList:
    """Return that many clusters; the additional ones are idle."""
    keys = (*_KEYS, *(f"team-{number % 9}/cluster-{number:03}" for number in range(len(_KEYS), count)))
    tiles = tuple(a_cluster_tile(key) for key in sorted(keys[:count]))
    return ClusterList(revision="1", total=len(tiles), clusters=tiles)


def a_cluster_tile(key: str, **other: object) -> ClusterSummary:
    """Return the tile of a healthy cluster, with these fields of its `WorkloadClusterStatus` changed."""
    namespace, _, name = key.partition("/")
    size = 3 + sum(key.encode()) % 9
    status = WorkloadClusterStatus(
        key=ClusterKey(namespace, name),
        connection_state=ConnectionState.CONNECTED,
        since=ago(days=2, hours=3),
        last_response_at=ago(seconds=4),
        server=f"https://{name}.{namespace}.example.com:6443",
        version="v1.36.3",
        machines=size,
        enabled=size - size // 4,
        nodes=size,
    )
    return summarize_cluster(replace(status, **{**_STATUS_BY_CLUSTER.get(key, {}), **other}), LIMIT_USAGE)  # type: ignore[arg-type]  # any of its fields


def a_hub_summary(clusters: ClusterList, **other: object) -> Summary:
    """Return the summary of a hub with these clusters."""
    summary = Summary(
        version="0.1.0",
        cluster="management",
        leader=Leader(identity=LEADER, since=ago(days=2, hours=3), is_this_replica=True),
        budgets=budget_uses(LIMIT_USAGE),
        banners=cluster_banners(clusters.clusters),
        time=NOW,
        mode=Mode.MANAGEMENT,
    )
    return msgspec.structs.replace(summary, **other)
