"""What scheduler, kubelets and node lifecycle see of the cluster: one copy of all pods and nodes, shared by them.

A pod is read once into a `PodView`. What replicas have in common (containers, tolerations, affinity, labels) is decoded
once for all of them: the bytes are the key, so twenty thousand pods of a hundred workloads cost a hundred decodings. Of
a pod whose spec is as it was, which is so in all but two moments of its life, the spec is not read again.
The status stays the plain object that it is, so that nothing is lost that we do not know.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from haulout.kube.cache import Cache, revision
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.objects import Base, OwnerReference, RawObject, Taint, object_key
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES, PODS
from haulout.kube.rows import MIRROR_ANNOTATION
from haulout_sandbox.nodes.reading import Amounts, PodSpecs, amounts
from haulout_sandbox.nodes.specs import Affinity, Container, Spread, Toleration

ANNOTATION = "sandbox.haulout.dev/"
ENDED = ("Succeeded", "Failed")
_MACHINES_KNOWN = 1_000  # what those can give that differ in it


class PodView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod."""

    key: str
    uid: str
    resource_version: str
    generation: int
    namespace: str
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]  # those that tell the sandbox what to do
    owner_kind: str
    owner_uid: str
    created_at: datetime | None
    deleted_at: datetime | None  # when its time to stop is up
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
    requests: Amounts
    host_ports: tuple[tuple[str, int], ...]  # protocol and number of the ports of its node that it takes
    node_selector: Mapping[str, str]
    affinity: Affinity
    tolerations: tuple[Toleration, ...]
    spreads: tuple[Spread, ...]
    phase: str
    ip: str
    is_ready: bool
    spec: RawObject  # this and the status are as the cluster has them, and not to be changed
    status: RawObject
    wishes: tuple[bytes, ...]  # what it asks of a node; equal for pods that ask the same

    @property
    def ended(self) -> bool:
        """Whether its containers have ended for good: it takes nothing of its node any more."""
        return self.phase in ENDED


class NodeCondition(Base, frozen=True):
    """A condition of a node."""

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
    allocatable: Amounts
    conditions: tuple[NodeCondition, ...]
    boot_id: str

    def condition(self, kind: str) -> NodeCondition | None:
        """Return the condition of this type."""
        for condition in self.conditions:
            if condition.type == kind:
                return condition
        return None

    @property
    def ready(self) -> str:
        """`True`, `False` or `Unknown`; empty if nobody has said yet."""
        found = self.condition("Ready")
        return found.status if found else ""


class View:
    """Copies of all pods and nodes; `run` keeps them up to date. Pods are indexed by `node`."""

    def __init__(self, client: Client) -> None:
        self._pod_view = pod_views(self._known)
        self.pods: Cache[PodView] = Cache(
            client,
            Selection(PODS.of(_Pod)),
            row=self._pod_view,
            indexes={"node": lambda pod: (pod.node,) if pod.node else ()},
            stays=lambda old, new: old.node == new.node,
        )
        self.nodes: Cache[NodeView] = Cache(client, Selection(NODES.of(_Node)), row=node_views())

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.pods.run())
            tasks.create_task(self.nodes.run())

    async def wait_synced(self) -> None:
        """Return when both copies have been complete once."""
        await self.pods.wait_synced()
        await self.nodes.wait_synced()

    def _known(self, key: str) -> PodView | None:
        return self.pods.get(key)

    async def read(self, client: Client, pod: PodView) -> PodView:
        """Return a pod as it is now, read by `client` past this copy."""
        return self._pod_view(await client.get(PODS.of(_Pod), pod.name, namespace=pod.namespace))

    async def write(self, client: Client, pod: PodView, status: RawObject) -> int:
        """Merge `status` into that of a pod, if it is still as we know it; return at which revision it then is."""
        change = merge_patch({"metadata": {"resourceVersion": pod.resource_version}, "status": status})
        written = await client.patch(_WRITTEN, pod.name, change, namespace=pod.namespace, subresource="status")
        return revision(written.metadata.resource_version)


class _Version(Base, frozen=True):
    resource_version: str = ""


class Written(Base, frozen=True):
    """Of an object that was written, all that is read: the copy will show the rest."""

    metadata: _Version = _Version()


_WRITTEN = PODS.of(Written)


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


def pod_views(known: Callable[[str], PodView | None] = lambda _: None) -> Callable[["_Pod"], PodView]:
    """Return a function that makes views of pods; `known` tells the view of a pod that was made before, by its key."""
    specs = PodSpecs()

    def view(pod: _Pod) -> PodView:
        meta, spec = pod.metadata, pod.spec
        status = msgspec.convert(pod.status, _PodStatus)
        owner = _controller(meta)
        key = object_key(meta.name, meta.namespace)
        fresh: dict[str, Any] = {
            "uid": meta.uid,
            "resource_version": meta.resource_version,
            "generation": meta.generation,
            "labels": _labels(meta),
            "annotations": _for_the_sandbox(meta.annotations),
            "owner_kind": owner.kind if owner else "",
            "owner_uid": owner.uid if owner else "",
            "created_at": meta.creation_timestamp,
            "deleted_at": meta.deletion_timestamp,
            "deletion_grace_seconds": meta.deletion_grace_period_seconds or 0,
            "is_mirror": MIRROR_ANNOTATION in meta.annotations,
            "phase": status.phase,
            "ip": status.pod_ip,
            "is_ready": _is_ready(status),
            "spec": spec,
            "status": pod.status,
        }
        before = known(key)
        if before is not None and (before.spec is spec or before.spec == spec):
            return msgspec.structs.replace(before, **fresh)
        if before is not None and _is_bound(before.spec, spec):
            return msgspec.structs.replace(before, **fresh, node=spec["nodeName"])
        return PodView(key=key, namespace=meta.namespace, name=meta.name, **fresh, **specs.read(spec))

    return view


def _is_bound(before: RawObject, after: RawObject) -> bool:
    """Tell whether a spec is another only in that the pod now is on a node, as it is once in the life of each."""
    node = after.get("nodeName")
    return isinstance(node, str) and after == {**before, "nodeName": node}


def node_views() -> Callable[[_Node], NodeView]:
    """Return a function that makes views of nodes."""

    def view(node: _Node) -> NodeView:
        meta, spec, status = node.metadata, node.spec, node.status
        return NodeView(
            key=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
            labels=_labels(meta),
            annotations=meta.annotations,
            created_at=meta.creation_timestamp,
            unschedulable=spec.unschedulable,
            taints=spec.taints,
            allocatable=_allocatable(status.allocatable),
            conditions=status.conditions,
            boot_id=status.node_info.boot_id,
        )

    return view


def _controller(meta: _Metadata) -> OwnerReference | None:
    for owner in meta.owner_references:
        if owner.controller:
            return owner
    return None


def _is_ready(status: _PodStatus) -> bool:
    for condition in status.conditions:
        if condition.type == "Ready":
            return condition.status == "True"
    return False


def _for_the_sandbox(annotations: Mapping[str, str]) -> Mapping[str, str]:
    if not annotations:
        return annotations
    return {key[len(ANNOTATION) :]: value for key, value in annotations.items() if key.startswith(ANNOTATION)}


def _labels(meta: _Metadata) -> Mapping[str, str]:
    return meta.labels if isinstance(meta.labels, dict) else {}


def _allocatable(given: Any) -> Amounts:
    """Return what a node can give; what makes no sense is nothing."""
    if not isinstance(given, dict) or not all(isinstance(it, str | int | float) for it in given.values()):
        return {}
    return _numbers(tuple(given.items()))


@lru_cache(maxsize=_MACHINES_KNOWN)
def _numbers(given: tuple[tuple[str, str | int | float], ...]) -> Amounts:
    return amounts(dict(given))
