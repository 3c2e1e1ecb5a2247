"""The hub behind `haulout run --mode management`: from what was typed, and from where it runs, to its settings."""

import asyncio
import logging
import socket
import uuid
from dataclasses import dataclass, field

from haulout.app import logs
from haulout.app.clusterapi.hub import HubReplicaSettings, run_hub
from haulout.cli import connect
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.dashboard import server
from haulout.dashboard.auth.settings import AccessSettings
from haulout.httpserver import healthz
from haulout.httpserver.listener import ListenAddress
from haulout.kube.leaderelection_config import LeaderElectionConfig
from haulout.kube.transports.config import IN_CLUSTER, Connection

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """What was typed about a hub; None: what is usual where it runs."""

    hub: ClusterApiSettings
    namespace: str | None = None
    health_port: int | None = None
    metrics: ListenAddress | None = None
    access: AccessSettings | None = None
    cluster: str | None = None  # how people know it
    elects: bool = True
    leases: LeaderElectionConfig = field(default_factory=LeaderElectionConfig)

    def replica_settings(self, connection: Connection) -> HubReplicaSettings:
        """Return the settings for a hub that reaches its management cluster this way."""
        in_pod = connection.context == IN_CLUSTER
        return HubReplicaSettings(
            namespace=self.namespace or connection.namespace,
            identity=f"{socket.gethostname()}_{uuid.uuid4()}",
            cluster=self.cluster or ("" if in_pod else connection.context),
            elects_leader=self.elects,
            health_port=self.health_port or (healthz.PORT if in_pod else None),
            metrics_address=self.metrics or (ListenAddress(server.PORT) if in_pod else None),
            access=self.access,
            leases=self.leases,
            hub=self.hub,
        )


def run_hub_process(
    options: HubOptions, *, kubeconfig: str | None, context: str | None, as_json: bool, level: int | None = None
) -> None:
    """Run the hub until it is told to end; `level` is of its log, instead of what -v says."""

    async def main() -> None:
        async with connect.connect(kubeconfig=kubeconfig, context=context) as session:
            settings = options.replica_settings(session.connection)
            await session.client.server_version()  # what is wrong with the way there is said at once, and in one line
            requested_level = min(logging.getLogger().level or logging.INFO, logging.INFO)
            logs.configure(as_json=as_json, level=requested_level if level is None else level)
            log.info("the hub runs on %s, in namespace %s", session.connection.server, settings.namespace)
            try:
                await run_hub(session.client, settings)
            except asyncio.CancelledError:
                log.info("the hub ends")

    connect.run(main())
