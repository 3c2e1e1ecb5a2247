"""The NodeMaintenance resource: what people write, what they read, and the names that others rely on.

Group, kind, fields and names are those of the Node Maintenance Operator, whose users' objects and scripts keep working.
New are `spec.drain`, `spec.recovery` and, in the status, `observedGeneration`, `conditions`, `blockers`, `drain`,
`nextLook`, `phaseTransitions`, `nodeBefore` and `recovery`. Nothing of what was there has another meaning.

As everywhere, a struct names what is read here; the schema of all of it is `nodemaintenances.yaml` beside this module.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from haulout.api import crds
from haulout.api.objects import Base, Object, ObjectMeta, RawObject, StatusCondition
from haulout.api.resources import Resource
from haulout.api.workloads import WorkloadBefore

FINALIZER = "foregroundDeleteNodeMaintenance"
NO_OBSERVED_GENERATION = (
    -1
)  # the observedGeneration of a status that says nothing yet: kstatus then counts the object as in progress


class NodeMaintenancePhase(StrEnum):
    """How a maintenance stands, in a word."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"  # the node is empty, and stays out of service until the object is deleted
    FAILED = "Failed"


class NodeMaintenanceConditionType(StrEnum):
    """What the status tells more about."""

    LEASED = "Leased"
    CORDONED = "Cordoned"
    DRAINED = "Drained"
    FAILED = "Failed"
    WITHIN_BUDGET = "WithinBudget"  # only where there is a budget
    # What kstatus reads: Flux, `kubectl wait` and others go by these. The last two are there only while they are true.
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class RecoverySpec(Base, frozen=True):
    """What a node waits for after its maintenance, and how long at most."""

    timeout: str = ""


class NodeMaintenanceSpec(Base, frozen=True):
    """What is wanted."""

    node_name: str = ""
    reason: str = ""
    drain: RawObject | None = None
    recovery: RecoverySpec | None = None


class PodReference(Base, frozen=True):
    """A pod, by where it is."""

    namespace: str = ""
    name: str = ""


class BlockerStatus(Base, frozen=True):
    """What stands in a pod's way: `haulout.drain.blockers` in the status."""

    kind: str = ""
    pod: str = ""
    object: str = ""
    workload: str = ""
    reason: str = ""
    advice: str = ""
    since: datetime | None = None


class DrainStatus(Base, frozen=True):
    """How far the drain is, and what a successor needs to go on with it."""

    start_time: datetime | None = None
    deadline: datetime | None = None
    gone: int = 0
    leaving: int = 0
    returning: tuple[str, ...] = ()
    warning: str = ""
    turns: dict[str, datetime] = msgspec.field(default_factory=dict)  # by uid: since when a pod has had its turn


class PhaseTransition(Base, frozen=True):
    """A change of the phase; their numbers count all of them. One without a phase says that it began anew."""

    number: int
    phase: str = ""
    time: datetime | None = None


class NodeBefore(Base, frozen=True):
    """How the node was before the maintenance changed it: a copy of what the mark on the node says.

    It names what was there, of the taints (`key:effect`) and labels that a maintenance sets. It is about one node: one
    that was deleted and created again under the same name has another uid.
    """

    uid: str = ""
    unschedulable: bool = False
    taints: tuple[str, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class RecoveryStatus(Base, frozen=True):
    """The workloads that had pods on the node before the drain; from `start_time` on, those that were evicted."""

    start_time: datetime | None = None
    workloads: tuple[WorkloadBefore, ...] = ()
    omitted: int = 0  # workloads for which there was no room
    problem: str = ""  # why they are not known


class NodeMaintenanceStatus(Base, frozen=True):
    """How it stands. Zero and empty are not written, as ever."""

    phase: str = ""
    drain_progress: int = 0
    last_update: datetime | None = None
    last_error: str = ""
    pending_pods: tuple[str, ...] = ()
    pending_pods_refs: tuple[PodReference, ...] = ()
    total_pods: int = msgspec.field(name="totalpods", default=0)
    eviction_pods: int = 0
    error_on_lease_count: int = 0
    observed_generation: int = 0
    next_look: datetime | None = None
    conditions: tuple[StatusCondition, ...] = ()
    waits_for: str = ""
    blockers: tuple[BlockerStatus, ...] = ()
    drain: DrainStatus | None = None
    phase_transitions: tuple[PhaseTransition, ...] = ()  # the last ones, the newest last
    node_before: NodeBefore | None = None
    recovery: RecoveryStatus | None = None

    def condition(self, condition_type: NodeMaintenanceConditionType) -> StatusCondition | None:
        """Return one of the conditions."""
        return next((condition for condition in self.conditions if condition.type == condition_type), None)


class ManagedFields(Base, frozen=True):
    """Who wrote to an object, and when."""

    manager: str = ""
    subresource: str = ""
    time: datetime | None = None


class NodeMaintenanceMetadata(ObjectMeta, frozen=True):
    """What every object has, with who wrote to it."""

    managed_fields: tuple[ManagedFields, ...] = ()


class NodeMaintenance(Object, frozen=True):
    """The order to take a node out of service."""

    metadata: NodeMaintenanceMetadata = NodeMaintenanceMetadata()
    spec: NodeMaintenanceSpec = NodeMaintenanceSpec()
    status: NodeMaintenanceStatus = NodeMaintenanceStatus()

    @property
    def node(self) -> str:
        """The name of the node."""
        return self.spec.node_name

    @property
    def is_being_deleted(self) -> bool:
        """Tell whether it was deleted, and only waits for finalizers."""
        return self.metadata.deletion_timestamp is not None


NODE_MAINTENANCES = Resource(
    "nodemaintenance.medik8s.io",
    "v1beta1",
    "nodemaintenances",
    "NodeMaintenance",
    namespaced=False,
    model=NodeMaintenance,
)


def custom_resource_definition() -> RawObject:
    """Return the CustomResourceDefinition."""
    return crds.load_crd(__package__, "nodemaintenances.yaml")
