"""The ESX controller: its zones, and the changes that enqueue one.

Zones share nothing but the Kubernetes cluster: each has its own vCenter, session and interval. A change of a restart
approval, or the end of a drain, triggers a round of the zone at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from haulout.api import hold
from haulout.api.objects import Node
from haulout.controllers.esx.labels import CORDON_OWNER, HostState
from haulout.controllers.esx.node_reconciler import Round
from haulout.controllers.esx.nodes import EsxNodes, zone_of
from haulout.controllers.esx.settings import EsxSettings
from haulout.controllers.esx.vcenter import VCenterLogin
from haulout.controllers.esx.zone_reconciler import Zone, ZoneDecision, ZoneReconciler
from haulout.drain import pod_events
from haulout.drain.metrics import InitiatorDrainMetrics
from haulout.history.cordon_history import CordonHistory
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.recorder import EventRecorder
from haulout.runtime.controller import Controller, Run
from haulout.runtime.freezes import FreezeSource
from haulout.runtime.handover import Handover
from haulout.runtime.journal import Journal

_MAX_ZONES = 64  # workers: a vCenter that hangs must not delay others


class EsxController:
    """Reconciles all zones. Call `run` at most once; the caller runs the node informer.

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
        handover: Handover,
        about_pods: EventRecorder | None = None,
        drain_metrics: InitiatorDrainMetrics | None = None,
        freezes: FreezeSource,
    ) -> None:
        self._journal = journal
        self._freezes = freezes
        self._cache = nodes
        self._node_history = CordonHistory(CORDON_OWNER, journal.history, client.clock)
        self._nodes = EsxNodes(
            client,
            nodes,
            namespace=namespace,
            on_drained=self._on_drained,
            before_drain=handover.before_drain,
            on_eviction=partial(pod_events.record_pod_event, about_pods or journal.events),
            drain_metrics=drain_metrics,
            freezes=self._freezes,
        )
        self._zones = ZoneReconciler(
            client,
            connect=connect,
            nodes=self._nodes,
            read_settings=read_settings,
            journal=journal,
            history=self._node_history,
        )
        self._controller: Controller[str, Round, ZoneDecision] = Controller(
            self._zones, client, name="ESX zone", workers=_MAX_ZONES, handover=handover
        )

    @property
    def zones(self) -> Mapping[str, Zone]:
        """The zones with nodes, by their letter."""
        return self._zones.zones

    async def run(self, *, background: Sequence[Run] = ()) -> None:
        """Run until cancelled, with `background`; raise `LeadershipHandover` when another process must take over."""
        try:
            await self._controller.run(background=(self._nodes.run, *background), start=self._start)
        finally:
            await self._zones.close()

    def use_settings(self, settings: EsxSettings) -> None:
        """Start a round of each zone: `read_settings` returns changed settings."""
        del settings
        self._trigger_all_zones()

    def _trigger_all_zones(self) -> None:
        for node in self._nodes.all():
            self._trigger_zone_of(node)

    async def _start(self, subscriptions: ExitStack) -> None:
        await self._cache.wait_synced()
        subscriptions.callback(self._cache.subscribe(self._on_node_change))
        subscriptions.callback(self._freezes.subscribe(self._trigger_all_zones))

    def host_counts(self) -> tuple[int, int]:
        """Return how many hosts have nodes, and how many of them are not healthy."""
        states = [state for zone in self.zones.values() for state in zone.host_states.values()]
        return len(states), sum(state is not HostState.HEALTHY for state in states)

    def problems(self) -> Iterator[str]:
        """Yield the problems that a person should look into."""
        for zone in self.zones.values():
            yield from zone.describe_problems()
        yield from self._journal.history.problems()

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is None:
            self._node_history.forget(old.name)
            self._journal.forget(old.name)
        if old is None or new is None or _relevant_state(old) != _relevant_state(new):
            self._nodes.on_change()
            for node in (old, new):
                if node is not None:
                    self._trigger_zone_of(node)

    def _on_drained(self, name: str) -> None:
        if (node := self._cache.get(name)) is not None:
            self._trigger_zone_of(node)

    def _trigger_zone_of(self, node: Node) -> None:
        if not (letter := zone_of(node)):
            return
        if (zone := self._zones.zones.get(letter)) is not None:
            self._controller.queue.add_at(letter, self._zones.earliest_round(zone))
        else:
            self._controller.queue.add(letter)


def _relevant_state(node: Node) -> object:
    """Return the fields of a node whose changes trigger a round at once."""
    labels, annotations = node.metadata.labels, node.metadata.annotations
    return zone_of(node), labels, annotations.get(hold.ANNOTATION), node.uid  # a freeze selects by labels
