"""What is told of a replica as such: what it is, whether it leads, who looks on, and how the API server answers it."""

import platform

from haulout.app.names import LEADER_LEASE, PROFILES_LEASE
from haulout.core.metering import Kind, Metric, Tally

BUILD = Metric("haulout_build_info", "Always 1; the labels say what runs.", ("version", "python"), kind=Kind.GAUGE)
LEADS = Metric(
    "leader_election_master_status",
    "1 if this replica holds a lease.",
    ("name",),
    kind=Kind.GAUGE,
    more="`name` is that of the lease",
)
NODES = Metric("haulout_nodes", "How many nodes there are.", kind=Kind.GAUGE, more="only the leader has it")
AWAY = Metric(
    "haulout_nodes_out_of_service",
    "How many nodes are in maintenance, on their way there, or down.",
    kind=Kind.GAUGE,
    more="as budgets see it; only the leader has it",
)
VIEWERS = Metric("haulout_dashboard_viewers", "How many look on by an event stream.", kind=Kind.GAUGE)
REPLICA = (BUILD, VIEWERS)
FLEET = (NODES, AWAY)


def build(version: str) -> Tally:
    """Return what runs."""
    tally = Tally(BUILD)
    tally.set(version, platform.python_version(), to=1)
    return tally


def leads(*, leader: bool, profiles: bool | None) -> Tally:
    """Return which leases are held; None: nobody stands for that one."""
    tally = Tally(LEADS)
    tally.set(LEADER_LEASE, to=leader)
    if profiles is not None:
        tally.set(PROFILES_LEASE, to=profiles)
    return tally


def number(metric: Metric, to: float) -> Tally:
    """Return a number without labels."""
    tally = Tally(metric)
    tally.set(to=to)
    return tally
