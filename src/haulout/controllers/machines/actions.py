"""What can be done about a Machine that is to be replaced: one write each, with what it rests on."""

from dataclasses import dataclass

from haulout.api.machinemaintenance import MachineMaintenance
from haulout.api.openshift import Machine, MachineSet
from haulout.controllers.machines.replacement_claim import ReplacementClaim


@dataclass(frozen=True, slots=True)
class WriteClaim:
    """Say on the set that this Machine is being replaced; with a surge, want one Machine more."""

    owner: MachineSet
    claim: ReplacementClaim
    replicas: int | None = None  # None: as many as before


@dataclass(frozen=True, slots=True)
class RecordMachine:
    """Say in the record which Machine it is about, before that is told to go."""

    maintenance: MachineMaintenance
    machine: Machine


@dataclass(frozen=True, slots=True)
class DeleteMachine:
    """Tell the Machine to go."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class MarkForDeletion:
    """Have the set delete this Machine before others."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class SetMaintenanceScheduled:
    """Say in the record that the Machine was told to go."""

    maintenance: MachineMaintenance


@dataclass(frozen=True, slots=True)
class InvalidateDeletion:
    """Have a deletion that may be under way be refused."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class ReleaseClaim:
    """Take a claim back; with `replicas`, take the surge back, too."""

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
