"""One of several replicas: who it is, and what each of them serves, whether it leads or not."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from haulout.app.exposing import Shown, exposed
from haulout.app.names import LEADER_LEASE
from haulout.kube.client import Client
from haulout.kube.lease_timing import LeaseTiming
from haulout.web import health
from haulout.web.api.troubles import Troubles
from haulout.web.auth.settings import AccessSettings
from haulout.web.listening import Address

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """Where and as whom it runs."""

    namespace: str
    identity: str
    cluster: str = ""  # how people know it
    health_port: int | None = None
    metrics: Address | None = None  # where metrics and the API are served, if at all
    access: AccessSettings | None = None  # who may use the dashboard; None: who shows a token
    leases: LeaseTiming = field(default_factory=LeaseTiming)  # under which one of the replicas leads
    lingers: timedelta = timedelta()  # how long these are served at the end, until they were read once more


class Replica(Shown, Protocol):
    """How it is doing: an operator's `Vitals`, or a hub's."""

    started: datetime | None
    logged: Troubles | None

    def unready(self) -> Sequence[str]:
        """Return why it cannot do its part."""
        ...

    def troubles(self) -> Sequence[str]:
        """Return what somebody should look after, though it does its part."""
        ...

    def told(self) -> Sequence[str]:
        """Return how it stands, a line each."""
        ...


@asynccontextmanager
async def serving(
    client: Client, vitals: Replica, settings: ReplicaSettings, *, lease: str = LEADER_LEASE
) -> AsyncIterator[None]:
    """Serve while the context lasts; who leads holds `lease`."""
    vitals.started = vitals.started or client.clock.now()
    vitals.logged = Troubles(client.clock)
    async with AsyncExitStack() as stack:
        stack.enter_context(vitals.logged.listening())
        if settings.health_port is not None:
            checks = health.serving(
                vitals.unready, troubles=vitals.troubles, told=vitals.told, port=settings.health_port
            )
            await stack.enter_async_context(checks)
        if settings.metrics is not None:
            dashboard = exposed(
                client,
                vitals,
                at=settings.metrics,
                namespace=settings.namespace,
                identity=settings.identity,
                lease=lease,
                lingers=settings.lingers,
                access=settings.access,
            )
            await stack.enter_async_context(dashboard)
        else:
            log.info("the dashboard and /metrics are not served: no --metrics-port is set")
        yield
