"""Settings of Machine replacement, separate from the controller so that they load without its modules."""

from dataclasses import dataclass, field

from haulout.api.machinemaintenance import NAMESPACE
from haulout.api.openshift import MACHINE_NAMESPACE
from haulout.controllers.machines.replacement_time import ReplacementPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """Settings that differ between installations."""

    policy: ReplacementPolicy = field(default_factory=ReplacementPolicy)
    namespace: str = NAMESPACE  # of MachineMaintenances; empty: all
    machine_namespace: str = MACHINE_NAMESPACE
