"""What the controller sees: maintenances, nodes and leases, from caches in which our own writes already count.

A copy may be old. What is missing in it is asked for, and whoever is about to take a node hears from the server itself
whether its maintenance is still wanted (`confirm`).

Nothing ties the node's object to that of its maintenance. While two processes believe that they lead, one may take a
node just after the other has ended the maintenance. So whoever ends one remembers it for a while, and so does whoever
takes something for one, until the server has told since that it is there (`note_ended`): what comes late is given back.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Coroutine
from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from haulout.api import hold
from haulout.api.clusterapi import DRAIN_RULES
from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenance, NodeMaintenanceStatus
from haulout.api.objects import Lease, Node, RawObject
from haulout.api.resources import LEASES, NODES
from haulout.budget.budget_check import GroupSizes
from haulout.budget.limits import LimitGroup
from haulout.budget.not_ready_tracker import NotReadyTracker
from haulout.budget.unavailable_nodes import (
    RECOVERING_ANNOTATION,
    may_be_unavailable,
    node_maintenances_of,
    recovering_node_maintenances_of,
)
from haulout.controllers.nodemaintenance import node_lease
from haulout.drain import cordon
from haulout.errors import HauloutError, KubeError, NotFound
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.node_transform import compact_nodes
from haulout.kube.patches import merge_patch
from haulout.kube.reflector import ListWatch

log = logging.getLogger(__name__)

BY_NODE = "node"
_BY_HOLDER = "holder"
_BY_AVAILABILITY = "service"
_UNAVAILABLE = "out"
_MAX_NAME_LENGTH = 253
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SYNC_TIMEOUT = timedelta(seconds=10)
_MAX_CONFIRMATION_AGE = timedelta(seconds=1)
_ENDED_RETENTION = timedelta(minutes=30)  # longer than a write is on its way, or a watch behind


def node_cache(client: Client) -> Informer[Node]:
    """Return a copy of all nodes, in which those that maintenances hold are found; others may read it, too."""
    row = compact_nodes(shared_annotations=(DRAIN_RULES,))
    return Informer(
        client,
        ListWatch(NODES),
        transform=row,
        indexes={_BY_HOLDER: maintenances_holding, _BY_AVAILABILITY: _availability},
    )


def unavailable_nodes(nodes: Informer[Node]) -> Collection[Node]:
    """Return the nodes in such a copy that are out of service, or may be."""
    return nodes.by_index(_BY_AVAILABILITY, _UNAVAILABLE)


class MaintenanceGone(HauloutError):
    """The maintenance does not exist any more, or is another one."""


class NodeMaintenanceInformers:
    """The copies, and what is asked when they do not tell."""

    def __init__(self, client: Client, *, lease_namespace: str, nodes: Informer[Node] | None = None) -> None:
        self._client = client
        self._lease_namespace = lease_namespace
        self._confirmed_at: dict[str, tuple[str, float]] = {}  # by maintenance: its uid, and when it was asked for last
        self._ended: dict[str, tuple[NodeMaintenance, float]] = {}  # by maintenance: as it goes, and since when
        by_node = {BY_NODE: _node_of}
        self.maintenances = MutationCache(
            Informer(client, ListWatch(NODE_MAINTENANCES), transform=as_is, indexes=by_node)
        )
        self._has_own_nodes = nodes is None
        self.nodes = MutationCache(node_cache(client) if nodes is None else nodes)
        self.sizes = GroupSizes(self.nodes.informer.all)
        self._outages = NotReadyTracker(client.clock)
        self.leases = MutationCache(Informer(client, ListWatch(LEASES, namespace=lease_namespace), transform=as_is))

    def run_functions(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        """Return what must run for as long as anything is looked at."""
        own = (self.nodes.informer.run,) if self._has_own_nodes else ()
        return self.maintenances.informer.run, *own, self.leases.informer.run

    async def wait_synced(self) -> None:
        """Wait for the maintenances; for the others only a while, since what is wrong can be told in the status."""
        await self.maintenances.informer.wait_synced()
        for cache in (self.nodes.informer, self.leases.informer):
            try:
                async with asyncio.timeout(_SYNC_TIMEOUT.total_seconds()):
                    await cache.wait_synced()
            except TimeoutError:
                log.warning("%s cannot be followed: %s", cache.resource, cache.health().problem)

    def maintenances_of(self, node: str) -> tuple[NodeMaintenance, ...]:
        """Return the maintenances of a node."""
        return tuple(self.maintenances.informer.by_index(BY_NODE, node))

    async def confirm(self, maintenance: NodeMaintenance) -> NodeMaintenance:
        """Return a maintenance as the server had it a moment ago at most, by the answer to a write of ours if need be.

        A copy may be of any age. An answer that is no older than another one could be on its way is as good as that.
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
        """Change a maintenance, and return what the server made of it."""
        asked_at, patch = self._client.clock.monotonic(), merge_patch(change)
        try:
            changed = await self._client.patch(NODE_MAINTENANCES, maintenance.name, patch, subresource=subresource)
        except NotFound:
            raise MaintenanceGone from None
        return self._note_confirmed(changed, asked_at)

    def note_ended(self, maintenance: NodeMaintenance) -> None:
        """Remember a maintenance that is about to end, or for which something is taken, though it may have ended."""
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
        """Return a maintenance of which we know that nobody wants what is done for it, if it is gone by now."""
        return self._ended[name][0] if name in self._ended else None

    def forget(self, name: str) -> None:
        """Forget a maintenance."""
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
        """Ask the server for a maintenance and its node, of which the copies have proved to be old."""
        known = self.nodes.get(maintenance.node)
        if known is not None:
            try:
                self.nodes.record_write(await self._client.get(NODES, known.name))
            except NotFound:
                self.nodes.record_delete(known)
        return await self._get(maintenance)

    async def node(self, name: str) -> Node | None:
        """Return a node; None if there is none, which the server itself has said."""
        health = self.nodes.informer.health()
        if not health.has_synced:
            raise KubeError(f"the nodes are not known: {health.problem or 'they are still being read'}")
        if not _is_node_name(name):
            return None
        node = self.nodes.get(name)
        if node is not None:
            return node
        try:
            return self.nodes.record_write(await self._client.get(NODES, name))
        except NotFound:
            return None

    async def lease(self, node: str) -> Lease | None:
        """Return the lease of a node."""
        if not _is_node_name(node):
            return None
        if self.leases.informer.health().has_synced:
            return self.leases.get(node_lease.lease_key(node, namespace=self._lease_namespace))
        return await leases.find(self._client, node_lease.lease_name(node), namespace=self._lease_namespace)

    def held_nodes(self) -> dict[str, str]:
        """Return the nodes that are held by maintenances, and by which."""
        return {
            maintenance.node: maintenance.name
            for maintenance in self.maintenances.informer.all()
            if (node := self.nodes.get(maintenance.node)) is not None and maintenance.name in node_maintenances_of(node)
        }

    def nodes_held_by(self, maintenance: str) -> list[Node]:
        """Return the nodes that are kept cordoned in the name of a maintenance."""
        known = [self.nodes.get(node.name) for node in self.nodes.informer.by_index(_BY_HOLDER, maintenance)]
        return [node for node in known if node is not None and maintenance in maintenances_holding(node)]

    # For budgets

    def note_node(self, old: Node | None, new: Node | None) -> None:
        """Take note of a change of a node."""
        self.sizes.on_node_change(old, new)
        self._outages.on_node_change(old, new)

    def find(self, name: str) -> Node | None:
        """Return a node, as far as it is known."""
        return self.nodes.get(name)

    def possibly_unavailable(self) -> list[Node]:
        """Return the nodes that are out of service, or may be."""
        return list(unavailable_nodes(self.nodes.informer))

    def group_size(self, group: LimitGroup) -> int:
        """Return how many nodes there are in a group."""
        return self.sizes.size(group)

    def time_until_down(self, node: Node, now: datetime) -> timedelta | None:
        """Return in what time a node is down beyond doubt; None if it is ready."""
        return self._outages.time_until_down(node, now)


def maintenances_holding(node: Node) -> tuple[str, ...]:
    """Return the maintenances that keep a node cordoned, or wait for its recovery."""
    return *node_maintenances_of(node), *recovering_node_maintenances_of(node)


def _availability(node: Node) -> tuple[str, ...]:
    return (_UNAVAILABLE,) if may_be_unavailable(node) else ()


def _is_node_name(name: str) -> bool:
    """Tell whether a node can have this name; others are not asked for: in a path they could mean something else."""
    return len(name) <= _MAX_NAME_LENGTH and _NODE_NAME.fullmatch(name) is not None


def has_relevant_change(old: Node | None, new: Node | None) -> bool:
    """Tell whether a maintenance wants to hear of a change of a node: heartbeats are none."""
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
