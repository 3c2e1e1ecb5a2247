"""An in-memory cluster with nodes and workloads, for tests of drains.

async with a_drain_cluster(clock, "n1", "n2") as cluster:
    await cluster.run_pods("web", 20, on="n1", stop=3)
    outcome = await cluster.drain("n1")
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

from haulout.api.objects import RawObject
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.drain.drainer import Drainer
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import DrainOutcome, DrainProgress
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.nodes import Delays, Machine
from support.evictionrequest import EVICTION_REQUEST_CONTROLLERS
from support.evictionrequest.definitions import definitions

SHOP = "shop"
DRAINER = "drainer"
BEHAVIOUR_PREFIX = "sandbox.haulout.dev/"


class DrainCluster:
    """A cluster, and ways to look at it."""

    def __init__(self, cluster: Cluster, group: asyncio.TaskGroup) -> None:
        self.cluster = cluster
        self.api = cluster.api
        self.clock = cluster.clock
        self.progress_reports: list[DrainProgress] = []
        self._group = group
        self._running: list[asyncio.Task[Any]] = []

    @property
    def client(self) -> Client:
        """The client of the drains."""
        return self.cluster.client(DRAINER)

    @property
    def transport(self) -> InProcessTransport:
        """The transport of the drains, with its faults."""
        return self.cluster.transport(DRAINER)

    async def run_pods(
        self, app: str, count: int, *, on: str, stop: float | Callable[[int], float] = 1, **more: Any
    ) -> None:
        """Run pods on a node, each of which takes `stop` seconds to end."""
        for number in range(count):
            seconds = stop(number) if callable(stop) else stop
            self.api.put(a_pod(f"{app}-{number:02}", on=on, stop=seconds, labels={"app": app}, **more))
        await self.wait_until(lambda: all(is_ready(pod) for pod in self.pods(app=app)))

    def put(self, *objects: RawObject) -> None:
        """Create or replace objects."""
        for obj in objects:
            self.api.put(obj)

    def pods(self, *, on: str = "", app: str = "") -> list[RawObject]:
        """Return the pods of a node, of an app."""
        found = self.api.objects("pods", namespace=SHOP, labels=f"app={app}" if app else "")
        return [pod for pod in found if on in ("", pod["spec"].get("nodeName", ""))]

    def pod_names(self, *, on: str = "", app: str = "") -> list[str]:
        """Return their names."""
        return [pod["metadata"]["name"] for pod in self.pods(on=on, app=app)]

    def evicted_pods(self) -> list[str]:
        """Return the names of the pods for which an eviction was requested, in order."""
        paths = [request.path for request in self.transport.sent_requests(method="POST", path="/eviction")]
        return [path.split("/")[-2] for path in paths if path.endswith("/eviction")]

    async def cordon(self, *names: str) -> None:
        """Cordon nodes."""
        for name in names:
            await self.cluster.client("admin").patch(NODES, name, merge_patch({"spec": {"unschedulable": True}}))

    def new_drain(self, node: str, policy: DrainPolicy | None = None, **more: Any) -> Drainer:
        """Return a drain that appends its progress to `progress_reports`."""
        policy = DrainPolicy.like_nmo() if policy is None else policy
        return Drainer(self.client, node, policy, on_progress=self.progress_reports.append, **more)

    async def drain(self, node: str, policy: DrainPolicy | None = None, **more: Any) -> DrainOutcome:
        """Drain a node to the end."""
        return await self.new_drain(node, policy, **more).run()

    def start_drain(self, drain: Drainer) -> asyncio.Task[DrainOutcome]:
        """Let a drain run."""
        task = self._group.create_task(drain.run())
        self._running.append(task)
        return task

    def cancel_drains(self) -> None:
        """End what was started."""
        for task in self._running:
            task.cancel()

    async def wait_until(self, check: Callable[[], bool], *, within: timedelta = timedelta(minutes=10)) -> float:
        """Wait until `check` holds; return how many seconds that took, the more exactly the less it may take."""
        step = max(timedelta(milliseconds=50), within / 12_000)
        began = self.clock.monotonic()
        while not check():
            assert self.clock.monotonic() - began < within.total_seconds(), f"not within {within}"
            await self.clock.sleep(step)
        return self.clock.monotonic() - began


@asynccontextmanager
async def a_drain_cluster(
    clock: Clock, *nodes: str, delays: Delays | None = None, eviction_requests: bool = False
) -> AsyncIterator[DrainCluster]:
    """Yield a cluster with these nodes, ready; things take no time unless `delays` or pods say so.

    With `eviction_requests` it serves EvictionRequests and Evictions, and runs their controllers.
    """
    api = ApiServer(clock, random=Random("town"))
    for definition in definitions() if eviction_requests else ():
        api.put(definition)
    cluster = Cluster(
        clock,
        api=api,
        delays=Delays.zero() if delays is None else delays,
        events=False,
        extra_controllers=EVICTION_REQUEST_CONTROLLERS if eviction_requests else (),
    )
    for number, name in enumerate(nodes):
        cluster.kubelets.add(Machine(name=name, zone=f"z{number % 3}"))
    cluster.api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}})
    async with cluster.running(), asyncio.TaskGroup() as group:
        drain_cluster = DrainCluster(cluster, group)
        await drain_cluster.wait_until(
            lambda: [_is_schedulable(node) for node in cluster.api.objects("nodes")] == [True] * len(nodes)
        )
        try:
            yield drain_cluster
        finally:
            drain_cluster.cancel_drains()


def a_pod(
    name: str,
    *,
    on: str = "",
    stop: float = 1,
    grace: int = 30,
    labels: Mapping[str, str] | None = None,
    behaviour: Mapping[str, str] | None = None,
    meta: Mapping[str, Any] | None = None,
    **spec: Any,
) -> RawObject:
    """Return a pod that takes `cancel_drains` seconds to end; `behaviour` is what else its kubelet is told."""
    behaviour = {"stop-seconds": str(stop), **(behaviour or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": SHOP,
            "labels": dict(labels or {}),
            "annotations": {f"{BEHAVIOUR_PREFIX}{key}": value for key, value in behaviour.items()},
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
    """Return a Deployment or StatefulSet, whose pods take `ready` seconds to be ready and `cancel_drains` to end."""
    labels = {"app": name}
    behaviour = {f"{BEHAVIOUR_PREFIX}start-seconds": str(ready), f"{BEHAVIOUR_PREFIX}stop-seconds": str(stop)}
    template = {
        "metadata": {"labels": labels, "annotations": behaviour},
        "spec": {"containers": [{"name": "main", "image": "example/main"}], **spec},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def a_pdb(name: str, *, app: str, **spec: Any) -> RawObject:
    """Return a disruption budget for the pods of an app."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }


def is_ready(pod: RawObject) -> bool:
    """Tell whether a pod is ready."""
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod["status"].get("conditions", [])
    )


def _is_schedulable(node: RawObject) -> bool:
    return not node["spec"].get("taints") and is_ready(node)
