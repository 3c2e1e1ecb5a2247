"""Cluster API, as far as we read it: Machines and their Clusters, and the rules by which their pods leave.

A management cluster has Machines; each becomes a Node of a workload cluster, whose kubeconfig is in a Secret. Versions
v1beta1 and v1beta2 differ in nothing that is read here but the names of some fields, so one model reads both; which of
them is served is found out (`served_version`).

Labels and annotations of the runtime-extension-maintenance-controller are here, byte for byte: the hub writes them, and
profiles in workload clusters go by them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from haulout.api.objects import Base, Object, RawObject, object_key
from haulout.api.resources import Resource

GROUP = "cluster.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")  # the first that is served is used

CLUSTER_NAME = "cluster.x-k8s.io/cluster-name"  # label of a Machine
CONTROL_PLANE = "cluster.x-k8s.io/control-plane"  # the same: of a control plane's
MACHINE_OF_NODE = "cluster.x-k8s.io/machine"  # annotation of a Node
NAMESPACE_OF_NODE = "cluster.x-k8s.io/cluster-namespace"  # the same: in which its Machine is
PAUSED = "cluster.x-k8s.io/paused"  # annotation of a Cluster or a Machine, with any value
DELETE_FOR_MOVE = "clusterctl.cluster.x-k8s.io/delete-for-move"  # annotation of a copy that `clusterctl move` deletes
DRAIN = "cluster.x-k8s.io/drain"  # label of a Pod: `skip` or `wait-completed`
PRE_DRAIN_HOOK_PREFIX = "pre-drain.delete.hook.machine.cluster.x-k8s.io/"

KUBECONFIG_SUFFIX = "-kubeconfig"  # of the Secret's name, after that of the cluster
KUBECONFIG_KEY = "value"

# What the runtime-extension-maintenance-controller and its users agreed on.
_EXTENSION = "runtime-extension-maintenance-controller"
_PREFIX = f"{_EXTENSION}.cloud.sap/"
EXTENSION_LEASE = _EXTENSION
PRE_DRAIN_HOOK = f"{PRE_DRAIN_HOOK_PREFIX}maintenance-controller"  # annotation of a Machine
PRE_DRAIN_HOOK_OWNER = _EXTENSION  # its value
ENABLED = f"{_PREFIX}enabled"  # label of a Machine: `true`
MAINTENANCE = f"{_PREFIX}maintenance"  # the same: `requested` or `approved`
REQUESTED, APPROVED = "requested", "approved"
MAINTENANCE_STATE = "cloud.sap/maintenance-state"  # label of a Node, with any value
MACHINE_DELETED = f"{_PREFIX}machine-deleted"  # label of a Node; these four are `true` or not there
APPROVE_DELETION = f"{_PREFIX}approve-deletion"
MACHINE_MAINTENANCE = f"{_PREFIX}machine-maintenance"
APPROVE_MAINTENANCE = f"{_PREFIX}approve-maintenance"
TRUE = "true"

DRAIN_RULES = "haulout.dev/machine-drain-rules"  # annotation of a Node: the rules that hold for it, as JSON


class NodeReference(Base, frozen=True):
    """Which node a Machine became."""

    name: str = ""


class InfrastructureReference(Base, frozen=True):
    """What a Machine is made of, in its own namespace."""

    kind: str = ""
    name: str = ""


class MachineSpec(Base, frozen=True):
    """What is wanted of a Machine."""

    cluster_name: str = ""
    infrastructure_ref: InfrastructureReference = InfrastructureReference()
    provider_id: str | None = msgspec.field(name="providerID", default=None)


class MachineStatus(Base, frozen=True):
    """How a Machine is."""

    phase: str | None = None
    node_ref: NodeReference | None = None


class Machine(Object, frozen=True):
    """A machine that is, or becomes, a node of a workload cluster."""

    spec: MachineSpec = MachineSpec()
    status: MachineStatus = MachineStatus()

    @property
    def node(self) -> str:
        """The name of its node, empty while there is none."""
        return "" if self.status.node_ref is None else self.status.node_ref.name

    @property
    def cluster(self) -> "ClusterKey":
        """Which workload cluster it is of."""
        return ClusterKey(self.namespace, self.spec.cluster_name)

    @property
    def is_being_deleted(self) -> bool:
        """Tell whether its deletion has begun."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_paused(self) -> bool:
        """Return whether its controllers must not act on it."""
        return PAUSED in self.metadata.annotations

    @property
    def is_moved(self) -> bool:
        """Return whether `clusterctl move` deletes this copy: the machine lives on under another management cluster."""
        return DELETE_FOR_MOVE in self.metadata.annotations

    @property
    def is_approved(self) -> bool:
        """Tell whether its node is ready for the maintenance that was asked for."""
        return self.metadata.labels.get(MAINTENANCE) == APPROVED

    @property
    def is_enabled(self) -> bool:
        """Tell whether its owner wants maintenance to be coupled with its node."""
        return self.metadata.labels.get(ENABLED) == TRUE


@dataclass(frozen=True, slots=True, order=True)
class ClusterKey:
    """A workload cluster; two of the same name in two namespaces are two."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def kubeconfig_secret(self) -> str:
        """The name of the Secret with its kubeconfig, in the same namespace."""
        return f"{self.name}{KUBECONFIG_SUFFIX}"


class ClusterSpec(Base, frozen=True):
    """What is wanted of a Cluster."""

    paused: bool | None = None


class Cluster(Object, frozen=True):
    """A workload cluster, as its management cluster knows it."""

    spec: ClusterSpec = ClusterSpec()

    @property
    def is_being_deleted(self) -> bool:
        """Tell whether its deletion has begun."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_paused(self) -> bool:
        """Return whether the controllers of Cluster API must not act on it, such as while it is moved."""
        return self.spec.paused is True or PAUSED in self.metadata.annotations


class MachineDrainRuleMachineSelector(Base, frozen=True):
    """Some Machines: those that both selectors mean; one that is not there means all."""

    selector: RawObject | None = None
    cluster_selector: RawObject | None = None  # by labels of their Cluster


class MachineDrainRulePodSelector(Base, frozen=True):
    """Some pods: those that both selectors mean; one that is not there means all."""

    selector: RawObject | None = None
    namespace_selector: RawObject | None = None  # by labels of their namespace


class MachineDrainRuleDrainConfig(Base, frozen=True):
    """What becomes of pods."""

    behavior: str = ""  # `Drain`, `Skip` or `WaitCompleted`
    order: int | None = None  # only with `Drain`: lower leaves first


class MachineDrainRuleSpec(Base, frozen=True):
    """What a rule says, and of which pods on which Machines; of no selection means: of all."""

    drain: MachineDrainRuleDrainConfig = MachineDrainRuleDrainConfig()
    machines: tuple[MachineDrainRuleMachineSelector, ...] = ()
    pods: tuple[MachineDrainRulePodSelector, ...] = ()


class MachineDrainRule(Object, frozen=True):
    """How some pods leave the nodes of some Machines of its namespace."""

    spec: MachineDrainRuleSpec = MachineDrainRuleSpec()


def describe_requests(node: Object) -> Iterator[str]:
    """Yield what is asked of a node on behalf of its Machine, for people."""
    annotations = node.metadata.annotations
    namespace, name = annotations.get(NAMESPACE_OF_NODE, ""), annotations.get(MACHINE_OF_NODE, "")
    machine = f"Machine {object_key(name, namespace)}" if name else "its Machine"
    for request, approval, verb_phrase in (
        (MACHINE_DELETED, APPROVE_DELETION, "is being deleted"),
        (MACHINE_MAINTENANCE, APPROVE_MAINTENANCE, "asks for maintenance"),
    ):
        if node.metadata.labels.get(request) == TRUE:
            is_approved = node.metadata.labels.get(approval) == TRUE
            yield f"{machine} {verb_phrase}, and {'has' if is_approved else 'waits for'} label {approval}={TRUE} here"


def machine_resource(version: str) -> Resource[Machine]:
    """Return the Machines of a version."""
    return Resource(GROUP, version, "machines", "Machine", namespaced=True, model=Machine)


def cluster_resource(version: str) -> Resource[Cluster]:
    """Return the Clusters of a version."""
    return Resource(GROUP, version, "clusters", "Cluster", namespaced=True, model=Cluster)


def machine_drain_rule_resource(version: str) -> Resource[MachineDrainRule]:
    """Return the MachineDrainRules of a version; Cluster API before 1.9 has none."""
    return Resource(GROUP, version, "machinedrainrules", "MachineDrainRule", namespaced=True, model=MachineDrainRule)
