"""The NodeMaintenance resource: its fields, phases and conditions.

Group, kind, fields and names are those of the Node Maintenance Operator, so that its users' objects and scripts keep
working. Haulout adds `spec.drain`, `spec.recovery` and, in the status, `observedGeneration`, `conditions`, `blockers`,
`drain`, `nextReconcile`, `phaseTransitions`, `nodeBefore` and `recovery`. No existing field has changed its meaning.

A struct names only the fields that Haulout reads. The complete schema is `nodemaintenances.yaml` in this package.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from haulout.api import resources
from haulout.api.objects import Base, Object, ObjectMeta, RawObject, StatusCondition, find_condition
from haulout.api.resources import Resource
from haulout.api.workloads import WorkloadBefore

# The Node Maintenance Operator's finalizer: after a switch, either operator can complete the deletion of an object.
FINALIZER = "foregroundDeleteNodeMaintenance"
# The observedGeneration of a status without content yet: kstatus then reports the object as in progress.
NO_OBSERVED_GENERATION = -1


class NodeMaintenancePhase(StrEnum):
    """The phase of a NodeMaintenance, with the values of the Node Maintenance Operator."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"  # the node is drained, and stays cordoned until the object is deleted
    FAILED = "Failed"


class NodeMaintenanceConditionType(StrEnum):
    """The condition types in the status. The Node Maintenance Operator has none of them."""

    LEASED = "Leased"  # the maintenance holds the lease of the node
    CORDONED = "Cordoned"  # the node is cordoned and tainted for the maintenance
    DRAINED = "Drained"  # all pods have left the node
    FAILED = "Failed"  # the maintenance cannot continue by itself
    WITHIN_BUDGET = "WithinBudget"  # the budget allows the node to be unavailable; only with a budget
    # kstatus, Flux, `kubectl wait` and others read these. The last two are present only while they are true.
    READY = "Ready"  # the node is drained
    RECONCILING = "Reconciling"  # the maintenance is in progress; present only while True
    STALLED = "Stalled"  # a person must act; present only while True


class RecoverySpec(Base, frozen=True):
    """How long to wait, after the maintenance, for the evicted workloads to recover."""

    timeout: str = ""


class NodeMaintenanceSpec(Base, frozen=True):
    """What the user wants. The webhook rejects a change of `node_name`."""

    node_name: str = ""
    reason: str = ""
    drain: RawObject | None = None
    recovery: RecoverySpec | None = None


class PodReference(Base, frozen=True):
    """A pod by namespace and name; it may be gone by the time somebody reads this."""

    namespace: str = ""
    name: str = ""


class BlockerStatus(Base, frozen=True):
    """A blocker of a pod: `haulout.drain.blockers` in the status."""

    kind: str = ""
    pod: str = ""
    object: str = ""
    workload: str = ""
    reason: str = ""
    remedy: str = ""
    since: datetime | None = None


class DrainStatus(Base, frozen=True):
    """The progress of the drain, and what another process needs to continue it."""

    start_time: datetime | None = None
    deadline: datetime | None = None
    removed: int = 0
    terminating: int = 0
    returning: tuple[str, ...] = ()
    warning: str = ""
    pod_start_times: dict[str, datetime] = msgspec.field(
        default_factory=dict
    )  # by pod UID: when the drain began with the pod


class PhaseTransition(Base, frozen=True):
    """A change of the phase. Numbers count all changes. A transition without a phase marks a new beginning."""

    number: int
    phase: str = ""
    time: datetime | None = None


class NodeBefore(Base, frozen=True):
    """The state of the node before the maintenance changed it: a copy of the annotation on the node.

    It names the taints (`key:effect`) and labels that were present, among those that a maintenance sets. It is about
    one Node object: a node that was deleted and created again with the same name has another UID.
    """

    uid: str = ""
    unschedulable: bool = False
    taints: tuple[str, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class RecoveryStatus(Base, frozen=True):
    """The workloads that had pods on the node before the drain; after `start_time`, only those with evicted pods."""

    start_time: datetime | None = None
    workloads: tuple[WorkloadBefore, ...] = ()
    omitted: int = 0  # number of workloads that did not fit
    problem: str = ""  # why the workloads are unknown


class NodeMaintenanceStatus(Base, frozen=True):
    """The observed state. As in the Node Maintenance Operator, zero and empty values are not written."""

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
    next_reconcile: datetime | None = None
    conditions: tuple[StatusCondition, ...] = ()
    waiting_for: str = ""
    blockers: tuple[BlockerStatus, ...] = ()
    drain: DrainStatus | None = None
    phase_transitions: tuple[PhaseTransition, ...] = ()  # the latest ones, the newest last
    node_before: NodeBefore | None = None
    recovery: RecoveryStatus | None = None

    def condition(self, condition_type: NodeMaintenanceConditionType) -> StatusCondition | None:
        return find_condition(self.conditions, condition_type)


class ManagedFields(Base, frozen=True):
    """A field manager of an object, and the time of its last write."""

    manager: str = ""
    subresource: str = ""
    time: datetime | None = None


class NodeMaintenanceMetadata(ObjectMeta, frozen=True):
    """Object metadata with managed fields, which tell who created and changed the object."""

    managed_fields: tuple[ManagedFields, ...] = ()


class NodeMaintenance(Object, frozen=True):
    """A request to take a node out of service."""

    metadata: NodeMaintenanceMetadata = NodeMaintenanceMetadata()
    spec: NodeMaintenanceSpec = NodeMaintenanceSpec()
    status: NodeMaintenanceStatus = NodeMaintenanceStatus()

    @property
    def node(self) -> str:
        return self.spec.node_name


NODE_MAINTENANCES = Resource(
    "nodemaintenance.medik8s.io",
    "v1beta1",
    "nodemaintenances",
    "NodeMaintenance",
    namespaced=False,
    model=NodeMaintenance,
)


def custom_resource_definition() -> RawObject:
    return resources.load_crd(__package__, "nodemaintenances.yaml")
