"""Kubernetes objects, as far as we use them.

Each struct names only the fields that something here reads; the decoder skips the rest, which is what makes it fast and
small. So a struct must never be written back whole: the fields it does not know would be lost. Changes are patches.

All are frozen, hold tuples instead of lists and are not tracked by the garbage collector: they have no cycles, and a
collector that walks a million of them would stop the event loop for seconds. For a field that is not here, decode into
`RawObject` (`PODS.of(RawObject)`) or into a struct of your own.
"""

from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

RawObject = dict[str, Any]
T = TypeVar("T")


class Base(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel", omit_defaults=True):
    """What all structs here have in common."""


class OwnerReference(Base, frozen=True):
    """Who an object belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Base, frozen=True):
    """What every object has."""

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
    """Any object, of which only the metadata is of interest."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> str:
        """`namespace/name`, or just the name of a cluster-scoped object."""
        return object_key(self.metadata.name, self.metadata.namespace)

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Its namespace, empty if it has none."""
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        """What tells it from a later object of the same name."""
        return self.metadata.uid

    @property
    def resource_version(self) -> str:
        """Which state of it this is."""
        return self.metadata.resource_version


def object_key(name: str, namespace: str | None = None) -> str:
    """Return the key under which caches and queues know an object."""
    return f"{namespace}/{name}" if namespace else name


class Condition(Base, frozen=True):
    """One of the conditions in an object's status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class StatusCondition(Condition, frozen=True):
    """A condition, with the generation of the object that it is about."""

    observed_generation: int = 0


class Taint(Base, frozen=True):
    """Keeps pods off a node."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class NodeSpec(Base, frozen=True):
    """What is wanted of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeSystemInfo(Base, frozen=True):
    """What runs on a node."""

    kubelet_version: str = ""


class NodeAddress(Base, frozen=True):
    """An address of a node."""

    type: str = ""
    address: str = ""


class NodeStatus(Base, frozen=True):
    """How a node is."""

    addresses: tuple[NodeAddress, ...] = ()
    conditions: tuple[Condition, ...] = ()
    allocatable: dict[str, str] = {}
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(Object, frozen=True):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class EphemeralVolume(Base, frozen=True):
    """A volume whose claim is made for the pod, and goes with it."""


class Volume(Base, frozen=True):
    """Of a pod's volume only whether deleting the pod loses its data, and whether other nodes will need it next."""

    name: str = ""
    empty_dir: RawObject | None = None
    persistent_volume_claim: RawObject | None = None
    ephemeral: EphemeralVolume | None = None


class EvictionResponder(Base, frozen=True):
    """Somebody who helps a pod to leave (`haulout.api.evictionrequest`)."""

    name: str = ""
    priority: int = 0


class PodSpec(Base, frozen=True):
    """What is wanted of a pod."""

    node_name: str = ""
    priority: int = 0
    volumes: tuple[Volume, ...] = ()
    termination_grace_period_seconds: int = 30
    eviction_responders: tuple[EvictionResponder, ...] = ()
    scheduling_group: RawObject | None = None  # of a pod that is scheduled together with others


class PodStatus(Base, frozen=True):
    """How a pod is."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Pod(Object, frozen=True):
    """A pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class LeaseSpec(Base, frozen=True):
    """Who holds a lease, since when, and for how long."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True):
    """A lease: a small object for who may do something now."""

    spec: LeaseSpec = LeaseSpec()


class Secret(Object, frozen=True):
    """A Secret, with its data as it stands in JSON: in base64."""

    data: dict[str, str] | None = None


class ListMeta(Base, frozen=True):
    """Where a list stands."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(Base, Generic[T], frozen=True):
    """A list of objects, or a part of one."""

    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] = ()

    @property
    def resource_version(self) -> str:
        """The state of the cluster that the list shows: a watch continues from here."""
        return self.metadata.resource_version


class WatchEvent(Base, Generic[T], frozen=True):
    """A change to an object, as a watch tells it: `ADDED`, `MODIFIED` or `DELETED`."""

    type: str
    object: T


class Bookmark(Base, frozen=True):
    """A watch that has nothing new says how far it is."""

    resource_version: str
    ends_initial_list: bool = False


class UndecodableObject(Object, frozen=True):
    """An object that is not what its kind promises: only its metadata could be read."""

    problem: str = ""


class StatusCause(Base, frozen=True):
    """One cause in a Status."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Base, frozen=True):
    """The machine-readable part of a Status."""

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class Status(Base, frozen=True):
    """The server's answer when there is nothing else to answer, mostly because it said no."""

    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class VersionInfo(Base, frozen=True):
    """What a server says it is."""

    major: str = ""
    minor: str = ""
    git_version: str = ""
    platform: str = ""
