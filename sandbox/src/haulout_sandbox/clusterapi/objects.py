"""Objects of the simulated Cluster API, and builders for initial ones.

Timeouts have two forms: v1beta2 has seconds below `deletion`, v1beta1 has durations. Both are read, whatever the
version, and 0 means no limit.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

import msgspec

from haulout.api import clusterapi, resources
from haulout.api import clusterapi as metal3
from haulout.api.clusterapi import CLUSTER_NAME, CONTROL_PLANE, GROUP, PAUSED, VERSIONS, ClusterKey
from haulout.api.objects import Base, RawObject
from haulout.api.resources import Resource
from haulout.core import duration
from haulout_sandbox.controllers.objects import DeploymentStrategy, OwnedObject, RollingUpdateDeployment
from haulout_sandbox.nodes.pod_spec import LabelSelector

SET_NAME = f"{GROUP}/set-name"
DEPLOYMENT_NAME = f"{GROUP}/deployment-name"
TEMPLATE_HASH = "machine-template-hash"
METAL3_MACHINE_KIND = metal3.METAL3_MACHINE_KIND  # the kind of infrastructure
_DEFAULT_NODE_DELETION_TIMEOUT = timedelta(seconds=10)
_DEFAULT_STRATEGY = DeploymentStrategy(rolling_update=RollingUpdateDeployment(max_surge=1, max_unavailable=0))


class MachineDeletionSpec(Base, frozen=True):
    """The deletion timeouts of a Machine in v1beta2."""

    node_drain_timeout_seconds: int | None = None
    node_deletion_timeout_seconds: int | None = None


class MachineSpec(clusterapi.MachineSpec, frozen=True):
    version: str | None = None
    deletion: MachineDeletionSpec = MachineDeletionSpec()
    node_drain_timeout: str | None = None
    node_deletion_timeout: str | None = None


class Machine(OwnedObject, frozen=True):
    spec: MachineSpec = MachineSpec()
    status: RawObject = msgspec.field(default_factory=dict)

    @property
    def cluster_key(self) -> ClusterKey:
        return ClusterKey(self.namespace, self.spec.cluster_name)

    @property
    def node(self) -> str:
        """Return the name of its node, empty if there is none."""
        return str((self.status.get("nodeRef") or {}).get("name", ""))

    @property
    def is_control_plane(self) -> bool:
        return CONTROL_PLANE in self.labels

    @property
    def drain_timeout(self) -> timedelta | None:
        """Return the drain timeout; None: unlimited."""
        return _timeout(self.spec.deletion.node_drain_timeout_seconds, self.spec.node_drain_timeout) or None

    @property
    def node_deletion_timeout(self) -> timedelta | None:
        """Return how long deletion of the Node is retried after the deletion of the Machine; None: unlimited."""
        timeout = _timeout(self.spec.deletion.node_deletion_timeout_seconds, self.spec.node_deletion_timeout)
        return _DEFAULT_NODE_DELETION_TIMEOUT if timeout is None else timeout or None


class MachineDeploymentRolloutSpec(Base, frozen=True):
    """How Machines are replaced, in v1beta2."""

    strategy: DeploymentStrategy | None = None


class MachineSetSpec(Base, frozen=True):
    """The spec of a MachineSet or MachineDeployment."""

    cluster_name: str = ""
    replicas: int = 1
    paused: bool | None = None
    selector: LabelSelector = LabelSelector()
    rollout: MachineDeploymentRolloutSpec = MachineDeploymentRolloutSpec()
    strategy: DeploymentStrategy | None = None  # in v1beta1
    template: RawObject = msgspec.field(default_factory=dict)

    @property
    def rollout_strategy(self) -> DeploymentStrategy:
        """Return the rollout strategy; the default has one surplus Machine at a time."""
        return self.rollout.strategy or self.strategy or _DEFAULT_STRATEGY


class MachineSet(OwnedObject, frozen=True):
    spec: MachineSetSpec = MachineSetSpec()
    status: RawObject = msgspec.field(default_factory=dict)


class Cluster(OwnedObject, frozen=True):
    spec: clusterapi.ClusterSpec = clusterapi.ClusterSpec()
    status: RawObject = msgspec.field(default_factory=dict)

    @property
    def cluster_key(self) -> ClusterKey:
        return ClusterKey(self.namespace, self.name)


class MachineDrainRuleMachineSelector(Base, frozen=True):
    """The Machines of a rule: selected by their labels and those of their cluster."""

    selector: LabelSelector | None = None
    cluster_selector: LabelSelector | None = None


class MachineDrainRulePodSelector(Base, frozen=True):
    """The pods of a rule: selected by their labels and those of their namespace."""

    selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None


class MachineDrainRuleDrainConfig(Base, frozen=True):
    """Behavior and order of pods; lower orders first."""

    behavior: str = "Drain"
    order: int = 0


class MachineDrainRuleSpec(Base, frozen=True):
    drain: MachineDrainRuleDrainConfig = MachineDrainRuleDrainConfig()
    machines: tuple[MachineDrainRuleMachineSelector, ...] = ()
    pods: tuple[MachineDrainRulePodSelector, ...] = ()


class MachineDrainRule(OwnedObject, frozen=True):
    spec: MachineDrainRuleSpec = MachineDrainRuleSpec()


@dataclass(frozen=True, slots=True)
class ClusterApiResources:
    """The resources of Cluster API in one version."""

    version: str
    clusters: Resource[Cluster]
    machine_deployments: Resource[MachineSet]
    machine_sets: Resource[MachineSet]
    machines: Resource[Machine]
    machine_drain_rules: Resource[MachineDrainRule]


@lru_cache
def resources_of(version: str = VERSIONS[0]) -> ClusterApiResources:
    def machine_set_resource(plural: str, kind: str) -> Resource[MachineSet]:
        return Resource(GROUP, version, plural, kind, namespaced=True, model=MachineSet)

    return ClusterApiResources(
        version,
        clusters=clusterapi.cluster_resource(version).with_model(Cluster),
        machine_deployments=machine_set_resource("machinedeployments", "MachineDeployment"),
        machine_sets=machine_set_resource("machinesets", "MachineSet"),
        machines=clusterapi.machine_resource(version).with_model(Machine),
        machine_drain_rules=clusterapi.machine_drain_rule_resource(version).with_model(MachineDrainRule),
    )


def custom_resource_definitions(*versions: str) -> list[RawObject]:
    """Return the CRDs, which serve these versions (default: all) and store the first."""
    crd_list = resources.load_crds(__package__, "definitions.yaml")
    for crd in crd_list:
        (crd_version,) = crd["spec"]["versions"]
        crd["spec"]["versions"] = [
            {**copy.deepcopy(crd_version), "name": version, "storage": number == 0}
            for number, version in enumerate(versions or VERSIONS)
        ]
    return crd_list


def is_paused(obj: OwnedObject, cluster: Cluster | None) -> bool:
    """Return whether an object or its cluster is paused."""
    return PAUSED in obj.metadata.annotations or bool(cluster is not None and cluster.spec.paused)


def a_cluster(key: ClusterKey, *, version: str = VERSIONS[0], labels: Mapping[str, str] | None = None) -> RawObject:
    metadata = {"name": key.name, "namespace": key.namespace, **({"labels": dict(labels)} if labels else {})}
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Cluster", "metadata": metadata, "spec": {}}


def a_machine_deployment(
    name: str,
    *,
    cluster: ClusterKey,
    replicas: int = 1,
    labels: Mapping[str, str] | None = None,
    spec: Mapping[str, object] | None = None,
    version: str = VERSIONS[0],
) -> RawObject:
    """Return a MachineDeployment; `labels` and `spec` are those of its Machines."""
    selector_labels = {CLUSTER_NAME: cluster.name, DEPLOYMENT_NAME: name}
    machine_spec = {
        "clusterName": cluster.name,
        "bootstrap": {"dataSecretName": f"{name}-bootstrap"},
        "infrastructureRef": {"kind": "SandboxMachineTemplate", "name": name},
        "version": "v1.36.3",
        **(spec or {}),
    }
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "MachineDeployment",
        "metadata": {"name": name, "namespace": cluster.namespace, "labels": {CLUSTER_NAME: cluster.name}},
        "spec": {
            "clusterName": cluster.name,
            "replicas": replicas,
            "selector": {"matchLabels": selector_labels},
            "template": {"metadata": {"labels": {**(labels or {}), **selector_labels}}, "spec": machine_spec},
        },
    }


def _timeout(seconds: int | None, text: str | None) -> timedelta | None:
    if seconds is not None:
        return timedelta(seconds=seconds)
    return None if text is None else duration.parse(text)
