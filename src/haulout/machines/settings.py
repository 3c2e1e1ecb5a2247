"""How Machines are replaced, apart from who does it: an operator that finds none to replace loads nothing else."""

from dataclasses import dataclass, field

from haulout.kinds.machinemaintenance import NAMESPACE
from haulout.kinds.openshift import MACHINE_NAMESPACE
from haulout.machines.timing import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What can differ from one installation to the next."""

    terms: Terms = field(default_factory=Terms)
    namespace: str = NAMESPACE  # of records; empty: all
    machine_namespace: str = MACHINE_NAMESPACE
