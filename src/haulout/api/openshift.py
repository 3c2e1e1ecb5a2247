"""OpenShift Machine API types: Machines, and the sets that replace them.

When a Machine is deleted, the Machine API's own controller drains it, terminates its instance and deletes its Node. If
it has a controller (a MachineSet, or the only ControlPlaneMachineSet), that creates another one; otherwise it is not
replaced.
"""

import msgspec

from haulout.api.objects import Base, Condition, Object, OwnerReference
from haulout.api.resources import Resource

GROUP = "machine.openshift.io"
MACHINE_NAMESPACE = "openshift-machine-api"
CONTROL_PLANE_MACHINE_SET = "cluster"  # the name of the only ControlPlaneMachineSet

ROLE = "machine.openshift.io/cluster-api-machine-role"
CONTROL_PLANE_ROLES = ("master", "control-plane")
DELETE_MACHINE = "machine.openshift.io/delete-machine"  # preferred for deletion at scale-down
MACHINE_OF_NODE = "machine.openshift.io/machine"
FINALIZER = "machine.machine.openshift.io"


class LifecycleHook(Base, frozen=True):
    """A hook that delays a step of the deletion."""

    name: str = ""
    owner: str = ""


class LifecycleHooks(Base, frozen=True):
    """The hooks before drain and before termination."""

    pre_drain: tuple[LifecycleHook, ...] = ()
    pre_terminate: tuple[LifecycleHook, ...] = ()


class NodeReference(Base, frozen=True):
    """The node of a Machine. Set once the instance has joined; the Node may be gone again."""

    name: str = ""


class MachineSpec(Base, frozen=True):
    """The instance of a Machine, and the hooks that delay its deletion."""

    provider_id: str | None = msgspec.field(name="providerID", default=None)
    lifecycle_hooks: LifecycleHooks = LifecycleHooks()


class MachineStatus(Base, frozen=True):
    """What the Machine API reports of a Machine: its phase, its node, and why it hangs."""

    phase: str | None = None
    node_ref: NodeReference | None = None
    conditions: tuple[Condition, ...] = ()


class Machine(Object, frozen=True):
    """A cloud instance that is, or becomes, a node."""

    spec: MachineSpec = MachineSpec()
    status: MachineStatus = MachineStatus()

    @property
    def node(self) -> str:
        """The name of its node; empty if it has none yet."""
        return "" if self.status.node_ref is None else self.status.node_ref.name

    @property
    def controller_owner(self) -> OwnerReference | None:
        """The controller that replaces this Machine when it is deleted."""
        return next((owner for owner in self.metadata.owner_references if owner.controller), None)

    @property
    def is_control_plane(self) -> bool:
        owner = self.controller_owner
        is_owned_by_control_plane_set = owner is not None and owner.kind == CONTROL_PLANE_MACHINE_SETS.kind
        return is_owned_by_control_plane_set or self.metadata.labels.get(ROLE) in CONTROL_PLANE_ROLES


class MachineSetSpec(Base, frozen=True):
    """How many Machines a set keeps, and whether a ControlPlaneMachineSet acts at all."""

    replicas: int | None = None
    state: str = ""  # of a ControlPlaneMachineSet: Active or Inactive


class MachineSetStatus(Base, frozen=True):
    """For which generation of the set its controller has acted."""

    observed_generation: int = 0


class MachineSet(Object, frozen=True):
    """A MachineSet or the ControlPlaneMachineSet: creates Machines from one template."""

    spec: MachineSetSpec = MachineSetSpec()
    status: MachineSetStatus = MachineSetStatus()

    @property
    def replicas(self) -> int:
        """The desired number of Machines; 1 if it is absent, as the API's default."""
        return 1 if self.spec.replicas is None else self.spec.replicas


MACHINES = Resource(GROUP, "v1beta1", "machines", "Machine", namespaced=True, model=Machine)
MACHINE_SETS = Resource(GROUP, "v1beta1", "machinesets", "MachineSet", namespaced=True, model=MachineSet)
CONTROL_PLANE_MACHINE_SETS = Resource(
    GROUP, "v1", "controlplanemachinesets", "ControlPlaneMachineSet", namespaced=True, model=MachineSet
)
