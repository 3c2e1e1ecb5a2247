"""The Kubernikus controller: label outdated kubelets, and delete the servers of nodes with a deletion order.

    controller = KubernikusController(client, nova=nova, nodes=nodes, journal=journal, settings=settings, namespace=ns)
    await controller.run()  # until cancelled, or until another process must take over

Node events, its own drains, and the `requeue_at` of decisions trigger reconciles. Two things must be polled, since they
send no events: the API server's version, once for all nodes, and the state of servers in Nova.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from haulout.api import hold
from haulout.api.clusterapi import DRAIN_RULES
from haulout.api.objects import Node, Pod
from haulout.budget.cordon_copies import CordonCopies
from haulout.controllers.kubernikus import events
from haulout.controllers.kubernikus.kubelet_version import KubeletVersions
from haulout.controllers.kubernikus.labels import CORDON_OWNER, SERVER_ANNOTATION
from haulout.controllers.kubernikus.nova import Nova
from haulout.controllers.kubernikus.reconciler import KubernikusReconciler
from haulout.controllers.kubernikus.servers import Servers
from haulout.controllers.kubernikus.settings import KubernikusSettings
from haulout.drain import pod_events
from haulout.drain.cordon import CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION
from haulout.drain.escalation import EscalationStep
from haulout.drain.manager import DrainManager
from haulout.drain.metrics import InitiatorDrainMetrics
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.mutation_cache import MutationCache
from haulout.runtime.controller import Controller, Run
from haulout.runtime.freezes import FreezeSource
from haulout.runtime.handover import Handover
from haulout.runtime.journal import Journal

_WORKERS = 8


class KubernikusController:
    """Reconciles all nodes. Call `run` at most once; the caller runs the node informer and the journal's writers."""

    def __init__(  # noqa: PLR0913 - dependencies, each passed by keyword
        self,
        client: Client,
        *,
        nova: Nova,
        nodes: Informer[Node],
        journal: Journal,
        settings: KubernikusSettings,
        namespace: str,
        handover: Handover,
        drain_metrics: InitiatorDrainMetrics | None = None,
        freezes: FreezeSource,
    ) -> None:
        self.journal = journal
        self._freezes = freezes
        self._settings = settings
        self._nodes = MutationCache(nodes)
        self.kubelet_versions = KubeletVersions(client, self._nodes, on_change=self._enqueue_all)
        self._drains = DrainManager(
            client, on_change=self._on_drain_change, on_pod_requested=self._on_eviction, metrics=drain_metrics
        )
        reconciler = KubernikusReconciler(
            client,
            nodes=self._nodes,
            kubelet_versions=self.kubelet_versions,
            servers=Servers(client, nova, self._nodes),
            drains=self._drains,
            cordon_copies=CordonCopies(client, namespace=namespace, controller="kubernikus", owns=CORDON_OWNER.__eq__),
            settings=lambda: self._settings,
            journal=journal,
            freezes=self._freezes,
            before_drain=handover.before_drain,
        )
        self._controller = Controller(reconciler, client, name="Kubernikus", workers=_WORKERS, handover=handover)
        self._queue = self._controller.queue

    async def run(self, *, background: Sequence[Run] = ()) -> None:
        """Run until cancelled, with `background`; raise `LeadershipHandover` when another process must take over."""
        check_versions = partial(self.kubelet_versions.run, lambda: self._settings.interval)
        await self._controller.run(background=(self._drains.run, check_versions, *background), start=self._start)

    def update_settings(self, settings: KubernikusSettings) -> None:
        """Apply changed settings."""
        self._settings = settings
        self.kubelet_versions.check_now()
        self._enqueue_all()

    def order_count(self) -> int:
        """Return how many nodes have an order to report on."""
        return sum(1 for _ in self.journal.topics(events.ORDER))

    def stuck_count(self) -> int:
        """Return how many orders have a problem."""
        return sum(transition.is_warning for transition in self.journal.topics(events.ORDER))

    def problems(self) -> Iterator[str]:
        """Yield the problems that a person should look into."""
        if self.kubelet_versions.problem:
            yield self.kubelet_versions.problem
        yield from self.journal.problems()
        yield from self.journal.history.problems()

    async def _start(self, subscriptions: ExitStack) -> None:
        await self._nodes.informer.wait_synced()
        subscriptions.callback(self._nodes.informer.subscribe(self._on_node_change))
        subscriptions.callback(self._freezes.subscribe(self._enqueue_all))

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        if node is not None and (old is None or new is None or _relevant_state(old) != _relevant_state(new)):
            self._queue.add(node.name)

    def _on_drain_change(self, name: str) -> None:
        self._queue.add(name)

    def _on_eviction(self, name: str, pod: Pod, escalation_step: EscalationStep) -> None:
        node = self._nodes.get(name)
        if node is not None:
            pod_events.record_pod_event(self.journal.events, node, pod, escalation_step)

    def _enqueue_all(self) -> None:
        for node in list(self._nodes.informer.all()):
            self._queue.add(node.name)


def _relevant_state(node: Node) -> object:
    """Return the fields of a node whose changes trigger a reconcile."""
    annotations = node.metadata.annotations
    return (
        node.uid,
        node.metadata.deletion_timestamp,
        node.metadata.labels,  # a freeze selects by labels
        *map(
            annotations.get,
            (CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION, SERVER_ANNOTATION, hold.ANNOTATION, DRAIN_RULES),
        ),
        node.spec,
        node.status.node_info,
    )
