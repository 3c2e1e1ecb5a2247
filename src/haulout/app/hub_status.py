"""The status of a hub for health probes, metrics and the dashboard, as `haulout.app.operator_status` for operators.

There is one per process; it outlives leadership.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from haulout import __version__
from haulout.api.clusterapi import EXTENSION_LEASE
from haulout.api.objects import RawObject
from haulout.app import replica
from haulout.controllers.clusterapi.cluster_budget import ClusterBudget, LimitedClusterBudget
from haulout.controllers.clusterapi.controller import ClusterApiController
from haulout.controllers.clusterapi.metal3 import Metal3Controller
from haulout.controllers.clusterapi.metrics import ClusterApiMetrics
from haulout.controllers.clusterapi.status import ConnectionState, MaintenanceState, WorkloadClusterStatus
from haulout.core.metrics import MetricVec
from haulout.httpserver.metrics import Collector
from haulout.kube import metrics
from haulout.kube.client import Client
from haulout.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from haulout.controllers.profiles.component import ProfilesComponent
    from haulout.dashboard.api.backend import Backend
    from haulout.dashboard.api.health import RecentWarnings

_MAX_CLUSTERS_NAMED = 5  # further clusters are only counted


@dataclass(slots=True)
class HubStatus:
    """The components of a hub replica, and whether it leads."""

    is_leader: bool = False
    hub: ClusterApiController | None = None  # while leading
    metal3_controller: Metal3Controller | None = None  # while leading, if Metal3 is enabled
    admission: ClusterBudget | None = None  # while leading
    client: Client | None = None  # of the management cluster
    hub_metrics: ClusterApiMetrics = field(default_factory=ClusterApiMetrics)
    supervisor: Supervisor = field(default_factory=partial(Supervisor, "the hub"))
    drain_rules_supervisor: Supervisor = field(default_factory=partial(Supervisor, "MachineDrainRules"))
    metal3_supervisor: Supervisor = field(default_factory=partial(Supervisor, "Metal3"))
    dashboard_supervisor: Supervisor = field(default_factory=partial(Supervisor, "the dashboard"))
    source: "Backend | None" = None  # the dashboard backend, while leading
    profiles: "ProfilesComponent | None" = None  # always None: a hub has no profiles
    started: datetime | None = None
    recent_warnings: "RecentWarnings | None" = None
    viewer_count: Callable[[], int] = lambda: 0  # open event streams of the dashboard

    def cluster_statuses(self) -> tuple[WorkloadClusterStatus, ...]:
        """Return the status of the workload clusters; empty on replicas that do not lead."""
        return () if self.hub is None else self.hub.cluster_statuses()

    def set_viewer_counter(self, count: Callable[[], int]) -> None:
        self.viewer_count = count

    def unready(self) -> Sequence[str]:
        """Return why this replica is not ready; unreachable clusters are no reason."""
        return ()

    def troubles(self) -> Sequence[str]:
        """Return problems that need attention but do not affect readiness."""
        unavailable = [item for item in self.cluster_statuses() if item.connection_state.is_unavailable]
        verbs = {ConnectionState.UNREACHABLE: "cannot be reached", ConnectionState.UNREADABLE: "is unreadable"}
        found = [
            f"cluster {item.key} {verbs[item.connection_state]}: {item.reason}"
            for item in unavailable[:_MAX_CLUSTERS_NAMED]
        ]
        if len(unavailable) > _MAX_CLUSTERS_NAMED:
            found.append(f"{len(unavailable) - _MAX_CLUSTERS_NAMED} more clusters cannot be reached or read")
        return [
            *found,
            *(
                item.problem
                for item in (
                    self.supervisor,
                    self.drain_rules_supervisor,
                    self.metal3_supervisor,
                    self.dashboard_supervisor,
                )
                if item.problem
            ),
        ]

    def status_lines(self) -> Sequence[str]:
        """Return one line per component, `[+]` if it is healthy and `[-]` if not."""
        leader = f"[+] leader: {'this replica leads' if self.is_leader else 'another replica leads, or none does yet'}"
        if self.hub is None:
            return [leader]
        if self.hub.machines is None:
            return [leader, "[-] hub: Cluster API is not discovered yet"]
        clusters = self.cluster_statuses()
        connected = sum(cluster.connection_state is ConnectionState.CONNECTED for cluster in clusters)
        busy = sum(cluster.state is not MaintenanceState.IDLE for cluster in clusters)
        sign = "+" if connected == len(clusters) else "-"
        reached = f"{connected} of {len(clusters)} clusters are connected, maintenance is active in {busy}"
        return [leader, f"[{sign}] hub: {reached}"]

    def infos(self) -> list[RawObject]:
        """Return the answer to `/api/v1/info`: a hub has no profiles."""
        return []

    def collect_metrics(self) -> Iterator[Collector]:
        """Yield the current values of all metrics."""
        yield replica.build_info(__version__)
        leads = MetricVec(replica.LEADER)
        leads.set(EXTENSION_LEASE, to=self.is_leader)
        yield leads
        yield replica.gauge(replica.VIEWERS, self.viewer_count())
        if self.client is None:
            return
        now = self.client.clock.now()
        yield from metrics.collect_requests(self.client.request_metrics)
        yield from self.client.metrics.collect(now=now)
        yield self.hub_metrics.events_recorded
        if self.hub is not None:
            yield from self.hub_metrics.cluster_metrics(self.cluster_statuses(), now=now)
        if isinstance(self.admission, LimitedClusterBudget):
            yield from self.hub_metrics.budget_metrics(self.admission.cached_usage())
        if self.metal3_controller is not None:
            yield self.hub_metrics.host_metrics(self.metal3_controller.host_power_counts())
