"""The nodes on ESX hosts: the cache, their drains, and writes to them.

The cache may be stale. Patches carry the resourceVersion that they depend on, and before a power action the API server
is asked whether the node is still in maintenance: a vCenter does not know which process is the leader.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from haulout.api.objects import Node, Pod, RawObject
from haulout.api.resources import NODES
from haulout.budget.cordon_copies import CordonCopies
from haulout.controllers.esx.labels import CORDON_OWNER, HOST, TRUE, ZONE, is_approved
from haulout.drain import progress
from haulout.drain.escalation import EscalationStep
from haulout.drain.eviction_requests import RequestOwner
from haulout.drain.machine_drain_rules import with_machine_drain_rules
from haulout.drain.manager import DrainManager, DrainSnapshot
from haulout.drain.metrics import InitiatorDrainMetrics
from haulout.drain.policy import DrainPolicy
from haulout.errors import Conflict
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.patches import node_patch
from haulout.runtime.freezes import FreezeSource

_MAX_CONCURRENT_WRITES = 8  # a thousand nodes may need their first label in one round


def zone_of(node: Node) -> str:
    """Return the letter of the node's zone; empty if the node is not on an ESX host."""
    labels = node.metadata.labels
    return labels.get(ZONE, "")[-1:] if labels.get(HOST) else ""


class EsxNodes:
    """Reads and patches nodes, and runs their drains.

    `on_drained` is called when a drain has ended. `before_drain` is called before one begins, and may raise.
    `on_eviction`
    is called for each evicted pod.
    """

    def __init__(
        self,
        client: Client,
        cache: Informer[Node],
        *,
        namespace: str,
        on_drained: Callable[[str], object],
        before_drain: Callable[[str], object],
        on_eviction: Callable[[Node, Pod, EscalationStep], object],
        freezes: FreezeSource,
        drain_metrics: InitiatorDrainMetrics | None = None,
    ) -> None:
        self.freezes = freezes
        self.cordon_copies = CordonCopies(client, namespace=namespace, controller="esx", owns=CORDON_OWNER.__eq__)
        self._client = client
        self._mutation_cache = MutationCache(cache)
        self._drained_callback = on_drained
        self._before_drain = before_drain
        self._drains = DrainManager(
            client, on_change=self._on_drain_change, on_pod_requested=self._on_eviction, metrics=drain_metrics
        )
        self._eviction_callback = on_eviction
        self._write_slots = asyncio.Semaphore(_MAX_CONCURRENT_WRITES)
        self._uids: dict[str, str] = {}  # by name: uid of the node that a drain is for
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Run drains until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._drains.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self.stop_unwanted_drains()

    def on_change(self) -> None:
        """Stop drains that are unwanted after a change of a node, whatever the vCenters do meanwhile."""
        self._changed.set()

    def all(self) -> Iterable[Node]:
        return self._mutation_cache.informer.all()

    def in_zone(self, zone: str) -> Iterator[Node]:
        for node in list(self._mutation_cache.informer.all()):
            if zone_of(node) == zone:
                yield node

    def zones(self) -> set[str]:
        """Return the letters of all zones that have nodes on ESX hosts."""
        return {zone for node in self._mutation_cache.informer.all() if (zone := zone_of(node))}

    def get(self, name: str) -> Node | None:
        """Return a node from the cache, own writes included."""
        return self._mutation_cache.get(name)

    async def patch(self, node: Node, change: RawObject) -> Node:
        """Patch a node and sync the copy of its cordon annotation; raise `Conflict` if the node has changed."""
        async with self._write_slots:
            changed = self._mutation_cache.record_write(await self._client.patch(NODES, node.name, node_patch(change)))
        await self.cordon_copies.sync(changed)
        return changed

    async def refresh(self, name: str) -> bool:
        """Read a node from the API server; return whether it exists."""
        return await self._mutation_cache.refresh(self._client, NODES, name) is not None

    async def confirm(self, node: Node, annotation: str) -> None:
        """Read the node from the API server to confirm that it is unchanged.

        Raise `Conflict` if its uid or labels differ, or if `annotation` is not "true".
        """
        current = self._mutation_cache.record_write(await self._client.get(NODES, node.name))
        if current.uid != node.uid or current.metadata.annotations.get(annotation) != TRUE:
            raise Conflict(f"node {node.name} is no longer managed by the ESX controller", code=409)
        if current.metadata.labels != node.metadata.labels:
            raise Conflict(f"the labels of node {node.name} have changed", code=409)

    # Drains

    async def reconcile_drain(self, node: Node, policy: DrainPolicy | None) -> None:
        """Start, change or stop the node's drain; None: no drain."""
        name = node.name
        if policy is None or self._uids.get(name, node.uid) != node.uid:
            await self.stop_drain(name)
        if policy is None:
            return
        policy, drain = with_machine_drain_rules(policy, node), self._drains.snapshot(name)
        if drain is None:
            self._before_drain(name)
            self._uids[name] = node.uid
            self._drains.start(
                name, node, policy, owner=RequestOwner(name=f"{name}.{CORDON_OWNER.lower()}"), keep_running=True
            )
        elif drain.policy != policy:
            self._drains.set_policy(name, policy)

    async def stop_unwanted_drains(self) -> None:
        """Stop drains of nodes that are no longer approved, even if the vCenter does not respond."""
        for name in list(self._uids):
            node = self.get(name)
            if node is None or not zone_of(node) or not is_approved(node):
                await self.stop_drain(name)

    async def stop_drain(self, name: str) -> None:
        if self._uids.pop(name, None) is not None:
            await self._drains.stop(name)

    def is_drained(self, node: Node) -> bool:
        """Return whether the node is drained now."""
        drain = self.drain_state(node)
        return drain is not None and drain.outcome is not None and drain.outcome.is_drained

    def drain_blocker(self, node: Node, *, now: datetime) -> tuple[str, datetime | None]:
        """Return why the drain has been blocked for long; or empty, and when that will be the case."""
        drain = self.drain_state(node)
        if drain is None:
            return "", None
        if drain.outcome is None:
            return progress.describe_long_blocked(drain.progress, now=now)
        return "" if drain.outcome.is_drained else drain.outcome.message, None

    def drain_state(self, node: Node) -> DrainSnapshot | None:
        """Return the state of the node's drain; None if there is none."""
        return self._drains.peek(node.name) if self._uids.get(node.name) == node.uid else None

    def _on_eviction(self, name: str, pod: Pod, escalation_step: EscalationStep) -> None:
        node = self.get(name)
        if node is not None:
            self._eviction_callback(node, pod, escalation_step)

    def _on_drain_change(self, name: str) -> None:
        if self._drains.has_ended(name):
            self._drained_callback(name)
