"""`haulout run --mode cluster`: from flags and environment to the operator's settings."""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from haulout.app import logs
from haulout.app.components import load_components, settings_files
from haulout.app.machines import read_settings
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.provider_settings import read_environment as read_clouds
from haulout.cli import connect
from haulout.controllers.machines.component import MachinesComponent
from haulout.controllers.nodemaintenance import node_lease
from haulout.controllers.notices.component import NoticesComponent
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import DEFAULT_PATH, ProfilesFile
from haulout.controllers.profiles.external.network_client import NetworkClient
from haulout.core.clock import RealClock
from haulout.dashboard import server
from haulout.dashboard.auth.settings import AccessSettings
from haulout.errors import UsageError
from haulout.history.retention import RetentionSettings
from haulout.httpserver import healthz, secure_metrics
from haulout.httpserver.listener import ListenAddress
from haulout.kube.client import Client
from haulout.kube.leaderelection_config import LeaderElectionConfig
from haulout.kube.transports.config import IN_CLUSTER, Connection
from haulout.webhook.certificate_generator import SubprocessGenerator
from haulout.webhook.settings import ClientAuth, WebhookSettings, parse_certificate_source

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """The flags about the operator; None: the default for the environment."""

    namespace: str | None
    webhook: str | None
    webhook_client_auth: ClientAuth = ClientAuth.OPTIONAL
    webhook_client_names: tuple[str, ...] = ()
    health_port: int | None
    metrics: ListenAddress | None
    secure_metrics_address: ListenAddress | None = None
    access: AccessSettings | None = None
    metrics_linger: timedelta = timedelta()
    guards_quorum: bool
    cluster: str | None = None  # display name
    leases: LeaderElectionConfig = field(default_factory=LeaderElectionConfig)
    retention: RetentionSettings = field(default_factory=RetentionSettings)

    def settings(self, connection: Connection) -> OperatorSettings:
        """Return the settings of an operator with this connection."""
        in_pod = connection.context == IN_CLUSTER
        namespace = self.namespace or connection.namespace
        webhook = self.webhook or ("auto" if in_pod else "off")
        if webhook == "off" and self.secure_metrics_address is not None:
            raise UsageError("--https-metrics-port: only with a --webhook, whose certificate it uses")
        return OperatorSettings(
            namespace=namespace,
            identity=f"{socket.gethostname()}_{uuid.uuid4()}",
            cluster=self.cluster or ("" if in_pod else connection.context),
            node=os.environ.get("NODE_NAME", ""),
            lease_namespace=os.environ.get("LEASE_NAMESPACE") or node_lease.NAMESPACE,
            guard_quorum=self.guards_quorum,
            webhook=None
            if webhook == "off"
            else WebhookSettings(
                namespace=namespace,
                certificate=parse_certificate_source(webhook),
                certificate_generator=SubprocessGenerator(),
                client_auth=self.webhook_client_auth,
                client_names=self.webhook_client_names,
                guard_quorum=self.guards_quorum,
            ),
            health_port=self.health_port or (healthz.PORT if in_pod else None),
            metrics_address=self.metrics or (ListenAddress(server.PORT) if in_pod else None),
            secure_metrics_address=self.secure_metrics_address
            or (ListenAddress(secure_metrics.PORT) if in_pod else None),
            access=self.access,
            leases=self.leases,
            retention=self.retention,
            metrics_linger=self.metrics_linger,
        )


def load_profiles_file(path: Path | None) -> ProfilesFile:
    """Load the configuration of profiles from this file, or from the default one, which may be missing."""
    return ProfilesFile(path or DEFAULT_PATH, environ=os.environ, clock=RealClock(), is_optional=path is None)


@asynccontextmanager
async def open_profiles(file: ProfilesFile | None, client: Client) -> AsyncIterator[ProfilesComponent | None]:
    """Yield the profiles component, if profiles are configured."""
    if file is None:
        yield None
        return
    network = NetworkClient(client=client)
    try:
        yield ProfilesComponent(file, network)
    finally:
        await network.close()


def run_operator_process(
    options: OperatorOptions,
    *,
    kubeconfig: str | None,
    context: str | None,
    as_json: bool,
    config: Path | None = None,
    component_files: Mapping[str, Path] | None = None,
    level: int | None = None,
) -> None:
    """Run the operator until it is stopped.

    `component_files` are the settings files of components by the component's name. `level` is the log level, instead of
    that of -v.
    """
    component_files = component_files or {}
    profiles_file, providers = load_profiles_file(config), read_clouds(os.environ)
    components = load_components(component_files, environ=os.environ, clock=RealClock())
    machines_settings, policy = read_settings(os.environ)
    default_profile.recovery_timeout(os.environ)  # report an invalid value at the start
    machines = MachinesComponent(settings=machines_settings, policy=policy)

    async def main() -> None:
        async with connect.connect(kubeconfig=kubeconfig, context=context) as session:
            settings = options.settings(session.connection)
            await session.client.server_version()  # report connection errors at once, in one line
            requested_level = min(logging.getLogger().level or logging.INFO, logging.INFO)
            logs.configure(as_json=as_json, level=requested_level if level is None else level)
            log.info("the operator runs on %s, in namespace %s", session.connection.server, settings.namespace)
            if profiles_file.is_loaded:
                log.info("profiles are configured by %s", profiles_file.path)
            for name, path in component_files.items():
                log.info("%s are maintained as configured by %s", settings_files()[name].configures, path)
            for warning in (warning for component in components for warning in component.warnings()):
                log.warning("%s", warning)
            for line in providers.describe():
                log.info("%s", line)
            for line in providers.ignored:
                log.warning("environment: %s", line)
            notices = NoticesComponent(providers.sources)
            try:
                async with open_profiles(profiles_file, session.client) as profiles:
                    await run_operator(
                        session.client,
                        settings,
                        profiles=profiles,
                        notices=notices,
                        machines=machines,
                        components=components,
                    )
            except asyncio.CancelledError:
                log.info("the operator has stopped")

    connect.run(main())
