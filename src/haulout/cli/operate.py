"""The operator behind `haulout run`: from what was typed, and from where it runs, to its settings."""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from haulout.app import logs, machine_settings
from haulout.app.clouds import read as read_clouds
from haulout.app.configured import USUAL, Configured
from haulout.app.esx import Esx
from haulout.app.kubernikus import Kubernikus
from haulout.app.machines import Machines
from haulout.app.notices import Notices
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import Profiles
from haulout.cli import connect
from haulout.core.clock import RealClock
from haulout.errors import UsageError
from haulout.history.retention import RetentionSettings
from haulout.kube.client import Client
from haulout.kube.lease_timing import LeaseTiming
from haulout.kube.network.config import IN_CLUSTER, Connection
from haulout.maintenance import lease
from haulout.profiles import default
from haulout.profiles.outside import Network
from haulout.web import guarded, health, info
from haulout.web.auth.settings import AccessSettings
from haulout.web.keysmith import Aside
from haulout.web.listening import Address
from haulout.web.wishes import ClientAuth, WebhookSettings, certificate_from

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What was typed about the operator; None: what is usual where it runs."""

    namespace: str | None
    webhook: str | None
    webhook_client_auth: ClientAuth = ClientAuth.OPTIONAL
    webhook_client_names: tuple[str, ...] = ()
    health_port: int | None
    metrics: Address | None
    guarded_metrics: Address | None = None
    access: AccessSettings | None = None
    lingers: timedelta = timedelta()
    guards_quorum: bool
    cluster: str | None = None  # how people know it
    leases: LeaseTiming = field(default_factory=LeaseTiming)
    retention: RetentionSettings = field(default_factory=RetentionSettings)

    def settings(self, connection: Connection) -> OperatorSettings:
        """Return the settings for an operator that reaches its cluster this way."""
        in_pod = connection.context == IN_CLUSTER
        namespace = self.namespace or connection.namespace
        webhook = self.webhook or ("auto" if in_pod else "off")
        if webhook == "off" and self.guarded_metrics is not None:
            raise UsageError("--https-metrics-port: only with a --webhook, whose certificate is shown there")
        return OperatorSettings(
            namespace=namespace,
            identity=f"{socket.gethostname()}_{uuid.uuid4()}",
            cluster=self.cluster or ("" if in_pod else connection.context),
            node=os.environ.get("NODE_NAME", ""),
            lease_namespace=os.environ.get("LEASE_NAMESPACE") or lease.NAMESPACE,
            guard_quorum=self.guards_quorum,
            webhook=None
            if webhook == "off"
            else WebhookSettings(
                namespace=namespace,
                certificate=certificate_from(webhook),
                smith=Aside(),
                client_auth=self.webhook_client_auth,
                client_names=self.webhook_client_names,
                guard_quorum=self.guards_quorum,
            ),
            health_port=self.health_port or (health.PORT if in_pod else None),
            metrics=self.metrics or (Address(info.PORT) if in_pod else None),
            guarded_metrics=self.guarded_metrics or (Address(guarded.PORT) if in_pod else None),
            access=self.access,
            leases=self.leases,
            retention=self.retention,
            lingers=self.lingers,
        )


def configured(path: Path | None) -> Configured:
    """Return the configuration of profiles, from this file or from the usual one, which need not be there."""
    return Configured(path or USUAL, environ=os.environ, clock=RealClock(), may_lack=path is None)


def of_kubernikus(path: Path | None) -> Kubernikus | None:
    """Return what a file says about nodes of Kubernikus, if one is named."""
    if path is None:
        return None
    from haulout.app.kubernikus_settings import KubernikusFile
    from haulout.kubernikus import sdk

    file = KubernikusFile(path, environ=os.environ, clock=RealClock())
    sdk.check()
    return Kubernikus(file)


@asynccontextmanager
async def with_profiles(configuration: Configured | None, client: Client) -> AsyncIterator[Profiles | None]:
    """Yield what profiles need, if they are configured."""
    if configuration is None:
        yield None
        return
    network = Network(client=client)
    try:
        yield Profiles(configuration, network)
    finally:
        await network.close()


def on_esx(path: Path) -> Esx:
    """Return how nodes on ESX hosts are seen to; raises `ConfigError` if the file makes no sense, or the SDK lacks."""
    from haulout.app.esx_settings import EsxFile
    from haulout.esx import sdk

    file = EsxFile(path, os.environ)
    sdk.check()
    return Esx.of(file)


def operate(
    wishes: Wishes,
    *,
    kubeconfig: str | None,
    context: str | None,
    as_json: bool,
    config: Path | None = None,
    kubernikus: Path | None = None,
    esx: Path | None = None,
    level: int | None = None,
) -> None:
    """Run the operator until it is told to end; `level` is of its log, instead of what -v says."""
    configuration, clouds = configured(config), read_clouds(os.environ)
    nodes_of_kubernikus = of_kubernikus(kubernikus)
    vcenters = None if esx is None else on_esx(esx)
    how, policy = machine_settings.read(os.environ)
    default.recovery_of(os.environ)  # what is wrong with it is told at the start
    machines = Machines(settings=how, policy=policy)

    async def main() -> None:
        async with connect.connect(kubeconfig=kubeconfig, context=context) as session:
            settings = wishes.settings(session.connection)
            await session.client.server_version()  # what is wrong with the way there is said at once, and in one line
            asked_for = min(logging.getLogger().level or logging.INFO, logging.INFO)
            logs.configure(as_json=as_json, level=asked_for if level is None else level)
            log.info("the operator runs on %s, in namespace %s", session.connection.server, settings.namespace)
            if configuration.is_there:
                log.info("profiles are configured by %s", configuration.path)
            if nodes_of_kubernikus is not None:
                log.info("nodes of Kubernikus are seen to, by %s", nodes_of_kubernikus.file.path)
                for warning in nodes_of_kubernikus.file.warnings:
                    log.warning("%s", warning)
            if esx is not None:
                log.info("nodes on ESX hosts are seen to, by %s", esx)
            for line in clouds.told():
                log.info("%s", line)
            for line in clouds.ignored:
                log.warning("environment: %s", line)
            notices = Notices(clouds.sources(socket.gethostname()))
            try:
                async with with_profiles(configuration, session.client) as profiles:
                    await run_operator(
                        session.client,
                        settings,
                        profiles=profiles,
                        notices=notices,
                        machines=machines,
                        kubernikus=nodes_of_kubernikus,
                        esx=vcenters,
                    )
            except asyncio.CancelledError:
                log.info("the operator ends")

    connect.run(main())
