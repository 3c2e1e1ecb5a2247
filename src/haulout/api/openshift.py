"""The Machine API of OpenShift, as far as we read it: Machines, and who makes another when one goes.

A Machine that is deleted is drained by that API's own controller, its instance is terminated and its Node deleted. If
it has a controller (a MachineSet, or the one ControlPlaneMachineSet) another is made for it; if not, it stays away.
"""

import msgspec

from haulout.api.objects import Base, Condition, Object, OwnerReference
from haulout.api.resources import Resource

GROUP = "machine.openshift.io"
MACHINE_NAMESPACE = "openshift-machine-api"
CONTROL_PLANE_MACHINE_SET = "cluster"  # the name of the only ControlPlaneMachineSet

ROLE = "machine.openshift.io/cluster-api-machine-role"
CONTROL_PLANE_ROLES = ("master", "control-plane")
DELETE_MACHINE = "machine.openshift.io/delete-machine"  # at scale-down, before others
MACHINE_OF_NODE = "machine.openshift.io/machine"
FINALIZER = "machine.machine.openshift.io"


class LifecycleHook(Base, frozen=True):
    """Somebody has a part of the deletion wait."""

    name: str = ""
    owner: str = ""


class LifecycleHooks(Base, frozen=True):
    """Who has what wait."""

    pre_drain: tuple[LifecycleHook, ...] = ()
    pre_terminate: tuple[LifecycleHook, ...] = ()


class NodeReference(Base, frozen=True):
    """Which node a Machine became."""

    name: str = ""


class MachineSpec(Base, frozen=True):
    """What is wanted of a Machine."""

    provider_id: str | None = msgspec.field(name="providerID", default=None)
    lifecycle_hooks: LifecycleHooks = LifecycleHooks()


class MachineStatus(Base, frozen=True):
    """How a Machine is."""

    phase: str | None = None
    node_ref: NodeReference | None = None
    conditions: tuple[Condition, ...] = ()


class Machine(Object, frozen=True):
    """A machine of a cloud that is, or becomes, a node."""

    spec: MachineSpec = MachineSpec()
    status: MachineStatus = MachineStatus()

    @property
    def node(self) -> str:
        """The name of its node, empty while there is none."""
        return "" if self.status.node_ref is None else self.status.node_ref.name

    @property
    def is_being_deleted(self) -> bool:
        """Tell whether its deletion has begun."""
        return self.metadata.deletion_timestamp is not None

    @property
    def controller_owner(self) -> OwnerReference | None:
        """Who makes another when it goes."""
        return next((owner for owner in self.metadata.owner_references if owner.controller), None)

    @property
    def is_control_plane(self) -> bool:
        """Tell whether it is of the control plane."""
        owner = self.controller_owner
        is_owned_by_control_plane_set = owner is not None and owner.kind == CONTROL_PLANE_MACHINE_SETS.kind
        return is_owned_by_control_plane_set or self.metadata.labels.get(ROLE) in CONTROL_PLANE_ROLES


class MachineSetSpec(Base, frozen=True):
    """What is wanted of a set."""

    replicas: int | None = None
    state: str = ""  # of a ControlPlaneMachineSet: Active or Inactive


class MachineSetStatus(Base, frozen=True):
    """How a set is."""

    observed_generation: int = 0


class MachineSet(Object, frozen=True):
    """Makes Machines that are alike: a MachineSet, or the ControlPlaneMachineSet."""

    spec: MachineSetSpec = MachineSetSpec()
    status: MachineSetStatus = MachineSetStatus()

    @property
    def replicas(self) -> int:
        """How many Machines there should be."""
        return 1 if self.spec.replicas is None else self.spec.replicas


MACHINES = Resource(GROUP, "v1beta1", "machines", "Machine", namespaced=True, model=Machine)
MACHINE_SETS = Resource(GROUP, "v1beta1", "machinesets", "MachineSet", namespaced=True, model=MachineSet)
CONTROL_PLANE_MACHINE_SETS = Resource(
    GROUP, "v1", "controlplanemachinesets", "ControlPlaneMachineSet", namespaced=True, model=MachineSet
)
