"""Machine controller: from creation to the Node of a workload cluster; `machine_deletion` handles deletion.

All progress is recorded in the object, so a restarted controller continues.
"""

from collections.abc import Mapping
from datetime import datetime
from random import Random

from haulout.api.clusterapi import CLUSTER_NAME, GROUP, MACHINE_OF_NODE, NAMESPACE_OF_NODE, VERSIONS, ClusterKey
from haulout.api.objects import RawObject
from haulout_sandbox.clusterapi.cluster_cache import ClusterCache
from haulout_sandbox.clusterapi.infrastructure_provider import InfrastructureProvider
from haulout_sandbox.clusterapi.machine_deletion import FINALIZER, MachineDeletion
from haulout_sandbox.clusterapi.objects import Cluster, ClusterApiResources, Machine, is_paused
from haulout_sandbox.controllers import conditions, object_control
from haulout_sandbox.controllers.base import Controller
from haulout_sandbox.controllers.informers import InformerFactory
from haulout_sandbox.controllers.objects import NODES, Node

_OWNER_KIND, _OWNER_NAME = f"{GROUP}/owner-kind", f"{GROUP}/owner-name"
ANY_INFRASTRUCTURE = ""  # the default infrastructure provider


class MachineController(Controller[str]):
    name = "machines"

    def __init__(
        self,
        informers: InformerFactory,
        random: Random,
        *,
        resources: ClusterApiResources,
        cluster_cache: ClusterCache,
        infrastructure_providers: Mapping[str, InfrastructureProvider],
    ) -> None:
        super().__init__(informers, random)
        self._resources = resources
        self._infrastructure_providers = infrastructure_providers
        self._cluster_cache = cluster_cache
        cluster_cache.subscribe(self._on_node_change)
        self._machines = informers.informer_for(resources.machines)
        self._clusters = informers.informer_for(resources.clusters)
        self._machines.subscribe(self._on_machine_change)
        self._clusters.subscribe(self._on_cluster_change)
        self._deletion = MachineDeletion(informers, resources, self._cluster_cache, update_status=self._update_status)

    def _on_machine_change(self, old: Machine | None, new: Machine | None) -> None:
        changed = new or old
        if changed is not None:
            self.queue.add(changed.key)

    def _on_cluster_change(self, old: Cluster | None, new: Cluster | None) -> None:
        changed = new or old
        if changed is not None:
            for machine in self._machines_of(changed.cluster_key):
                self.queue.add(machine.key)

    def _on_node_change(self, key: ClusterKey, node: Node) -> None:
        for machine in self._machines_of(key):
            if machine.node == node.name or machine.spec.provider_id == node.spec.provider_id:
                self.queue.add(machine.key)

    def _machines_of(self, key: ClusterKey) -> list[Machine]:
        return [machine for machine in self._machines.all() if machine.cluster_key == key]

    async def sync(self, key: str) -> datetime | None:
        """Take one step; each write requeues the Machine for the next."""
        machine = self._machines.get(key)
        if machine is None:
            return None
        cluster = self._clusters.get(str(machine.cluster_key))
        if is_paused(machine, cluster):
            return None
        provider = self._infrastructure_providers.get(
            machine.spec.infrastructure_ref.kind, self._infrastructure_providers[ANY_INFRASTRUCTURE]
        )
        if machine.is_being_deleted:
            return await self._deletion.reconcile_delete(machine, cluster, provider)
        return await self._reconcile_normal(machine, provider)

    async def _reconcile_normal(self, machine: Machine, provider: InfrastructureProvider) -> datetime | None:
        if FINALIZER not in machine.metadata.finalizers:
            finalizers = [*machine.metadata.finalizers, FINALIZER]
            await object_control.patch(
                self.client, self._resources.machines, machine, {"metadata": {"finalizers": finalizers}}
            )
            return None
        if self._cluster_cache.client(machine.cluster_key) is None:
            await self._update_status(machine, {"phase": "Pending"})
            return None
        if not machine.spec.provider_id:
            return await self._provision(machine, provider)
        node = self._cluster_cache.get_node(machine.cluster_key, provider_id=machine.spec.provider_id)
        if node is not None:
            await self._reconcile_node(machine, node)
        elif machine.node:
            node_deleted = conditions.new_condition(
                "NodeReady", is_true=False, reason="NodeDeleted", message="its Node is gone"
            )
            await self._update_status(machine, {}, node_deleted)
        else:
            await self._update_status(machine, {"phase": "Provisioned"})
            return await provider.boot(machine)
        return None

    async def _provision(self, machine: Machine, provider: InfrastructureProvider) -> datetime | None:
        await self._update_status(machine, {"phase": "Provisioning"})
        provider_id = await provider.provision(machine)
        if isinstance(provider_id, datetime):
            return provider_id
        await object_control.patch(
            self.client, self._resources.machines, machine, {"spec": {"providerID": provider_id}}
        )
        return None

    async def _reconcile_node(self, machine: Machine, node: Node) -> None:
        annotations = _node_annotations(machine)
        current_annotations, client = node.metadata.annotations, self._cluster_cache.client(machine.cluster_key)
        if client is not None and any(current_annotations.get(name) != value for name, value in annotations.items()):
            await object_control.patch(client, NODES, node, {"metadata": {"annotations": annotations}})
        ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
        reason = "NodeReady" if ready else "NodeNotReady"
        node_ready = conditions.new_condition("NodeReady", is_true=ready, reason=reason)
        available = conditions.new_condition(
            "Available", is_true=ready, reason="Available" if ready else "NotAvailable"
        )
        not_deleting = conditions.new_condition("Deleting", is_true=False, reason="NotDeleting")
        status: RawObject = {"phase": "Running", "nodeRef": self._node_reference(node)}
        await self._update_status(machine, status, node_ready, available, not_deleting)

    def _node_reference(self, node: Node) -> RawObject:
        if self._resources.version == VERSIONS[0]:
            return {"name": node.name}
        return {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}

    async def _update_status(self, machine: Machine, desired: RawObject, *new_conditions: RawObject) -> None:
        if new_conditions:
            desired = {**desired, "conditions": conditions.merge(machine.status, *new_conditions, now=self.clock.now())}
        async with object_control.WriteBarrier(self._machines) as writes:
            writes.record(
                await object_control.update_status(
                    self.client, self._resources.machines, machine, current=machine.status, desired=desired
                )
            )


def _node_annotations(machine: Machine) -> dict[str, str]:
    """Return the annotations with which a Node names its Machine."""
    owner = machine.controller
    return {
        CLUSTER_NAME: machine.cluster_key.name,
        NAMESPACE_OF_NODE: machine.namespace,
        MACHINE_OF_NODE: machine.name,
        **({_OWNER_KIND: owner.kind, _OWNER_NAME: owner.name} if owner is not None else {}),
    }
