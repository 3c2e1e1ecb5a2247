"""The Kubernikus controller: label outdated kubelets, and delete the servers of nodes with a deletion order.

    controller = KubernikusController(client, nova=nova, nodes=nodes, events=events, settings=settings, namespace="ns")
    await controller.run()                      # until cancelled, or until another process must take over

Node events, its own drains, and the `requeue_at` of decisions trigger reconciles. Two things must be polled, since they
send no events: the API server's version, once for all nodes, and the state of servers in Nova.
"""

import asyncio
import logging
from datetime import datetime, timedelta
from functools import partial

from haulout.api import hold
from haulout.api.clusterapi import DRAIN_RULES
from haulout.api.objects import Node, Pod, RawObject
from haulout.api.reasons import KubernikusEventReason
from haulout.api.resources import NODES
from haulout.budget.cordon_copies import CordonCopies
from haulout.budget.unavailable_nodes import is_unavailable
from haulout.controllers.kubernikus import decision as steps
from haulout.controllers.kubernikus.decision import Observation, ServerLookup, decide
from haulout.controllers.kubernikus.events import KubernikusEventRecorder
from haulout.controllers.kubernikus.kubelet_version import KubeletVersionLabeler
from haulout.controllers.kubernikus.labels import CORDON_OWNER, NEEDS_UPDATE, SERVER_ANNOTATION, is_deletion_ordered
from haulout.controllers.kubernikus.nova import Nova
from haulout.controllers.kubernikus.servers import NodeChanged, Servers
from haulout.controllers.kubernikus.settings import KubernikusSettings
from haulout.drain import pod_events
from haulout.drain.cordon import CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION
from haulout.drain.escalation import EscalationStep
from haulout.drain.eviction_requests import RequestOwner
from haulout.drain.manager import DrainManager
from haulout.drain.metrics import InitiatorDrainMetrics
from haulout.errors import Conflict, LeadershipHandover, NotFound
from haulout.history.cordon_history import CordonHistory
from haulout.history.interface import History, NoHistory
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.patches import node_patch
from haulout.kube.recorder import EventRecorder
from haulout.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

_MAX_ACTIONS = 20  # in one reconcile: more would mean that decisions loop
_CONFLICT_DELAY = timedelta(seconds=2)
_WORKERS = 8


class KubernikusController:
    """Reconciles all nodes. Call `run` at most once; the caller runs the node informer and the event recorder."""

    def __init__(  # noqa: PLR0913 - dependencies, each passed by keyword
        self,
        client: Client,
        *,
        nova: Nova,
        nodes: Informer[Node],
        events: EventRecorder,
        settings: KubernikusSettings,
        namespace: str,
        own_node: str = "",
        drain_metrics: InitiatorDrainMetrics | None = None,
        history: History | None = None,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._nodes = MutationCache(nodes)
        self._events = events
        self._settings = settings
        self._own_node = own_node  # hand over before this node is drained; empty: never
        self._is_handing_over = asyncio.Event()
        self._cordoned_at: dict[str, datetime] = {}  # by node: when we last cordoned it
        self.recorder = KubernikusEventRecorder(events)
        self.history = history or NoHistory()
        self._node_history = CordonHistory(CORDON_OWNER, self.history, client.clock)
        self.kubelet_versions = KubeletVersionLabeler(client, self._nodes, self.recorder, on_change=self._enqueue_all)
        self._cordon_copies = CordonCopies(
            client, namespace=namespace, controller="kubernikus", owns=CORDON_OWNER.__eq__
        )
        self._servers = Servers(client, nova, self._nodes)
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            metrics=client.metrics,
            name="Kubernikus",
        )
        self._drains = DrainManager(
            client, on_change=self._queue.add, on_pod_requested=self._on_eviction, metrics=drain_metrics
        )

    async def run(self) -> None:
        """Run until cancelled; raise `LeadershipHandover` when another process must take over."""
        await self._nodes.informer.wait_synced()
        end = self._nodes.informer.subscribe(self._on_node_change)
        try:
            async with asyncio.TaskGroup() as group:
                check_versions = partial(self.kubelet_versions.run, lambda: self._settings.interval)
                background = [group.create_task(run()) for run in (self._drains.run, check_versions, self._queue.run)]
                await self._is_handing_over.wait()
                for task in background:
                    task.cancel()
        finally:
            end()
        raise LeadershipHandover(
            f"this process runs on node {self._own_node}, which is about to be drained and deleted"
        )

    def update_settings(self, settings: KubernikusSettings) -> None:
        """Apply changed settings."""
        self._settings = settings
        self.kubelet_versions.check_now()
        self._enqueue_all()

    # Event handlers

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        if node is not None and (old is None or new is None or _relevant_state(old) != _relevant_state(new)):
            self._queue.add(node.name)

    def _on_eviction(self, name: str, pod: Pod, escalation_step: EscalationStep) -> None:
        node = self._nodes.get(name)
        if node is not None:
            pod_events.record_pod_event(self._events, node, pod, escalation_step)

    def _enqueue_all(self) -> None:
        for node in list(self._nodes.informer.all()):
            self._queue.add(node.name)

    # Reconcile

    async def _reconcile(self, name: str) -> datetime | None:
        await self._cordon_copies.load(self._nodes.informer.all)
        node = self._nodes.get(name)
        if node is None:
            await self._forget(name)
            return None
        try:
            await self.kubelet_versions.label(node)
            return await self._reconcile_node(name)
        except (Conflict, NotFound, NodeChanged) as error:
            log.debug("node %s has changed, retrying: %s", name, error)
            return self._clock.now() + _CONFLICT_DELAY

    async def _reconcile_node(self, name: str) -> datetime | None:
        lookup: ServerLookup | None = None
        for _ in range(_MAX_ACTIONS):
            node = self._nodes.get(name)
            if node is None:
                return None  # the node was deleted: the informer triggers the next reconcile
            self._node_history.observe(node)
            observation = Observation(
                node=node,
                now=self._clock.now(),
                settings=self._settings,
                drain=self._drains.snapshot(name),
                lookup=lookup,
                deleted_server=self._servers.deleted_server(node),
                cordoned_at=self._cordoned_at.get(name),
                cordon_copy=self._cordon_copies.get(node),
            )
            self._node_history.record_drain(node, observation.drain)
            decision = decide(observation)
            match decision.action:
                case None:
                    await self._cordon_copies.sync(node)
                    self.recorder.record_decision(node, decision)
                    return decision.requeue_at
                case steps.FindServers():
                    lookup = await self._servers.find(node, valid_for=self._settings.interval)
                case steps.DeleteServer(server):
                    lookup = await self._delete_server(node, server)
                case action:
                    await self._execute(node, action)
        raise RuntimeError(f"node {name}: still not settled after {_MAX_ACTIONS} actions")

    async def _delete_server(self, node: Node, server: str) -> ServerLookup | None:
        problem = await self._servers.delete(node, server, valid_for=self._settings.interval)
        if problem is None:
            self._node_history.record_action(
                node, KubernikusEventReason.SERVER_DELETED, f"Nova has accepted the deletion of its server {server}"
            )
        return problem

    async def _execute(self, node: Node, action: steps.Action) -> None:
        name = node.name
        match action:
            case steps.CordonNode(change, is_first, tampering):
                changed = await self._patch(node, change)
                self._cordoned_at[name] = self._clock.now()
                if is_first:
                    self._record_order(changed)
                elif tampering:
                    self.recorder.record_restored_cordon(node, tampering)
            case steps.ReleaseNode(change):
                await self._cordon_copies.remove_owners(node)
                await self._patch(node, change)
                self._node_history.record_end(node, self.recorder.record_release(node))
            case steps.RecordServer(change):
                await self._patch(node, change)
            case steps.StartDrain(policy):
                self._hand_over_if_on(name)
                self._drains.start(
                    name, node, policy, owner=RequestOwner(name=f"{name}.delete-node"), keep_running=True
                )
            case steps.ChangeDrainPolicy(policy):
                self._drains.set_policy(name, policy)
            case steps.StopDrain():
                await self._drains.stop(name)

    async def _patch(self, node: Node, change: RawObject) -> Node:
        changed = self._nodes.record_write(await self._client.patch(NODES, node.name, node_patch(change)))
        await self._cordon_copies.sync(changed)
        return changed

    def _record_order(self, node: Node) -> None:
        others = [other for other in self._nodes.informer.all() if other.name != node.name]
        now = self._clock.now()
        message = self.recorder.record_order(
            node, unavailable=sum(is_unavailable(other, now) for other in others), total=len(others)
        )
        self._node_history.record_start(node, message)

    def _hand_over_if_on(self, name: str) -> None:
        """Hand leadership over before this process's own node is drained."""
        if name == self._own_node:
            self._is_handing_over.set()
            raise LeadershipHandover(f"node {name} is to be drained by another process")

    async def _forget(self, name: str) -> None:
        await self._drains.stop(name)
        await self._cordon_copies.remove_node(name)
        self._cordoned_at.pop(name, None)
        self._servers.forget(name)
        self.recorder.forget(name)
        self._node_history.forget(name)


def _relevant_state(node: Node) -> object:
    """Return the fields of a node whose changes trigger a reconcile."""
    labels, annotations = node.metadata.labels, node.metadata.annotations
    return (
        node.uid,
        node.metadata.deletion_timestamp,
        labels.get(NEEDS_UPDATE),
        is_deletion_ordered(node),
        *map(
            annotations.get,
            (CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION, SERVER_ANNOTATION, hold.ANNOTATION, DRAIN_RULES),
        ),
        node.spec,
        node.status.node_info,
    )
