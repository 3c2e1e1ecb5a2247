"""What the controller sees: records, Machines and sets, from caches in which our own writes already count."""

import asyncio
from collections.abc import Iterator, Sequence

from haulout.errors import NotFound
from haulout.kinds.machinemaintenance import MACHINE_MAINTENANCES, MachineMaintenance, Phase
from haulout.kinds.openshift import (
    CONTROL_PLANE_MACHINE_SETS,
    CONTROL_PLANE_SET,
    MACHINE_SETS,
    MACHINES,
    Machine,
    MachineSet,
)
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.fresh import Fresh
from haulout.kube.objects import Node, OwnerReference, object_key
from haulout.machines.decision import closed
from haulout.machines.seen import Peer, Seen
from haulout.machines.timing import Terms

BY_EVENT = "event"
_BY_OWNER = "owner"
_CONTROL_PLANE = ("node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane")


class Sight:
    """The copies, and what is asked when they do not tell; somebody else runs the cache of nodes.

    What notes notices looks at the same copies.
    """

    def __init__(self, client: Client, *, nodes: Cache[Node], namespace: str, machine_namespace: str) -> None:
        self._client = client
        self._nodes = nodes
        self._machine_namespace = machine_namespace
        selected = Selection(MACHINE_MAINTENANCES, namespace=namespace or None)
        self.records = Fresh(Cache(client, selected, row=as_is, indexes={BY_EVENT: _event}))
        machines = Selection(MACHINES, namespace=machine_namespace)
        self.machines = Fresh(Cache(client, machines, row=as_is, indexes={_BY_OWNER: _owner_uid}))
        self.sets = Fresh(Cache(client, Selection(MACHINE_SETS, namespace=machine_namespace), row=as_is))

    async def run(self) -> None:
        """Keep the copies up to date, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.records.cache.run())
            group.create_task(self.machines.cache.run())
            group.create_task(self.sets.cache.run())

    async def wait_synced(self) -> None:
        """Return when all copies have been complete once."""
        for cache in (self.records.cache, self.machines.cache, self.sets.cache, self._nodes):
            await cache.wait_synced()

    def problem(self) -> str:
        """Return why something cannot be followed now; empty if all can."""
        found = (it.health().problem for it in (self.records.cache, self.machines.cache, self.sets.cache))
        return next((it for it in found if it), "")

    async def look(self, record: MachineMaintenance, *, terms: Terms) -> Seen:
        """Return what is known of a record."""
        machine = self.machine(record.spec.machinelink)
        owner = None if machine is None else await self.owner(machine.owner)
        return Seen(
            record=record,
            now=self._client.clock.now(),
            terms=terms,
            machine=machine,
            owner=owner,
            peers=() if owner is None else self.peers(owner),
            control_plane=tuple(it for it in self._nodes.all() if is_control_plane(it)),
        )

    def machine(self, name: str) -> Machine | None:
        """Return a Machine."""
        return self.machines.get(object_key(name, self._machine_namespace))

    async def owner(self, owner: OwnerReference | None) -> MachineSet | None:
        """Return who makes another Machine; the one set of the control plane is rarely needed, and asked for."""
        if owner is None:
            return None
        if owner.kind == CONTROL_PLANE_MACHINE_SETS.kind:
            found = await self.control_plane_set()
        else:
            found = self.sets.get(object_key(owner.name, self._machine_namespace))
        return found if found is not None and found.uid == owner.uid else None

    async def control_plane_set(self) -> MachineSet | None:
        """Return the ControlPlaneMachineSet, if there is one."""
        try:
            return await self._client.get(
                CONTROL_PLANE_MACHINE_SETS, CONTROL_PLANE_SET, namespace=self._machine_namespace
            )
        except NotFound:
            return None

    def peers(self, owner: MachineSet) -> tuple[Peer, ...]:
        """Return the Machines of a set, with their nodes."""
        found = (self.machines.get(it.key) for it in list(self.machines.cache.by(_BY_OWNER, owner.uid)))
        return tuple(Peer(it, self._nodes.get(it.node) if it.node else None) for it in found if it is not None)

    def machine_of(self, node: str) -> Machine | None:
        """Return the Machine that became a node."""
        return next((it for it in self.machines.cache.all() if it.node == node), None)

    def open_records(self) -> Iterator[MachineMaintenance]:
        """Yield the records that have not come to their end."""
        for it in list(self.records.cache.all()):
            if it.status.phase != Phase.COMPLETED:
                yield it

    def is_wanted(self, machine: str) -> bool:
        """Tell whether a record wants this Machine replaced."""
        now = self._client.clock.now()
        wanting = (it for it in self.open_records() if it.spec.machinelink == machine)
        newest = (self.records.get(it.key) for it in wanting)
        return any(it and not closed(it, now=now) and it.status.phase != Phase.REFUSED for it in newest)


def is_control_plane(node: Node) -> bool:
    """Tell whether a node is of the control plane."""
    return any(label in node.metadata.labels for label in _CONTROL_PLANE)


def _event(record: MachineMaintenance) -> Sequence[str]:
    return (record.spec.eventid,)


def _owner_uid(machine: Machine) -> Sequence[str]:
    owner = machine.owner
    return () if owner is None else (owner.uid,)
