"""MachineSet controllers, and the manager that runs the whole Machine API.

MachineSets replace deleted Machines, and delete surplus ones, marked ones first. A Machine in deletion no longer
counts, so its replacement is created when the deletion begins.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from random import Random

from haulout.api.objects import RawObject
from haulout.api.openshift import DELETE_MACHINE
from haulout.api.resources import Resource
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout_sandbox.controllers import object_control
from haulout_sandbox.controllers.base import ControllerManager, OwningController
from haulout_sandbox.controllers.informers import InformerFactory, controlled
from haulout_sandbox.controllers.objects import Node
from haulout_sandbox.controllers.pod_template import controller_ref
from haulout_sandbox.openshift.instance_provider import InstanceProvider
from haulout_sandbox.openshift.machine import MachineApiDelays, MachineController
from haulout_sandbox.openshift.objects import CONTROL_PLANE_MACHINE_SETS, MACHINE_SETS, MACHINES, Machine, MachineSet


class MachineSetControllerBase(OwningController):
    """Keeps the number of Machines of each set."""

    resource: Resource[MachineSet]

    def __init__(self, informers: InformerFactory, random: Random) -> None:
        super().__init__(informers, random)
        self._machine_sets: Informer[MachineSet] = informers.informer_for(self.resource)
        self._machines: Informer[Machine] = informers.informer_for(MACHINES)
        self.watch(self._machine_sets)
        self._machines.subscribe(self._on_machine_change)
        informers.nodes.subscribe(self._on_node_change)

    def _on_machine_change(self, old: Machine | None, new: Machine | None) -> None:
        for machine in (old, new):
            owner = None if machine is None else machine.controller
            if machine is not None and owner is not None and owner.kind == self.resource.kind:
                self.queue.add(f"{machine.namespace}/{owner.name}")

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        names = {node.name for node in (old, new) if node is not None}
        for machine in self._machines.all():
            if machine.node in names:
                self._on_machine_change(None, machine)

    async def sync(self, key: str) -> datetime | None:
        """Create or delete Machines, and update the status."""
        machine_set = self._machine_sets.get(key)
        if machine_set is None or machine_set.is_being_deleted or machine_set.spec.state != "Active":
            return None
        active = [machine for machine in controlled(self._machines, machine_set.uid) if not machine.is_being_deleted]
        async with object_control.WriteBarrier(self._machines) as writes:
            for _ in range(machine_set.spec.replicas - len(active)):
                created = await object_control.create_with_generated_name(
                    self.client, MACHINES, machine_set.name, self._machine_body(machine_set), random=self.random
                )
                writes.record(created)
            for machine in machines_to_delete(active, len(active) - machine_set.spec.replicas):
                writes.record_version(await object_control.delete(self.client, MACHINES, machine))
        await self._update_status(machine_set)
        return None

    def _machine_body(self, owner: MachineSet) -> Callable[[str], RawObject]:
        def body_with_name(name: str) -> RawObject:
            template = owner.machine_template
            metadata = {
                "name": name,
                "namespace": owner.namespace,
                "labels": template.get("metadata", {}).get("labels", {}),
                "ownerReferences": [controller_ref(owner, self.resource)],
            }
            spec = template.get("spec", {})
            return {"apiVersion": MACHINES.api_version, "kind": MACHINES.kind, "metadata": metadata, "spec": spec}

        return body_with_name

    async def _update_status(self, owner: MachineSet) -> None:
        active = [machine for machine in controlled(self._machines, owner.uid) if not machine.is_being_deleted]
        ready = sum(self._is_ready(machine) for machine in active)
        desired = {
            "replicas": len(active),
            "fullyLabeledReplicas": len(active),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": owner.metadata.generation,
        }
        async with object_control.WriteBarrier(self._machine_sets) as writes:
            written = await object_control.update_status(
                self.client, self.resource, owner, current=owner.status, desired=desired
            )
            writes.record(self.record_own_status(written))

    def _is_ready(self, machine: Machine) -> bool:
        node = self.informers.nodes.get(machine.node)
        return node is not None and any(
            condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions
        )


class MachineApi:
    """Runs the controllers of the Machine API; its CRDs must be served."""

    def __init__(
        self, client: Client, instances: InstanceProvider, *, random: Random, delays: MachineApiDelays | None = None
    ) -> None:
        machines = partial(MachineController, instances=instances, delays=delays or MachineApiDelays())
        factories = (machines, MachineSetController, ControlPlaneMachineSetController)
        self._controllers = ControllerManager(client, random=random, factories=factories)

    async def run(self) -> None:
        await self._controllers.run()


def machines_to_delete(active: list[Machine], count: int) -> list[Machine]:
    """Return the Machines to delete: marked ones, then failed ones, then the youngest."""

    def deletion_rank(machine: Machine) -> tuple[bool, bool, float, str]:
        is_marked = DELETE_MACHINE in machine.metadata.annotations
        has_failed = machine.status.get("phase") == "Failed"
        age, name = machine.creation_order
        return not is_marked, not has_failed, -age, name

    return sorted(active, key=deletion_rank)[: max(count, 0)]


class MachineSetController(MachineSetControllerBase):
    name = "machinesets"
    resource = MACHINE_SETS


class ControlPlaneMachineSetController(MachineSetControllerBase):
    name = "controlplanemachinesets"
    resource = CONTROL_PLANE_MACHINE_SETS
