"""What is told of a replica as such: what it is, whether it leads, who looks on, and how the API server answers it."""

import platform

from haulout.app.lease_names import LEADER_LEASE, PROFILES_LEASE
from haulout.core.metrics import Metric, MetricKind, MetricVec

BUILD = Metric(
    "haulout_build_info", "Always 1; the labels say what runs.", ("version", "python"), kind=MetricKind.GAUGE
)
LEADER = Metric(
    "leader_election_master_status",
    "1 if this replica holds a lease.",
    ("name",),
    kind=MetricKind.GAUGE,
    details="`name` is that of the lease",
)
NODES = Metric("haulout_nodes", "How many nodes there are.", kind=MetricKind.GAUGE, details="only the leader has it")
OUT_OF_SERVICE = Metric(
    "haulout_nodes_out_of_service",
    "How many nodes are in maintenance, on their way there, or down.",
    kind=MetricKind.GAUGE,
    details="as budgets see it; only the leader has it",
)
VIEWERS = Metric("haulout_dashboard_viewers", "How many look on by an event stream.", kind=MetricKind.GAUGE)
REPLICA_METRICS = (BUILD, VIEWERS)
FLEET_METRICS = (NODES, OUT_OF_SERVICE)


def build_info(version: str) -> MetricVec:
    """Return what runs."""
    tally = MetricVec(BUILD)
    tally.set(version, platform.python_version(), to=1)
    return tally


def leader_status(*, leader: bool, profiles: bool | None) -> MetricVec:
    """Return which leases are held; None: nobody stands for that one."""
    tally = MetricVec(LEADER)
    tally.set(LEADER_LEASE, to=leader)
    if profiles is not None:
        tally.set(PROFILES_LEASE, to=profiles)
    return tally


def gauge(metric: Metric, to: float) -> MetricVec:
    """Return a number without labels."""
    tally = MetricVec(metric)
    tally.set(to=to)
    return tally
