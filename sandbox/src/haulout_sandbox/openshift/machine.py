"""Machine controller: from creation to the node, and from deletion to the end of the instance.

All progress is recorded in the object's status and conditions, and durations count from there. So a restarted
controller continues.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from haulout.api.objects import RawObject, machine_key
from haulout.api.openshift import FINALIZER, MACHINE_OF_NODE
from haulout.errors import NotFound, TooManyRequests
from haulout_sandbox.controllers import conditions, object_control
from haulout_sandbox.controllers.base import Controller
from haulout_sandbox.controllers.informers import InformerFactory, on_node
from haulout_sandbox.controllers.objects import NODES, Node, Pod
from haulout_sandbox.nodes.scheduler.framework import CONTROL_PLANE_LABEL
from haulout_sandbox.openshift.instance_provider import InstanceProvider
from haulout_sandbox.openshift.objects import MACHINES, Machine

_DRAIN_RETRY_INTERVAL = timedelta(seconds=5)
_CONTROL_PLANE_RETRY_INTERVAL = timedelta(seconds=20)
_EXCLUDE_NODE_DRAINING = "machine.openshift.io/exclude-node-draining"
_MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineApiDelays:
    instance: timedelta = timedelta(seconds=40)  # from the creation of the Machine to an instance
    node_join: timedelta = timedelta(minutes=6)  # to a node
    termination: timedelta = timedelta(seconds=45)  # from a drained node to a terminated instance


class MachineController(Controller[str]):
    name = "machines"

    def __init__(
        self, informers: InformerFactory, random: Random, *, instances: InstanceProvider, delays: MachineApiDelays
    ) -> None:
        super().__init__(informers, random)
        self._instances = instances
        self._delays = delays
        self._machines = informers.informer_for(MACHINES)
        self._machines.subscribe(self._on_machine_change)
        informers.nodes.subscribe(self._on_node_change)
        informers.pods.subscribe(self._on_pod_change)

    def _on_machine_change(self, old: Machine | None, new: Machine | None) -> None:
        changed = new or old
        if changed is not None:
            self.queue.add(changed.key)

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        keys = {machine_key(node.spec.provider_id) for node in (old, new) if node is not None}
        for machine in self._machines.all():
            if machine.spec.provider_id and machine_key(machine.spec.provider_id) in keys:
                self.queue.add(machine.key)

    def _on_pod_change(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None or old is None:
            return
        for machine in self._machines.all():
            if machine.is_being_deleted and machine.node == old.spec.node_name:
                self.queue.add(machine.key)

    async def sync(self, key: str) -> datetime | None:
        """Take one step; each write requeues the Machine for the next."""
        machine = self._machines.get(key)
        if machine is None:
            return None
        return await (self._reconcile_delete(machine) if machine.is_being_deleted else self._reconcile_normal(machine))

    # Provisioning

    async def _reconcile_normal(self, machine: Machine) -> datetime | None:
        if FINALIZER not in machine.metadata.finalizers:
            finalizers = [*machine.metadata.finalizers, FINALIZER]
            await object_control.patch(self.client, MACHINES, machine, {"metadata": {"finalizers": finalizers}})
            return None
        if not machine.spec.provider_id:
            return await self._provision(machine)
        node = self._node_of(machine)
        if node is not None:
            await self._reconcile_node(machine, node)
        elif machine.node:
            instance_missing = conditions.new_condition(
                "InstanceExists", is_true=False, reason="InstanceMissing", message="it is not there"
            )
            await self._update_status(machine, {"phase": "Failed"}, instance_missing)
        else:
            return await self._boot(machine)
        return None

    async def _provision(self, machine: Machine) -> datetime | None:
        await self._update_status(machine, {"phase": "Provisioning"})
        provisioned_at = _created_at(machine) + self._delays.instance
        if self.clock.now() < provisioned_at:
            return provisioned_at
        patch = {
            "metadata": {"labels": machine.placement_labels},
            "spec": {"providerID": self._instances.launch(machine)},
        }
        await object_control.patch(self.client, MACHINES, machine, patch)
        return None

    async def _boot(self, machine: Machine) -> datetime | None:
        await self._update_status(machine, {"phase": "Provisioned"})
        joins_at = _created_at(machine) + self._delays.node_join
        if self.clock.now() < joins_at:
            return joins_at
        self._instances.boot(machine)
        return None

    async def _reconcile_node(self, machine: Machine, node: Node) -> None:
        machine_name = f"{machine.namespace}/{machine.name}"
        if node.metadata.annotations.get(MACHINE_OF_NODE) != machine_name:
            await object_control.patch(
                self.client, NODES, node, {"metadata": {"annotations": {MACHINE_OF_NODE: machine_name}}}
            )
        instance_exists = conditions.new_condition("InstanceExists", is_true=True, reason="", message="")
        await self._update_status(
            machine, {"phase": "Running", "nodeRef": {"kind": "Node", "name": node.name}}, instance_exists
        )

    # Deletion

    async def _reconcile_delete(self, machine: Machine) -> datetime | None:
        hooks = machine.spec.lifecycle_hooks
        drained_at = _true_since(machine, "Drained")
        if FINALIZER not in machine.metadata.finalizers:
            return None
        if machine.status.get("phase") != "Deleting":
            await self._update_status(machine, {"phase": "Deleting"})
        elif hooks.pre_drain:
            await self._report_hooks(machine, "Drainable", [hook.name for hook in hooks.pre_drain])
        elif drained_at is None:
            return await self._drain(machine)
        elif hooks.pre_terminate:
            await self._report_hooks(machine, "Terminable", [hook.name for hook in hooks.pre_terminate])
        elif self.clock.now() < drained_at + self._delays.termination:
            return drained_at + self._delays.termination
        else:
            await self._terminate(machine)
        return None

    async def _report_hooks(self, machine: Machine, condition_type: str, hooks: list[str]) -> None:
        message = f"hooks are present: {', '.join(hooks)}"
        await self._update_status(
            machine, {}, conditions.new_condition(condition_type, is_true=False, reason="HookPresent", message=message)
        )

    async def _drain(self, machine: Machine) -> datetime | None:
        node = self._node_of(machine)
        if node is not None and _EXCLUDE_NODE_DRAINING not in machine.metadata.annotations:
            if machine.is_control_plane and self._is_another_cordoned(node):
                return self.clock.now() + _CONTROL_PLANE_RETRY_INTERVAL
            if not node.spec.unschedulable:
                await object_control.patch(self.client, NODES, node, {"spec": {"unschedulable": True}})
            remaining = [pod for pod in on_node(self.informers.pods, node.name) if not _is_ignored(pod)]
            for pod in remaining:
                await self._evict(pod)
            if remaining:
                return self.clock.now() + _DRAIN_RETRY_INTERVAL
        drained = conditions.new_condition("Drained", is_true=True, reason="DrainSuccess", message="Drained")
        await self._update_status(machine, {}, drained)
        return None

    def _is_another_cordoned(self, node: Node) -> bool:
        others = (node_other for node_other in self.informers.nodes.all() if node_other.name != node.name)
        return any(
            CONTROL_PLANE_LABEL in node_other.metadata.labels and node_other.spec.unschedulable for node_other in others
        )

    async def _evict(self, pod: Pod) -> None:
        if pod.is_being_deleted:
            return
        try:
            await self.client.evict(pod.name, namespace=pod.namespace, uid=pod.uid)
        except (TooManyRequests, NotFound):
            return  # refused by a PodDisruptionBudget, or already deleted

    async def _terminate(self, machine: Machine) -> None:
        await self._instances.terminate(machine)
        if machine.node:
            with suppress(NotFound):
                await self.client.delete(NODES, machine.node)
        finalizers = [finalizer for finalizer in machine.metadata.finalizers if finalizer != FINALIZER]
        await object_control.patch(self.client, MACHINES, machine, {"metadata": {"finalizers": finalizers}})

    # Status

    def _node_of(self, machine: Machine) -> Node | None:
        key = machine_key(machine.spec.provider_id or "")
        return next(
            (node for node in self.informers.nodes.all() if key and machine_key(node.spec.provider_id) == key), None
        )

    async def _update_status(self, machine: Machine, desired: RawObject, *new_conditions: RawObject) -> None:
        merged = machine.status.get("conditions") or []
        for condition in new_conditions:
            merged = conditions.upsert(merged, condition, now=self.clock.now())
        if new_conditions:
            desired = {**desired, "conditions": merged}
        async with object_control.WriteBarrier(self._machines) as writes:
            writes.record(
                await object_control.update_status(
                    self.client, MACHINES, machine, current=machine.status, desired=desired
                )
            )


def _created_at(machine: Machine) -> datetime:
    return machine.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)


def _is_ignored(pod: Pod) -> bool:
    owner = pod.controller
    return (
        _MIRROR_ANNOTATION in pod.metadata.annotations
        or pod.is_finished
        or (owner is not None and owner.kind == "DaemonSet")
    )


def _true_since(machine: Machine, condition_type: str) -> datetime | None:
    condition = conditions.find(machine.status, condition_type)
    return (
        None
        if condition is None or condition["status"] != "True"
        else conditions.parse_time(condition["lastTransitionTime"])
    )
