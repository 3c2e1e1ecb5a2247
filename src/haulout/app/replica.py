"""One of several replicas: who it is, and what each of them serves, whether it leads or not."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from haulout.app.http_endpoints import ServedReplica, serve_http
from haulout.app.lease_names import LEADER_LEASE
from haulout.dashboard.api.recent_warnings import RecentWarnings
from haulout.dashboard.auth.settings import AccessSettings
from haulout.httpserver import healthz
from haulout.httpserver.listener import ListenAddress
from haulout.kube.client import Client
from haulout.kube.leaderelection_config import LeaderElectionConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """Where and as whom it runs."""

    namespace: str
    identity: str
    cluster: str = ""  # how people know it
    health_port: int | None = None
    metrics_address: ListenAddress | None = None  # where metrics and the API are served, if at all
    access: AccessSettings | None = None  # who may use the dashboard; None: who shows a token
    leases: LeaderElectionConfig = field(default_factory=LeaderElectionConfig)  # under which one of the replicas leads
    metrics_linger: timedelta = timedelta()  # how long these are served at the end, until they were read once more


class Replica(ServedReplica, Protocol):
    """How it is doing: an operator's `Vitals`, or a hub's."""

    started: datetime | None
    recent_warnings: RecentWarnings | None

    def unready(self) -> Sequence[str]:
        """Return why it cannot do its part."""
        ...

    def troubles(self) -> Sequence[str]:
        """Return what somebody should look after, though it does its part."""
        ...

    def status_lines(self) -> Sequence[str]:
        """Return how it stands, a line each."""
        ...


@asynccontextmanager
async def serve_replica(
    client: Client, status: Replica, settings: ReplicaSettings, *, lease: str = LEADER_LEASE
) -> AsyncIterator[None]:
    """Serve while the context lasts; who leads holds `lease`."""
    status.started = status.started or client.clock.now()
    status.recent_warnings = RecentWarnings(client.clock)
    async with AsyncExitStack() as stack:
        stack.enter_context(status.recent_warnings.capture())
        if settings.health_port is not None:
            checks = healthz.serve(
                status.unready, warnings=status.troubles, details=status.status_lines, port=settings.health_port
            )
            await stack.enter_async_context(checks)
        if settings.metrics_address is not None:
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
