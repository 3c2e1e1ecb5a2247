"""Executes the actions of Machine replacements: one write each, with preconditions; caches are updated at once."""

from typing import Any

from haulout.api.machinemaintenance import MACHINE_MAINTENANCES, MachineMaintenance, MachineMaintenancePhase
from haulout.api.objects import Object, RawObject
from haulout.api.openshift import (
    CONTROL_PLANE_MACHINE_SET,
    CONTROL_PLANE_MACHINE_SETS,
    DELETE_MACHINE,
    MACHINE_SETS,
    MACHINES,
    Machine,
    MachineSet,
)
from haulout.api.resources import Resource
from haulout.controllers.machines.actions import (
    Action,
    DeleteMachine,
    InvalidateDeletion,
    MarkForDeletion,
    RecordMachine,
    ReleaseClaim,
    SetMaintenanceScheduled,
    WriteClaim,
)
from haulout.controllers.machines.informers import MachineInformers
from haulout.controllers.machines.replacement_claim import (
    CLAIM_ANNOTATION,
    WITHDRAWN_ANNOTATION,
    ClaimStage,
    ReplacementClaim,
)
from haulout.core.timestamps import micro_time
from haulout.errors import NotFound, ObservationStale
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch


class ClaimStillNeeded(ObservationStale):
    """A claim looked unused, but the Machine may still be deleted for it."""


class MachineExecutor:
    """Writes to the API server.

    Raises `Conflict` or `ObservationStale` when the objects of an action have changed.
    """

    def __init__(self, client: Client, informers: MachineInformers) -> None:
        self._client = client
        self._informers = informers

    async def execute(self, action: Action) -> None:
        match action:
            case WriteClaim(owner, claim, replicas):
                await self._patch_set(owner, claim.annotation_value, replicas)
            case ReleaseClaim(owner, claim, replicas):
                await self._confirm_claim_unused(owner, claim)
                await self._patch_set(owner, None, replicas)
            case RecordMachine(maintenance, machine):
                status = {
                    "phase": MachineMaintenancePhase.REPLACING,
                    "machineUID": machine.uid,
                    "nodeName": machine.node,
                }
                await self.write_status(maintenance, status | {"startedAt": micro_time(self._client.clock.now())})
            case SetMaintenanceScheduled(maintenance):
                patch = merge_patch({**_preconditions(maintenance), "spec": {"maintenancescheduled": True}})
                self._informers.maintenances.record_write(
                    await self._client.patch(
                        MACHINE_MAINTENANCES, maintenance.name, patch, namespace=maintenance.namespace
                    )
                )
            case MarkForDeletion(machine):
                await self._annotate(machine, {DELETE_MACHINE: "true"})
            case InvalidateDeletion(machine):
                await self._annotate(
                    machine, {DELETE_MACHINE: None, WITHDRAWN_ANNOTATION: micro_time(self._client.clock.now())}
                )
            case DeleteMachine(machine):
                await self._delete(machine)

    async def write_status(self, maintenance: MachineMaintenance, change: RawObject) -> None:
        """Merge into the status of a MachineMaintenance, if the object has not changed."""
        patch = merge_patch({**_preconditions(maintenance), "status": change})
        patched = await self._client.patch(
            MACHINE_MAINTENANCES, maintenance.name, patch, namespace=maintenance.namespace, subresource="status"
        )
        self._informers.maintenances.record_write(patched)

    async def _patch_set(self, owner: MachineSet, claim: str | None, replicas: int | None) -> None:
        change = _preconditions(owner)
        change["metadata"]["annotations"] = {CLAIM_ANNOTATION: claim}
        if replicas is not None:
            change["spec"] = {"replicas": replicas}
        resource = machine_set_resource(owner)
        patched = await self._client.patch(resource, owner.name, merge_patch(change), namespace=owner.namespace)
        if resource is MACHINE_SETS:
            self._informers.machine_sets.record_write(patched)

    async def _confirm_claim_unused(self, owner: MachineSet, claim: ReplacementClaim) -> None:
        """Raise `ClaimStillNeeded` if the Machine may still be deleted for this claim, read from the API server."""
        try:
            machine = await self._client.get(MACHINES, claim.machine, namespace=owner.namespace)
        except NotFound:
            return
        self._informers.machines.record_write(machine)
        may_be_deleted = claim.stage == ClaimStage.WITHOUT_SURGE and machine.resource_version == claim.version
        if machine.uid == claim.uid and (machine.is_being_deleted or may_be_deleted):
            raise ClaimStillNeeded(f"Machine {claim.machine} may still be deleted for the claim on {owner.name}")

    async def _annotate(self, machine: Machine, annotations: dict[str, str | None]) -> None:
        change = _preconditions(machine)
        change["metadata"]["annotations"] = annotations
        patched = await self._client.patch(MACHINES, machine.name, merge_patch(change), namespace=machine.namespace)
        self._informers.machines.record_write(patched)

    async def _delete(self, machine: Machine) -> None:
        name, namespace = machine.name, machine.namespace
        await self._client.delete(
            MACHINES, name, namespace=namespace, uid=machine.uid, resource_version=machine.resource_version
        )
        await self._informers.machines.refresh(self._client, MACHINES, name, namespace=namespace)


def machine_set_resource(owner: MachineSet) -> Resource[MachineSet]:
    """Return the resource of a set. Only the single ControlPlaneMachineSet has `spec.state`."""
    is_control_plane = owner.name == CONTROL_PLANE_MACHINE_SET and bool(owner.spec.state)
    return CONTROL_PLANE_MACHINE_SETS if is_control_plane else MACHINE_SETS


def _preconditions(obj: Object) -> dict[str, Any]:
    return {"metadata": obj.preconditions}
