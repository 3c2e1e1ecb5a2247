"""What can be done about a Machine that is to be replaced: one write each, with what it rests on."""

from dataclasses import dataclass

from haulout.kinds.machinemaintenance import MachineMaintenance
from haulout.kinds.openshift import Machine, MachineSet
from haulout.machines.claims import Claim


@dataclass(frozen=True, slots=True)
class TakeClaim:
    """Say on the set that this Machine is being replaced; with a surge, want one Machine more."""

    owner: MachineSet
    claim: Claim
    replicas: int | None = None  # None: as many as before


@dataclass(frozen=True, slots=True)
class Begin:
    """Say in the record which Machine it is about, before that is told to go."""

    record: MachineMaintenance
    machine: Machine


@dataclass(frozen=True, slots=True)
class DeleteMachine:
    """Tell the Machine to go."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class Mark:
    """Have the set delete this Machine before others."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class SetFlag:
    """Say in the record that the Machine was told to go."""

    record: MachineMaintenance


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Have a deletion that may be under way be refused."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class DropClaim:
    """Take a claim back; with `replicas`, take the surge back, too."""

    owner: MachineSet
    claim: Claim
    replicas: int | None = None


Step = TakeClaim | Begin | DeleteMachine | Mark | SetFlag | Withdraw | DropClaim
