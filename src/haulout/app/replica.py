"""One of several replicas: its identity, and what each replica serves whether it leads or not.

It also declares the metrics of a replica: version, leadership and dashboard viewers.
"""

import logging
import platform
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from haulout.api.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.api.objects import RawObject
from haulout.core.metrics import Metric, MetricKind, MetricVec
from haulout.dashboard.api.health import RecentWarnings
from haulout.dashboard.auth.settings import AccessSettings
from haulout.httpserver import healthz
from haulout.httpserver.listener import ListenAddress
from haulout.httpserver.metrics import Collector
from haulout.kube.client import Client
from haulout.kube.leaderelection_config import LeaderElectionConfig

if TYPE_CHECKING:
    from haulout.controllers.profiles.component import ProfilesComponent
    from haulout.dashboard.api.backend import Backend

log = logging.getLogger(__name__)

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
VIEWERS = Metric(
    "haulout_dashboard_viewers",
    "How many clients are connected to the event stream of the dashboard.",
    kind=MetricKind.GAUGE,
)
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


class ServedReplica(Protocol):
    """A replica that serves HTTP: `OperatorStatus`, or `HubStatus`."""

    source: "Backend | None"
    profiles: "ProfilesComponent | None"

    def set_viewer_counter(self, count: Callable[[], int]) -> None: ...

    def infos(self) -> list[RawObject] | None:
        """Return the answer to `/api/v1/info`; None: ask the leader."""
        ...

    def collect_metrics(self) -> Iterable[Collector]:
        """Return the current values of all metrics."""
        ...


class Replica(ServedReplica, Protocol):
    """The status of a replica: `OperatorStatus`, or `HubStatus`."""

    started: datetime | None
    recent_warnings: RecentWarnings | None

    def unready(self) -> Sequence[str]:
        """Return why the replica is not ready."""
        ...

    def troubles(self) -> Sequence[str]:
        """Return problems that need attention but do not affect readiness."""
        ...

    def status_lines(self) -> Sequence[str]: ...


@asynccontextmanager
async def serve_replica(
    client: Client, status: Replica, settings: ReplicaSettings, *, lease: str = LEADER_LEASE
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
