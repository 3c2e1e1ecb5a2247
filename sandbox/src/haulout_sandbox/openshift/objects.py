"""Objects of the simulated Machine API, and builders for initial ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from haulout.api import openshift, resources
from haulout.api.objects import Base, RawObject
from haulout.api.openshift import CONTROL_PLANE_MACHINE_SET, GROUP, MACHINE_NAMESPACE, ROLE
from haulout.api.resources import Resource
from haulout_sandbox.controllers.objects import OwnedObject

_CLUSTER_LABEL = "machine.openshift.io/cluster-api-cluster"
_MACHINE_SET_LABEL = "machine.openshift.io/cluster-api-machineset"
_CONTROL_PLANE_MACHINE_TYPE = "machines_v1beta1_machine_openshift_io"


class MachineSpec(openshift.MachineSpec, frozen=True):
    provider_spec: RawObject = msgspec.field(default_factory=dict)

    @property
    def zone(self) -> str:
        return str(self.placement.get("availabilityZone", ""))

    @property
    def placement(self) -> RawObject:
        placement: RawObject = self._provider_value.get("placement") or {}
        return placement

    @property
    def instance_type(self) -> str:
        return str(self._provider_value.get("instanceType", ""))

    @property
    def _provider_value(self) -> RawObject:
        value: RawObject = self.provider_spec.get("value") or {}
        return value


class Machine(OwnedObject, frozen=True):
    spec: MachineSpec = MachineSpec()
    status: RawObject = msgspec.field(default_factory=dict)

    @property
    def is_control_plane(self) -> bool:
        return self.labels.get(ROLE) in openshift.CONTROL_PLANE_ROLES

    @property
    def role_labels(self) -> dict[str, str]:
        """Return the role labels of its node."""
        roles = ("control-plane", "master") if self.is_control_plane else ("worker",)
        return {f"node-role.kubernetes.io/{role}": "" for role in roles}

    @property
    def placement_labels(self) -> dict[str, str]:
        """Return the labels that a Machine gets with its instance, shown by `kubectl get machines`."""
        region = str(self.spec.placement.get("region", ""))
        values = {"instance-type": self.spec.instance_type, "region": region, "zone": self.spec.zone}
        return {f"{GROUP}/{label}": value for label, value in values.items() if value}

    @property
    def node(self) -> str:
        """Return the name of its node, empty if there is none."""
        return str((self.status.get("nodeRef") or {}).get("name", ""))


class MachineSetSpec(Base, frozen=True):
    replicas: int = 1
    state: str = "Active"
    template: RawObject = msgspec.field(default_factory=dict)


class MachineSet(OwnedObject, frozen=True):
    """A MachineSet, or the ControlPlaneMachineSet."""

    spec: MachineSetSpec = MachineSetSpec()
    status: RawObject = msgspec.field(default_factory=dict)

    @property
    def machine_template(self) -> RawObject:
        template: RawObject = self.spec.template.get(_CONTROL_PLANE_MACHINE_TYPE, self.spec.template)
        return template


MACHINES = openshift.MACHINES.with_model(Machine)
MACHINE_SETS = openshift.MACHINE_SETS.with_model(MachineSet)
CONTROL_PLANE_MACHINE_SETS = openshift.CONTROL_PLANE_MACHINE_SETS.with_model(MachineSet)
INFRASTRUCTURES = Resource(
    "config.openshift.io", "v1", "infrastructures", "Infrastructure", namespaced=False, model=RawObject
)


def custom_resource_definitions() -> list[RawObject]:
    return resources.load_crds(__package__, "definitions.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineTemplateOptions:
    """Instance type and placement of a set, and the labels of its Machines."""

    zone: str = "eu-west-1a"
    region: str = ""
    instance_type: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


_DEFAULT_OPTIONS = MachineTemplateOptions()


def a_machine_set(
    name: str,
    *,
    replicas: int,
    options: MachineTemplateOptions = _DEFAULT_OPTIONS,
    cluster: str = "prod-7h2kd",
    role: str = "worker",
) -> RawObject:
    labels = {_CLUSTER_LABEL: cluster, _MACHINE_SET_LABEL: name}
    template = {"metadata": {"labels": {**options.labels, **labels, ROLE: role}}, "spec": _machine_spec(options)}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return _namespaced(f"{GROUP}/v1beta1", "MachineSet", name, spec)


def a_control_plane_machine_set(
    *, replicas: int = 3, options: MachineTemplateOptions = _DEFAULT_OPTIONS, cluster: str = "prod-7h2kd"
) -> RawObject:
    labels = {_CLUSTER_LABEL: cluster, ROLE: "master"}
    machine_template = {"metadata": {"labels": {**options.labels, **labels}}, "spec": _machine_spec(options)}
    spec = {
        "replicas": replicas,
        "state": "Active",
        "selector": {"matchLabels": labels},
        "template": {"machineType": _CONTROL_PLANE_MACHINE_TYPE, _CONTROL_PLANE_MACHINE_TYPE: machine_template},
    }
    return _namespaced(f"{GROUP}/v1", "ControlPlaneMachineSet", CONTROL_PLANE_MACHINE_SET, spec)


def an_infrastructure(*, name: str = "prod-7h2kd", region: str = "eu-west-1") -> RawObject:
    platform = {"type": "AWS", "aws": {"region": region}}
    return {
        "apiVersion": INFRASTRUCTURES.api_version,
        "kind": INFRASTRUCTURES.kind,
        "metadata": {"name": "cluster"},
        "spec": {"platformSpec": {"type": "AWS"}},
        "status": {"infrastructureName": name, "platform": "AWS", "platformStatus": platform},
    }


def _machine_spec(options: MachineTemplateOptions) -> RawObject:
    region = {"region": options.region} if options.region else {}
    size = {"instanceType": options.instance_type} if options.instance_type else {}
    value = {**size, "placement": {"availabilityZone": options.zone, **region}}
    return {"lifecycleHooks": {}, "providerSpec": {"value": value}}


def _namespaced(api_version: str, kind: str, name: str, spec: RawObject) -> RawObject:
    metadata = {"name": name, "namespace": MACHINE_NAMESPACE}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
