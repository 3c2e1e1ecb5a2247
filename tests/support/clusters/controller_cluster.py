"""A cluster with the sandbox's controllers, and minimal kubelets that only start and stop pods."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from random import Random
from typing import Any

from haulout.api.objects import RawObject
from haulout.core.clock import Clock
from haulout.errors import Conflict, NotFound
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.controllers import ALL_CONTROLLERS
from haulout_sandbox.controllers.base import Controller, ControllerManager
from haulout_sandbox.controllers.conditions import format_time
from haulout_sandbox.controllers.daemonset.node_eligibility import target_node
from haulout_sandbox.controllers.informers import InformerFactory
from haulout_sandbox.controllers.objects import PODS, Pod
from support.builders.objects import SHOP
from support.expectations.objects import object_snapshots


class FakeKubelets(Controller[str]):
    """Binds pods to nodes in turn, and starts, ends and deletes them."""

    name = "kubelets"

    def __init__(
        self, informers: InformerFactory, random: Random, *, bind: Callable[[Pod, str], Awaitable[object]]
    ) -> None:
        super().__init__(informers, random)
        self.nodes: list[str] = ["n1", "n2", "n3"]
        self.start = timedelta(seconds=1)
        self.stop = timedelta(seconds=2)
        self.ready: Callable[[Pod], bool] = lambda _: True
        self.outcome: Callable[[Pod], str] = lambda _: ""  # of a pod that ends by itself
        self.job_duration = timedelta(seconds=5)
        self._bind = bind
        self._bound = 0
        self._since: dict[tuple[str, str], datetime] = {}
        informers.pods.subscribe(self._on_pod_change)

    def _on_pod_change(self, _: Pod | None, new: Pod | None) -> None:
        if new is not None:
            self.queue.add(new.key)

    def enqueue_all(self) -> None:
        """Note that `ready`, `outcome` or `node_cluster` changed."""
        for pod in self.informers.pods.all():
            self.queue.add(pod.key)

    async def sync(self, key: str) -> datetime | None:
        """Do the next thing that a scheduler or a kubelet would do about a pod."""
        pod = self.informers.pods.get(key)
        if pod is None:
            return None
        if not pod.spec.node_name:
            await self._schedule(pod)
        elif pod.is_being_deleted:
            return await self._after(pod, "stop", self.stop, self._delete)
        elif pod.status.phase == "Pending":
            return await self._after(pod, "start", self.start, self._started)
        elif not pod.is_finished:
            if pod.is_ready is not self.ready(pod):
                await self._started(pod)
            if self.outcome(pod):
                return await self._after(pod, "end", self.job_duration, self._ended)
        return None

    async def _schedule(self, pod: Pod) -> None:
        node = target_node(pod)
        if pod.is_being_deleted or not (node or self.nodes):
            return
        self._bound += 1
        await self._bind(pod, node or self.nodes[self._bound % len(self.nodes)])

    async def _after(
        self, pod: Pod, transition: str, delay: timedelta, act: Callable[[Pod], Awaitable[None]]
    ) -> datetime | None:
        due = self._since.setdefault((pod.uid, transition), self.clock.now()) + delay
        if due > self.clock.now():
            return due
        await act(pod)
        return None

    async def _started(self, pod: Pod) -> None:
        await self._status(pod, "Running", ready=self.ready(pod))

    async def _ended(self, pod: Pod) -> None:
        await self._status(pod, self.outcome(pod), ready=False)

    async def _delete(self, pod: Pod) -> None:
        await self.client.delete(PODS, pod.name, namespace=pod.namespace, uid=pod.uid, grace=timedelta())

    async def _status(self, pod: Pod, phase: str, *, ready: bool) -> None:
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": format_time(self.clock.now())}
        kept = [
            {"type": candidate.type, "status": candidate.status}
            for candidate in pod.status.conditions
            if candidate.type != "Ready"
        ]
        patch = merge_patch(
            {"metadata": {"uid": pod.uid}, "status": {"phase": phase, "conditions": [*kept, condition]}}
        )
        await self.client.patch(PODS, pod.name, patch, namespace=pod.namespace, subresource="status")


class ControllerCluster:
    """A cluster in memory with controllers, which can be crashed and started again."""

    def __init__(
        self,
        clock: Clock,
        *,
        kinds: Sequence[Callable[[InformerFactory, Random], Controller[Any]]] = ALL_CONTROLLERS,
        seed: int = 7,
    ) -> None:
        self.clock = clock
        self.cluster = ApiServer(clock, namespaces=[SHOP])
        self._kinds = kinds
        self._seed = seed
        self.transport = self.cluster.transport("controllers")
        self.client = Client(self.cluster.transport("people"), clock=clock, random=Random(seed))
        self.controllers = self._new_controllers()
        caches = InformerFactory(Client(self.cluster.transport("kubelets"), clock=clock, random=Random(seed)))
        self.kubelets = FakeKubelets(caches, Random(seed), bind=self._bind)

    def _new_controllers(self) -> ControllerManager:
        client = Client(self.transport, clock=self.clock, random=Random(self._seed))
        return ControllerManager(client, random=Random(self._seed), factories=self._kinds)

    async def _bind(self, pod: Pod, node: str) -> None:
        if self.cluster.has("pods", pod.name, pod.namespace):
            bound = self.cluster.get("pods", pod.name, pod.namespace)
            bound["spec"]["nodeName"] = node
            self.cluster.put(bound)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ControllerCluster"]:
        """Run controllers and kubelets."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            kubelet_tasks: list[asyncio.Task[Any]] = [
                tasks.create_task(cache.run()) for cache in self.kubelets.informers.all()
            ]
            kubelet_tasks += [tasks.create_task(self.kubelets.queue.run())]
            self._running = tasks.create_task(self.controllers.run())
            yield self
            for task in (*kubelet_tasks, self._running):
                task.cancel()

    async def crash(self) -> None:
        """End the controllers without warning, and start new ones."""
        self._running.cancel()
        await asyncio.wait([self._running])
        self.transport = self.cluster.transport("controllers")
        self.controllers = self._new_controllers()
        self._running = self._tasks.create_task(self.controllers.run())

    async def settle(self, seconds: float = 30) -> None:
        """Let time pass."""
        await self.clock.sleep(timedelta(seconds=seconds))

    def pods(self, *, labels: str = "") -> list[RawObject]:
        """Return the pods that are not being deleted."""
        return [pod for pod in self.all_pods(labels=labels) if "deletionTimestamp" not in pod["metadata"]]

    def all_pods(self, *, labels: str = "") -> list[RawObject]:
        """Return all pods."""
        return self.cluster.objects("pods", namespace=SHOP, labels=labels)

    def object_names(self, plural: str = "pods") -> list[str]:
        """Return the names of the existing objects."""
        return [obj["metadata"]["name"] for obj in self.cluster.objects(plural, namespace=SHOP)]

    def get(self, plural: str, name: str) -> RawObject:
        """Return an object."""
        return self.cluster.get(plural, name, SHOP)

    def status(self, plural: str, name: str) -> RawObject:
        """Return an object's status."""
        found: RawObject = self.get(plural, name)["status"]
        return found

    def created_pods(self) -> list[str]:
        """Return the names of all pods that were ever created."""
        return [write.key for write in self.cluster.history if write.kind.plural == "pods" and write.type == "ADDED"]

    def max_over_history(self, count: Callable[[Sequence[RawObject]], int]) -> int:
        """Return the most that `count` makes of all pods, at any revision."""
        return max(map(count, object_snapshots(self.cluster.history, "pods")), default=0)

    def min_over_history(self, count: Callable[[Sequence[RawObject]], int], *, since: int) -> int:
        """Return the least that `count` makes of all pods, at any revision after `since`."""
        return min(map(count, object_snapshots(self.cluster.history, "pods", since=since)))

    async def patch(self, resource: Any, name: str, **fields: Any) -> None:
        """Merge `fields` into an object, as a person would."""
        while True:
            try:
                await self.client.patch(resource, name, merge_patch(fields), namespace=SHOP)
            except Conflict:
                continue
            return

    async def delete(self, resource: Any, name: str, **options: Any) -> None:
        """Delete an object, as a person would."""
        try:
            await self.client.delete(resource, name, namespace=SHOP, **options)
        except NotFound:
            return
