"""Realistic API responses, the same in every run.

`NOW` is the operator's clock. `a_fleet()` has 60 nodes of three zones in all states, `a_fleet(5000)` more of them;
`a_hostile_fleet()` has names, labels and reasons that attempt HTML injection.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec

from haulout.dashboard.api.types import (
    Banner,
    BudgetUsage,
    ComponentHealth,
    Health,
    Leader,
    LeaseHealth,
    Level,
    LoggedWarning,
    NodeList,
    NodeState,
    NodeSummary,
    QueueHealth,
    RequestHealth,
    Summary,
    WatchHealth,
)

NOW = datetime(2026, 11, 16, 14, 5, tzinfo=UTC)
ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
LEADER = "haulout-7c9d5f6b8-x2kqp"

_POOLS = ("general", "general", "general", "memory", "gpu", "spot")


def ago(**duration: float) -> datetime:
    """Return that long before now."""
    return NOW - timedelta(**duration)


def ahead(**duration: float) -> datetime:
    """Return that long after now."""
    return NOW + timedelta(**duration)


def a_tile(name: str, state: NodeState = NodeState.IDLE, **fields: object) -> NodeSummary:
    """Return a tile."""
    return msgspec.convert(
        {"name": name, "state": state, "zone": ZONES[0], "pool": "general"} | fields, NodeSummary, strict=False
    )


_MAINTENANCE_TILES: tuple[dict[str, object], ...] = (
    {
        "state": "blocked",
        "since": ago(minutes=47),
        "message": "waiting for PodDisruptionBudget bank/ledger: 2 of 2 healthy pods needed",
        "progress": 85,
        "at": ahead(minutes=13),
        "isCordoned": True,
        "maintenance": "patch-october",
    },
    {
        "state": "draining",
        "since": ago(minutes=3, seconds=20),
        "message": "7 of 11 pods are gone; shop/cart-2 ends in 25 s",
        "progress": 64,
        "isCordoned": True,
        "profiles": {"os-update": "in-maintenance"},
    },
    {
        "state": "in-maintenance",
        "since": ago(minutes=22),
        "message": "os-update: waits for the label reboot-done",
        "isCordoned": True,
        "isReady": False,
        "profiles": {"os-update": "in-maintenance"},
    },
    {
        "state": "planned",
        "since": ago(hours=2),
        "message": "AWS will reboot it; drained from 14:45 on",
        "at": ahead(minutes=40),
        "notices": 1,
        "profiles": {"os-update": "maintenance-required"},
    },
    {
        "state": "recovering",
        "since": ago(minutes=1, seconds=5),
        "message": "not Ready for the last minute; given back when it is",
        "isCordoned": True,
        "isReady": False,
        "profiles": {"os-update": "in-maintenance"},
    },
    {
        "state": "planned",
        "since": ago(minutes=50),
        "message": "os-update: the budget zone eu-west-1b is used up, place 1 in line",
        "at": ahead(minutes=10),
        "profiles": {"os-update": "maintenance-required"},
    },
    {
        "state": "blocked",
        "since": ago(hours=3, minutes=12),
        "message": "pod ml/train-7 of Job ml/train must not be evicted: it asks for that by an annotation",
        "progress": 40,
        "isCordoned": True,
        "profiles": {"gpu-driver": "in-maintenance"},
    },
    {
        "state": "draining",
        "since": ago(seconds=35),
        "message": "2 of 9 pods are gone",
        "progress": 22,
        "isCordoned": True,
        "notices": 1,
    },
)


def a_fleet(count: int = 60) -> NodeList:
    """Return that many nodes: one in seven has a maintenance, the others are idle."""
    return NodeList(revision="1", total=count, nodes=tuple(_node(index) for index in range(count)))


def _node(index: int) -> NodeSummary:
    pool = _POOLS[index % len(_POOLS)]
    tile_fields: dict[str, object] = {
        "zone": ZONES[index // 2 % len(ZONES)],
        "pool": pool,
        "profiles": {"os-update": "operational"},
        "labels": {"kernel": "6.12.4" if index % 3 else "6.12.1"},
    }
    if index % 7 == 2:
        tile_fields |= _MAINTENANCE_TILES[index // 7 % len(_MAINTENANCE_TILES)]
    if index == 11:
        tile_fields |= {"isCordoned": True, "message": "cordoned by a person"}
    if index == 31:
        tile_fields |= {"isReady": False, "message": "the kubelet has not reported for 2 min"}
    if index == 40:
        tile_fields |= {"hold": "ada: the tax run needs it until Friday"}
    return a_tile(f"{pool}-{index:0{4 if index > 99 else 2}d}", **tile_fields)  # type: ignore[arg-type]  # `state` is among them


def a_summary(fleet: NodeList, **other: object) -> Summary:
    """Return the summary of these nodes."""
    by_state = {state: [tile.name for tile in fleet.nodes if tile.state == state] for state in NodeState}
    unavailable = by_state[NodeState.DRAINING] + by_state[NodeState.BLOCKED] + by_state[NodeState.IN_MAINTENANCE]
    summary = Summary(
        version="0.1.0",
        cluster="prod-eu",
        leader=Leader(identity=LEADER, since=ago(days=2, hours=3), is_this_replica=True),
        total=fleet.total,
        counts=Counter(tile.state for tile in fleet.nodes),
        zones=tuple(sorted({tile.zone for tile in fleet.nodes} - {""})),
        pools=tuple(sorted({tile.pool for tile in fleet.nodes} - {""})),
        profiles=("gpu-driver", "os-update"),
        budgets=(
            BudgetUsage(
                name="cluster",
                used=len(unavailable),
                limit=max(10, 2 * len(unavailable)),
                text="at most 20 % of all nodes, and 10 of a small cluster",
                holders=tuple(unavailable),
            ),
            BudgetUsage(
                name="topology.kubernetes.io/zone=eu-west-1b",
                used=4,
                limit=4,
                text="at most 4 nodes in each topology.kubernetes.io/zone",
                holders=tuple(unavailable[:4]),
                waiting=tuple(by_state[NodeState.PLANNED][:2]),
            ),
        ),
        banners=(Banner(level=Level.WARNING, message="AWS has not been heard for 6 min: AccessDenied", page="health"),),
        has_history=True,
        has_notices=True,
        time=NOW,
    )
    return msgspec.structs.replace(summary, **other)


def a_health() -> Health:
    """Return the health of an operator with a few problems."""
    return Health(
        identity=LEADER,
        version="0.1.0",
        started=ago(days=2, hours=3),
        python="3.13.1",
        memory_bytes=74_448_896,
        cpu_seconds=812.4,
        viewers=3,
        leases=(
            LeaseHealth(
                name="haulout", holder=LEADER, acquired=ago(days=2, hours=3), renewed=ago(seconds=2), transitions=4
            ),
            LeaseHealth(
                name="haulout-webhook", holder="haulout-7c9d5f6b8-9w4tn", renewed=ago(seconds=1), transitions=1
            ),
        ),
        watches=(
            WatchHealth(resource="nodes", is_synced=True, objects=60, last_response=ago(seconds=1)),
            WatchHealth(resource="pods", is_synced=True, objects=812, last_response=ago(seconds=1)),
            WatchHealth(
                resource="maintenancenotices.haulout.dev", is_synced=True, objects=7, last_response=ago(minutes=4)
            ),
            WatchHealth(
                resource="nodemaintenances.nodemaintenance.medik8s.io",
                is_synced=False,
                last_response=ago(minutes=9),
                problem="403: the service account may not watch them",
            ),
            WatchHealth(
                resource="poddisruptionbudgets.policy",
                is_synced=True,
                objects=38,
                last_response=ago(minutes=1),
                undecodable_objects={
                    "shop/cart": "spec.maxUnavailable: expected an integer or a percentage, found 'many'"
                },
            ),
        ),
        queues=(
            QueueHealth(name="profiles", depth=0, worst_lag_seconds=0.004),
            QueueHealth(name="notices", depth=0, worst_lag_seconds=0.001),
            QueueHealth(name="drains", depth=3, worst_lag_seconds=12.4),
        ),
        requests=(
            RequestHealth(
                verb="create", resource="pods/eviction", count=214, errors=12, median_seconds=0.021, worst_seconds=1.31
            ),
            RequestHealth(verb="patch", resource="nodes", count=96, median_seconds=0.008, worst_seconds=0.044),
            RequestHealth(verb="update", resource="leases", count=93_140, median_seconds=0.004, worst_seconds=0.210),
            RequestHealth(verb="list", resource="pods", count=4, errors=1, median_seconds=0.310, worst_seconds=2.750),
        ),
        components=(
            ComponentHealth(
                name="profiles", is_healthy=True, message="4 profiles, 60 nodes", last_response=ago(seconds=1)
            ),
            ComponentHealth(name="notices", is_healthy=True, message="7 notices", last_response=ago(minutes=4)),
            ComponentHealth(
                name="source oci", is_healthy=True, message="stream of eu-frankfurt-1", last_response=ago(seconds=3)
            ),
            ComponentHealth(
                name="source aws",
                is_healthy=False,
                message="AccessDenied: sqs:ReceiveMessage",
                last_response=ago(minutes=6),
            ),
        ),
        warnings=(
            LoggedWarning(
                time=ago(seconds=12),
                level=Level.CRITICAL,
                message="source aws: AccessDenied: sqs:ReceiveMessage",
                count=31,
            ),
            LoggedWarning(
                time=ago(minutes=9), level=Level.WARNING, message="watching nodemaintenances: 403 Forbidden", count=4
            ),
            LoggedWarning(
                time=ago(hours=5),
                level=Level.WARNING,
                message="evicting shop/cart-0: 429, asked to wait 10 s",
                count=12,
            ),
        ),
    )


_SCRIPT = '<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>'
_RIGHT_TO_LEFT = "\u202eevil\u202c \u05d0\u05d1\u05d2"


def a_hostile_fleet() -> NodeList:
    """Return nodes whose texts attempt HTML injection."""
    tiles = (
        a_tile(_SCRIPT, NodeState.BLOCKED, message=_SCRIPT, since=ago(minutes=1), zone=_SCRIPT, pool=_SCRIPT),
        a_tile(
            "javascript:window.hurt=1", NodeState.PLANNED, message="javascript:window.hurt=1", labels={_SCRIPT: _SCRIPT}
        ),
        a_tile(_RIGHT_TO_LEFT, NodeState.DRAINING, message=_RIGHT_TO_LEFT, progress=50),
        a_tile("n" * 253, NodeState.IN_MAINTENANCE, message="long " * 400, zone="z" * 253, pool="p" * 63),
        a_tile("../../../api/v1/info", NodeState.RECOVERING, message="{{7*7}} ${7*7}"),
        a_tile("a node with spaces?&=#%", hold=_SCRIPT, profiles={_SCRIPT: _SCRIPT}),
    )
    return NodeList(revision="1", total=len(tiles), nodes=tiles)
