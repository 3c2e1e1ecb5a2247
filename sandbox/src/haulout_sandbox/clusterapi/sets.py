"""MachineSets: another Machine is made for each that goes, and surplus ones are deleted, those that are marked first.

A Machine whose deletion has begun does not count any more, so its successor is made at once and not when it is gone.
Labels and annotations of the template, and its timeouts, reach Machines that are there already: they are applied by
`capi-machineset`, which owns them, so that what is taken from the template is taken from the Machines as well.
"""

from datetime import datetime
from random import Random

from haulout.kinds.clusterapi import GROUP
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import RawObject, object_key
from haulout.kube.patches import apply_patch
from haulout_sandbox.clusterapi.objects import SET_NAME, Kinds, Machine, MachineSet, is_paused
from haulout_sandbox.controllers import conditions, edge
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.caches import Caches, controlled
from haulout_sandbox.controllers.templates import generated_name, reference

DELETE_FIRST = f"{GROUP}/delete-machine"
IN_PLACE = ("deletion", "nodeDrainTimeout", "nodeVolumeDetachTimeout", "nodeDeletionTimeout")  # of a Machine's spec
_MANAGER = "capi-machineset"


class MachineSets(OwningController):
    """Keeps each set's number of Machines."""

    name = "machinesets"

    def __init__(self, caches: Caches, random: Random, *, kinds: Kinds) -> None:
        super().__init__(caches, random)
        self._kinds = kinds
        self._sets: Cache[MachineSet] = caches.of(kinds.sets)
        self._machines: Cache[Machine] = caches.of(kinds.machines)
        self._clusters = caches.of(kinds.clusters)
        self.follow(self._sets)
        self._machines.subscribe(self._note_machine)
        self._applier = _as_manager(self.client)
        self._applied: dict[str, int | None] = {}  # of which generation of its set a Machine is; once more is harmless

    def _note_machine(self, old: Machine | None, new: Machine | None) -> None:
        for machine in (old, new):
            owner = None if machine is None else machine.controller
            if machine is not None and new is None:
                self._applied.pop(machine.key, None)
            if machine is not None and owner is not None and owner.kind == self._kinds.sets.kind:
                self.look_soon(object_key(owner.name, machine.namespace))

    async def sync(self, key: str) -> datetime | None:
        """Make, change or delete Machines, and tell how many there are."""
        found = self._sets.get(key)
        if found is None or found.deleting:
            return None
        cluster = self._clusters.get(object_key(found.spec.cluster_name, found.namespace))
        if is_paused(found, cluster) or (cluster is not None and cluster.deleting):
            return None
        active = self._active(found)
        async with edge.Writes(self._machines) as writes:
            for machine in active:
                if self._applied.get(machine.key) != found.metadata.generation:
                    writes.made(await self._apply(found, machine.name))
            for _ in range(found.spec.replicas - len(active)):
                writes.made(await self._apply(found, await self._free_name(found)))
            for machine in victims(active, len(active) - found.spec.replicas):
                writes.at(await edge.delete(self.client, self._kinds.machines, machine))
        await self._tell(found)
        return None

    def _active(self, owner: MachineSet) -> list[Machine]:
        return [it for it in controlled(self._machines, owner.uid) if not it.deleting]

    async def _free_name(self, owner: MachineSet) -> str:
        """Return a name that nobody has: applying would change whoever had it."""
        while True:
            name = generated_name(owner.name, self.random)
            if self._machines.get(object_key(name, owner.namespace)) is None:
                return name

    async def _apply(self, owner: MachineSet, name: str) -> Machine:
        patch = apply_patch(self._machine(owner, name))
        made = await self._applier.patch(self._kinds.machines, name, patch, namespace=owner.namespace, force=True)
        self._applied[made.key] = owner.metadata.generation
        return made

    def _machine(self, owner: MachineSet, name: str) -> RawObject:
        meta, spec = owner.spec.template.get("metadata", {}), owner.spec.template.get("spec", {})
        runs_on = spec.get("infrastructureRef", {})
        kind = str(runs_on.get("kind", "")).removesuffix("Template")
        return {
            "apiVersion": self._kinds.machines.api_version,
            "kind": self._kinds.machines.kind,
            "metadata": {
                "name": name,
                "namespace": owner.namespace,
                "labels": _labels(owner),
                "annotations": meta.get("annotations", {}),
                "ownerReferences": [reference(owner, self._kinds.sets)],
            },
            "spec": {**spec, "infrastructureRef": {**runs_on, "kind": kind, "name": name}},
        }

    async def _tell(self, owner: MachineSet) -> None:
        active = self._active(owner)
        ready = sum(conditions.is_true(it.status, "NodeReady") for it in active)
        selector = ",".join(f"{key}={value}" for key, value in sorted(owner.spec.selector.match_labels.items()))
        wanted = {
            "replicas": len(active),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "upToDateReplicas": len(active),
            "selector": selector,
            "observedGeneration": owner.metadata.generation,
        }
        async with edge.Writes(self._sets) as writes:
            written = await edge.write_status(self.client, self._kinds.sets, owner, seen=owner.status, wanted=wanted)
            writes.made(self.told(written))


def victims(active: list[Machine], count: int) -> list[Machine]:
    """Return those that go first: marked ones, then such as are not well, then by name."""

    def rank(machine: Machine) -> tuple[bool, bool, str]:
        is_well = conditions.is_true(machine.status, "NodeReady")
        return DELETE_FIRST not in machine.metadata.annotations, is_well, machine.name

    return sorted(active, key=rank)[: max(count, 0)]


def _labels(owner: MachineSet) -> dict[str, str]:
    own: dict[str, str] = owner.spec.template.get("metadata", {}).get("labels", {})
    return {**own, SET_NAME: owner.name}


def _as_manager(client: Client) -> Client:
    return Client(client.transport, clock=client.clock, random=client.random, field_manager=_MANAGER)
