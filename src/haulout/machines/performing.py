"""Performs steps: each is one write with what it rests on, and what it made is known at once."""

from typing import Any

from haulout.errors import HauloutError, NotFound
from haulout.kinds.machinemaintenance import MACHINE_MAINTENANCES, MachineMaintenance, Phase
from haulout.kinds.openshift import (
    CONTROL_PLANE_MACHINE_SETS,
    CONTROL_PLANE_SET,
    DELETE_FIRST,
    MACHINE_SETS,
    MACHINES,
    Machine,
    MachineSet,
)
from haulout.kube.client import Client
from haulout.kube.objects import Object, RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import Resource
from haulout.kube.timestamps import micro_time
from haulout.machines.claims import CLAIM, TOUCHED, Claim, Stage
from haulout.machines.sight import Sight
from haulout.machines.steps import Begin, DeleteMachine, DropClaim, Mark, SetFlag, Step, TakeClaim, Withdraw


class StillNeeded(HauloutError):
    """A claim looked as if nobody needed it, and somebody does."""


class Performer:
    """Writes; raises `Conflict` when a step rests on what is not so any more."""

    def __init__(self, client: Client, sight: Sight) -> None:
        self._client = client
        self._sight = sight

    async def perform(self, step: Step) -> None:
        """Perform a step."""
        match step:
            case TakeClaim(owner, claim, replicas):
                await self._change_set(owner, claim.written, replicas)
            case DropClaim(owner, claim, replicas):
                await self._confirm_unneeded(owner, claim)
                await self._change_set(owner, None, replicas)
            case Begin(record, machine):
                status = {"phase": Phase.REPLACING, "machineUID": machine.uid, "nodeName": machine.node}
                await self.write_status(record, status | {"startedAt": micro_time(self._client.clock.now())})
            case SetFlag(record):
                patch = merge_patch({**_basis(record), "spec": {"maintenancescheduled": True}})
                self._sight.records.note(
                    await self._client.patch(MACHINE_MAINTENANCES, record.name, patch, namespace=record.namespace)
                )
            case Mark(machine):
                await self._annotate(machine, {DELETE_FIRST: "true"})
            case Withdraw(machine):
                await self._annotate(machine, {DELETE_FIRST: None, TOUCHED: micro_time(self._client.clock.now())})
            case DeleteMachine(machine):
                await self._delete(machine)

    async def write_status(self, record: MachineMaintenance, change: RawObject) -> None:
        """Merge something into the status of a record, if it still is in the state that was seen."""
        patch = merge_patch({**_basis(record), "status": change})
        written = await self._client.patch(
            MACHINE_MAINTENANCES, record.name, patch, namespace=record.namespace, subresource="status"
        )
        self._sight.records.note(written)

    async def _change_set(self, owner: MachineSet, claim: str | None, replicas: int | None) -> None:
        change = _basis(owner)
        change["metadata"]["annotations"] = {CLAIM: claim}
        if replicas is not None:
            change["spec"] = {"replicas": replicas}
        resource = set_resource(owner)
        written = await self._client.patch(resource, owner.name, merge_patch(change), namespace=owner.namespace)
        if resource is MACHINE_SETS:
            self._sight.sets.note(written)

    async def _confirm_unneeded(self, owner: MachineSet, claim: Claim) -> None:
        """Ask the server itself whether the Machine can still be deleted for this claim."""
        try:
            found = await self._client.get(MACHINES, claim.machine, namespace=owner.namespace)
        except NotFound:
            return
        self._sight.machines.note(found)
        may_go = claim.stage == Stage.ALONE and found.resource_version == claim.version
        if found.uid == claim.uid and (found.is_leaving or may_go):
            raise StillNeeded(f"Machine {claim.machine} may still be told to go for the claim on {owner.name}")

    async def _annotate(self, machine: Machine, annotations: dict[str, str | None]) -> None:
        change = _basis(machine)
        change["metadata"]["annotations"] = annotations
        written = await self._client.patch(MACHINES, machine.name, merge_patch(change), namespace=machine.namespace)
        self._sight.machines.note(written)

    async def _delete(self, machine: Machine) -> None:
        name, namespace = machine.name, machine.namespace
        await self._client.delete(
            MACHINES, name, namespace=namespace, uid=machine.uid, resource_version=machine.resource_version
        )
        try:
            self._sight.machines.note(await self._client.get(MACHINES, name, namespace=namespace))
        except NotFound:
            self._sight.machines.note_gone(machine)


def set_resource(owner: MachineSet) -> Resource[MachineSet]:
    """Return what a set is; there is one ControlPlaneMachineSet, and no MachineSet is of that state."""
    is_control_plane = owner.name == CONTROL_PLANE_SET and bool(owner.spec.state)
    return CONTROL_PLANE_MACHINE_SETS if is_control_plane else MACHINE_SETS


def _basis(found: Object) -> dict[str, Any]:
    return {"metadata": {"uid": found.uid, "resourceVersion": found.resource_version}}
