"""Kubernetes objects, with the fields that Haulout reads.

The decoder skips all other fields, which makes it fast and the objects small. So a struct must never be written back:
the fields that it lacks would be lost. Use patches instead.

All structs are frozen, have tuples instead of lists, and are not tracked by the garbage collector: they have no cycles,
and a collection that visits a million of them would block the event loop for seconds. To read further fields, decode
into `RawObject` (`PODS.with_model(RawObject)`) or into a struct of your own.

`machine_key` returns one key for all notations of a cloud machine's provider ID. Clouds, their controllers and Cluster
API write the ID of a machine in different ways: `oci://ocid1.instance…` and `ocid1.instance…`,
`aws:///eu-west-1a/i-0abc` and `i-0abc`. Two notations of the same machine have the same key.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

RawObject = dict[str, Any]
T = TypeVar("T")

# Of static pods. kubectl drain recognizes them by it (staging/src/k8s.io/kubectl/pkg/drain/filters.go).
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

_SCHEME = re.compile(r"(?P<scheme>[a-z0-9][-+.a-z0-9]*)://(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
# Their provider IDs begin with a zone or region (`aws:///eu-west-1a/i-0abc`), which the cloud's own ID lacks. The last
# part is unique alone.
_LAST_PART_ONLY = ("aws", "openstack")


class Base(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel", omit_defaults=True):
    """Base class of all structs of API objects."""


class OwnerReference(Base, frozen=True):
    """A reference to the owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Base, frozen=True):
    """The metadata of an object, with the fields that preconditions and ownership need."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class Object(Base, frozen=True):
    """Any object, with its metadata only. Kinds extend it with the fields that they need."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> str:
        """`namespace/name`, or just the name of a cluster-scoped object."""
        return object_key(self.metadata.name, self.metadata.namespace)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """The namespace; empty for a cluster-scoped object."""
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def resource_version(self) -> str:
        return self.metadata.resource_version

    @property
    def is_being_deleted(self) -> bool:
        return self.metadata.deletion_timestamp is not None


def object_key(name: str, namespace: str | None = None) -> str:
    """Return the key of an object in caches and queues: `namespace/name`, or the name."""
    return f"{namespace}/{name}" if namespace else name


class NodeConditionType(StrEnum):
    """The types of node conditions of KEP-5683; `kubernetes/api/core/v1` has them from 1.37 on."""

    PLANNED = "MaintenancePlanned"  # maintenance of the node is planned
    DRAINING = "DrainInProgress"  # the node is being drained
    DRAINED = "Drained"  # the node is drained
    IN_PROGRESS = "MaintenanceInProgress"  # the node is in maintenance


class Condition(Base, frozen=True):
    """A condition in the status of an object."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class StatusCondition(Condition, frozen=True):
    """A condition with its observedGeneration, as Haulout's own kinds have it."""

    observed_generation: int = 0


C = TypeVar("C", bound=Condition)


def find_condition(conditions: Iterable[C], condition_type: str) -> C | None:
    return next((condition for condition in conditions if condition.type == condition_type), None)


def _is_ready(conditions: Iterable[Condition]) -> bool:
    ready = find_condition(conditions, "Ready")
    return ready is not None and ready.status == "True"


class Taint(Base, frozen=True):
    """A taint of a node. Key and effect identify it; the value does not."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class NodeSpec(Base, frozen=True):
    """What decides whether pods are scheduled to a node, and the ID of its machine."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeSystemInfo(Base, frozen=True):
    """The versions of a node's software, as its kubelet reports them."""

    kubelet_version: str = ""


class NodeAddress(Base, frozen=True):
    """An address of a node, such as its InternalIP or Hostname."""

    type: str = ""
    address: str = ""


class NodeStatus(Base, frozen=True):
    """What the kubelet and the node lifecycle controller report of a node."""

    addresses: tuple[NodeAddress, ...] = ()
    conditions: tuple[Condition, ...] = ()
    allocatable: dict[str, str] = {}
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(Object, frozen=True):
    """A node: a machine of the cluster with its kubelet."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        return _is_ready(self.status.conditions)

    def condition(self, condition_type: str) -> Condition | None:
        return find_condition(self.status.conditions, condition_type)


class EphemeralVolume(Base, frozen=True):
    """A volume whose PersistentVolumeClaim is created and deleted with the pod."""


class Volume(Base, frozen=True):
    """A volume of a pod: whether the pod's deletion loses its data, and whether another node needs it next."""

    name: str = ""
    empty_dir: RawObject | None = None
    persistent_volume_claim: RawObject | None = None
    ephemeral: EphemeralVolume | None = None


class EvictionResponder(Base, frozen=True):
    """A responder that helps to evict a pod (`haulout.api.evictionrequest`)."""

    name: str = ""
    priority: int = 0


class PodSpec(Base, frozen=True):
    """What decides where and how a pod runs, and how it can be evicted."""

    node_name: str = ""
    priority: int = 0
    volumes: tuple[Volume, ...] = ()
    # The default of the API (DefaultTerminationGracePeriodSeconds).
    termination_grace_period_seconds: int = 30
    eviction_responders: tuple[EvictionResponder, ...] = ()
    scheduling_group: RawObject | None = None  # set for pods that are scheduled together


class PodStatus(Base, frozen=True):
    """What the kubelet reports of a pod: its phase and whether it is ready."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Pod(Object, frozen=True):
    """A pod, with the fields that a drain needs to decide about it."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_ready(self) -> bool:
        return _is_ready(self.status.conditions)


class LeaseSpec(Base, frozen=True):
    """The holder of a lease, since when, and for how long."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True):
    """A lease in coordination.k8s.io: for leader election, and for medik8s' node locks."""

    spec: LeaseSpec = LeaseSpec()


class Secret(Object, frozen=True):
    """A Secret. Its data is base64, as in JSON."""

    data: dict[str, str] | None = None


class ListMeta(Base, frozen=True):
    """The metadata of a list: the version from which to watch, and how to continue."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(Base, Generic[T], frozen=True):
    """A list of objects, or one page of it."""

    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] = ()

    @property
    def resource_version(self) -> str:
        """The resource version of the list, from which a watch continues."""
        return self.metadata.resource_version


class WatchEvent(Base, Generic[T], frozen=True):
    """A watch event: `ADDED`, `MODIFIED` or `DELETED`."""

    type: str
    object: T


class Bookmark(Base, frozen=True):
    """A watch bookmark: all changes up to this resource version were sent."""

    resource_version: str
    ends_initial_list: bool = False


class UndecodableObject(Object, frozen=True):
    """An object that cannot be decoded as its kind; only its metadata is known."""

    problem: str = ""


class StatusCause(Base, frozen=True):
    """One of the causes in a Status, such as `DisruptionBudget` of a refused eviction."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Base, frozen=True):
    """The details of a Status. The causes are what programs can rely on; messages change."""

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class Status(Base, frozen=True):
    """The response of the server that is no object, usually an error."""

    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class VersionInfo(Base, frozen=True):
    """The version of a server, as /version returns it. Providers append suffixes to `minor`."""

    major: str = ""
    minor: str = ""
    git_version: str = ""
    platform: str = ""


def machine_key(provider_id: str) -> str:
    """Return the key of a machine, from a node's providerID or from the cloud's own ID."""
    found = _SCHEME.fullmatch(provider_id.strip())
    if found is None:
        return provider_id.strip()
    scheme, rest = found["scheme"].lower(), found["rest"].strip("/")
    if scheme in _LAST_PART_ONLY:
        return rest.rpartition("/")[2]
    if scheme == "azure":
        return f"/{rest}".lower()  # Azure resource IDs are case-insensitive
    return rest
