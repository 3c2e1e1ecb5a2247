"""The ESX controller: run one task per zone, while the zone has nodes on ESX hosts.

Zones share nothing but the Kubernetes cluster: each has its own vCenter, session and interval. A change of a restart
approval, or the end of a drain, triggers a round of the zone at once.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial

from haulout.api import hold
from haulout.api.objects import Node
from haulout.controllers.esx.labels import APPROVED, CORDON_OWNER, HostState
from haulout.controllers.esx.nodes import EsxNodes, zone_of
from haulout.controllers.esx.settings import EsxSettings
from haulout.controllers.esx.vcenter import VCenterLogin
from haulout.controllers.esx.zone_reconciler import ZoneReconciler
from haulout.drain import pod_events
from haulout.drain.metrics import InitiatorDrainMetrics
from haulout.errors import LeadershipHandover
from haulout.history.cordon_history import CordonHistory
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.recorder import EventRecorder
from haulout.runtime.handover import Handover
from haulout.runtime.journal import Journal

log = logging.getLogger(__name__)


class EsxController:
    """Runs a `ZoneReconciler` per zone. Call `run` at most once; the caller runs the node informer.

    `read_settings` returns the current settings.
    """

    def __init__(  # noqa: PLR0913 - dependencies, each passed by keyword
        self,
        client: Client,
        *,
        connect: VCenterLogin,
        read_settings: Callable[[], EsxSettings],
        journal: Journal,
        nodes: Informer[Node],
        namespace: str,
        handover: Handover | None = None,
        about_pods: EventRecorder | None = None,
        drain_metrics: InitiatorDrainMetrics | None = None,
    ) -> None:
        self.zones: dict[str, ZoneReconciler] = {}
        self._client = client
        self._connect = connect
        self._read_settings = read_settings
        self._journal = journal
        self._cache = nodes
        self._handover = handover or Handover()
        self._node_history = CordonHistory(CORDON_OWNER, journal.history, client.clock)
        self._nodes = EsxNodes(
            client,
            nodes,
            namespace=namespace,
            on_drained=self._trigger_zone_of,
            before_drain=self._handover.before_drain,
            on_eviction=partial(pod_events.record_pod_event, about_pods or journal.events),
            drain_metrics=drain_metrics,
        )
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._zones_changed = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled; raise `LeadershipHandover` when another process must take over."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._nodes.run())]
            await self._cache.wait_synced()
            end = self._cache.subscribe(self._on_node_change)
            tasks.append(group.create_task(self._run_zones(group)))
            try:
                await self._handover.wait()
            finally:
                end()
                for task in (*tasks, *self._tasks.values()):
                    task.cancel()
        raise self._handover.reason()

    def host_counts(self) -> tuple[int, int]:
        """Return how many hosts have nodes, and how many of them are not healthy."""
        states = [state for zone in self.zones.values() for state in zone.host_states.values()]
        return len(states), sum(state is not HostState.HEALTHY for state in states)

    def problems(self) -> Iterator[str]:
        """Yield the problems that a person should look into."""
        for zone in self.zones.values():
            yield from zone.describe_problems()
        yield from self._journal.history.problems()

    async def _run_zones(self, group: asyncio.TaskGroup) -> None:
        while True:
            self._sync_zones(group)
            await self._zones_changed.wait()
            self._zones_changed.clear()

    def _sync_zones(self, group: asyncio.TaskGroup) -> None:
        """Start a task for each zone that has nodes, and stop all others."""
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
                journal=self._journal,
                history=self._node_history,
            )
            self.zones[letter] = zone
            self._tasks[letter] = group.create_task(self._run_zone(zone), name=f"ESX zone {letter}")

    async def _run_zone(self, zone: ZoneReconciler) -> None:
        try:
            await zone.run()
        except* LeadershipHandover:
            log.debug("zone %s ends: %s", zone.letter, self._handover.reason())  # `run` ends, too

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is None:
            self._node_history.forget(old.name)
            self._journal.forget(old.name)
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


def _relevant_state(node: Node) -> object:
    """Return the fields of a node whose changes trigger a round at once."""
    labels, annotations = node.metadata.labels, node.metadata.annotations
    return zone_of(node), labels.get(APPROVED), annotations.get(hold.ANNOTATION), node.uid
