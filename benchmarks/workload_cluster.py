"""A cluster for the benchmarks of the sandbox: machines, workloads with budgets, and people who restart them.

All of it is made of plain API objects, and everything that a real cluster runs is at work: scheduler, kubelets, node
lifecycle, and all controllers.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from haulout.api.objects import RawObject
from haulout.api.resources import NAMESPACES
from haulout.core.clock import Clock
from haulout.kube.patches import merge_patch
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.controllers.objects import DAEMON_SETS, DEPLOYMENTS, POD_DISRUPTION_BUDGETS
from haulout_sandbox.nodes import Machine

SHOP = "shop"
_RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
_ZONES = 3
_POLL_INTERVAL = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a cluster is; one pod of a daemon set runs on each node besides those of the deployments."""

    nodes: int
    deployments: int
    replicas: int

    @property
    def pods(self) -> int:
        """How many pods there are when all run."""
        return self.nodes + self.deployments * self.replicas


class WorkloadCluster:
    """A cluster and what people do in it; it remembers no more of its history than one that runs for days."""

    def __init__(self, clock: Clock, size: Size, *, heartbeat: timedelta) -> None:
        api = ApiServer(clock, random=Random(1), window=1_000, keep_history=False)
        self.size = size
        self.cluster = Cluster(clock, api=api, heartbeat=heartbeat, events=False, latency=timedelta())
        self._clock = clock
        self._people = self.cluster.client("people")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the cluster while the context lasts; it has its machines, and no workloads yet."""
        for number in range(self.size.nodes):
            self.cluster.kubelets.add(Machine(name=f"node-{number:04}", zone=f"zone-{number % _ZONES}"))
        async with self.cluster.running():
            await self._wait_until(self._all_nodes_are_ready)
            yield

    async def deploy(self) -> None:
        """Create all workloads, and wait until all their pods are ready."""
        await self._people.create(NAMESPACES, {"metadata": {"name": SHOP}})
        await self._people.create(DAEMON_SETS, _workload("DaemonSet", "agent"), namespace=SHOP)
        for name in map(_name, range(self.size.deployments)):
            deployment = _workload("Deployment", name, replicas=self.size.replicas)
            await self._people.create(DEPLOYMENTS, deployment, namespace=SHOP)
            await self._people.create(POD_DISRUPTION_BUDGETS, _budget(name), namespace=SHOP)
        await self._wait_until(self.all_pods_are_ready)

    async def restart(self, *, every: timedelta, duration: timedelta) -> int:
        """Restart one deployment after the other, as `kubectl rollout restart` does; return how many pods that is."""
        rounds = duration // every
        for number in range(rounds):
            marks = {_RESTARTED_AT: self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")}
            change = merge_patch({"spec": {"template": {"metadata": {"annotations": marks}}}})
            await self._people.patch(DEPLOYMENTS, _name(number % self.size.deployments), change, namespace=SHOP)
            await self._clock.sleep(every)
        return rounds * self.size.replicas

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._clock.sleep(_POLL_INTERVAL)

    def _all_nodes_are_ready(self) -> bool:
        nodes = self.cluster.api.objects_by_key("nodes").values()
        return sum(_is_ready(node) and "taints" not in node["spec"] for node in nodes) == self.size.nodes

    def all_pods_are_ready(self) -> bool:
        """Tell whether all pods there should be are there and ready, and no others."""
        if self._reported_ready() < self.size.pods:  # this takes a look at few objects, where pods are many
            return False
        pods = self.cluster.api.objects_by_key("pods").values()
        return len(pods) == self.size.pods and all(map(_is_ready, pods))

    def _reported_ready(self) -> int:
        by_key = self.cluster.api.objects_by_key
        ready_fields = [("daemonsets", "numberReady"), ("deployments", "readyReplicas")]
        return sum(
            item.get("status", {}).get(count, 0) for plural, count in ready_fields for item in by_key(plural).values()
        )


def _is_ready(obj: RawObject) -> bool:
    conditions = obj["status"].get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _name(number: int) -> str:
    return f"app-{number:04}"


def _workload(kind: str, name: str, **spec: object) -> RawObject:
    chosen = {"selector": {"matchLabels": {"app": name}}, "template": _template(name)}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": {**chosen, **spec}}


def _template(name: str) -> RawObject:
    requests = {"cpu": "100m", "memory": "128Mi"}
    container = {
        "name": "main",
        "image": f"example/{name}:1",
        "ports": [{"containerPort": 8080}],
        "env": [{"name": "LEVEL", "value": "info"}],
        "resources": {"requests": requests, "limits": requests},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 5},
    }
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}


def _budget(name: str) -> RawObject:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": name}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
