"""Metrics of workload clusters, for `/metrics`. Counters belong to the process and survive a loss of leadership."""

from collections.abc import Sequence
from datetime import datetime

from haulout.controllers.clusterapi.cluster_budget import LimitUsage
from haulout.controllers.clusterapi.metal3 import HostPowerCounts
from haulout.controllers.clusterapi.observation import ReleaseReason
from haulout.controllers.clusterapi.status import ConnectionState, MaintenanceState, RequestType, WorkloadClusterStatus
from haulout.core.metrics import MetricVec, counter, gauge

_LIMIT_HELP = "`limit` is the limit as text"

CLUSTERS = gauge(
    "haulout_hub_clusters",
    "How many workload clusters have Machines that are enabled, by whether they can be reached.",
    "connection",
    details="`connecting`, `connected`, `unreachable` or `unreadable`; only the leader of a hub has these",
)
MACHINES = gauge(
    "haulout_hub_machines",
    "How many Machines are being deleted or ask for maintenance, by whether their node is ready for it.",
    "request",
    "approved",
    details="`request` is `deletion` or `maintenance`, `approved` is `true` or `false`",
)
LONGEST_WAIT = gauge(
    "haulout_hub_longest_wait_seconds",
    "How long the Machine that waits longest has waited for its approval.",
    "request",
)
STATES = gauge(
    "haulout_hub_clusters_by_state",
    "How many workload clusters have Machines that are enabled, by maintenance state.",
    "state",
    details="`idle`, `waiting` (for the budget across clusters) or `in-maintenance`",
)
BUDGET_USED = gauge(
    "haulout_hub_budget_used",
    "How many workload clusters are in maintenance that count against a limit.",
    "limit",
    details=_LIMIT_HELP,
)
BUDGET_LIMIT = gauge(
    "haulout_hub_budget_limit",
    "How many workload clusters a limit allows in maintenance at once.",
    "limit",
    details=_LIMIT_HELP,
)
BUDGET_WAITING = gauge(
    "haulout_hub_budget_waiting",
    "How many workload clusters that count against a limit are waiting.",
    "limit",
    details=f"{_LIMIT_HELP}; they may be waiting for another limit",
)
HOSTS = gauge(
    "haulout_hub_hosts",
    "How many BareMetalHosts Haulout has powered off, or waits to power off.",
    "state",
    details="`off`: with the annotation of Haulout, `waiting`: their Machine is approved; "
    "only with `--enable-metal3-maintenance`",
)
EVENTS = counter(
    "haulout_hub_events_total",
    "How many Events were recorded about Machines.",
    "reason",
    details="`reason` is that of the event",
)
_BUDGET = (BUDGET_USED, BUDGET_LIMIT, BUDGET_WAITING)
METRICS = (CLUSTERS, STATES, MACHINES, LONGEST_WAIT, *_BUDGET, EVENTS)  # of the hub itself


class ClusterApiMetrics:
    """The metrics of the Cluster API controller."""

    def __init__(self) -> None:
        self.events_recorded = MetricVec(EVENTS)
        for reason in ReleaseReason:
            self.events_recorded.add(reason, amount=0)

    def cluster_metrics(self, statuses: Sequence[WorkloadClusterStatus], *, now: datetime) -> tuple[MetricVec, ...]:
        """Return the gauges of clusters and Machines; only the leader has them."""
        clusters, states, machines, longest_wait = (
            MetricVec(item) for item in (CLUSTERS, STATES, MACHINES, LONGEST_WAIT)
        )
        for reach in ConnectionState:
            clusters.set(reach, to=sum(item.connection_state is reach for item in statuses))
        for state in MaintenanceState:
            states.set(state, to=sum(item.state is state for item in statuses))
        active = [request for item in statuses for request in item.requests]
        for request_type in RequestType:
            waits = [
                now - item.since
                for item in active
                if item.request_type is request_type and item.since and not item.is_approved
            ]
            longest_wait.set(request_type, to=max((item.total_seconds() for item in waits), default=0.0))
            for approved in (True, False):
                count = sum(item.request_type is request_type and item.is_approved is approved for item in active)
                machines.set(request_type, str(approved).lower(), to=count)
        return clusters, states, machines, longest_wait

    def budget_metrics(self, usages: Sequence[LimitUsage]) -> tuple[MetricVec, ...]:
        """Return the gauges of the budget across clusters."""
        used, maximum, waiting = (MetricVec(metric) for metric in _BUDGET)
        for usage in usages:
            limit = str(usage.limit)
            used.set(limit, to=len(usage.holders))
            maximum.set(limit, to=usage.limit.max_clusters)
            waiting.set(limit, to=len(usage.waiting))
        return used, maximum, waiting


def host_metrics(counts: HostPowerCounts) -> MetricVec:
    hosts = MetricVec(HOSTS)
    hosts.set("off", to=counts.off)
    hosts.set("waiting", to=counts.waiting)
    return hosts
