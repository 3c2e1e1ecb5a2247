"""The cache of all pods and nodes that scheduler, kubelets and node lifecycle controller share.

Each pod is decoded into a `PodView`. The parts that replicas share (containers, tolerations, affinity, labels) are
decoded once and looked up by their bytes, so twenty thousand pods of a hundred workloads cost a hundred decodings. A
spec that is unchanged, as it is for all but two moments of a pod's life, is not decoded again. The status stays plain
JSON, so that unknown fields are not lost.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from haulout.api.objects import MIRROR_ANNOTATION, Base, OwnerReference, RawObject, Taint, object_key
from haulout.api.resources import NODES, PODS
from haulout.kube.client import Client
from haulout.kube.informer import Informer, revision
from haulout.kube.patches import merge_patch
from haulout.kube.reflector import ListWatch
from haulout_sandbox.nodes.pod_spec import Affinity, Container, Toleration, TopologySpreadConstraint
from haulout_sandbox.nodes.pod_spec_decoder import PodSpecDecoder, ResourceAmounts, parse_quantities

ANNOTATION_PREFIX = "sandbox.haulout.dev/"
FINISHED_PHASES = ("Succeeded", "Failed")
_MAX_CACHED_MACHINES = 1_000  # distinct allocatable resources


class PodView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    key: str
    uid: str
    resource_version: str
    generation: int
    namespace: str
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]  # those that control the simulation
    owner_kind: str
    owner_uid: str
    created_at: datetime | None
    deleted_at: datetime | None  # deletionTimestamp: the end of the grace period
    deletion_grace_seconds: int
    is_mirror: bool
    node: str
    scheduler: str
    is_gated: bool
    priority: int
    restart_policy: str
    host_network: bool
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    requests: ResourceAmounts
    host_ports: tuple[tuple[str, int], ...]  # protocol and number of host ports
    node_selector: Mapping[str, str]
    affinity: Affinity
    tolerations: tuple[Toleration, ...]
    spreads: tuple[TopologySpreadConstraint, ...]
    phase: str
    ip: str
    is_ready: bool
    spec: RawObject  # spec and status are as stored in the cluster; do not change them
    status: RawObject
    scheduling_key: tuple[bytes, ...]  # the pod's requirements on a node; equal for pods with equal requirements

    @property
    def is_finished(self) -> bool:
        """Return whether the pod has succeeded or failed, so that it uses no resources of its node."""
        return self.phase in FINISHED_PHASES


class NodeCondition(Base, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_heartbeat_time: datetime | None = None
    last_transition_time: datetime | None = None


class NodeView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node; its key is its name."""

    key: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    created_at: datetime | None
    unschedulable: bool
    taints: tuple[Taint, ...]
    allocatable: ResourceAmounts
    conditions: tuple[NodeCondition, ...]
    boot_id: str

    def condition(self, condition_type: str) -> NodeCondition | None:
        for condition in self.conditions:
            if condition.type == condition_type:
                return condition
        return None

    @property
    def ready_status(self) -> str:
        """Return `True`, `False` or `Unknown`; empty if the condition is missing."""
        condition = self.condition("Ready")
        return condition.status if condition else ""


class NodeInformers:
    """Informers of all pods and nodes, which are current while `run` runs. Pods are indexed by `node`."""

    def __init__(self, client: Client) -> None:
        self._to_pod_view = pod_view_transform(self._cached_pod)
        self.pods: Informer[PodView] = Informer(
            client,
            ListWatch(PODS.with_model(_Pod)),
            transform=self._to_pod_view,
            indexes={"node": lambda pod: (pod.node,) if pod.node else ()},
            has_same_index_values=lambda old, new: old.node == new.node,
        )
        self.nodes: Informer[NodeView] = Informer(
            client, ListWatch(NODES.with_model(_Node)), transform=node_view_transform()
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.pods.run())
            tasks.create_task(self.nodes.run())

    async def wait_synced(self) -> None:
        await self.pods.wait_synced()
        await self.nodes.wait_synced()

    def _cached_pod(self, key: str) -> PodView | None:
        return self.pods.get(key)

    async def get_live_pod(self, client: Client, pod: PodView) -> PodView:
        """Return the current state of a pod, read from the API server instead of the cache."""
        return self._to_pod_view(await client.get(PODS.with_model(_Pod), pod.name, namespace=pod.namespace))

    async def patch_pod_status(self, client: Client, pod: PodView, status: RawObject) -> int:
        """Merge `status` into the pod's, if the pod is unchanged; return the revision of the write."""
        patch = merge_patch({"metadata": {"resourceVersion": pod.resource_version}, "status": status})
        patched = await client.patch(_WRITTEN_PODS, pod.name, patch, namespace=pod.namespace, subresource="status")
        return revision(patched.metadata.resource_version)


class _ResourceVersion(Base, frozen=True):
    resource_version: str = ""


class WrittenObject(Base, frozen=True):
    """The part of a written object that is read; the informer brings the rest."""

    metadata: _ResourceVersion = _ResourceVersion()


_WRITTEN_PODS = PODS.with_model(WrittenObject)


class _Metadata(Base, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Any = None
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()


class _Condition(Base, frozen=True):
    type: str = ""
    status: str = ""


class _PodStatus(Base, frozen=True):
    phase: str = "Pending"
    pod_ip: str = msgspec.field(name="podIP", default="")
    conditions: tuple[_Condition, ...] = ()


class _Pod(Base, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: Any = msgspec.field(default_factory=dict)
    status: Any = msgspec.field(default_factory=dict)


class _NodeSpec(Base, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class _NodeInfo(Base, frozen=True):
    boot_id: str = msgspec.field(name="bootID", default="")


class _NodeStatus(Base, frozen=True):
    allocatable: Any = None
    conditions: tuple[NodeCondition, ...] = ()
    node_info: _NodeInfo = _NodeInfo()


class _Node(Base, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


def pod_view_transform(cached_pod: Callable[[str], PodView | None] = lambda _: None) -> Callable[["_Pod"], PodView]:
    """Return a function that creates views of pods.

    `cached_pod` returns the previous view of a pod by its key.
    """
    decoder = PodSpecDecoder()

    def to_pod_view(pod: _Pod) -> PodView:
        metadata, spec = pod.metadata, pod.spec
        status = msgspec.convert(pod.status, _PodStatus)
        owner = _controller_ref(metadata)
        key = object_key(metadata.name, metadata.namespace)
        fields: dict[str, Any] = {
            "uid": metadata.uid,
            "resource_version": metadata.resource_version,
            "generation": metadata.generation,
            "labels": _labels(metadata),
            "annotations": _sandbox_annotations(metadata.annotations),
            "owner_kind": owner.kind if owner else "",
            "owner_uid": owner.uid if owner else "",
            "created_at": metadata.creation_timestamp,
            "deleted_at": metadata.deletion_timestamp,
            "deletion_grace_seconds": metadata.deletion_grace_period_seconds or 0,
            "is_mirror": MIRROR_ANNOTATION in metadata.annotations,
            "phase": status.phase,
            "ip": status.pod_ip,
            "is_ready": _is_ready(status),
            "spec": spec,
            "status": pod.status,
        }
        previous = cached_pod(key)
        if previous is not None and (previous.spec is spec or previous.spec == spec):
            return msgspec.structs.replace(previous, **fields)
        if previous is not None and _differs_only_by_binding(previous.spec, spec):
            return msgspec.structs.replace(previous, **fields, node=spec["nodeName"])
        return PodView(key=key, namespace=metadata.namespace, name=metadata.name, **fields, **decoder.decode(spec))

    return to_pod_view


def _differs_only_by_binding(old: RawObject, new: RawObject) -> bool:
    """Return whether two specs differ only in the node name, which is set once."""
    node = new.get("nodeName")
    return isinstance(node, str) and new == {**old, "nodeName": node}


def node_view_transform() -> Callable[[_Node], NodeView]:
    """Return a function that creates views of nodes."""

    def to_node_view(node: _Node) -> NodeView:
        metadata, spec, status = node.metadata, node.spec, node.status
        return NodeView(
            key=metadata.name,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            labels=_labels(metadata),
            annotations=metadata.annotations,
            created_at=metadata.creation_timestamp,
            unschedulable=spec.unschedulable,
            taints=spec.taints,
            allocatable=_parse_allocatable(status.allocatable),
            conditions=status.conditions,
            boot_id=status.node_info.boot_id,
        )

    return to_node_view


def _controller_ref(metadata: _Metadata) -> OwnerReference | None:
    for owner in metadata.owner_references:
        if owner.controller:
            return owner
    return None


def _is_ready(status: _PodStatus) -> bool:
    for condition in status.conditions:
        if condition.type == "Ready":
            return condition.status == "True"
    return False


def _sandbox_annotations(annotations: Mapping[str, str]) -> Mapping[str, str]:
    if not annotations:
        return annotations
    return {
        key[len(ANNOTATION_PREFIX) :]: value for key, value in annotations.items() if key.startswith(ANNOTATION_PREFIX)
    }


def _labels(metadata: _Metadata) -> Mapping[str, str]:
    return metadata.labels if isinstance(metadata.labels, dict) else {}


def _parse_allocatable(raw: Any) -> ResourceAmounts:
    """Return the allocatable resources; invalid quantities are omitted."""
    if not isinstance(raw, dict) or not all(isinstance(amount, str | int | float) for amount in raw.values()):
        return {}
    return _cached_amounts(tuple(raw.items()))


@lru_cache(maxsize=_MAX_CACHED_MACHINES)
def _cached_amounts(quantities: tuple[tuple[str, str | int | float], ...]) -> ResourceAmounts:
    return parse_quantities(dict(quantities))
