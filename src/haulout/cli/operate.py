"""The operator behind `haulout run`: from what was typed, and from where it runs, to its settings."""

import asyncio
import logging
import os
import socket
import uuid
from dataclasses import dataclass

from haulout.app import logs
from haulout.app.operator import OperatorSettings, run_operator
from haulout.cli import connect
from haulout.kube.network.config import IN_CLUSTER, Connection
from haulout.maintenance import lease
from haulout.web import health
from haulout.web.webhook import WebhookSettings, certificate_from

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What was typed about the operator; None: what is usual where it runs."""

    namespace: str | None
    webhook: str | None
    health_port: int | None
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
        )


def operate(wishes: Wishes, *, kubeconfig: str | None, context: str | None, as_json: bool) -> None:
    """Run the operator until it is told to end."""

    async def main() -> None:
        async with connect.connect(kubeconfig=kubeconfig, context=context) as session:
            settings = wishes.settings(session.connection)
            await session.client.server_version()  # what is wrong with the way there is said at once, and in one line
            logs.configure(as_json=as_json, level=min(logging.getLogger().level or logging.INFO, logging.INFO))
            log.info("the operator runs on %s, in namespace %s", session.connection.server, settings.namespace)
            try:
                await run_operator(session.client, settings)
            except asyncio.CancelledError:
                log.info("the operator ends")

    connect.run(main())
