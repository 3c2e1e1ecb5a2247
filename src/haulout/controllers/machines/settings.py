"""How Machines are replaced, apart from who does it: an operator that finds none to replace loads nothing else."""

from dataclasses import dataclass, field

from haulout.api.machinemaintenance import NAMESPACE
from haulout.api.openshift import MACHINE_NAMESPACE
from haulout.controllers.machines.replacement_time import ReplacementPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """What can differ from one installation to the next."""

    policy: ReplacementPolicy = field(default_factory=ReplacementPolicy)
    namespace: str = NAMESPACE  # of records; empty: all
    machine_namespace: str = MACHINE_NAMESPACE
