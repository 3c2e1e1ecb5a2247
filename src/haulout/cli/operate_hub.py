"""The hub behind `haulout run --mode management`: from what was typed, and from where it runs, to its settings."""

import asyncio
import logging
import socket
import uuid
from dataclasses import dataclass, field

from haulout.app import logs
from haulout.app.hub import HubOperation, run_hub
from haulout.cli import connect
from haulout.hub.settings import HubSettings
from haulout.kube.lease_timing import LeaseTiming
from haulout.kube.network.config import IN_CLUSTER, Connection
from haulout.web import health, info
from haulout.web.auth.settings import AccessSettings
from haulout.web.listening import Address

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubWishes:
    """What was typed about a hub; None: what is usual where it runs."""

    hub: HubSettings
    namespace: str | None = None
    health_port: int | None = None
    metrics: Address | None = None
    access: AccessSettings | None = None
    cluster: str | None = None  # how people know it
    elects: bool = True
    leases: LeaseTiming = field(default_factory=LeaseTiming)

    def operation(self, connection: Connection) -> HubOperation:
        """Return the settings for a hub that reaches its management cluster this way."""
        in_pod = connection.context == IN_CLUSTER
        return HubOperation(
            namespace=self.namespace or connection.namespace,
            identity=f"{socket.gethostname()}_{uuid.uuid4()}",
            cluster=self.cluster or ("" if in_pod else connection.context),
            elects=self.elects,
            health_port=self.health_port or (health.PORT if in_pod else None),
            metrics=self.metrics or (Address(info.PORT) if in_pod else None),
            access=self.access,
            leases=self.leases,
            hub=self.hub,
        )


def operate_hub(
    wishes: HubWishes, *, kubeconfig: str | None, context: str | None, as_json: bool, level: int | None = None
) -> None:
    """Run the hub until it is told to end; `level` is of its log, instead of what -v says."""

    async def main() -> None:
        async with connect.connect(kubeconfig=kubeconfig, context=context) as session:
            operation = wishes.operation(session.connection)
            await session.client.server_version()  # what is wrong with the way there is said at once, and in one line
            asked_for = min(logging.getLogger().level or logging.INFO, logging.INFO)
            logs.configure(as_json=as_json, level=asked_for if level is None else level)
            log.info("the hub runs on %s, in namespace %s", session.connection.server, operation.namespace)
            try:
                await run_hub(session.client, operation)
            except asyncio.CancelledError:
                log.info("the hub ends")

    connect.run(main())
