"""The MaintenanceFreeze resource: while one is active, no new maintenance begins on the nodes that it selects.

People write it, with `haulout freeze` or `kubectl apply`. Haulout writes the status. The schema is
`maintenancefreezes.yaml` in this package. `haulout.runtime.freezes` decides what a freeze means for a node.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from haulout.api import resources
from haulout.api.objects import Base, Object, RawObject, StatusCondition
from haulout.api.resources import Resource


class FreezeException(StrEnum):
    """What may begin although a freeze is active."""

    NOTICES = "Notices"  # maintenance that a MaintenanceNotice announces


class FreezePhase(StrEnum):
    """The phase of a freeze, derived from time."""

    PENDING = "Pending"  # before `from`
    ACTIVE = "Active"
    ENDED = "Ended"


class FreezeCondition(StrEnum):
    """The condition types in the status, with the meanings that kstatus expects."""

    READY = "Ready"  # the phase and the number of nodes are known, and the selector is valid
    STALLED = "Stalled"  # a person must act; present only while True


class MaintenanceFreezeSpec(Base, frozen=True):
    """Which nodes are frozen, and when."""

    selector: RawObject = msgspec.field(default_factory=dict)  # a LabelSelector; empty: all nodes
    from_: datetime | None = msgspec.field(name="from", default=None)  # None: from its creation on
    until: datetime | None = None  # None: until it is deleted
    reason: str = ""
    by: str = ""
    except_: tuple[str, ...] = msgspec.field(name="except", default=(FreezeException.NOTICES,))


class MaintenanceFreezeStatus(Base, frozen=True):
    """What Haulout observed."""

    phase: str = ""
    nodes: int | None = None  # how many nodes it selects
    observed_generation: int = 0
    conditions: tuple[StatusCondition, ...] = ()


class MaintenanceFreeze(Object, frozen=True):
    """A time in which no new maintenance begins."""

    spec: MaintenanceFreezeSpec = MaintenanceFreezeSpec()
    status: MaintenanceFreezeStatus = MaintenanceFreezeStatus()


MAINTENANCE_FREEZES = Resource(
    "haulout.dev", "v1alpha1", "maintenancefreezes", "MaintenanceFreeze", namespaced=False, model=MaintenanceFreeze
)


@dataclass(frozen=True, slots=True)
class PhaseAt:
    """The phase of a freeze, and when it changes by itself; None: never."""

    phase: FreezePhase
    until: datetime | None = None


def phase_at(freeze: MaintenanceFreeze, *, now: datetime) -> PhaseAt:
    """Return the phase at an instant. A freeze that is being deleted has ended, whatever finalizers it has."""
    spec = freeze.spec
    if freeze.metadata.deletion_timestamp is not None or (spec.until is not None and spec.until <= now):
        return PhaseAt(FreezePhase.ENDED)
    if spec.from_ is not None and now < spec.from_:
        return PhaseAt(FreezePhase.PENDING, spec.from_)
    return PhaseAt(FreezePhase.ACTIVE, spec.until)


def definition() -> RawObject:
    return resources.load_crd(__package__, "maintenancefreezes.yaml")
