"""`haulout run --mode management`: from flags and environment to the hub's settings."""

import asyncio
import logging
import socket
import uuid
from dataclasses import dataclass, field

from haulout.app import logs
from haulout.app.hub import HubReplicaSettings, run_hub
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
    """The flags about the hub; None: the default for the environment."""

    hub: ClusterApiSettings
    namespace: str | None = None
    health_port: int | None = None
    metrics: ListenAddress | None = None
    access: AccessSettings | None = None
    cluster: str | None = None  # display name
    elects: bool = True
    leases: LeaderElectionConfig = field(default_factory=LeaderElectionConfig)

    def replica_settings(self, connection: Connection) -> HubReplicaSettings:
        """Return the settings of a hub with this connection to its management cluster."""
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
    """Run the hub until it is stopped; `level` is the log level, instead of that of -v."""

    async def main() -> None:
        async with connect.connect(kubeconfig=kubeconfig, context=context) as session:
            settings = options.replica_settings(session.connection)
            await session.client.server_version()  # report connection errors at once, in one line
            requested_level = min(logging.getLogger().level or logging.INFO, logging.INFO)
            logs.configure(as_json=as_json, level=requested_level if level is None else level)
            log.info("the hub runs on %s, in namespace %s", session.connection.server, settings.namespace)
            try:
                await run_hub(session.client, settings)
            except asyncio.CancelledError:
                log.info("the hub has stopped")

    connect.run(main())
