"""An in-memory cluster with the sandbox's scheduler, kubelets and node lifecycle controller on simulated time.

async with a_node_cluster(clock) as cluster:
    view = cluster.start(cluster.view())
    cluster.start(cluster.kubelets(view, "n1", "n2"))
    cluster.start(cluster.scheduler(view))
    cluster.create(a_pod("cart-0", cpu="500m"))
    await cluster.wait_until(lambda: cluster.pod_phase("cart-0") == "Running")
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from random import Random
from typing import Any, Protocol

import msgspec

from haulout.api.objects import RawObject
from haulout.api.resources import PODS
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder
from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from haulout_sandbox.nodes import (
    Delays,
    Kubelets,
    Machine,
    NodeInformers,
    NodeLifecycleController,
    Scheduler,
    informers,
)
from haulout_sandbox.nodes.informers import NodeView, PodView
from haulout_sandbox.nodes.scheduler.framework import ZONE_LABEL
from support.builders.objects import SHOP
from support.expectations.eventually import eventually
from support.expectations.history_text import recent_writes

NAMESPACE = SHOP
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NO_DELAYS = Delays.zero()


class Runnable(Protocol):
    """What is run in the background."""

    async def run(self) -> Any:
        """Run until cancelled."""
        ...


class NodeCluster:
    """A cluster in memory, and ways to look at it."""

    def __init__(self, clock: Clock, api: ApiServer | None = None) -> None:
        self.clock = clock
        # Without defaults, a node is not tainted as not ready: in most of these clusters no controller would remove the
        # taint.
        self.api = api or ApiServer(clock, defaulting=False)
        self.transports: dict[str, InProcessTransport] = {}
        self._task_group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    def client(self, name: str) -> Client:
        """Return the client of a process of this name."""
        self.transports[name] = self.api.transport(name)
        return Client(self.transports[name], clock=self.clock, random=Random(len(self.transports)))

    def view(self, name: str = "view") -> NodeInformers:
        """Return a view of this cluster, with a transport of its own."""
        return NodeInformers(self.client(name))

    def scheduler(self, view: NodeInformers, *, events: bool = False) -> Scheduler:
        """Return a scheduler, with events if they are wanted."""
        client = self.client("scheduler")
        return Scheduler(client, view, recorder=self.start(EventRecorder(client, instance="s")) if events else None)

    def kubelets(self, view: NodeInformers, *names: str, delays: Delays = NO_DELAYS, **options: Any) -> Kubelets:
        """Return kubelets of machines in three zones."""
        kubelets = Kubelets(self.client("kubelets"), view, delays=delays, **options)
        for number, name in enumerate(names):
            kubelets.add(Machine(name=name, zone=f"z{number % 3}", cpu="2", memory="4Gi", pods=20))
        return kubelets

    def lifecycle(self, view: NodeInformers) -> NodeLifecycleController:
        """Return the node lifecycle controller."""
        return NodeLifecycleController(self.client("lifecycle"), view)

    def start(self, component: Any) -> Any:
        """Run something until the end of the test."""
        assert self._task_group is not None
        self._tasks.append(self._task_group.create_task(component.run()))
        return component

    @contextmanager
    def running(self, *components: Runnable) -> Iterator[None]:
        """Run things within a block, and cancel them at its end, as a crash would."""
        assert self._task_group is not None
        tasks = [self._task_group.create_task(component.run()) for component in components]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

    def stop(self) -> None:
        """End all that was started."""
        for task in self._tasks:
            task.cancel()

    def create(self, *objects: RawObject) -> None:
        """Create or replace objects, status included."""
        for obj in objects:
            self.api.put(with_namespace(obj))

    def get_pod(self, name: str) -> RawObject:
        """Return a pod as it is in the cluster."""
        return self.api.get("pods", name, NAMESPACE)

    def has_pod(self, name: str) -> bool:
        """Tell whether there is such a pod."""
        return self.api.has("pods", name, NAMESPACE)

    def pod_phase(self, name: str) -> str:
        """Return the phase of a pod, or `gone`."""
        return str(self.get_pod(name)["status"]["phase"]) if self.has_pod(name) else "gone"

    def node_of(self, name: str) -> str:
        """Return the node of a pod, or nothing."""
        return str(self.get_pod(name)["spec"].get("nodeName", ""))

    def pod_nodes(self) -> dict[str, str]:
        """Return the node of each pod."""
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in self.api.objects("pods")}

    def condition(self, plural: str, name: str, kind: str) -> RawObject:
        """Return a condition of a pod or node, or one whose status is absent."""
        conditions = self.api.get(plural, name, NAMESPACE)["status"].get("conditions", [])
        return next((candidate for candidate in conditions if candidate["type"] == kind), {"status": "absent"})

    def is_pod_ready(self, name: str) -> bool:
        """Tell whether a pod is ready."""
        return bool(self.condition("pods", name, "Ready")["status"] == "True")

    def node_ready(self, name: str) -> str:
        """Return whether a node is ready: `True`, `False` or `Unknown`."""
        return str(self.condition("nodes", name, "Ready")["status"])

    def taints(self, name: str) -> set[str]:
        """Return the taints of a node, as `not-ready:NoSchedule`."""
        taints = self.api.get("nodes", name)["spec"].get("taints", [])
        return {f"{taint['key'].rpartition('/')[2]}:{taint['effect']}" for taint in taints}

    async def delete_pod(self, name: str, *, grace: int | None = None) -> None:
        """Delete a pod as a user does."""
        period = None if grace is None else timedelta(seconds=grace)
        await self.client("user").delete(PODS, name, namespace=NAMESPACE, grace=period)

    async def wait_until(self, check: Callable[[], bool], *, within: timedelta = MINUTE) -> float:
        """Wait until `check` holds; return how many seconds that took."""
        began = self.clock.monotonic()
        every = timedelta(milliseconds=100)
        await eventually(
            self.clock, check, within=within, every=every, recent_events=lambda: recent_writes(self.api.history)
        )
        return self.clock.monotonic() - began

    async def pass_time(self, duration: timedelta) -> None:
        """Let time pass."""
        await self.clock.sleep(duration)


@asynccontextmanager
async def a_node_cluster(clock: Clock) -> AsyncIterator[NodeCluster]:
    """Yield an empty cluster in which nothing runs yet."""
    cluster = NodeCluster(clock)
    async with asyncio.TaskGroup() as group:
        cluster._task_group = group
        try:
            yield cluster
        finally:
            cluster.stop()


def with_namespace(obj: RawObject) -> RawObject:
    """Return a pod that is in no namespace as one of this world's, and anything else as it is."""
    if obj["kind"] != "Pod":
        return obj
    return {**obj, "metadata": {"namespace": NAMESPACE, **obj["metadata"]}}


def pod_view(raw: RawObject, *, uid: str = "") -> PodView:
    """Return a pod as the components see it."""
    raw = with_namespace(raw)
    raw["metadata"].setdefault("uid", uid or f"uid-{raw['metadata']['name']}")
    return informers.pod_view_transform()(msgspec.json.decode(msgspec.json.encode(raw), type=informers._Pod))


def node_view(
    name: str, *, cpu: str = "2", memory: str = "4Gi", pods: int = 20, zone: str = "", **more: Any
) -> NodeView:
    """Return a node as the components see it; `more` is its labels, unschedulable and taints."""
    labels = {"kubernetes.io/hostname": name, **({ZONE_LABEL: zone} if zone else {}), **more.pop("labels", {})}
    raw = {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, "resourceVersion": "1"},
        "spec": more,
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": str(pods)}},
    }
    return informers.node_view_transform()(msgspec.json.decode(msgspec.json.encode(raw), type=informers._Node))
