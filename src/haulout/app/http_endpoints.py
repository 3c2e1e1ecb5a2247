"""The HTTP endpoints of every replica: the dashboard with its API, `/api/v1/info`, and metrics."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from haulout import __version__
from haulout.api.clusterapi import EXTENSION_LEASE
from haulout.api.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.app.replica import ReplicaStatus
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.config.model import Configuration
from haulout.core import duration
from haulout.dashboard.actions import ActionExecutor, NoActions
from haulout.dashboard.api.forwarder import LeaderForwarder
from haulout.dashboard.api.routes import ApiHandler, add_routes
from haulout.dashboard.api.types import Banner, Level, Mode, Summary
from haulout.dashboard.auth.middleware import AuthMiddleware
from haulout.dashboard.auth.replicas import Replicas
from haulout.dashboard.auth.session import SessionRoutes
from haulout.dashboard.auth.settings import AccessSettings
from haulout.dashboard.leader_client import LeaderClient, NoLeader
from haulout.dashboard.server import DashboardServer, InfoProvider
from haulout.httpserver import connections
from haulout.httpserver.delegated_auth import DelegatedAuth
from haulout.httpserver.listener import ListenAddress
from haulout.httpserver.metrics import Collector, Exposition
from haulout.httpserver.secure_metrics import SecureMetricsServer
from haulout.kube.client import Client

if TYPE_CHECKING:
    from haulout.app.operator_status import OperatorStatus
    from haulout.httpserver.serving_certificate import ServingCertificate

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProfilesLeader:
    """The leader of profiles. Without configured profiles there is no leader until maintenance is announced."""

    leader: InfoProvider
    status: ReplicaStatus

    async def info(self, headers: Mapping[str, str] | None = None) -> bytes:
        """Return the leader's answer to `/api/v1/info`; raise `HauloutError`."""
        try:
            return await self.leader.info(headers)
        except NoLeader:
            profiles = self.status.profiles
            if profiles is not None and profiles.file.configuration.profiles:
                raise
            return b"[]"


@contextlib.asynccontextmanager
async def serve_http(
    client: Client,
    status: ReplicaStatus,
    *,
    address: ListenAddress,
    namespace: str,
    identity: str,
    lease: str = LEADER_LEASE,
    metrics_linger: timedelta = timedelta(),
    access: AccessSettings | None = None,
) -> AsyncIterator[int]:
    """Serve while the context lasts; yield the port.

    On cancellation, continue until metrics are scraped once more, but no longer than `metrics_linger`. A replica that
    does not lead forwards to the holder of `lease`, on the same port: all replicas use the same one. `access` is who
    may use the dashboard.
    """
    lease_leader = partial(LeaderClient, client=client, namespace=namespace, identity=identity, port=address.port)
    answerer = ApiHandler(
        backend=lambda: status.source,
        forwarder=LeaderForwarder(lease_leader(lease=lease), client.clock),
        fallback_summary=partial(_no_leader_summary, is_hub=lease == EXTENSION_LEASE, now=client.clock.now),
    )
    status.set_viewer_counter(lambda: answerer.stream_limiter.open_streams)
    auth_middleware = AuthMiddleware(
        access or AccessSettings(),
        delegated_auth=DelegatedAuth(client),
        replicas=Replicas(client, namespace=namespace, identity=identity),
        clock=client.clock,
    )
    performer = ActionExecutor(
        client, namespace=namespace, identity=identity, configuration=partial(_effective_configuration, status)
    )
    session_routes = SessionRoutes(
        auth_middleware, NoActions() if lease == EXTENSION_LEASE else performer, clock=client.clock
    )

    def add_to_app(app: web.Application) -> None:
        auth_middleware.install(app)
        add_routes(app, answerer, add_auth_routes=session_routes.add_routes)

    server = DashboardServer(
        infos=status.infos,
        metrics=Exposition(partial(_collect_metrics, status)).text,
        leader=ProfilesLeader(lease_leader(lease=PROFILES_LEASE), status),
        add_routes=add_to_app,
    )
    async with server.serve(host=address.host, port=address.port) as port:
        log.info("the dashboard, the API and metrics are served on port %d", port)
        try:
            yield port
        # Counters of a process are lost with it. The last scrape delivers what happened since the one before.
        except asyncio.CancelledError:
            if metrics_linger > timedelta():
                log.info("waiting up to %s for a last scrape of /metrics", duration.format(metrics_linger))
                await server.wait_for_scrape(metrics_linger)
            raise


def _effective_configuration(status: ReplicaStatus) -> Configuration | None:
    """Return the configuration that profiles use, whichever replica leads."""
    if status.profiles is None:
        return None
    file = status.profiles.file
    return default_profile.effective_configuration(
        file.configuration, recovery=default_profile.recovery_timeout(file.environ)
    )


def _no_leader_summary(problem: str, *, is_hub: bool, now: Callable[[], datetime]) -> Summary:
    """Return the summary of a replica that does not lead and cannot reach the leader."""
    objects = "clusters" if is_hub else "nodes"
    return Summary(
        version=__version__,
        banners=(Banner(level=Level.CRITICAL, message=f"the state of {objects} is unknown: {problem}", page="health"),),
        time=now(),
        mode=Mode.MANAGEMENT if is_hub else Mode.CLUSTER,
    )


def _collect_metrics(status: ReplicaStatus) -> Iterator[Collector]:
    yield from status.collect_metrics()
    yield from connections.collect()


async def serve_secure_metrics(
    client: Client, status: "OperatorStatus", certificate: "ServingCertificate", *, address: ListenAddress
) -> None:
    """Serve metrics over HTTPS to authorized callers, once there is a certificate, until cancelled."""
    # The certificate may be created only after this replica has started.
    await certificate.wait()
    server = SecureMetricsServer(DelegatedAuth(client), metrics=Exposition(partial(_collect_metrics, status)).text)
    async with server.serve(certificate, host=address.host, port=address.port) as port:
        log.info("metrics are served over HTTPS on port %d to authorized callers", port)
        await asyncio.Event().wait()
