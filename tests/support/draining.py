"""A cluster in memory with nodes and workloads, in which nodes are drained.

async with a_town(clock, "n1", "n2") as town:
    await town.run_pods("web", 20, on="n1", stop=3)
    outcome = await town.drain("n1")
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

from haulout.core.clock import Clock
from haulout.drain.engine import Drain
from haulout.drain.policy import Policy
from haulout.drain.progress import Outcome, Progress
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.nodes import Delays, Machine

SHOP = "shop"
DRAINER = "drainer"
ACTS = "sandbox.haulout.dev/"


class Town:
    """A cluster, and ways to look at it."""

    def __init__(self, cluster: Cluster, group: asyncio.TaskGroup) -> None:
        self.cluster = cluster
        self.api = cluster.api
        self.clock = cluster.clock
        self.told: list[Progress] = []
        self._group = group
        self._running: list[asyncio.Task[Any]] = []

    @property
    def client(self) -> Client:
        """The client of those who drain."""
        return self.cluster.client(DRAINER)

    @property
    def line(self) -> InProcessTransport:
        """The line of those who drain, with its faults."""
        return self.cluster.transport(DRAINER)

    async def run_pods(
        self, app: str, count: int, *, on: str, stop: float | Callable[[int], float] = 1, **more: Any
    ) -> None:
        """Run pods on a node, each of which takes `stop` seconds to end."""
        for number in range(count):
            seconds = stop(number) if callable(stop) else stop
            self.api.put(a_pod(f"{app}-{number:02}", on=on, stop=seconds, labels={"app": app}, **more))
        await self.until(lambda: all(is_ready(pod) for pod in self.pods(app=app)))

    def put(self, *objects: RawObject) -> None:
        """Create or replace objects."""
        for obj in objects:
            self.api.put(obj)

    def pods(self, *, on: str = "", app: str = "") -> list[RawObject]:
        """Return the pods of a node, of an app."""
        found = self.api.objects("pods", namespace=SHOP, labels=f"app={app}" if app else "")
        return [pod for pod in found if on in ("", pod["spec"].get("nodeName", ""))]

    def names(self, *, on: str = "", app: str = "") -> list[str]:
        """Return their names."""
        return [pod["metadata"]["name"] for pod in self.pods(on=on, app=app)]

    def evictions(self) -> list[str]:
        """Return the names of the pods for which an eviction was asked for, in order."""
        asked = [it.path for it in self.line.asked(method="POST", path="/eviction")]
        return [path.split("/")[-2] for path in asked if path.endswith("/eviction")]

    async def cordon(self, *names: str) -> None:
        """Keep further pods off nodes."""
        for name in names:
            await self.cluster.client("admin").patch(NODES, name, merge_patch({"spec": {"unschedulable": True}}))

    def new_drain(self, node: str, policy: Policy | None = None, **more: Any) -> Drain:
        """Return a drain that tells `told` how it goes."""
        policy = Policy.like_nmo() if policy is None else policy
        return Drain(self.client, node, policy, on_progress=self.told.append, **more)

    async def drain(self, node: str, policy: Policy | None = None, **more: Any) -> Outcome:
        """Drain a node to the end."""
        return await self.new_drain(node, policy, **more).run()

    def start(self, drain: Drain) -> asyncio.Task[Outcome]:
        """Let a drain run."""
        task = self._group.create_task(drain.run())
        self._running.append(task)
        return task

    def stop(self) -> None:
        """End what was started."""
        for task in self._running:
            task.cancel()

    async def until(self, check: Callable[[], bool], *, within: timedelta = timedelta(minutes=10)) -> float:
        """Wait until `check` holds; return how many seconds that took, the more exactly the less it may take."""
        step = max(timedelta(milliseconds=50), within / 12_000)
        began = self.clock.monotonic()
        while not check():
            assert self.clock.monotonic() - began < within.total_seconds(), f"not within {within}"
            await self.clock.sleep(step)
        return self.clock.monotonic() - began


@asynccontextmanager
async def a_town(
    clock: Clock, *nodes: str, delays: Delays | None = None, features: Iterable[str] = ()
) -> AsyncIterator[Town]:
    """Yield a cluster with these nodes, ready; things take no time unless `delays` or pods say so."""
    api = ApiServer(clock, random=Random("town"), features=features)
    cluster = Cluster(clock, api=api, delays=Delays.none() if delays is None else delays, events=False)
    for number, name in enumerate(nodes):
        cluster.kubelets.add(Machine(name=name, zone=f"z{number % 3}"))
    cluster.api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}})
    async with cluster.running(), asyncio.TaskGroup() as group:
        town = Town(cluster, group)
        await town.until(lambda: [_is_free(node) for node in cluster.api.objects("nodes")] == [True] * len(nodes))
        try:
            yield town
        finally:
            town.stop()


def a_pod(
    name: str,
    *,
    on: str = "",
    stop: float = 1,
    grace: int = 30,
    labels: Mapping[str, str] | None = None,
    acts: Mapping[str, str] | None = None,
    meta: Mapping[str, Any] | None = None,
    **spec: Any,
) -> RawObject:
    """Return a pod that takes `stop` seconds to end; `acts` is what else its kubelet is told."""
    acts = {"stop-seconds": str(stop), **(acts or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": SHOP,
            "labels": dict(labels or {}),
            "annotations": {f"{ACTS}{key}": value for key, value in acts.items()},
            **(meta or {}),
        },
        "spec": {
            "containers": [{"name": "main", "image": "example/main"}],
            "terminationGracePeriodSeconds": grace,
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def a_workload(kind: str, name: str, *, replicas: int, ready: float = 0, stop: float = 1, **spec: Any) -> RawObject:
    """Return a Deployment or StatefulSet, whose pods take `ready` seconds to be ready and `stop` to end."""
    labels = {"app": name}
    acts = {f"{ACTS}start-seconds": str(ready), f"{ACTS}stop-seconds": str(stop)}
    template = {
        "metadata": {"labels": labels, "annotations": acts},
        "spec": {"containers": [{"name": "main", "image": "example/main"}], **spec},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def a_budget(name: str, *, app: str, **spec: Any) -> RawObject:
    """Return a disruption budget for the pods of an app."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }


def is_ready(pod: RawObject) -> bool:
    """Tell whether a pod is ready."""
    return any(it["type"] == "Ready" and it["status"] == "True" for it in pod["status"].get("conditions", []))


def _is_free(node: RawObject) -> bool:
    return not node["spec"].get("taints") and is_ready(node)
