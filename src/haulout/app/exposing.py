"""What every replica serves over HTTP: the dashboard and what feeds it, the API of profiles, and metrics."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from haulout import __version__
from haulout.app.names import LEADER_LEASE, PROFILES_LEASE
from haulout.core import duration
from haulout.kinds.clusterapi import EXTENSION_LEASE
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.profiles import default
from haulout.profiles.model import Configuration
from haulout.web import connections
from haulout.web.acts.performing import NoActs, Performer
from haulout.web.api.forwarding import Forwarding
from haulout.web.api.routes import Answerer, add_routes
from haulout.web.api.shapes import Banner, Level, Mode, Summary
from haulout.web.auth.desk import Desk
from haulout.web.auth.door import Door
from haulout.web.auth.replicas import Replicas
from haulout.web.auth.settings import AccessSettings
from haulout.web.callers import Callers
from haulout.web.guarded import GuardedMetrics
from haulout.web.info import InfoServer, Leader
from haulout.web.leading import LeaseLeader, NobodyLeads
from haulout.web.listening import Address
from haulout.web.metrics import Counted, Exposition

if TYPE_CHECKING:
    from haulout.app.profiles import Profiles
    from haulout.app.vitals import Vitals
    from haulout.web.api.source import Source
    from haulout.web.presented import Presented

log = logging.getLogger(__name__)


class Shown(Protocol):
    """A replica that is shown: an operator's `Vitals`, or a hub's."""

    source: "Source | None"
    profiles: "Profiles | None"

    def count_viewers(self, count: Callable[[], int]) -> None:
        """Learn how to count those who look on."""
        ...

    def infos(self) -> list[RawObject] | None:
        """Return what `/api/v1/info` answers; None: another must be asked."""
        ...

    def tallies(self) -> Iterable[Counted]:
        """Return all numbers, as they are now."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """The leader of profiles; where none are configured there is none until maintenance is announced."""

    leader: Leader
    vitals: Shown

    async def info(self, headers: Mapping[str, str] | None = None) -> bytes:
        """Return what it answers to `/api/v1/info`; raises `HauloutError`."""
        try:
            return await self.leader.info(headers)
        except NobodyLeads:
            profiles = self.vitals.profiles
            if profiles is not None and profiles.configured.configuration.profiles:
                raise
            return b"[]"


@contextlib.asynccontextmanager
async def exposed(
    client: Client,
    vitals: Shown,
    *,
    at: Address,
    namespace: str,
    identity: str,
    lease: str = LEADER_LEASE,
    lingers: timedelta = timedelta(),
    access: AccessSettings | None = None,
) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port.

    When that is cancelled it goes on until the numbers were read once more, but no longer than `lingers`. Who does not
    lead asks the leader, who holds `lease`, on the same port: replicas are alike. `access` says who may use the
    dashboard.
    """
    leads = partial(LeaseLeader, client=client, namespace=namespace, identity=identity, port=at.port)
    answerer = Answerer(
        source=lambda: vitals.source,
        forwarding=Forwarding(leads(lease=lease), client.clock),
        last_resort=partial(_nobody_answers, is_hub=lease == EXTENSION_LEASE, now=client.clock.now),
    )
    vitals.count_viewers(lambda: answerer.turnstile.inside)
    door = Door(
        access or AccessSettings(),
        callers=Callers(client),
        replicas=Replicas(client, namespace=namespace, identity=identity),
        clock=client.clock,
    )
    performer = Performer(client, namespace=namespace, identity=identity, configuration=partial(_configuration, vitals))
    desk = Desk(door, NoActs() if lease == EXTENSION_LEASE else performer, clock=client.clock)

    def add(app: web.Application) -> None:
        door.add_to(app)
        add_routes(app, answerer, add_more=desk.add_routes)

    server = InfoServer(
        infos=vitals.infos,
        metrics=Exposition(partial(_counted, vitals)).text,
        leader=Asked(leads(lease=PROFILES_LEASE), vitals),
        add_more=add,
    )
    async with server.serving(host=at.host, port=at.port) as port:
        log.info("the dashboard, the API and metrics are served on port %d", port)
        try:
            yield port
        except asyncio.CancelledError:
            if lingers > timedelta():
                log.info("waiting until /metrics is read once more, for up to %s", duration.format(lingers))
                await server.linger(lingers)
            raise


def _configuration(vitals: Shown) -> Configuration | None:
    """Return what profiles go by, whoever sees to them."""
    if vitals.profiles is None:
        return None
    configured = vitals.profiles.configured
    return default.in_force(configured.configuration, recovery=default.recovery_of(configured.environ))


def _nobody_answers(why: str, *, is_hub: bool, now: Callable[[], datetime]) -> Summary:
    """Return what a replica can say that does not lead, if whoever does cannot be asked."""
    what = "clusters" if is_hub else "nodes"
    return Summary(
        version=__version__,
        banners=(Banner(level=Level.CRITICAL, text=f"nothing is known of {what}: {why}", page="health"),),
        time=now(),
        mode=Mode.MANAGEMENT if is_hub else Mode.CLUSTER,
    )


def _counted(vitals: Shown) -> Iterator[Counted]:
    yield from vitals.tallies()
    yield from connections.tallies()


async def guard_metrics(client: Client, vitals: "Vitals", presented: "Presented", *, at: Address) -> None:
    """Serve metrics over HTTPS to those who may read them, from when there is a certificate, until cancelled."""
    await presented.wait()
    server = GuardedMetrics(Callers(client), metrics=Exposition(partial(_counted, vitals)).text)
    async with server.serving(presented, host=at.host, port=at.port) as port:
        log.info("metrics are served over HTTPS on port %d, to those who may read them", port)
        await asyncio.Event().wait()
