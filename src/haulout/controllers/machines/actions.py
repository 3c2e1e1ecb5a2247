"""The actions of a Machine replacement: one write each, with the objects that supply its preconditions."""

from dataclasses import dataclass

from haulout.api.machinemaintenance import MachineMaintenance
from haulout.api.openshift import Machine, MachineSet
from haulout.controllers.machines.replacement_claim import ReplacementClaim


@dataclass(frozen=True, slots=True)
class WriteClaim:
    """Write the claim of this Machine on its MachineSet; with a surge, add a replica."""

    owner: MachineSet
    claim: ReplacementClaim
    replicas: int | None = None  # None: unchanged


@dataclass(frozen=True, slots=True)
class RecordMachine:
    """Record the Machine's UID in the status before the Machine is deleted."""

    maintenance: MachineMaintenance
    machine: Machine


@dataclass(frozen=True, slots=True)
class DeleteMachine:
    """Delete the Machine."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class MarkForDeletion:
    """Annotate the Machine, so that the MachineSet deletes it first."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class SetMaintenanceScheduled:
    """Set `spec.maintenancescheduled`: the Machine was deleted."""

    maintenance: MachineMaintenance


@dataclass(frozen=True, slots=True)
class InvalidateDeletion:
    """Change the Machine's resourceVersion, so that a deletion in flight fails its precondition."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class ReleaseClaim:
    """Remove a claim; with `replicas`, undo the surge as well."""

    owner: MachineSet
    claim: ReplacementClaim
    replicas: int | None = None


Action = (
    WriteClaim
    | RecordMachine
    | DeleteMachine
    | MarkForDeletion
    | SetMaintenanceScheduled
    | InvalidateDeletion
    | ReleaseClaim
)
