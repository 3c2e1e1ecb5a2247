"""The integration with ESX: a task for each zone that has nodes on hosts, for as long as it has some.

Zones meet nowhere but in the cluster: each has its own vCenter, session and pace. Whoever approves a restart, or takes
that back, is answered at once, and so is a node that has become empty.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

from haulout.api import hold
from haulout.api.objects import Node
from haulout.controllers.esx.events import EsxEventRecorder
from haulout.controllers.esx.labels import APPROVED, CORDON_OWNER
from haulout.controllers.esx.nodes import EsxNodes, zone_of
from haulout.controllers.esx.settings import EsxSettings
from haulout.controllers.esx.vcenter import VCenterLogin
from haulout.controllers.esx.zone_reconciler import ZoneReconciler
from haulout.drain import pod_events
from haulout.drain.metrics import InitiatorDrainMetrics
from haulout.errors import LeadershipHandover
from haulout.history.cordon_history import CordonHistory
from haulout.history.interface import History, NoHistory
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.recorder import EventRecorder


class EsxController:
    """Sees to nodes on ESX hosts; `run` may be called once, and somebody else runs the cache of nodes.

    `read_settings` returns the settings as they are now. `own_node` is that on which this process runs.
    """

    def __init__(  # noqa: PLR0913 - all that it tells others of
        self,
        client: Client,
        *,
        connect: VCenterLogin,
        read_settings: Callable[[], EsxSettings],
        events: EventRecorder,
        nodes: Informer[Node],
        namespace: str,
        own_node: str = "",
        about_pods: EventRecorder | None = None,
        drain_metrics: InitiatorDrainMetrics | None = None,
        history: History | None = None,
    ) -> None:
        self.zones: dict[str, ZoneReconciler] = {}
        self._client = client
        self._connect = connect
        self._read_settings = read_settings
        self._events = events
        self._cache = nodes
        self._own_node = own_node
        self.history = history or NoHistory()
        self._node_history = CordonHistory(CORDON_OWNER, self.history, client.clock)
        self._nodes = EsxNodes(
            client,
            nodes,
            namespace=namespace,
            on_drained=self._trigger_zone_of,
            before_drain=self._hand_over_if_on,
            on_eviction=partial(pod_events.record_pod_event, about_pods or events),
            drain_metrics=drain_metrics,
        )
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._zones_changed = asyncio.Event()
        self._is_handing_over = False

    async def run(self) -> None:
        """Work until cancelled; raises `LeadershipHandover` when another process should go on."""
        async with asyncio.TaskGroup() as group:
            drains = group.create_task(self._nodes.run())
            await self._cache.wait_synced()
            end = self._cache.subscribe(self._on_node_change)
            try:
                while not self._is_handing_over:
                    self._sync_zones(group)
                    await self._zones_changed.wait()
                    self._zones_changed.clear()
            finally:
                end()
                for task in (drains, *self._tasks.values()):
                    task.cancel()
        raise LeadershipHandover(f"this process runs on node {self._own_node}, whose ESX host needs it to be shut down")

    def problems(self) -> Iterator[str]:
        """Yield what somebody should look after."""
        for zone in self.zones.values():
            yield from zone.describe_problems()

    def _sync_zones(self, group: asyncio.TaskGroup) -> None:
        """Have a task for each zone that has nodes, and none for others."""
        wanted = self._nodes.zones()
        for letter in self.zones.keys() - wanted:
            del self.zones[letter]
            self._tasks.pop(letter).cancel()
        for letter in sorted(wanted - self.zones.keys()):
            zone = ZoneReconciler(
                letter,
                self._client,
                connect=self._connect,
                nodes=self._nodes,
                read_settings=self._read_settings,
                recorder=EsxEventRecorder(self._events, self._node_history),
            )
            self.zones[letter] = zone
            self._tasks[letter] = group.create_task(self._run_zone(zone), name=f"ESX zone {letter}")

    async def _run_zone(self, zone: ZoneReconciler) -> None:
        try:
            await zone.run()
        except* LeadershipHandover:  # of one of its nodes
            self._is_handing_over = True
            self._zones_changed.set()

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is None:
            self._node_history.forget(old.name)
        zones = {zone_of(node) for node in (old, new) if node is not None} - {""}
        if not zones <= self.zones.keys() or (new is None or (old is not None and zone_of(old) != zone_of(new))):
            self._zones_changed.set()
        if old is None or new is None or _relevant_state(old) != _relevant_state(new):
            for letter in zones & self.zones.keys():
                self.zones[letter].trigger()

    def _trigger_zone_of(self, name: str) -> None:
        node = self._cache.get(name)
        zone = None if node is None else self.zones.get(zone_of(node))
        if zone is not None:
            zone.trigger()

    def _hand_over_if_on(self, node: str) -> None:
        """Give way to another process before the node is emptied on which this one runs."""
        if node == self._own_node:
            raise LeadershipHandover(f"node {node} is to be drained by another process")


def _relevant_state(node: Node) -> object:
    """Return what others change of a node that is answered at once."""
    labels, annotations = node.metadata.labels, node.metadata.annotations
    return zone_of(node), labels.get(APPROVED), annotations.get(hold.ANNOTATION), node.uid
