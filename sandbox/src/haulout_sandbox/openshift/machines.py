"""Machines: from the order to the node, and from the deletion to the end of the instance.

What has been done is on the object, in its status and conditions, and all that takes time is counted from there. So a
successor goes on where this one stopped.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from haulout.errors import NotFound, TooManyRequests
from haulout.kinds.machines import machine_key
from haulout.kinds.openshift import FINALIZER, MACHINE_OF_NODE
from haulout.kube.objects import RawObject
from haulout_sandbox.controllers import conditions, edge
from haulout_sandbox.controllers.base import Controller
from haulout_sandbox.controllers.caches import Caches, on_node
from haulout_sandbox.controllers.objects import NODES, Node, Pod
from haulout_sandbox.nodes.placement import CONTROL_PLANE
from haulout_sandbox.openshift.instances import Instances
from haulout_sandbox.openshift.objects import MACHINES, Machine

_DRAIN_AGAIN = timedelta(seconds=5)
_OTHER_IS_CORDONED = timedelta(seconds=20)
_KEPT = "machine.openshift.io/exclude-node-draining"
_MIRROR = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """How long things take in the cloud."""

    instance: timedelta = timedelta(seconds=40)  # from the order to an instance
    node: timedelta = timedelta(minutes=6)  # and to a node
    termination: timedelta = timedelta(seconds=45)  # from an empty node to no instance


class Machines(Controller[str]):
    """Leads each Machine through its life."""

    name = "machines"

    def __init__(self, caches: Caches, random: Random, *, instances: Instances, paces: Paces) -> None:
        super().__init__(caches, random)
        self._instances = instances
        self._paces = paces
        self._machines = caches.of(MACHINES)
        self._machines.subscribe(self._note_machine)
        caches.nodes.subscribe(self._note_node)
        caches.pods.subscribe(self._note_pod)

    def _note_machine(self, old: Machine | None, new: Machine | None) -> None:
        changed = new or old
        if changed is not None:
            self.queue.add(changed.key)

    def _note_node(self, old: Node | None, new: Node | None) -> None:
        keys = {machine_key(it.spec.provider_id) for it in (old, new) if it is not None}
        for machine in self._machines.all():
            if machine.spec.provider_id and machine_key(machine.spec.provider_id) in keys:
                self.queue.add(machine.key)

    def _note_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None or old is None:
            return
        for machine in self._machines.all():
            if machine.deleting and machine.node == old.spec.node_name:
                self.queue.add(machine.key)

    async def sync(self, key: str) -> datetime | None:
        """Take one step; each write brings the Machine back for the next."""
        machine = self._machines.get(key)
        if machine is None:
            return None
        return await (self._end(machine) if machine.deleting else self._bring_up(machine))

    # Up

    async def _bring_up(self, machine: Machine) -> datetime | None:
        if FINALIZER not in machine.metadata.finalizers:
            finalizers = [*machine.metadata.finalizers, FINALIZER]
            await edge.change(self.client, MACHINES, machine, {"metadata": {"finalizers": finalizers}})
            return None
        if not machine.spec.provider_id:
            return await self._provision(machine)
        node = self._node(machine)
        if node is not None:
            await self._join(machine, node)
        elif machine.node:
            lost = conditions.made("InstanceExists", holds=False, reason="InstanceMissing", message="it is not there")
            await self._tell(machine, {"phase": "Failed"}, lost)
        else:
            return await self._boot(machine)
        return None

    async def _provision(self, machine: Machine) -> datetime | None:
        await self._tell(machine, {"phase": "Provisioning"})
        due = _begun(machine) + self._paces.instance
        if self.clock.now() < due:
            return due
        place = {"metadata": {"labels": machine.place}, "spec": {"providerID": self._instances.launch(machine)}}
        await edge.change(self.client, MACHINES, machine, place)
        return None

    async def _boot(self, machine: Machine) -> datetime | None:
        await self._tell(machine, {"phase": "Provisioned"})
        due = _begun(machine) + self._paces.node
        if self.clock.now() < due:
            return due
        self._instances.boot(machine)
        return None

    async def _join(self, machine: Machine, node: Node) -> None:
        link = f"{machine.namespace}/{machine.name}"
        if node.metadata.annotations.get(MACHINE_OF_NODE) != link:
            await edge.change(self.client, NODES, node, {"metadata": {"annotations": {MACHINE_OF_NODE: link}}})
        there = conditions.made("InstanceExists", holds=True, reason="", message="")
        await self._tell(machine, {"phase": "Running", "nodeRef": {"kind": "Node", "name": node.name}}, there)

    # Down

    async def _end(self, machine: Machine) -> datetime | None:
        hooks = machine.spec.lifecycle_hooks
        drained = _since(machine, "Drained")
        if FINALIZER not in machine.metadata.finalizers:
            return None
        if machine.status.get("phase") != "Deleting":
            await self._tell(machine, {"phase": "Deleting"})
        elif hooks.pre_drain:
            await self._hold(machine, "Drainable", [it.name for it in hooks.pre_drain])
        elif drained is None:
            return await self._drain(machine)
        elif hooks.pre_terminate:
            await self._hold(machine, "Terminable", [it.name for it in hooks.pre_terminate])
        elif self.clock.now() < drained + self._paces.termination:
            return drained + self._paces.termination
        else:
            await self._terminate(machine)
        return None

    async def _hold(self, machine: Machine, what: str, hooks: list[str]) -> None:
        message = f"hooks are present: {', '.join(hooks)}"
        await self._tell(machine, {}, conditions.made(what, holds=False, reason="HookPresent", message=message))

    async def _drain(self, machine: Machine) -> datetime | None:
        node = self._node(machine)
        if node is not None and _KEPT not in machine.metadata.annotations:
            if machine.is_control_plane and self._is_another_cordoned(node):
                return self.clock.now() + _OTHER_IS_CORDONED
            if not node.spec.unschedulable:
                await edge.change(self.client, NODES, node, {"spec": {"unschedulable": True}})
            left = [pod for pod in on_node(self.caches.pods, node.name) if not _stays(pod)]
            for pod in left:
                await self._evict(pod)
            if left:
                return self.clock.now() + _DRAIN_AGAIN
        empty = conditions.made("Drained", holds=True, reason="DrainSuccess", message="Drained")
        await self._tell(machine, {}, empty)
        return None

    def _is_another_cordoned(self, node: Node) -> bool:
        others = (it for it in self.caches.nodes.all() if it.name != node.name)
        return any(CONTROL_PLANE in it.metadata.labels and it.spec.unschedulable for it in others)

    async def _evict(self, pod: Pod) -> None:
        if pod.deleting:
            return
        try:
            await self.client.evict(pod.name, namespace=pod.namespace, uid=pod.uid)
        except (TooManyRequests, NotFound):
            return  # its budget does not allow it now, or it is gone

    async def _terminate(self, machine: Machine) -> None:
        await self._instances.terminate(machine)
        if machine.node:
            with suppress(NotFound):
                await self.client.delete(NODES, machine.node)
        finalizers = [it for it in machine.metadata.finalizers if it != FINALIZER]
        await edge.change(self.client, MACHINES, machine, {"metadata": {"finalizers": finalizers}})

    # Both

    def _node(self, machine: Machine) -> Node | None:
        wanted = machine_key(machine.spec.provider_id or "")
        return next(
            (it for it in self.caches.nodes.all() if wanted and machine_key(it.spec.provider_id) == wanted), None
        )

    async def _tell(self, machine: Machine, wanted: RawObject, *told: RawObject) -> None:
        known = machine.status.get("conditions") or []
        for condition in told:
            known = conditions.put(known, condition, now=self.clock.now())
        if told:
            wanted = {**wanted, "conditions": known}
        async with edge.Writes(self._machines) as writes:
            writes.made(await edge.write_status(self.client, MACHINES, machine, seen=machine.status, wanted=wanted))


def _begun(machine: Machine) -> datetime:
    return machine.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)


def _stays(pod: Pod) -> bool:
    owner = pod.controller
    return _MIRROR in pod.metadata.annotations or pod.finished or (owner is not None and owner.kind == "DaemonSet")


def _since(machine: Machine, what: str) -> datetime | None:
    found = conditions.find(machine.status, what)
    return None if found is None or found["status"] != "True" else conditions.instant(found["lastTransitionTime"])
