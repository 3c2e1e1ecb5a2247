"""Sets of Machines: another is made for each that goes, and surplus ones are deleted, those that are marked first.

A Machine whose deletion has begun does not count any more, so its successor is made at once and not when it is gone.
"""

from collections.abc import Callable
from datetime import datetime
from random import Random

from haulout.kinds.openshift import DELETE_FIRST
from haulout.kube.cache import Cache
from haulout.kube.objects import RawObject
from haulout.kube.resources import Resource
from haulout_sandbox.controllers import edge
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.caches import Caches, controlled
from haulout_sandbox.controllers.objects import Node
from haulout_sandbox.controllers.templates import reference
from haulout_sandbox.openshift.objects import CONTROL_PLANE_MACHINE_SETS, MACHINE_SETS, MACHINES, Machine, MachineSet


class Sets(OwningController):
    """Keeps each set's number of Machines."""

    resource: Resource[MachineSet]

    def __init__(self, caches: Caches, random: Random) -> None:
        super().__init__(caches, random)
        self._sets: Cache[MachineSet] = caches.of(self.resource)
        self._machines: Cache[Machine] = caches.of(MACHINES)
        self.follow(self._sets)
        self._machines.subscribe(self._note_machine)
        caches.nodes.subscribe(self._note_node)

    def _note_machine(self, old: Machine | None, new: Machine | None) -> None:
        for machine in (old, new):
            owner = None if machine is None else machine.controller
            if machine is not None and owner is not None and owner.kind == self.resource.kind:
                self.queue.add(f"{machine.namespace}/{owner.name}")

    def _note_node(self, old: Node | None, new: Node | None) -> None:
        names = {it.name for it in (old, new) if it is not None}
        for machine in self._machines.all():
            if machine.node in names:
                self._note_machine(None, machine)

    async def sync(self, key: str) -> datetime | None:
        """Make or delete Machines, and tell how many there are."""
        found = self._sets.get(key)
        if found is None or found.deleting or found.spec.state != "Active":
            return None
        active = [it for it in controlled(self._machines, found.uid) if not it.deleting]
        async with edge.Writes(self._machines) as writes:
            for _ in range(found.spec.replicas - len(active)):
                made = await edge.create_named(
                    self.client, MACHINES, found.name, self._machine_of(found), random=self.random
                )
                writes.made(made)
            for machine in victims(active, len(active) - found.spec.replicas):
                writes.at(await edge.delete(self.client, MACHINES, machine))
        await self._tell(found)
        return None

    def _machine_of(self, owner: MachineSet) -> Callable[[str], RawObject]:
        def made(name: str) -> RawObject:
            template = owner.template
            metadata = {
                "name": name,
                "namespace": owner.namespace,
                "labels": template.get("metadata", {}).get("labels", {}),
                "ownerReferences": [reference(owner, self.resource)],
            }
            spec = template.get("spec", {})
            return {"apiVersion": MACHINES.api_version, "kind": MACHINES.kind, "metadata": metadata, "spec": spec}

        return made

    async def _tell(self, owner: MachineSet) -> None:
        active = [it for it in controlled(self._machines, owner.uid) if not it.deleting]
        ready = sum(self._is_ready(it) for it in active)
        wanted = {
            "replicas": len(active),
            "fullyLabeledReplicas": len(active),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": owner.metadata.generation,
        }
        async with edge.Writes(self._sets) as writes:
            written = await edge.write_status(self.client, self.resource, owner, seen=owner.status, wanted=wanted)
            writes.made(self.told(written))

    def _is_ready(self, machine: Machine) -> bool:
        node = self.caches.nodes.get(machine.node)
        return node is not None and any(it.type == "Ready" and it.status == "True" for it in node.status.conditions)


def victims(active: list[Machine], count: int) -> list[Machine]:
    """Return those that go first: marked ones, then such as failed, then the youngest."""

    def rank(machine: Machine) -> tuple[bool, bool, float, str]:
        is_marked = DELETE_FIRST in machine.metadata.annotations
        has_failed = machine.status.get("phase") == "Failed"
        age, name = machine.age_key
        return not is_marked, not has_failed, -age, name

    return sorted(active, key=rank)[: max(count, 0)]


class MachineSets(Sets):
    """Of MachineSets."""

    name = "machinesets"
    resource = MACHINE_SETS


class ControlPlaneMachineSets(Sets):
    """Of the ControlPlaneMachineSet."""

    name = "controlplanemachinesets"
    resource = CONTROL_PLANE_MACHINE_SETS
