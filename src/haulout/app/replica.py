"""One of several replicas: its identity, and what each replica serves whether it leads or not.

It also declares the metrics of a replica: version, leadership and dashboard viewers.
"""

import asyncio
import logging
import platform
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from haulout import __version__
from haulout.api.leases import LEADER_LEASE
from haulout.api.objects import RawObject
from haulout.core.metrics import MetricVec, gauge
from haulout.dashboard.api.health import RecentWarnings
from haulout.dashboard.auth.settings import AccessSettings
from haulout.httpserver import healthz
from haulout.httpserver.listener import ListenAddress
from haulout.httpserver.metrics import Collector
from haulout.kube import metrics
from haulout.kube.client import Client
from haulout.kube.leaderelection_config import LeaderElectionConfig
from haulout.runtime.component import Component
from haulout.runtime.journal import TRANSITIONS
from haulout.runtime.manager import Manager

if TYPE_CHECKING:
    from haulout.controllers.profiles.component import ProfilesComponent
    from haulout.dashboard.api.backend import Backend

log = logging.getLogger(__name__)

BUILD = gauge("haulout_build_info", "Always 1; the labels hold the versions.", "version", "python")
LEADER = gauge(
    "leader_election_master_status",
    "1 if this replica holds a lease.",
    "name",
    details="`name` is the name of the lease",
)
VIEWERS = gauge("haulout_dashboard_viewers", "How many clients are connected to the event stream of the dashboard.")
REPLICA_METRICS = (BUILD, VIEWERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """Settings that an operator replica and a hub replica have in common."""

    namespace: str
    identity: str
    cluster: str = ""  # display name
    health_port: int | None = None
    metrics_address: ListenAddress | None = None  # of metrics and the API; None: not served
    access: AccessSettings | None = None  # who may use the dashboard; None: users with a token
    leases: LeaderElectionConfig = field(default_factory=LeaderElectionConfig)  # lease timings
    metrics_linger: timedelta = timedelta()  # how long to wait at shutdown for a last scrape


@dataclass(slots=True, kw_only=True)
class ReplicaStatus:
    """The state of a replica, for health probes, metrics and the dashboard: of an operator, or of a hub.

    There is one per process; it outlives leadership. All values are computed when they are read, from the components.
    """

    components: tuple[Component, ...] = ()
    manager: Manager | None = None  # while the process runs
    client: Client | None = None  # of the cluster
    source: "Backend | None" = None  # the dashboard backend, while leading
    profiles: "ProfilesComponent | None" = None
    started: datetime | None = None
    recent_warnings: RecentWarnings | None = None
    is_served: asyncio.Event = field(default_factory=asyncio.Event)  # this replica serves HTTP
    viewer_count: Callable[[], int] = lambda: 0  # open event streams of the dashboard

    @property
    def is_leader(self) -> bool:
        return self.manager is not None and self.manager.is_leader

    def set_viewer_counter(self, count: Callable[[], int]) -> None:
        self.viewer_count = count
        self.is_served.set()

    def unready(self) -> Sequence[str]:
        """Return why this replica is not ready, one line each. That another replica leads is no reason."""
        return [reason for component in self.components for reason in component.unready()]

    def troubles(self) -> Sequence[str]:
        """Return problems that need attention but do not affect readiness."""
        # Components that cannot write the history report the same problem, such as a missing permission.
        return [*dict.fromkeys(problem for component in self.components for problem in component.problems())]

    def status_lines(self) -> Sequence[str]:
        """Return one line per component, `[+]` if it is healthy and `[-]` if not."""
        leader = f"[+] leader: {'this replica leads' if self.is_leader else 'another replica leads, or none does yet'}"
        return [leader, *(line for component in self.components for line in component.status_lines())]

    def infos(self) -> list[RawObject] | None:
        """Return the answer to `/api/v1/info`; None: ask the leader."""
        return [] if self.profiles is None else self.profiles.infos()

    def held_leases(self) -> Mapping[str, bool]:
        """Return which leases this replica runs for, and whether it holds them."""
        return {} if self.manager is None else self.manager.held_leases()

    def collect_metrics(self) -> Iterator[Collector]:
        """Yield the current values of all metrics."""
        build, leader, viewers = MetricVec(BUILD), MetricVec(LEADER), MetricVec(VIEWERS)
        build.set(__version__, platform.python_version(), to=1)
        for lease, is_held in self.held_leases().items():
            leader.set(lease, to=is_held)
        viewers.set(to=self.viewer_count())
        yield from (build, leader, viewers)
        if self.client is not None:
            yield from metrics.collect_requests(self.client.request_metrics)
            self.client.metrics.counter(TRANSITIONS)  # exported from the start, although nothing is counted yet
            yield from self.client.metrics.collect(now=self.client.clock.now())
        for component in self.components:
            yield from component.collect_metrics()


@asynccontextmanager
async def serve_replica(
    client: Client, status: ReplicaStatus, settings: ReplicaSettings, *, lease: str = LEADER_LEASE
) -> AsyncIterator[None]:
    """Serve while the context lasts; the leader holds `lease`."""
    status.started = status.started or client.clock.now()
    status.recent_warnings = RecentWarnings(client.clock)
    async with AsyncExitStack() as stack:
        # First: what goes wrong while the servers start is shown on the dashboard, too.
        stack.enter_context(status.recent_warnings.capture())
        if settings.health_port is not None:
            checks = healthz.serve(
                status.unready, warnings=status.troubles, details=status.status_lines, port=settings.health_port
            )
            await stack.enter_async_context(checks)
        if settings.metrics_address is not None:
            from haulout.app.http_endpoints import serve_http  # with the dashboard

            dashboard = serve_http(
                client,
                status,
                address=settings.metrics_address,
                namespace=settings.namespace,
                identity=settings.identity,
                lease=lease,
                metrics_linger=settings.metrics_linger,
                access=settings.access,
            )
            await stack.enter_async_context(dashboard)
        else:
            log.info("the dashboard and /metrics are not served: no --metrics-port is set")
        yield
