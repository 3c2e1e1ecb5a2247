"""Informers for MachineMaintenances, Machines and MachineSets, with a mutation cache that includes our own writes."""

import asyncio
from collections.abc import Iterator, Sequence

from haulout.api.machinemaintenance import MACHINE_MAINTENANCES, MachineMaintenance, MachineMaintenancePhase
from haulout.api.objects import Node, OwnerReference, object_key
from haulout.api.openshift import (
    CONTROL_PLANE_MACHINE_SET,
    CONTROL_PLANE_MACHINE_SETS,
    MACHINE_SETS,
    MACHINES,
    Machine,
    MachineSet,
)
from haulout.controllers.machines.decision import closed_reason
from haulout.controllers.machines.observation import Observation, Peer
from haulout.controllers.machines.replacement_time import ReplacementPolicy
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.reflector import ListWatch
from haulout.runtime.freezes import Freezes

BY_EVENT = "event"
_BY_OWNER = "owner"
_CONTROL_PLANE_LABELS = ("node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane")


class MachineInformers:
    """The informers, with a fallback to the API server. The caller runs the node informer.

    `MachineNoticeController` shares these informers.
    """

    def __init__(self, client: Client, *, nodes: Informer[Node], namespace: str, machine_namespace: str) -> None:
        self._client = client
        self._nodes = nodes
        self._machine_namespace = machine_namespace
        selected = ListWatch(MACHINE_MAINTENANCES, namespace=namespace or None)
        self.maintenances = MutationCache(Informer(client, selected, transform=as_is, indexes={BY_EVENT: _event_ids}))
        machines = ListWatch(MACHINES, namespace=machine_namespace)
        self.machines = MutationCache(Informer(client, machines, transform=as_is, indexes={_BY_OWNER: _owner_uids}))
        self.machine_sets = MutationCache(
            Informer(client, ListWatch(MACHINE_SETS, namespace=machine_namespace), transform=as_is)
        )

    async def run(self) -> None:
        """Run the informers until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.maintenances.informer.run())
            group.create_task(self.machines.informer.run())
            group.create_task(self.machine_sets.informer.run())

    async def wait_synced(self) -> None:
        """Wait until all informers have synced once."""
        for cache in (self.maintenances.informer, self.machines.informer, self.machine_sets.informer, self._nodes):
            await cache.wait_synced()

    def problem(self) -> str:
        """Return why an informer cannot watch now; empty if all can."""
        problems = (
            item.health().problem
            for item in (self.maintenances.informer, self.machines.informer, self.machine_sets.informer)
        )
        return next((item for item in problems if item), "")

    async def observe(
        self, maintenance: MachineMaintenance, *, policy: ReplacementPolicy, freezes: Freezes
    ) -> Observation:
        machine = self.machine(maintenance.spec.machinelink)
        owner = None if machine is None else await self.owner(machine.controller_owner)
        return Observation(
            maintenance=maintenance,
            now=self._client.clock.now(),
            policy=policy,
            machine=machine,
            owner=owner,
            peers=() if owner is None else self.peers(owner),
            control_plane=tuple(node for node in self._nodes.all() if is_control_plane(node)),
            freezes=freezes,
        )

    async def refresh_maintenance(self, key: str) -> bool:
        """Read a MachineMaintenance from the API server; return whether it differs from the cached one."""
        cached = self.maintenances.get(key)
        if cached is None:
            return True
        found = await self.maintenances.refresh(
            self._client, MACHINE_MAINTENANCES, cached.name, namespace=cached.namespace
        )
        return found is None or found.resource_version != cached.resource_version

    def machine(self, name: str) -> Machine | None:
        return self.machines.get(object_key(name, self._machine_namespace))

    async def owner(self, owner: OwnerReference | None) -> MachineSet | None:
        """Return the controller of a Machine.

        The ControlPlaneMachineSet is rarely needed, and read from the API server.
        """
        if owner is None:
            return None
        if owner.kind == CONTROL_PLANE_MACHINE_SETS.kind:
            machine_set = await self.control_plane_set()
        else:
            machine_set = self.machine_sets.get(object_key(owner.name, self._machine_namespace))
        return machine_set if machine_set is not None and machine_set.uid == owner.uid else None

    async def control_plane_set(self) -> MachineSet | None:
        """Return the ControlPlaneMachineSet, read from the API server; None if there is none."""
        return await self._client.find(
            CONTROL_PLANE_MACHINE_SETS, CONTROL_PLANE_MACHINE_SET, namespace=self._machine_namespace
        )

    def peers(self, owner: MachineSet) -> tuple[Peer, ...]:
        """Return the Machines of a set with their nodes."""
        machines = (
            self.machines.get(machine.key) for machine in list(self.machines.informer.by_index(_BY_OWNER, owner.uid))
        )
        return tuple(
            Peer(machine, self._nodes.get(machine.node) if machine.node else None)
            for machine in machines
            if machine is not None
        )

    def machine_of(self, node: str) -> Machine | None:
        return next((machine for machine in self.machines.informer.all() if machine.node == node), None)

    def open_maintenances(self) -> Iterator[MachineMaintenance]:
        """Yield the MachineMaintenances that are not completed."""
        for maintenance in list(self.maintenances.informer.all()):
            if maintenance.status.phase != MachineMaintenancePhase.COMPLETED:
                yield maintenance

    def is_replacement_requested(self, machine: str) -> bool:
        """Return whether a MachineMaintenance requests the replacement of this Machine."""
        now = self._client.clock.now()
        candidates = (
            maintenance for maintenance in self.open_maintenances() if maintenance.spec.machinelink == machine
        )
        current = (self.maintenances.get(maintenance.key) for maintenance in candidates)
        return any(
            maintenance
            and not closed_reason(maintenance, now=now)
            and maintenance.status.phase != MachineMaintenancePhase.REFUSED
            for maintenance in current
        )


def is_control_plane(node: Node) -> bool:
    return any(label in node.metadata.labels for label in _CONTROL_PLANE_LABELS)


def _event_ids(maintenance: MachineMaintenance) -> Sequence[str]:
    return (maintenance.spec.eventid,)


def _owner_uids(machine: Machine) -> Sequence[str]:
    owner = machine.controller_owner
    return () if owner is None else (owner.uid,)
