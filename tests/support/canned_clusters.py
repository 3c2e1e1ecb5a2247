"""Believable clusters of a hub: the same in every run. `some_clusters()` has eleven, `some_clusters(200)` more of them.

They are made of standings, as a hub makes them, so that what they say is what people get.
"""

from dataclasses import replace

import msgspec

from haulout.hub.admission import Use
from haulout.hub.cluster_limits import read_limit
from haulout.hub.standing import ClusterStanding, MachineStanding, Reach, Why
from haulout.kinds.clusterapi import ClusterKey
from haulout.web.api.cluster_tiles import budget_uses, cluster_banners, cluster_tile
from haulout.web.api.shapes import ClusterList, ClusterTile, Mode, Replica, Summary
from support.canned_data import LEADER, NOW, ago, ahead

USES = (
    Use(limit=read_limit("2"), holders=("shop/prod-eu", "shop/prod-us"), waiting=("bank/prod",)),
    Use(limit=read_limit("env=prod:2"), holders=("shop/prod-eu", "shop/prod-us"), waiting=("bank/prod",)),
)
_MACHINE = MachineStanding(name="md-0-7xk2p", node="md-0-7xk2p")
_STORIES: dict[str, dict[str, object]] = {
    "shop/prod-eu": {
        "active": (
            MachineStanding(
                name="prod-eu-md-0-4qhzn",
                node="prod-eu-md-0-4qhzn",
                why=Why.DELETION,
                reason="waits for approve-deletion on node prod-eu-md-0-4qhzn; its maintenance-state is in-maintenance",
                since=ago(minutes=12),
                until=ahead(minutes=48),
            ),
            MachineStanding(
                name="prod-eu-md-0-9wd7c",
                node="prod-eu-md-0-9wd7c",
                is_approved=True,
                reason="approved: whoever asked for it may begin",
                since=ago(hours=1, minutes=3),
            ),
        )
    },
    "shop/prod-us": {
        "active": (
            MachineStanding(
                name="prod-us-md-1-bb41x",
                node="prod-us-md-1-bb41x",
                reason="waits for approve-maintenance on node prod-us-md-1-bb41x",
                since=ago(minutes=4),
            ),
        )
    },
    "bank/prod": {
        "active": (replace(_MACHINE, reason="waits for the budget across clusters", since=ago(minutes=2)),),
        "waits_for": "2 of 2 clusters are in maintenance: shop/prod-eu, shop/prod-us",
    },
    "bank/stage": {
        "reach": Reach.UNREACHABLE,
        "reason": "https://10.20.0.8:6443: connection refused",
        "since": ago(minutes=17),
        "heard": ago(minutes=17),
        "nodes": 0,
        "version": "",
        "active": (replace(_MACHINE, why=Why.DELETION, reason="the cluster cannot be reached", since=ago(minutes=20)),),
    },
    "edge/store-07": {"reach": Reach.CONNECTING, "since": ago(seconds=9), "nodes": 0, "version": ""},
    "edge/store-04": {"is_leaving": True},
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
    """Return that many clusters; those after the first have nothing going on."""
    keys = (*_KEYS, *(f"team-{number % 9}/cluster-{number:03}" for number in range(len(_KEYS), count)))
    tiles = tuple(a_cluster_tile(it) for it in sorted(keys[:count]))
    return ClusterList(revision="1", total=len(tiles), clusters=tiles)


def a_cluster_tile(key: str, **other: object) -> ClusterTile:
    """Return a cluster that does well, but for its story and `other`, which are of a `ClusterStanding`."""
    namespace, _, name = key.partition("/")
    size = 3 + sum(key.encode()) % 9
    standing = ClusterStanding(
        key=ClusterKey(namespace, name),
        reach=Reach.CONNECTED,
        since=ago(days=2, hours=3),
        heard=ago(seconds=4),
        server=f"https://{name}.{namespace}.example.com:6443",
        version="v1.36.3",
        machines=size,
        enabled=size - size // 4,
        nodes=size,
    )
    return cluster_tile(replace(standing, **{**_STORIES.get(key, {}), **other}), USES)  # type: ignore[arg-type]  # any of its fields


def a_hub_summary(clusters: ClusterList, **other: object) -> Summary:
    """Return how a hub stands with these clusters."""
    told = Summary(
        version="0.1.0",
        cluster="management",
        leader=Replica(identity=LEADER, since=ago(days=2, hours=3), is_asked=True),
        budgets=budget_uses(USES),
        banners=cluster_banners(clusters.clusters),
        time=NOW,
        mode=Mode.MANAGEMENT,
    )
    return msgspec.structs.replace(told, **other)
