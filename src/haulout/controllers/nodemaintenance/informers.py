"""Informers for NodeMaintenances, nodes and leases, with a mutation cache that includes our own writes.

A cache may be stale. What is missing in it is read from the API server, and before a node is taken, `confirm` reads
from the API server whether its maintenance still exists.

No precondition ties a write to the node to the existence of its maintenance. While two replicas both believe to lead,
one may take a node right after the other has ended the maintenance. Therefore both the replica that ends a maintenance
and the one that takes something for it remember it for a while (`note_ended`), until the API server confirms that the
maintenance exists. What was taken too late is released.

`WorkloadInformers` watches workloads, but only while a NodeMaintenance requests recovery.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import partial

from msgspec import structs

from haulout.api import hold, workloads
from haulout.api.clusterapi import DRAIN_RULES
from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenance, NodeMaintenanceStatus, RecoveryStatus
from haulout.api.objects import Lease, Node, Pod, RawObject
from haulout.api.resources import LEASES, NODES, PODS
from haulout.api.workloads import WORKLOAD_KINDS, ControlledPod, ScaledWorkload, WorkloadRecord, WorkloadReference
from haulout.budget.budget_check import GroupSizes
from haulout.budget.limits import LimitGroup
from haulout.budget.unavailable_nodes import (
    RECOVERING_ANNOTATION,
    NotReadyTracker,
    may_be_unavailable,
    node_maintenances_of,
    recovering_node_maintenances_of,
)
from haulout.controllers.nodemaintenance import node_lease, recovery
from haulout.controllers.nodemaintenance.admission import is_node_name
from haulout.controllers.nodemaintenance.recovery import RecoveryObservation
from haulout.drain import cordon
from haulout.errors import HauloutError, KubeError, NotFound, ObservationStale
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.informer_set import InformerSet
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.patches import merge_patch
from haulout.kube.reflector import ListWatch
from haulout.kube.transforms import compact_nodes

log = logging.getLogger(__name__)

BY_NODE = "node"
_BY_HOLDER = "holder"
_BY_AVAILABILITY = "service"
_UNAVAILABLE = "out"
_SYNC_TIMEOUT = timedelta(seconds=10)
_MAX_CONFIRMATION_AGE = timedelta(seconds=1)
_ENDED_RETENTION = timedelta(minutes=30)  # longer than any write is in flight or any watch lags behind


def node_cache(client: Client) -> Informer[Node]:
    """Return an informer for all nodes, indexed by the maintenances that hold them. Other controllers may share it."""
    row = compact_nodes(shared_annotations=(DRAIN_RULES,))
    return Informer(
        client,
        ListWatch(NODES),
        transform=row,
        indexes={_BY_HOLDER: maintenances_holding, _BY_AVAILABILITY: _availability},
    )


def maintenance_informer(client: Client) -> Informer[NodeMaintenance]:
    """Return an informer for all NodeMaintenances, indexed by node."""
    return Informer(client, ListWatch(NODE_MAINTENANCES), transform=as_is, indexes={BY_NODE: _node_of})


def unavailable_nodes(nodes: Informer[Node]) -> Collection[Node]:
    """Return the nodes of such an informer that are or may be unavailable."""
    return nodes.by_index(_BY_AVAILABILITY, _UNAVAILABLE)


class MaintenanceGone(ObservationStale):
    """The maintenance does not exist any more, or has another UID."""


class NodeMaintenanceInformers:
    """The informers, with a fallback to the API server."""

    def __init__(
        self,
        client: Client,
        *,
        lease_namespace: str,
        nodes: Informer[Node],
        maintenances: Informer[NodeMaintenance],
    ) -> None:
        self._client = client
        self._lease_namespace = lease_namespace
        # By maintenance: its UID, and the monotonic time of the last confirmation.
        self._confirmed_at: dict[str, tuple[str, float]] = {}
        self._ended: dict[str, tuple[NodeMaintenance, float]] = {}  # by maintenance: its final state, and since when
        self.maintenances = MutationCache(maintenances)
        self.nodes = MutationCache(nodes)
        self.sizes = GroupSizes(self.nodes.informer.all)
        self._not_ready_nodes = NotReadyTracker(client.clock)
        self.leases = MutationCache(Informer(client, ListWatch(LEASES, namespace=lease_namespace), transform=as_is))

    async def wait_synced(self) -> None:
        """Wait for the maintenances.

        Wait for nodes and leases for a short time only: the status can report their failure.
        """
        await self.maintenances.informer.wait_synced()
        for cache in (self.nodes.informer, self.leases.informer):
            try:
                async with asyncio.timeout(_SYNC_TIMEOUT.total_seconds()):
                    await cache.wait_synced()
            except TimeoutError:
                log.warning("cannot watch %s: %s", cache.resource, cache.health().problem)

    def maintenances_of(self, node: str) -> tuple[NodeMaintenance, ...]:
        return tuple(self.maintenances.informer.by_index(BY_NODE, node))

    async def confirm(self, maintenance: NodeMaintenance) -> NodeMaintenance:
        """Return a maintenance as the API server had it within the last second; raise `MaintenanceGone` if it is gone.

        The informer's copy may be of any age. The response to one of our recent writes is as good as a GET: both may be
        outdated by the time that a response takes.
        """
        confirmed_uid, confirmed_at = self._confirmed_at.get(maintenance.name, ("", 0.0))
        if (
            confirmed_uid != maintenance.uid
            or self._client.clock.monotonic() - confirmed_at > _MAX_CONFIRMATION_AGE.total_seconds()
        ):
            return await self._get(maintenance)
        found = self.maintenances.get(maintenance.name)
        if found is None or found.uid != maintenance.uid:
            raise MaintenanceGone
        return found

    async def patch(self, maintenance: NodeMaintenance, change: RawObject, *, subresource: str = "") -> NodeMaintenance:
        """Patch a maintenance and return the result. Raise `MaintenanceGone` if it is gone."""
        asked_at, patch = self._client.clock.monotonic(), merge_patch(change)
        try:
            changed = await self._client.patch(NODE_MAINTENANCES, maintenance.name, patch, subresource=subresource)
        except NotFound:
            raise MaintenanceGone from None
        return self._note_confirmed(changed, asked_at)

    def note_ended(self, maintenance: NodeMaintenance) -> None:
        """Remember a maintenance that is about to end, or that may have ended while something is taken for it."""
        now = self._client.clock.monotonic()
        deletion_timestamp = maintenance.metadata.deletion_timestamp or self._client.clock.now()
        metadata = structs.replace(maintenance.metadata, deletion_timestamp=deletion_timestamp)
        self._ended.pop(maintenance.name, None)
        self._ended[maintenance.name] = (
            structs.replace(maintenance, metadata=metadata, status=NodeMaintenanceStatus()),
            now,
        )
        while now - self._ended[oldest := next(iter(self._ended))][1] > _ENDED_RETENTION.total_seconds():
            del self._ended[oldest]

    def ended(self, name: str) -> NodeMaintenance | None:
        """Return the final state of a maintenance whose end we noted; None if we did not."""
        return self._ended[name][0] if name in self._ended else None

    def forget(self, name: str) -> None:
        self._confirmed_at.pop(name, None)

    async def _get(self, maintenance: NodeMaintenance) -> NodeMaintenance:
        asked_at = self._client.clock.monotonic()
        try:
            found = await self._client.get(NODE_MAINTENANCES, maintenance.name)
        except NotFound:
            raise MaintenanceGone from None
        if found.uid != maintenance.uid:
            raise MaintenanceGone
        return self._note_confirmed(found, asked_at)

    def _note_confirmed(self, maintenance: NodeMaintenance, asked_at: float) -> NodeMaintenance:
        self._confirmed_at[maintenance.name] = maintenance.uid, asked_at
        if not maintenance.is_being_deleted:
            self._ended.pop(maintenance.name, None)
        return self.maintenances.record_write(maintenance)

    async def refresh(self, maintenance: NodeMaintenance) -> NodeMaintenance:
        """Read a maintenance and its node from the API server after a conflict."""
        known = self.nodes.get(maintenance.node)
        if known is not None:
            await self.nodes.refresh(self._client, NODES, known.name)
        return await self._get(maintenance)

    async def node(self, name: str) -> Node | None:
        """Return a node; None only if the API server has confirmed that it does not exist."""
        health = self.nodes.informer.health()
        if not health.has_synced:
            raise KubeError(f"cannot read nodes: {health.problem or 'the first list is not complete'}")
        if not is_node_name(name):
            return None
        return self.nodes.get(name) or await self.nodes.refresh(self._client, NODES, name)

    async def lease(self, node: str) -> Lease | None:
        if not is_node_name(node):
            return None
        if self.leases.informer.health().has_synced:
            return self.leases.get(node_lease.lease_key(node, namespace=self._lease_namespace))
        return await self._client.find(LEASES, node_lease.lease_name(node), namespace=self._lease_namespace)

    def held_nodes(self) -> dict[str, str]:
        """Return the nodes that maintenances hold: node name to maintenance name."""
        return {
            maintenance.node: maintenance.name
            for maintenance in self.maintenances.informer.all()
            if (node := self.nodes.get(maintenance.node)) is not None and maintenance.name in node_maintenances_of(node)
        }

    def nodes_held_by(self, maintenance: str) -> list[Node]:
        """Return the nodes that are held for a maintenance."""
        known = [self.nodes.get(node.name) for node in self.nodes.informer.by_index(_BY_HOLDER, maintenance)]
        return [node for node in known if node is not None and maintenance in maintenances_holding(node)]

    # For budgets

    def note_node(self, old: Node | None, new: Node | None) -> None:
        """Update group sizes and NotReady times after a change of a node."""
        self.sizes.on_node_change(old, new)
        self._not_ready_nodes.on_node_change(old, new)

    def find(self, name: str) -> Node | None:
        return self.nodes.get(name)

    def possibly_unavailable(self) -> list[Node]:
        """Return the nodes that are or may be unavailable."""
        return list(unavailable_nodes(self.nodes.informer))

    def group_size(self, group: LimitGroup) -> int:
        return self.sizes.size(group)

    def time_until_down(self, node: Node, now: datetime) -> timedelta | None:
        """Return the time until a node is down beyond doubt; None if it is ready."""
        return self._not_ready_nodes.time_until_down(node, now)


def maintenances_holding(node: Node) -> tuple[str, ...]:
    """Return the maintenances that own the node's cordon or wait for its recovery."""
    return *node_maintenances_of(node), *recovering_node_maintenances_of(node)


def _availability(node: Node) -> tuple[str, ...]:
    return (_UNAVAILABLE,) if may_be_unavailable(node) else ()


def has_relevant_change(old: Node | None, new: Node | None) -> bool:
    """Return whether a change of a node matters to a maintenance. Heartbeats do not."""
    return old is None or new is None or _relevant_fields(old) != _relevant_fields(new)


def _relevant_fields(node: Node) -> tuple[object, ...]:
    conditions = tuple((condition.type, condition.status) for condition in node.status.conditions)
    metadata = node.metadata
    annotation_keys = (
        cordon.CORDON_ANNOTATION,
        cordon.CORDON_BACKUP_ANNOTATION,
        RECOVERING_ANNOTATION,
        hold.ANNOTATION,
        DRAIN_RULES,
    )
    annotations = tuple(map(metadata.annotations.get, annotation_keys))
    return node.uid, node.spec, metadata.labels, annotations, conditions


def _node_of(maintenance: NodeMaintenance) -> tuple[str, ...]:
    return (maintenance.node,)


class WorkloadInformers:
    """Informers for all workload kinds. `enqueue` is called with the names of maintenances whose workloads changed."""

    def __init__(self, client: Client, *, enqueue: Callable[[str], object]) -> None:
        self._client = client
        self._enqueue = enqueue
        # By maintenance: workloads whose recovery it waits for.
        self._wanted: dict[str, frozenset[WorkloadReference]] = {}
        self._waits_until = 0.0  # monotonic: until then, callers wait for the informers to sync
        self._sources: InformerSet[str] = InformerSet(
            client, new_informer=self._make_cache, on_synced=lambda _: self._enqueue_all()
        )

    async def run(self) -> None:
        await self._sources.run()

    @property
    def is_watching(self) -> bool:
        return bool(self._sources.keys())

    def track(self, maintenance: NodeMaintenance) -> None:
        """Start the informers if the maintenance requests recovery."""
        if maintenance.spec.recovery is None:
            self.forget(maintenance.name)
            return
        reported = maintenance.status.recovery
        waits_for = (
            ()
            if reported is None or not maintenance.is_being_deleted
            else (workload.reference for workload in reported.workloads)
        )
        if not self._wanted:
            self._waits_until = self._client.clock.monotonic() + _SYNC_TIMEOUT.total_seconds()
        self._wanted[maintenance.name] = frozenset(waits_for)
        self._sources.set_keys(WORKLOAD_KINDS)

    def forget(self, name: str) -> None:
        """Stop the informers if no other maintenance needs them."""
        if self._wanted.pop(name, None) is not None and not self._wanted:
            self._sources.set_keys(())

    async def on_node(self, node: str) -> RecoveryObservation:
        """Return the workloads with pods on a node."""
        try:
            await self._wait_synced()
            node_pods = (await self._client.list(PODS, fields=f"spec.nodeName={node}")).items
            return RecoveryObservation(record=workloads.record_workloads(map(_controlled_pod, node_pods), self._find))
        except HauloutError as error:
            return RecoveryObservation(problem=str(error))

    async def evicted_from(self, node: str, before: RecoveryStatus) -> WorkloadRecord:
        """Return the recorded workloads that lost a pod on the node; all of them if the pods cannot be listed."""
        known = recovery.record_of(before)
        try:
            pods = (await self._client.list(PODS, fields=f"spec.nodeName={node}")).items
        except KubeError:
            return known
        present = [pod.uid for pod in pods if not pod.is_being_deleted]
        return workloads.without_unaffected_workloads(known, present=present)

    async def degraded_workloads(self, before: RecoveryStatus) -> RecoveryObservation:
        """Return which of the evicted workloads are not available again."""
        try:
            await self._wait_synced()
            found = list(workloads.evicted_workloads(recovery.record_of(before), present=(), find=self._find))
        except HauloutError as error:
            return RecoveryObservation(problem=str(error))
        return RecoveryObservation(degraded=tuple(sorted(str(workload) for workload in found if workload.is_degraded)))

    async def _wait_synced(self) -> None:
        """Wait for the informers to sync, within the remaining time. Raise `InformerNotSynced` otherwise."""
        remaining = self._waits_until - self._client.clock.monotonic()
        if remaining > 0:
            await self._sources.wait_synced(timedelta(seconds=remaining))
        for kind in WORKLOAD_KINDS:
            self._sources.get(kind)

    def _find(self, reference: WorkloadReference) -> ScaledWorkload | None:
        cache = self._sources.get(reference.kind) if reference.kind in WORKLOAD_KINDS else None
        return None if cache is None else cache.get(reference.key)

    def _make_cache(self, kind: str) -> tuple[Informer[ScaledWorkload], bool]:
        cache: Informer[ScaledWorkload] = Informer(self._client, ListWatch(WORKLOAD_KINDS[kind]), transform=as_is)
        cache.subscribe(partial(self._handle_change, kind))
        return cache, False

    def _handle_change(self, kind: str, old: ScaledWorkload | None, new: ScaledWorkload | None) -> None:
        current = new or old
        if current is None or (
            old is not None and new is not None and (old.spec, old.status) == (new.spec, new.status)
        ):
            return
        changed = WorkloadReference(kind, current.key)
        for name, references in self._wanted.items():
            if changed in references:
                self._enqueue(name)

    def _enqueue_all(self) -> None:
        for name in self._wanted:
            self._enqueue(name)


def _controlled_pod(pod: Pod) -> ControlledPod:
    owner = next((reference for reference in pod.metadata.owner_references if reference.controller), None)
    return ControlledPod(
        pod.uid, None if owner is None else WorkloadReference(owner.kind, f"{pod.namespace}/{owner.name}")
    )
