"""The operator behind `haulout run`: from what was typed, and from where it runs, to its settings."""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from haulout.app import logs
from haulout.app.configured import Configured, usual_path
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import Profiles
from haulout.cli import connect
from haulout.core.clock import RealClock
from haulout.kube.client import Client
from haulout.kube.network.config import IN_CLUSTER, Connection
from haulout.maintenance import lease
from haulout.profiles.outside import Network
from haulout.web import health, info
from haulout.web.listening import Address
from haulout.web.wishes import WebhookSettings, certificate_from

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What was typed about the operator; None: what is usual where it runs."""

    namespace: str | None
    webhook: str | None
    health_port: int | None
    metrics: Address | None
    lingers: timedelta = timedelta()
    guards_quorum: bool

    def settings(self, connection: Connection) -> OperatorSettings:
        """Return the settings for an operator that reaches its cluster this way."""
        in_pod = connection.context == IN_CLUSTER
        namespace = self.namespace or connection.namespace
        webhook = self.webhook or ("auto" if in_pod else "off")
        return OperatorSettings(
            namespace=namespace,
            identity=f"{socket.gethostname()}_{uuid.uuid4()}",
            node=os.environ.get("NODE_NAME", ""),
            lease_namespace=os.environ.get("LEASE_NAMESPACE") or lease.NAMESPACE,
            guard_quorum=self.guards_quorum,
            webhook=None
            if webhook == "off"
            else WebhookSettings(
                namespace=namespace, certificate=certificate_from(webhook), guard_quorum=self.guards_quorum
            ),
            health_port=self.health_port or (health.PORT if in_pod else None),
            metrics=self.metrics or (Address(info.PORT) if in_pod else None),
            lingers=self.lingers,
        )


def configured(path: Path | None) -> Configured | None:
    """Return the configuration of profiles, from this file or from the usual one; None if there is none."""
    path = path or usual_path()
    return None if path is None else Configured(path, environ=os.environ, clock=RealClock())


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


def operate(
    wishes: Wishes,
    *,
    kubeconfig: str | None,
    context: str | None,
    as_json: bool,
    config: Path | None = None,
    level: int | None = None,
) -> None:
    """Run the operator until it is told to end; `level` is of its log, instead of what -v says."""
    configuration = configured(config)

    async def main() -> None:
        async with connect.connect(kubeconfig=kubeconfig, context=context) as session:
            settings = wishes.settings(session.connection)
            await session.client.server_version()  # what is wrong with the way there is said at once, and in one line
            asked_for = min(logging.getLogger().level or logging.INFO, logging.INFO)
            logs.configure(as_json=as_json, level=asked_for if level is None else level)
            log.info("the operator runs on %s, in namespace %s", session.connection.server, settings.namespace)
            if configuration is not None:
                log.info("profiles are configured by %s", configuration.path)
            try:
                async with with_profiles(configuration, session.client) as profiles:
                    await run_operator(session.client, settings, profiles=profiles)
            except asyncio.CancelledError:
                log.info("the operator ends")

    connect.run(main())
