"""MachineSet controller: replaces deleted Machines, and deletes surplus ones, marked ones first.

A Machine in deletion no longer counts, so its replacement is created when the deletion begins. Labels, annotations and
timeouts of the template are also applied to existing Machines, by server-side apply as `capi-machineset`, so that
fields removed from the template are removed from the Machines as well.
"""

from datetime import datetime
from random import Random

from haulout.api.clusterapi import GROUP
from haulout.api.objects import RawObject, object_key
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.patches import apply_patch
from haulout_sandbox.clusterapi.objects import SET_NAME, ClusterApiResources, Machine, MachineSet, is_paused
from haulout_sandbox.controllers import conditions, object_control
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.informers import InformerFactory, controlled
from haulout_sandbox.controllers.pod_template import controller_ref, generate_name

DELETE_MACHINE = f"{GROUP}/delete-machine"
IN_PLACE_FIELDS = (
    "deletion",
    "nodeDrainTimeout",
    "nodeVolumeDetachTimeout",
    "nodeDeletionTimeout",
)  # of a Machine's spec
_FIELD_MANAGER = "capi-machineset"


class MachineSetController(OwningController):
    """Keeps the number of Machines of each set."""

    name = "machinesets"

    def __init__(self, informers: InformerFactory, random: Random, *, resources: ClusterApiResources) -> None:
        super().__init__(informers, random)
        self._resources = resources
        self._machine_sets: Informer[MachineSet] = informers.informer_for(resources.machine_sets)
        self._machines: Informer[Machine] = informers.informer_for(resources.machines)
        self._clusters = informers.informer_for(resources.clusters)
        self.watch(self._machine_sets)
        self._machines.subscribe(self._on_machine_change)
        self._apply_client = _with_field_manager(self.client)
        self._applied_generations: dict[
            str, int | None
        ] = {}  # the generation of the set that was applied to each Machine; applying again is harmless

    def _on_machine_change(self, old: Machine | None, new: Machine | None) -> None:
        for machine in (old, new):
            owner = None if machine is None else machine.controller
            if machine is not None and new is None:
                self._applied_generations.pop(machine.key, None)
            if machine is not None and owner is not None and owner.kind == self._resources.machine_sets.kind:
                self.enqueue_batched(object_key(owner.name, machine.namespace))

    async def sync(self, key: str) -> datetime | None:
        """Create, change or delete Machines, and update the status."""
        machine_set = self._machine_sets.get(key)
        if machine_set is None or machine_set.is_being_deleted:
            return None
        cluster = self._clusters.get(object_key(machine_set.spec.cluster_name, machine_set.namespace))
        if is_paused(machine_set, cluster) or (cluster is not None and cluster.is_being_deleted):
            return None
        active = self._active_machines(machine_set)
        async with object_control.WriteBarrier(self._machines) as writes:
            for machine in active:
                if self._applied_generations.get(machine.key) != machine_set.metadata.generation:
                    writes.record(await self._apply_machine(machine_set, machine.name))
            for _ in range(machine_set.spec.replicas - len(active)):
                writes.record(await self._apply_machine(machine_set, await self._unused_name(machine_set)))
            for machine in machines_to_delete(active, len(active) - machine_set.spec.replicas):
                writes.record_version(await object_control.delete(self.client, self._resources.machines, machine))
        await self._update_status(machine_set)
        return None

    def _active_machines(self, owner: MachineSet) -> list[Machine]:
        return [machine for machine in controlled(self._machines, owner.uid) if not machine.is_being_deleted]

    async def _unused_name(self, owner: MachineSet) -> str:
        """Return an unused name: an apply would change an existing object."""
        while True:
            name = generate_name(owner.name, self.random)
            if self._machines.get(object_key(name, owner.namespace)) is None:
                return name

    async def _apply_machine(self, owner: MachineSet, name: str) -> Machine:
        patch = apply_patch(self._machine_body(owner, name))
        machine = await self._apply_client.patch(
            self._resources.machines, name, patch, namespace=owner.namespace, force=True
        )
        self._applied_generations[machine.key] = owner.metadata.generation
        return machine

    def _machine_body(self, owner: MachineSet, name: str) -> RawObject:
        template_metadata, spec = owner.spec.template.get("metadata", {}), owner.spec.template.get("spec", {})
        infrastructure_ref = spec.get("infrastructureRef", {})
        kind = str(infrastructure_ref.get("kind", "")).removesuffix("Template")
        return {
            "apiVersion": self._resources.machines.api_version,
            "kind": self._resources.machines.kind,
            "metadata": {
                "name": name,
                "namespace": owner.namespace,
                "labels": _machine_labels(owner),
                "annotations": template_metadata.get("annotations", {}),
                "ownerReferences": [controller_ref(owner, self._resources.machine_sets)],
            },
            "spec": {**spec, "infrastructureRef": {**infrastructure_ref, "kind": kind, "name": name}},
        }

    async def _update_status(self, owner: MachineSet) -> None:
        active = self._active_machines(owner)
        ready = sum(conditions.is_true(machine.status, "NodeReady") for machine in active)
        selector = ",".join(f"{key}={value}" for key, value in sorted(owner.spec.selector.match_labels.items()))
        desired = {
            "replicas": len(active),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "upToDateReplicas": len(active),
            "selector": selector,
            "observedGeneration": owner.metadata.generation,
        }
        async with object_control.WriteBarrier(self._machine_sets) as writes:
            written = await object_control.update_status(
                self.client, self._resources.machine_sets, owner, current=owner.status, desired=desired
            )
            writes.record(self.record_own_status(written))


def machines_to_delete(active: list[Machine], count: int) -> list[Machine]:
    """Return the Machines to delete: marked ones, then unhealthy ones, then by name."""

    def deletion_rank(machine: Machine) -> tuple[bool, bool, str]:
        is_healthy = conditions.is_true(machine.status, "NodeReady")
        return DELETE_MACHINE not in machine.metadata.annotations, is_healthy, machine.name

    return sorted(active, key=deletion_rank)[: max(count, 0)]


def _machine_labels(owner: MachineSet) -> dict[str, str]:
    template_labels: dict[str, str] = owner.spec.template.get("metadata", {}).get("labels", {})
    return {**template_labels, SET_NAME: owner.name}


def _with_field_manager(client: Client) -> Client:
    return Client(client.transport, clock=client.clock, random=client.random, field_manager=_FIELD_MANAGER)
