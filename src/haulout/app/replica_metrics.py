"""Metrics of a replica: version, leadership, dashboard viewers and fleet size."""

import platform

from haulout.app.lease_names import LEADER_LEASE, PROFILES_LEASE
from haulout.core.metrics import Metric, MetricKind, MetricVec

BUILD = Metric(
    "haulout_build_info", "Always 1; the labels hold the versions.", ("version", "python"), kind=MetricKind.GAUGE
)
LEADER = Metric(
    "leader_election_master_status",
    "1 if this replica holds a lease.",
    ("name",),
    kind=MetricKind.GAUGE,
    details="`name` is the name of the lease",
)
NODES = Metric("haulout_nodes", "How many nodes there are.", kind=MetricKind.GAUGE, details="only on the leader")
OUT_OF_SERVICE = Metric(
    "haulout_nodes_out_of_service",
    "How many nodes are in maintenance, entering it, or down.",
    kind=MetricKind.GAUGE,
    details="as budgets count them; only on the leader",
)
VIEWERS = Metric(
    "haulout_dashboard_viewers",
    "How many clients are connected to the event stream of the dashboard.",
    kind=MetricKind.GAUGE,
)
REPLICA_METRICS = (BUILD, VIEWERS)
FLEET_METRICS = (NODES, OUT_OF_SERVICE)


def build_info(version: str) -> MetricVec:
    tally = MetricVec(BUILD)
    tally.set(version, platform.python_version(), to=1)
    return tally


def leader_status(*, leader: bool, profiles: bool | None) -> MetricVec:
    """Return which leases this replica holds; None: the replica does not run for that lease."""
    tally = MetricVec(LEADER)
    tally.set(LEADER_LEASE, to=leader)
    if profiles is not None:
        tally.set(PROFILES_LEASE, to=profiles)
    return tally


def gauge(metric: Metric, to: float) -> MetricVec:
    tally = MetricVec(metric)
    tally.set(to=to)
    return tally
