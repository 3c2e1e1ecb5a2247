"""Cluster API types: Machines, Clusters and MachineDrainRules, and the BareMetalHosts of Metal3.

A management cluster has Machines. Each becomes a Node of a workload cluster, whose kubeconfig is in a Secret. For the
fields that Haulout reads, v1beta1 and v1beta2 differ only in names that no model uses, so one model decodes both.
Controllers find out by discovery which version is served.

The labels and annotations of the runtime-extension-maintenance-controller are reproduced here exactly: the hub writes
them, and profiles in workload clusters depend on them.

A BareMetalHost of Metal3 stays powered off until all its annotations `reboot.metal3.io/…` are removed. Each belongs to
the client that set it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from haulout.api import annotations
from haulout.api.objects import Base, Object, RawObject, object_key
from haulout.api.resources import Resource

GROUP = "cluster.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")  # the first one that is served is used

CLUSTER_NAME = "cluster.x-k8s.io/cluster-name"  # label of a Machine
CONTROL_PLANE = "cluster.x-k8s.io/control-plane"  # label of a control plane Machine
MACHINE_OF_NODE = "cluster.x-k8s.io/machine"  # annotation of a Node
NAMESPACE_OF_NODE = "cluster.x-k8s.io/cluster-namespace"  # annotation of a Node: the namespace of its Machine
PAUSED = "cluster.x-k8s.io/paused"  # annotation of a Cluster or a Machine, with any value
DELETE_FOR_MOVE = "clusterctl.cluster.x-k8s.io/delete-for-move"  # annotation of a copy that `clusterctl move` deletes
DRAIN = "cluster.x-k8s.io/drain"  # label of a Pod: `skip` or `wait-completed`
PRE_DRAIN_HOOK_PREFIX = "pre-drain.delete.hook.machine.cluster.x-k8s.io/"

KUBECONFIG_SUFFIX = "-kubeconfig"  # suffix of the Secret's name, after the name of the cluster
KUBECONFIG_KEY = "value"

# The interface of the runtime-extension-maintenance-controller.
_EXTENSION = "runtime-extension-maintenance-controller"
_PREFIX = f"{_EXTENSION}.cloud.sap/"
EXTENSION_LEASE = _EXTENSION
PRE_DRAIN_HOOK = f"{PRE_DRAIN_HOOK_PREFIX}maintenance-controller"  # annotation of a Machine
PRE_DRAIN_HOOK_OWNER = _EXTENSION  # value of that annotation
ENABLED = f"{_PREFIX}enabled"  # label of a Machine: `true`
MAINTENANCE = f"{_PREFIX}maintenance"  # label of a Machine: `requested` or `approved`
REQUESTED, APPROVED = "requested", "approved"
MAINTENANCE_STATE = "cloud.sap/maintenance-state"  # label of a Node, with any value
MACHINE_DELETED = f"{_PREFIX}machine-deleted"  # label of a Node; these four are `true` or absent
APPROVE_DELETION = f"{_PREFIX}approve-deletion"
MACHINE_MAINTENANCE = f"{_PREFIX}machine-maintenance"
APPROVE_MAINTENANCE = f"{_PREFIX}approve-maintenance"
TRUE = "true"

DRAIN_RULES = annotations.MACHINE_DRAIN_RULES  # annotation of a Node: the drain rules that apply to it, as JSON

METAL3_GROUP = "metal3.io"
REBOOT_ANNOTATION = "reboot.metal3.io"  # reboots once
REBOOT_ANNOTATION_PREFIX = f"{REBOOT_ANNOTATION}/"  # powers off until it is removed
OUR_REBOOT_ANNOTATION = f"{REBOOT_ANNOTATION_PREFIX}runtime-extension-maintenance-controller"  # with an empty value
# provisioning states in which these annotations have an effect
REBOOTABLE_STATES = ("provisioned", "externally provisioned")
METAL3_MACHINE_KIND = "Metal3Machine"  # the kind of a host's consumer in Cluster API


class NodeReference(Base, frozen=True):
    """The node of a Machine. Set once the machine has joined; the Node may be gone again."""

    name: str = ""


class InfrastructureReference(Base, frozen=True):
    """The infrastructure object of a Machine, in the Machine's namespace."""

    kind: str = ""
    name: str = ""


class MachineSpec(Base, frozen=True):
    """What the owner of a Machine wants, and the provider ID that identifies its instance."""

    cluster_name: str = ""
    infrastructure_ref: InfrastructureReference = InfrastructureReference()
    provider_id: str | None = msgspec.field(name="providerID", default=None)


class MachineStatus(Base, frozen=True):
    """What Cluster API reports of a Machine: its phase, and the node that it has become."""

    phase: str | None = None
    node_ref: NodeReference | None = None


class Machine(Object, frozen=True):
    """A machine that is, or becomes, a node of a workload cluster."""

    spec: MachineSpec = MachineSpec()
    status: MachineStatus = MachineStatus()

    @property
    def node(self) -> str:
        """The name of its node; empty if it has none yet."""
        return "" if self.status.node_ref is None else self.status.node_ref.name

    @property
    def cluster(self) -> "ClusterKey":
        return ClusterKey(self.namespace, self.spec.cluster_name)

    @property
    def is_paused(self) -> bool:
        """Return whether its controllers must not act on it."""
        return PAUSED in self.metadata.annotations

    @property
    def is_moved(self) -> bool:
        """Return whether this is a copy that `clusterctl move` deletes.

        The machine continues in another management cluster.
        """
        return DELETE_FOR_MOVE in self.metadata.annotations

    @property
    def is_approved(self) -> bool:
        """Return whether the node is ready for the requested maintenance."""
        return self.metadata.labels.get(MAINTENANCE) == APPROVED

    @property
    def is_enabled(self) -> bool:
        """Return whether the Machine's owner wants its maintenance to be coordinated with its node."""
        return self.metadata.labels.get(ENABLED) == TRUE


@dataclass(frozen=True, slots=True, order=True)
class ClusterKey:
    """A workload cluster. The same name in two namespaces means two clusters."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def kubeconfig_secret(self) -> str:
        """The name of the Secret with its kubeconfig, in the same namespace."""
        return f"{self.name}{KUBECONFIG_SUFFIX}"


class ClusterSpec(Base, frozen=True):
    """What the user wants of a Cluster; Haulout reads only whether it is paused."""

    paused: bool | None = None


class Cluster(Object, frozen=True):
    """A workload cluster, as represented in its management cluster."""

    spec: ClusterSpec = ClusterSpec()

    @property
    def is_paused(self) -> bool:
        """Return whether Cluster API controllers must not act on it, for example during `clusterctl move`."""
        return self.spec.paused is True or PAUSED in self.metadata.annotations


class MachineDrainRuleMachineSelector(Base, frozen=True):
    """Selects the Machines that both selectors match. A missing selector matches all."""

    selector: RawObject | None = None
    cluster_selector: RawObject | None = None  # matches labels of the Cluster


class MachineDrainRulePodSelector(Base, frozen=True):
    """Selects the pods that both selectors match. A missing selector matches all."""

    selector: RawObject | None = None
    namespace_selector: RawObject | None = None  # matches labels of the namespace


class MachineDrainRuleDrainConfig(Base, frozen=True):
    """How the selected pods are drained, in the words of the API."""

    behavior: str = ""  # `Drain`, `Skip` or `WaitCompleted`
    order: int | None = None  # only with `Drain`: lower orders drain first


class MachineDrainRuleSpec(Base, frozen=True):
    """The drain behavior for the selected pods on the selected Machines. No selectors means all."""

    drain: MachineDrainRuleDrainConfig = MachineDrainRuleDrainConfig()
    machines: tuple[MachineDrainRuleMachineSelector, ...] = ()
    pods: tuple[MachineDrainRulePodSelector, ...] = ()


class MachineDrainRule(Object, frozen=True):
    """A rule for draining pods from the nodes of Machines in its namespace."""

    spec: MachineDrainRuleSpec = MachineDrainRuleSpec()


def describe_requests(node: Object) -> Iterator[str]:
    """Yield one line for each request of the node's Machine, for users."""
    annotations = node.metadata.annotations
    namespace, name = annotations.get(NAMESPACE_OF_NODE, ""), annotations.get(MACHINE_OF_NODE, "")
    machine = f"Machine {object_key(name, namespace)}" if name else "its Machine"
    for request, approval, verb_phrase in (
        (MACHINE_DELETED, APPROVE_DELETION, "is being deleted"),
        (MACHINE_MAINTENANCE, APPROVE_MAINTENANCE, "requests maintenance"),
    ):
        if node.metadata.labels.get(request) == TRUE:
            is_approved = node.metadata.labels.get(approval) == TRUE
            has_label = "has" if is_approved else "waits for"
            yield f"{machine} {verb_phrase}, and {has_label} label {approval}={TRUE} on this node"


def machine_resource(version: str) -> Resource[Machine]:
    return Resource(GROUP, version, "machines", "Machine", namespaced=True, model=Machine)


def cluster_resource(version: str) -> Resource[Cluster]:
    return Resource(GROUP, version, "clusters", "Cluster", namespaced=True, model=Cluster)


def machine_drain_rule_resource(version: str) -> Resource[MachineDrainRule]:
    """Return the MachineDrainRules of a version. Cluster API before 1.9 does not serve them."""
    return Resource(GROUP, version, "machinedrainrules", "MachineDrainRule", namespaced=True, model=MachineDrainRule)


class ConsumerReference(Base, frozen=True):
    """The object that uses a host: a Metal3Machine, or something of a user."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class BareMetalHostSpec(Base, frozen=True):
    """What the consumer of a host wants. Haulout never writes it."""

    online: bool = False
    consumer_ref: ConsumerReference | None = None
    disable_power_off: bool | None = None  # the host is rebooted instead, repeatedly while an annotation exists


class ProvisioningStatus(Base, frozen=True):
    """How far the provisioning of a host has come: only some states react to reboot annotations."""

    state: str = ""


class BareMetalHostStatus(Base, frozen=True):
    """What Metal3 reports of a host."""

    provisioning: ProvisioningStatus = ProvisioningStatus()


class BareMetalHost(Object, frozen=True):
    """A bare-metal host of Metal3, the infrastructure of a Machine."""

    spec: BareMetalHostSpec = BareMetalHostSpec()
    status: BareMetalHostStatus = BareMetalHostStatus()


BARE_METAL_HOSTS = Resource(
    METAL3_GROUP, "v1alpha1", "baremetalhosts", "BareMetalHost", namespaced=True, model=BareMetalHost
)
