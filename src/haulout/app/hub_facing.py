"""What a hub that leads shows to people who look: the source of `/api/v2`, a part that may break without the others.

    group.create_task(face_hub(client, vitals, admission, namespace=…, identity=…, cluster=…))

It outlives the hub itself, which starts again when it broke: whoever looks meanwhile is told so.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from haulout import __version__
from haulout.app.parts import Part
from haulout.errors import KubeError
from haulout.hub.admission import Admission, Budget
from haulout.hub.standing import ClusterStanding
from haulout.kinds.clusterapi import EXTENSION_LEASE
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.web import process
from haulout.web.api import health
from haulout.web.api.heading import Heading
from haulout.web.api.management import Management, Standings
from haulout.web.api.shapes import Banner, Health, LeaseHealth, Level, PartHealth

if TYPE_CHECKING:
    from haulout.web.api.source import Source
    from haulout.web.api.troubles import Troubles


class KnownHub(Standings, Protocol):
    """A hub, as far as it is shown."""

    @property
    def machines(self) -> object | None:
        """The Machines; None: Cluster API was not found yet."""
        ...


class HubShown(Protocol):
    """How a hub is doing: `haulout.app.hub_vitals.HubVitals`."""

    source: "Source | None"

    @property
    def hub(self) -> KnownHub | None:
        """The hub, while it works."""
        ...

    @property
    def part(self) -> Part:
        """The hub as a part that may break."""
        ...

    @property
    def rules(self) -> Part:
        """What follows MachineDrainRules."""
        ...

    @property
    def metal3(self) -> Part:
        """What powers hosts off."""
        ...

    @property
    def facing(self) -> Part:
        """What is shown."""
        ...

    @property
    def started(self) -> datetime | None:
        """When the process has."""
        ...

    @property
    def logged(self) -> "Troubles | None":
        """What was logged of late."""
        ...


async def face_hub(
    client: Client, vitals: HubShown, admission: Admission, *, namespace: str, identity: str, cluster: str
) -> None:
    """Answer those who look, until cancelled."""
    inside = _Inside(client, vitals, namespace=namespace, identity=identity)
    heading = Heading(identity=identity, since=client.clock.now(), cluster=cluster, banners=inside.banners)

    async def work() -> None:
        uses = admission.uses if isinstance(admission, Budget) else None
        source = Management(client, inside, heading=heading, health=inside.health, uses=uses)
        vitals.source = source
        try:
            await source.run()
        finally:
            vitals.source = None

    await vitals.facing.run(work, client=client)


class _Inside:
    """What is known of the hub, whichever of its lives it is in."""

    def __init__(self, client: Client, vitals: HubShown, *, namespace: str, identity: str) -> None:
        self._client = client
        self._clock = client.clock
        self._vitals = vitals
        self._namespace = namespace
        self._identity = identity

    def standings(self) -> tuple[ClusterStanding, ...]:
        """Return how clusters stand."""
        return () if self._vitals.hub is None else self._vitals.hub.standings()

    def subscribe(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call back when that changes; the next life of the hub is seen when somebody looks again."""
        return _nothing if self._vitals.hub is None else self._vitals.hub.subscribe(callback)

    def banners(self) -> tuple[Banner, ...]:
        """Return what people should know on every page."""
        return tuple(Banner(level=Level.CRITICAL, text=it, page="health") for it in self._wrong())

    async def health(self, viewers: int) -> Health:
        """Return how this replica is doing."""
        used, logged = process.taken(), self._vitals.logged
        return Health(
            identity=self._identity,
            version=__version__,
            started=self._vitals.started or self._clock.now(),
            python=used.python,
            memory_bytes=used.memory_bytes,
            cpu_seconds=used.cpu_seconds,
            viewers=viewers,
            leases=(await self._lease(),),
            watches=health.watches(self._client.meters),
            queues=health.queues(self._client.meters),
            calls=health.calls(self._client.calls, now=self._clock.monotonic()),
            parts=tuple(self._parts()),
            troubles=() if logged is None else logged.told(str),
        )

    def _wrong(self) -> Iterator[str]:
        hub = self._vitals.hub
        if hub is not None and hub.machines is None:
            yield "Cluster API was not found in this cluster: there are no machines.cluster.x-k8s.io"
        yield from (it.trouble for it in self._own() if it.trouble)

    def _own(self) -> tuple[Part, ...]:
        return self._vitals.part, self._vitals.rules, self._vitals.metal3, self._vitals.facing

    def _parts(self) -> Iterator[PartHealth]:
        yield from (PartHealth(name=it.name, is_well=not it.trouble, text=it.trouble) for it in self._own())
        for it in self.standings():
            is_well = not it.reach.is_away
            yield PartHealth(name=f"cluster {it.key}", is_well=is_well, text=it.reason, heard=it.heard)

    async def _lease(self) -> LeaseHealth:
        try:
            found = await leases.find(self._client, EXTENSION_LEASE, namespace=self._namespace)
        except KubeError as error:
            return LeaseHealth(name=EXTENSION_LEASE, holder=f"nobody can tell: {error}")
        return health.lease(EXTENSION_LEASE, found)


def _nothing() -> None:
    """End what never began."""
