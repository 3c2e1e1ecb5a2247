"""The integration with ESX: a task for each zone that has nodes on hosts, for as long as it has some.

Zones meet nowhere but in the cluster: each has its own vCenter, session and pace. Whoever approves a restart, or takes
that back, is answered at once, and so is a node that has become empty.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

from haulout.drain import leaving
from haulout.drain.tallies import Meter
from haulout.errors import HandOver
from haulout.esx.keys import APPROVED, OWNER
from haulout.esx.nodes import Nodes, zone_of
from haulout.esx.settings import Settings
from haulout.esx.telling import Teller
from haulout.esx.vcenter import Connect
from haulout.esx.zone import Zone
from haulout.history.holding import Holding
from haulout.history.interface import History, NoHistory
from haulout.kinds import hold
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.objects import Node


class Controller:
    """Sees to nodes on ESX hosts; `run` may be called once, and somebody else runs the cache of nodes.

    `read` returns the settings as they are now. `own_node` is that on which this process runs.
    """

    def __init__(  # noqa: PLR0913 - all that it tells others of
        self,
        client: Client,
        *,
        connect: Connect,
        read: Callable[[], Settings],
        events: EventRecorder,
        nodes: Cache[Node],
        namespace: str,
        own_node: str = "",
        about_pods: EventRecorder | None = None,
        meter: Meter | None = None,
        history: History | None = None,
    ) -> None:
        self.zones: dict[str, Zone] = {}
        self._client = client
        self._connect = connect
        self._read = read
        self._events = events
        self._cache = nodes
        self._own_node = own_node
        self.history = history or NoHistory()
        self._holding = Holding(OWNER, self.history, client.clock)
        self._nodes = Nodes(
            client,
            nodes,
            namespace=namespace,
            drained=self._wake_zone_of,
            before_drain=self._hand_over_if_on,
            asked=partial(leaving.tell, about_pods or events),
            meter=meter,
        )
        self._running: dict[str, asyncio.Task[None]] = {}
        self._news = asyncio.Event()
        self._is_handing_over = False

    async def run(self) -> None:
        """Work until cancelled; raises `HandOver` when another process should go on."""
        async with asyncio.TaskGroup() as group:
            drains = group.create_task(self._nodes.run())
            await self._cache.wait_synced()
            end = self._cache.subscribe(self._note_node)
            try:
                while not self._is_handing_over:
                    self._keep_zones(group)
                    await self._news.wait()
                    self._news.clear()
            finally:
                end()
                for task in (drains, *self._running.values()):
                    task.cancel()
        raise HandOver(f"this process runs on node {self._own_node}, whose ESX host needs it to be shut down")

    def troubles(self) -> Iterator[str]:
        """Yield what somebody should look after."""
        for it in self.zones.values():
            yield from it.troubles()

    def _keep_zones(self, group: asyncio.TaskGroup) -> None:
        """Have a task for each zone that has nodes, and none for others."""
        wanted = self._nodes.zones()
        for letter in self.zones.keys() - wanted:
            del self.zones[letter]
            self._running.pop(letter).cancel()
        for letter in sorted(wanted - self.zones.keys()):
            zone = Zone(
                letter,
                self._client,
                connect=self._connect,
                nodes=self._nodes,
                read=self._read,
                tell=Teller(self._events, self._holding),
            )
            self.zones[letter] = zone
            self._running[letter] = group.create_task(self._see_to(zone), name=f"ESX zone {letter}")

    async def _see_to(self, zone: Zone) -> None:
        try:
            await zone.run()
        except* HandOver:  # of one of its nodes
            self._is_handing_over = True
            self._news.set()

    def _note_node(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is None:
            self._holding.forget(old.name)
        zones = {zone_of(it) for it in (old, new) if it is not None} - {""}
        if not zones <= self.zones.keys() or (new is None or (old is not None and zone_of(old) != zone_of(new))):
            self._news.set()
        if old is None or new is None or _matters(old) != _matters(new):
            for letter in zones & self.zones.keys():
                self.zones[letter].wake()

    def _wake_zone_of(self, name: str) -> None:
        node = self._cache.get(name)
        zone = None if node is None else self.zones.get(zone_of(node))
        if zone is not None:
            zone.wake()

    def _hand_over_if_on(self, node: str) -> None:
        """Give way to another process before the node is emptied on which this one runs."""
        if node == self._own_node:
            raise HandOver(f"node {node} is to be drained by another process")


def _matters(node: Node) -> object:
    """Return what others change of a node that is answered at once."""
    labels, annotations = node.metadata.labels, node.metadata.annotations
    return zone_of(node), labels.get(APPROVED), annotations.get(hold.ANNOTATION), node.uid
