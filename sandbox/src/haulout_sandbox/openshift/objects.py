"""What the stand-in for the Machine API reads, and objects of it to begin with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from haulout.kinds import openshift
from haulout.kinds.openshift import CONTROL_PLANE_SET, GROUP, MACHINE_NAMESPACE, ROLE
from haulout.kube import shipped
from haulout.kube.objects import Base, RawObject
from haulout.kube.resources import Resource
from haulout_sandbox.controllers.objects import Owned

_CLUSTER = "machine.openshift.io/cluster-api-cluster"
_SET = "machine.openshift.io/cluster-api-machineset"
_OF_CONTROL_PLANE = "machines_v1beta1_machine_openshift_io"


class MachineSpec(openshift.MachineSpec, frozen=True):
    """What is wanted of a Machine."""

    provider_spec: RawObject = msgspec.field(default_factory=dict)

    @property
    def zone(self) -> str:
        """Where its instance runs."""
        return str(self.placement.get("availabilityZone", ""))

    @property
    def placement(self) -> RawObject:
        """Where its instance is to run."""
        found: RawObject = self._wanted.get("placement") or {}
        return found

    @property
    def instance_type(self) -> str:
        """How large its instance is."""
        return str(self._wanted.get("instanceType", ""))

    @property
    def _wanted(self) -> RawObject:
        found: RawObject = self.provider_spec.get("value") or {}
        return found


class Machine(Owned, frozen=True):
    """A Machine."""

    spec: MachineSpec = MachineSpec()
    status: RawObject = msgspec.field(default_factory=dict)

    @property
    def is_control_plane(self) -> bool:
        """Tell whether it is of the control plane."""
        return self.labels.get(ROLE) in openshift.CONTROL_PLANE_ROLES

    @property
    def roles(self) -> dict[str, str]:
        """The labels of its node that say what that is for."""
        roles = ("control-plane", "master") if self.is_control_plane else ("worker",)
        return {f"node-role.kubernetes.io/{role}": "" for role in roles}

    @property
    def place(self) -> dict[str, str]:
        """The labels that it has once there is an instance: `kubectl get machines` shows them."""
        region = str(self.spec.placement.get("region", ""))
        told = {"instance-type": self.spec.instance_type, "region": region, "zone": self.spec.zone}
        return {f"{GROUP}/{what}": value for what, value in told.items() if value}

    @property
    def node(self) -> str:
        """The name of its node, empty while there is none."""
        return str((self.status.get("nodeRef") or {}).get("name", ""))


class SetSpec(Base, frozen=True):
    """What is wanted of a set."""

    replicas: int = 1
    state: str = "Active"
    template: RawObject = msgspec.field(default_factory=dict)


class MachineSet(Owned, frozen=True):
    """A MachineSet, or the ControlPlaneMachineSet."""

    spec: SetSpec = SetSpec()
    status: RawObject = msgspec.field(default_factory=dict)

    @property
    def template(self) -> RawObject:
        """How its Machines are made."""
        found: RawObject = self.spec.template.get(_OF_CONTROL_PLANE, self.spec.template)
        return found


MACHINES = openshift.MACHINES.of(Machine)
MACHINE_SETS = openshift.MACHINE_SETS.of(MachineSet)
CONTROL_PLANE_MACHINE_SETS = openshift.CONTROL_PLANE_MACHINE_SETS.of(MachineSet)
INFRASTRUCTURES = Resource(
    "config.openshift.io", "v1", "infrastructures", "Infrastructure", namespaced=False, model=RawObject
)


def definitions() -> list[RawObject]:
    """Return the CustomResourceDefinitions."""
    return shipped.definitions(__package__, "definitions.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which instances a set orders, and the labels of their Machines."""

    zone: str = "eu-west-1a"
    region: str = ""
    instance_type: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


_USUAL = Order()


def a_machine_set(
    name: str, *, replicas: int, order: Order = _USUAL, cluster: str = "prod-7h2kd", role: str = "worker"
) -> RawObject:
    """Return a MachineSet."""
    labels = {_CLUSTER: cluster, _SET: name}
    template = {"metadata": {"labels": {**order.labels, **labels, ROLE: role}}, "spec": _machine(order)}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return _namespaced(f"{GROUP}/v1beta1", "MachineSet", name, spec)


def a_control_plane_set(*, replicas: int = 3, order: Order = _USUAL, cluster: str = "prod-7h2kd") -> RawObject:
    """Return the ControlPlaneMachineSet."""
    labels = {_CLUSTER: cluster, ROLE: "master"}
    machines = {"metadata": {"labels": {**order.labels, **labels}}, "spec": _machine(order)}
    spec = {
        "replicas": replicas,
        "state": "Active",
        "selector": {"matchLabels": labels},
        "template": {"machineType": _OF_CONTROL_PLANE, _OF_CONTROL_PLANE: machines},
    }
    return _namespaced(f"{GROUP}/v1", "ControlPlaneMachineSet", CONTROL_PLANE_SET, spec)


def an_infrastructure(*, name: str = "prod-7h2kd", region: str = "eu-west-1") -> RawObject:
    """Return what the cluster says of itself."""
    platform = {"type": "AWS", "aws": {"region": region}}
    return {
        "apiVersion": INFRASTRUCTURES.api_version,
        "kind": INFRASTRUCTURES.kind,
        "metadata": {"name": "cluster"},
        "spec": {"platformSpec": {"type": "AWS"}},
        "status": {"infrastructureName": name, "platform": "AWS", "platformStatus": platform},
    }


def _machine(order: Order) -> RawObject:
    region = {"region": order.region} if order.region else {}
    size = {"instanceType": order.instance_type} if order.instance_type else {}
    value = {**size, "placement": {"availabilityZone": order.zone, **region}}
    return {"lifecycleHooks": {}, "providerSpec": {"value": value}}


def _namespaced(api_version: str, kind: str, name: str, spec: RawObject) -> RawObject:
    metadata = {"name": name, "namespace": MACHINE_NAMESPACE}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
