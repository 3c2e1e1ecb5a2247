"""Machines: from the order to the Node of a workload cluster; how they leave is `leaving`.

What has been done is on the object, so a successor goes on where this one stopped.
"""

from collections.abc import Mapping
from datetime import datetime
from random import Random

from haulout.kinds.clusterapi import (
    CLUSTER_NAME,
    GROUP,
    MACHINE_OF_NODE,
    NAMESPACE_OF_NODE,
    VERSIONS,
    ClusterKey,
)
from haulout.kube.objects import RawObject
from haulout_sandbox.clusterapi.conditions import told
from haulout_sandbox.clusterapi.infrastructure import Infrastructure
from haulout_sandbox.clusterapi.leaving import FINALIZER, Leaving
from haulout_sandbox.clusterapi.objects import Cluster, Kinds, Machine, is_paused
from haulout_sandbox.clusterapi.remotes import Remotes
from haulout_sandbox.controllers import conditions, edge
from haulout_sandbox.controllers.base import Controller
from haulout_sandbox.controllers.caches import Caches
from haulout_sandbox.controllers.objects import NODES, Node

_OWNER_KIND, _OWNER_NAME = f"{GROUP}/owner-kind", f"{GROUP}/owner-name"
ANY = ""  # of infrastructures: what no other is for


class Machines(Controller[str]):
    """Leads each Machine through its life."""

    name = "machines"

    def __init__(
        self,
        caches: Caches,
        random: Random,
        *,
        kinds: Kinds,
        remotes: Remotes,
        infrastructures: Mapping[str, Infrastructure],
    ) -> None:
        super().__init__(caches, random)
        self._kinds = kinds
        self._infrastructures = infrastructures
        self._remotes = remotes
        remotes.subscribe(self._note_node)
        self._machines = caches.of(kinds.machines)
        self._clusters = caches.of(kinds.clusters)
        self._machines.subscribe(self._note_machine)
        self._clusters.subscribe(self._note_cluster)
        self._leaving = Leaving(caches, kinds, self._remotes, tell=self._tell)

    def _note_machine(self, old: Machine | None, new: Machine | None) -> None:
        changed = new or old
        if changed is not None:
            self.queue.add(changed.key)

    def _note_cluster(self, old: Cluster | None, new: Cluster | None) -> None:
        changed = new or old
        if changed is not None:
            for machine in self._of(changed.cluster_key):
                self.queue.add(machine.key)

    def _note_node(self, key: ClusterKey, node: Node) -> None:
        for machine in self._of(key):
            if machine.node == node.name or machine.spec.provider_id == node.spec.provider_id:
                self.queue.add(machine.key)

    def _of(self, key: ClusterKey) -> list[Machine]:
        return [it for it in self._machines.all() if it.cluster == key]

    async def sync(self, key: str) -> datetime | None:
        """Take one step; each write brings the Machine back for the next."""
        machine = self._machines.get(key)
        if machine is None:
            return None
        cluster = self._clusters.get(str(machine.cluster))
        if is_paused(machine, cluster):
            return None
        runs_on = self._infrastructures.get(machine.spec.infrastructure_ref.kind, self._infrastructures[ANY])
        if machine.deleting:
            return await self._leaving.go_on(machine, cluster, runs_on)
        return await self._bring_up(machine, runs_on)

    async def _bring_up(self, machine: Machine, runs_on: Infrastructure) -> datetime | None:
        if FINALIZER not in machine.metadata.finalizers:
            finalizers = [*machine.metadata.finalizers, FINALIZER]
            await edge.change(self.client, self._kinds.machines, machine, {"metadata": {"finalizers": finalizers}})
            return None
        if self._remotes.client(machine.cluster) is None:
            await self._tell(machine, {"phase": "Pending"})
            return None
        if not machine.spec.provider_id:
            return await self._provision(machine, runs_on)
        node = self._remotes.node(machine.cluster, provider_id=machine.spec.provider_id)
        if node is not None:
            await self._join(machine, node)
        elif machine.node:
            lost = conditions.made("NodeReady", holds=False, reason="NodeDeleted", message="its Node is gone")
            await self._tell(machine, {}, lost)
        else:
            await self._tell(machine, {"phase": "Provisioned"})
            return await runs_on.boot(machine)
        return None

    async def _provision(self, machine: Machine, runs_on: Infrastructure) -> datetime | None:
        await self._tell(machine, {"phase": "Provisioning"})
        found = await runs_on.provisioned(machine)
        if isinstance(found, datetime):
            return found
        await edge.change(self.client, self._kinds.machines, machine, {"spec": {"providerID": found}})
        return None

    async def _join(self, machine: Machine, node: Node) -> None:
        links = _links(machine)
        known, remote = node.metadata.annotations, self._remotes.client(machine.cluster)
        if remote is not None and any(known.get(name) != value for name, value in links.items()):
            await edge.change(remote, NODES, node, {"metadata": {"annotations": links}})
        ready = any(it.type == "Ready" and it.status == "True" for it in node.status.conditions)
        reason = "NodeReady" if ready else "NodeNotReady"
        health = conditions.made("NodeReady", holds=ready, reason=reason)
        available = conditions.made("Available", holds=ready, reason="Available" if ready else "NotAvailable")
        stays = conditions.made("Deleting", holds=False, reason="NotDeleting")
        status: RawObject = {"phase": "Running", "nodeRef": self._reference(node)}
        await self._tell(machine, status, health, available, stays)

    def _reference(self, node: Node) -> RawObject:
        if self._kinds.version == VERSIONS[0]:
            return {"name": node.name}
        return {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}

    async def _tell(self, machine: Machine, wanted: RawObject, *new: RawObject) -> None:
        if new:
            wanted = {**wanted, "conditions": told(machine.status, *new, now=self.clock.now())}
        async with edge.Writes(self._machines) as writes:
            writes.made(
                await edge.write_status(self.client, self._kinds.machines, machine, seen=machine.status, wanted=wanted)
            )


def _links(machine: Machine) -> dict[str, str]:
    """Return the annotations by which a Node tells of its Machine."""
    owner = machine.controller
    return {
        CLUSTER_NAME: machine.cluster.name,
        NAMESPACE_OF_NODE: machine.namespace,
        MACHINE_OF_NODE: machine.name,
        **({_OWNER_KIND: owner.kind, _OWNER_NAME: owner.name} if owner is not None else {}),
    }
