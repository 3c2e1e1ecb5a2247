"""What scheduler, kubelets and node lifecycle see of the cluster: one copy of all pods and nodes, shared by them.

A pod is read once into a `PodView`. What replicas have in common (containers, tolerations, affinity, labels) is decoded
once for all of them: the bytes are the key, so twenty thousand pods of a hundred workloads cost a hundred decodings.
The status stays bytes until somebody wants to change it, and is then changed as the plain object that it is, so that
nothing is lost that we do not know.

What makes no sense (a quantity that is no number, an affinity that is a string) counts as not there: an API server that
validates lets none of it in, and one that does not must not be able to blind us.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from haulout.core import quantity
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.objects import Base, OwnerReference, RawObject, Taint, object_key
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES, PODS
from haulout.kube.rows import MIRROR_ANNOTATION
from haulout.sandbox.nodes.specs import Affinity, Container, Spread, Toleration

T = TypeVar("T")

CPU = "cpu"
MEMORY = "memory"
ANNOTATION = "sandbox.haulout.dev/"
ENDED = ("Succeeded", "Failed")
_NOTHING = msgspec.Raw(b"")
_SHARED_LIMIT = 50_000

Amounts = Mapping[str, int]  # cpu in thousandths, everything else in whole units


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
    raw_status: bytes
    wishes: tuple[bytes, ...]  # what it asks of a node; equal for pods that ask the same

    @property
    def ended(self) -> bool:
        """Whether its containers have ended for good: it takes nothing of its node any more."""
        return self.phase in ENDED

    def status(self) -> RawObject:
        """Return its status, a copy to be changed."""
        read: RawObject = msgspec.json.decode(self.raw_status)
        return read


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
        return next((it for it in self.conditions if it.type == kind), None)

    @property
    def ready(self) -> str:
        """`True`, `False` or `Unknown`; empty if nobody has said yet."""
        found = self.condition("Ready")
        return found.status if found else ""


class View:
    """Copies of all pods and nodes; `run` keeps them up to date. Pods are indexed by `node`."""

    def __init__(self, client: Client) -> None:
        self._pod_view = pod_views()
        self.pods: Cache[PodView] = Cache(
            client,
            Selection(PODS.of(_Pod)),
            row=self._pod_view,
            indexes={"node": lambda pod: (pod.node,) if pod.node else ()},
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

    async def read(self, client: Client, pod: PodView) -> PodView:
        """Return a pod as it is now, read by `client` past this copy."""
        return self._pod_view(await client.get(PODS.of(_Pod), pod.name, namespace=pod.namespace))

    async def write(self, client: Client, pod: PodView, status: RawObject) -> PodView:
        """Merge `status` into that of a pod, if it is still as we know it; return the pod as it then is."""
        change = merge_patch({"metadata": {"resourceVersion": pod.resource_version}, "status": status})
        return self._pod_view(
            await client.patch(PODS.of(_Pod), pod.name, change, namespace=pod.namespace, subresource="status")
        )


class _Metadata(Base, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: msgspec.Raw = _NOTHING
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()


class _PodSpec(Base, frozen=True):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[msgspec.Raw, ...] = ()
    priority: int | None = None
    restart_policy: str = "Always"
    host_network: bool = False
    containers: msgspec.Raw = _NOTHING
    init_containers: msgspec.Raw = _NOTHING
    overhead: msgspec.Raw = _NOTHING
    node_selector: msgspec.Raw = _NOTHING
    affinity: msgspec.Raw = _NOTHING
    tolerations: msgspec.Raw = _NOTHING
    topology_spread_constraints: msgspec.Raw = _NOTHING


class _Condition(Base, frozen=True):
    type: str = ""
    status: str = ""


class _PodStatus(Base, frozen=True):
    phase: str = "Pending"
    pod_ip: str = msgspec.field(name="podIP", default="")
    conditions: tuple[_Condition, ...] = ()


class _Pod(Base, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _PodSpec = _PodSpec()
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _NodeSpec(Base, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class _NodeInfo(Base, frozen=True):
    boot_id: str = msgspec.field(name="bootID", default="")


class _NodeStatus(Base, frozen=True):
    allocatable: msgspec.Raw = _NOTHING
    conditions: tuple[NodeCondition, ...] = ()
    node_info: _NodeInfo = _NodeInfo()


class _Node(Base, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class _Shared(Generic[T]):
    """Decodes each distinct piece of JSON once."""

    def __init__(self, kind: Any, default: T) -> None:
        self._decode = msgspec.json.Decoder(kind).decode
        self._known: dict[bytes, T] = {b"": default, b"null": default}
        self._default = default

    def __call__(self, raw: bytes) -> T:
        found = self._known.get(raw)
        if found is None:
            if len(self._known) >= _SHARED_LIMIT:
                self._known = {b"": self._default, b"null": self._default}
            found = self._known[raw] = self._read(raw)
        return found

    def _read(self, raw: bytes) -> T:
        try:
            decoded: T = self._decode(raw)
        except msgspec.ValidationError:
            return self._default
        return decoded


def pod_views() -> Callable[[_Pod], PodView]:
    """Return a function that makes views of pods; the views of one such function share what they have in common."""
    labels: _Shared[dict[str, str]] = _Shared(dict[str, str], {})
    containers: _Shared[tuple[Container, ...]] = _Shared(tuple[Container, ...], ())
    overheads: _Shared[dict[str, str | int | float]] = _Shared(dict[str, str | int | float], {})
    selectors: _Shared[dict[str, str]] = _Shared(dict[str, str], {})
    affinities: _Shared[Affinity] = _Shared(Affinity, Affinity())
    tolerations: _Shared[tuple[Toleration, ...]] = _Shared(tuple[Toleration, ...], ())
    spreads: _Shared[tuple[Spread, ...]] = _Shared(tuple[Spread, ...], ())
    statuses = msgspec.json.Decoder(_PodStatus)
    known: dict[tuple[bytes, bytes, bytes], tuple[Amounts, tuple[tuple[str, int], ...]]] = {}

    def needs(main: bytes, init: bytes, overhead: bytes) -> tuple[Amounts, tuple[tuple[str, int], ...]]:
        key = (main, init, overhead)
        if key not in known:
            if len(known) >= _SHARED_LIMIT:
                known.clear()
            all_containers = containers(main), containers(init)
            known[key] = _requests(*all_containers, overheads(overhead)), _host_ports(*all_containers)
        return known[key]

    def view(pod: _Pod) -> PodView:
        meta, spec, raw_status = pod.metadata, pod.spec, bytes(pod.status)
        status = statuses.decode(raw_status)
        main, init, overhead = bytes(spec.containers), bytes(spec.init_containers), bytes(spec.overhead)
        wishes = (
            main,
            init,
            overhead,
            bytes(spec.node_selector),
            bytes(spec.affinity),
            bytes(spec.tolerations),
            bytes(spec.topology_spread_constraints),
        )
        requests, host_ports = needs(main, init, overhead)
        owner = next((it for it in meta.owner_references if it.controller), None)
        return PodView(
            key=object_key(meta.name, meta.namespace),
            uid=meta.uid,
            resource_version=meta.resource_version,
            generation=meta.generation,
            namespace=meta.namespace,
            name=meta.name,
            labels=labels(bytes(meta.labels)),
            annotations=_for_the_sandbox(meta.annotations),
            owner_kind=owner.kind if owner else "",
            owner_uid=owner.uid if owner else "",
            created_at=meta.creation_timestamp,
            deleted_at=meta.deletion_timestamp,
            deletion_grace_seconds=meta.deletion_grace_period_seconds or 0,
            is_mirror=MIRROR_ANNOTATION in meta.annotations,
            node=spec.node_name,
            scheduler=spec.scheduler_name,
            is_gated=bool(spec.scheduling_gates),
            priority=spec.priority or 0,
            restart_policy=spec.restart_policy,
            host_network=spec.host_network,
            containers=containers(main),
            init_containers=containers(init),
            requests=requests,
            host_ports=host_ports,
            node_selector=selectors(wishes[3]),
            affinity=affinities(wishes[4]),
            tolerations=tolerations(wishes[5]),
            spreads=spreads(wishes[6]),
            phase=status.phase,
            ip=status.pod_ip,
            is_ready=any(it.type == "Ready" and it.status == "True" for it in status.conditions),
            raw_status=raw_status,
            wishes=wishes,
        )

    return view


def node_views() -> Callable[[_Node], NodeView]:
    """Return a function that makes views of nodes."""
    labels: _Shared[dict[str, str]] = _Shared(dict[str, str], {})
    capacities: _Shared[dict[str, str | int | float]] = _Shared(dict[str, str | int | float], {})

    def view(node: _Node) -> NodeView:
        meta, spec, status = node.metadata, node.spec, node.status
        return NodeView(
            key=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
            labels=labels(bytes(meta.labels)),
            annotations=meta.annotations,
            created_at=meta.creation_timestamp,
            unschedulable=spec.unschedulable,
            taints=spec.taints,
            allocatable=_amounts(capacities(bytes(status.allocatable))),
            conditions=status.conditions,
            boot_id=status.node_info.boot_id,
        )

    return view


def _for_the_sandbox(annotations: Mapping[str, str]) -> Mapping[str, str]:
    return {key[len(ANNOTATION) :]: value for key, value in annotations.items() if key.startswith(ANNOTATION)}


def _amounts(written: Mapping[str, str | int | float]) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for name, text in written.items():
        try:
            read = quantity.parse(str(text))
        except ValueError:
            continue
        amounts[name] = read.milli if name == CPU else read.value
    return amounts


def _requests(
    containers: tuple[Container, ...], init_containers: tuple[Container, ...], overhead: Mapping[str, str | int | float]
) -> Amounts:
    """Return what a pod needs: its containers and sidecars at once, or an init container if that needs more."""
    running: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in init_containers:
        wanted = _amounts(container.resources.requests)
        if container.is_sidecar:
            _add(running, wanted)
        else:
            _raise_to(most, _sum(running, wanted))
    for container in containers:
        _add(running, _amounts(container.resources.requests))
    _raise_to(most, running)
    _add(most, _amounts(overhead))
    return {name: amount for name, amount in most.items() if amount}


def _host_ports(
    containers: tuple[Container, ...], init_containers: tuple[Container, ...]
) -> tuple[tuple[str, int], ...]:
    lasting = (*containers, *(it for it in init_containers if it.is_sidecar))
    return tuple((port.protocol, port.host_port) for it in lasting for port in it.ports if port.host_port)


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    total = dict(one)
    _add(total, other)
    return total


def _raise_to(most: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        most[name] = max(most.get(name, 0), amount)
