"""What the controller sees: maintenances, nodes and leases, from caches in which our own writes already count.

A copy may be old. What is missing in it is asked for, and whoever is about to take a node hears from the server itself
whether its maintenance is still wanted (`confirmed`).

Nothing ties the node's object to that of its maintenance. While two processes believe that they lead, one may take a
node just after the other has ended the maintenance. So whoever ends one remembers it for a while, and so does whoever
takes something for one, until the server has told since that it is there (`note_over`): what comes late is given back.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Coroutine
from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from haulout.budget.away import RECOVERING, may_count, orders_of, recovering_of
from haulout.budget.limits import Group
from haulout.budget.outages import Outages
from haulout.budget.room import Sizes
from haulout.drain import cordon
from haulout.errors import HauloutError, KubeError, NotFound
from haulout.kinds import hold
from haulout.kinds.clusterapi import DRAIN_RULES
from haulout.kube import leases
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.compact import compact_nodes
from haulout.kube.follow import Selection
from haulout.kube.fresh import Fresh
from haulout.kube.objects import Lease, Node, RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import LEASES, NODES
from haulout.maintenance import lease as node_lease
from haulout.maintenance.resource import NODE_MAINTENANCES, NodeMaintenance, Status

log = logging.getLogger(__name__)

BY_NODE = "node"
_BY_HOLDER = "holder"
_BY_SERVICE = "service"
_OUT = "out"
_LONGEST_NAME = 253
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SYNCED_WITHIN = timedelta(seconds=10)
_A_MOMENT = timedelta(seconds=1)
_REMEMBERED_FOR = timedelta(minutes=30)  # longer than a write is on its way, or a watch behind


def node_cache(client: Client) -> Cache[Node]:
    """Return a copy of all nodes, in which those that maintenances hold are found; others may read it, too."""
    row = compact_nodes(alike=(DRAIN_RULES,))
    return Cache(client, Selection(NODES), row=row, indexes={_BY_HOLDER: holders_of, _BY_SERVICE: _service})


def out_of_service(nodes: Cache[Node]) -> Collection[Node]:
    """Return the nodes in such a copy that are out of service, or may be."""
    return nodes.by(_BY_SERVICE, _OUT)


class MaintenanceGone(HauloutError):
    """The maintenance does not exist any more, or is another one."""


class Sight:
    """The copies, and what is asked when they do not tell."""

    def __init__(self, client: Client, *, lease_namespace: str, nodes: Cache[Node] | None = None) -> None:
        self._client = client
        self._lease_namespace = lease_namespace
        self._told: dict[str, tuple[str, float]] = {}  # by maintenance: its uid, and when it was asked for last
        self._over: dict[str, tuple[NodeMaintenance, float]] = {}  # by maintenance: as it goes, and since when
        by_node = {BY_NODE: _node_of}
        self.maintenances = Fresh(Cache(client, Selection(NODE_MAINTENANCES), row=as_is, indexes=by_node))
        self._has_own_nodes = nodes is None
        self.nodes = Fresh(node_cache(client) if nodes is None else nodes)
        self.sizes = Sizes(self.nodes.cache.all)
        self._outages = Outages(client.clock)
        self.leases = Fresh(Cache(client, Selection(LEASES, namespace=lease_namespace), row=as_is))

    def runs(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        """Return what must run for as long as anything is looked at."""
        own = (self.nodes.cache.run,) if self._has_own_nodes else ()
        return self.maintenances.cache.run, *own, self.leases.cache.run

    async def wait_synced(self) -> None:
        """Wait for the maintenances; for the others only a while, since what is wrong can be told in the status."""
        await self.maintenances.cache.wait_synced()
        for cache in (self.nodes.cache, self.leases.cache):
            try:
                async with asyncio.timeout(_SYNCED_WITHIN.total_seconds()):
                    await cache.wait_synced()
            except TimeoutError:
                log.warning("%s cannot be followed: %s", cache.resource, cache.health().problem)

    def maintenances_of(self, node: str) -> tuple[NodeMaintenance, ...]:
        """Return the maintenances of a node."""
        return tuple(self.maintenances.cache.by(BY_NODE, node))

    async def confirmed(self, maintenance: NodeMaintenance) -> NodeMaintenance:
        """Return a maintenance as the server had it a moment ago at most, by the answer to a write of ours if need be.

        A copy may be of any age. An answer that is no older than another one could be on its way is as good as that.
        """
        uid, told_at = self._told.get(maintenance.name, ("", 0.0))
        if uid != maintenance.uid or self._client.clock.monotonic() - told_at > _A_MOMENT.total_seconds():
            return await self._asked(maintenance)
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
        return self._is_told(changed, asked_at)

    def note_over(self, maintenance: NodeMaintenance) -> None:
        """Remember a maintenance that is about to end, or for which something is taken, though it may have ended."""
        now = self._client.clock.monotonic()
        going = maintenance.metadata.deletion_timestamp or self._client.clock.now()
        metadata = structs.replace(maintenance.metadata, deletion_timestamp=going)
        self._over.pop(maintenance.name, None)
        self._over[maintenance.name] = structs.replace(maintenance, metadata=metadata, status=Status()), now
        while now - self._over[oldest := next(iter(self._over))][1] > _REMEMBERED_FOR.total_seconds():
            del self._over[oldest]

    def over(self, name: str) -> NodeMaintenance | None:
        """Return a maintenance of which we know that nobody wants what is done for it, if it is gone by now."""
        return self._over[name][0] if name in self._over else None

    def forget(self, name: str) -> None:
        """Forget a maintenance."""
        self._told.pop(name, None)

    async def _asked(self, maintenance: NodeMaintenance) -> NodeMaintenance:
        asked_at = self._client.clock.monotonic()
        try:
            found = await self._client.get(NODE_MAINTENANCES, maintenance.name)
        except NotFound:
            raise MaintenanceGone from None
        if found.uid != maintenance.uid:
            raise MaintenanceGone
        return self._is_told(found, asked_at)

    def _is_told(self, maintenance: NodeMaintenance, asked_at: float) -> NodeMaintenance:
        self._told[maintenance.name] = maintenance.uid, asked_at
        if not maintenance.is_leaving:
            self._over.pop(maintenance.name, None)
        return self.maintenances.note(maintenance)

    async def refresh(self, maintenance: NodeMaintenance) -> NodeMaintenance:
        """Ask the server for a maintenance and its node, of which the copies have proved to be old."""
        known = self.nodes.get(maintenance.node)
        if known is not None:
            try:
                self.nodes.note(await self._client.get(NODES, known.name))
            except NotFound:
                self.nodes.note_gone(known)
        return await self._asked(maintenance)

    async def node(self, name: str) -> Node | None:
        """Return a node; None if there is none, which the server itself has said."""
        health = self.nodes.cache.health()
        if not health.synced:
            raise KubeError(f"the nodes are not known: {health.problem or 'they are still being read'}")
        if not _may_be_node(name):
            return None
        node = self.nodes.get(name)
        if node is not None:
            return node
        try:
            return self.nodes.note(await self._client.get(NODES, name))
        except NotFound:
            return None

    async def lease(self, node: str) -> Lease | None:
        """Return the lease of a node."""
        if not _may_be_node(node):
            return None
        if self.leases.cache.health().synced:
            return self.leases.get(node_lease.key_of(node, namespace=self._lease_namespace))
        return await leases.find(self._client, node_lease.name_of(node), namespace=self._lease_namespace)

    def held(self) -> dict[str, str]:
        """Return the nodes that are held by maintenances, and by which."""
        return {
            it.node: it.name
            for it in self.maintenances.cache.all()
            if (node := self.nodes.get(it.node)) is not None and it.name in orders_of(node)
        }

    def nodes_held_by(self, maintenance: str) -> list[Node]:
        """Return the nodes that are kept cordoned in the name of a maintenance."""
        known = [self.nodes.get(node.name) for node in self.nodes.cache.by(_BY_HOLDER, maintenance)]
        return [node for node in known if node is not None and maintenance in holders_of(node)]

    # For budgets

    def note_node(self, old: Node | None, new: Node | None) -> None:
        """Take note of a change of a node."""
        self.sizes.note(old, new)
        self._outages.note(old, new)

    def find(self, name: str) -> Node | None:
        """Return a node, as far as it is known."""
        return self.nodes.get(name)

    def candidates(self) -> list[Node]:
        """Return the nodes that are out of service, or may be."""
        return list(out_of_service(self.nodes.cache))

    def size(self, group: Group) -> int:
        """Return how many nodes there are in a group."""
        return self.sizes.of(group)

    def sure_in(self, node: Node, now: datetime) -> timedelta | None:
        """Return in what time a node is down beyond doubt; None if it is ready."""
        return self._outages.sure_in(node, now)


def holders_of(node: Node) -> tuple[str, ...]:
    """Return the maintenances that keep a node cordoned, or wait for its recovery."""
    return *orders_of(node), *recovering_of(node)


def _service(node: Node) -> tuple[str, ...]:
    return (_OUT,) if may_count(node) else ()


def _may_be_node(name: str) -> bool:
    """Tell whether a node can have this name; others are not asked for: in a path they could mean something else."""
    return len(name) <= _LONGEST_NAME and _NODE_NAME.fullmatch(name) is not None


def changed_for_us(old: Node | None, new: Node | None) -> bool:
    """Tell whether a maintenance wants to hear of a change of a node: heartbeats are none."""
    return old is None or new is None or _of_interest(old) != _of_interest(new)


def _of_interest(node: Node) -> tuple[object, ...]:
    conditions = tuple((it.type, it.status) for it in node.status.conditions)
    metadata = node.metadata
    ours = cordon.MARK, cordon.BACKUP, RECOVERING, hold.ANNOTATION, DRAIN_RULES
    annotations = tuple(map(metadata.annotations.get, ours))
    return node.uid, node.spec, metadata.labels, annotations, conditions


def _node_of(maintenance: NodeMaintenance) -> tuple[str, ...]:
    return (maintenance.node,)
