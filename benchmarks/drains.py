"""Part three: nodes are drained on a real kube-apiserver, by the operator and by kubectl, in the same run.

Kubelets are the sandbox's, in this process. Pods are bare ones, so that none comes back and what is measured is the
drain: against how long the slowest pod takes to end, since no drain can be faster.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from statistics import median
from typing import Any

import uvloop

from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenancePhase, custom_resource_definition
from haulout.api.objects import RawObject
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS
from haulout.core.clock import RealClock
from haulout.kube.client import Client
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from haulout_sandbox.nodes import Delays, Kubelets, Machine, NodeInformers
from haulout_sandbox.nodes.informers import PodView
from operator_handle import Numbers, OperatorHandle, operator
from real_apiserver import control_plane
from report import MEGABYTES, MILLISECONDS, SECONDS, Section, TargetComparison, Unit
from tasks import for_each

Log = Callable[[str], None]

_NAMESPACE = "load"
_PODS = 20  # on each node
_SHORTEST, _LONGEST = 0.5, 3.0  # seconds that a pod takes to end
_TIMEOUT_SECONDS = 600
_CREATING = 16
RATIO = Unit(lambda ratio: f"{ratio:.2f}x", more_is_better=False)
COUNT = Unit(lambda count: f"{count:.2f}", more_is_better=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a run is."""

    rounds: int
    few: int  # nodes at once
    some: int
    many: int
    by_kubectl: int  # of the few, since it drains one after the other


FULL = Scale(rounds=7, few=10, some=30, many=100, by_kubectl=3)
QUICK = Scale(rounds=1, few=3, some=4, many=5, by_kubectl=2)


def run(scale: Scale, log: Log) -> list[Section]:
    """Measure drains by the operator and by kubectl."""
    with control_plane(log) as (kubeconfig, kubectl):
        return [uvloop.run(_measured(scale, kubeconfig, kubectl, log))]


async def _measured(scale: Scale, kubeconfig: str, kubectl: str, log: Log) -> Section:
    async with (
        asyncio.timeout(_TIMEOUT_SECONDS * 3),
        _DrainCluster.running(kubeconfig, kubectl, nodes=scale.many) as cluster,
    ):
        alone: dict[int, list[Numbers]] = {}
        ours: dict[int, list[Numbers]] = {}
        theirs: dict[int, list[Numbers]] = {}
        for number in range(1, scale.rounds + 1):
            for nodes in (1, scale.few):
                log(f"round {number} of {scale.rounds}: {_count(nodes)}")
                alone.setdefault(nodes, []).append(await cluster.evict(nodes))
                ours.setdefault(nodes, []).append(await cluster.maintain(nodes))
            theirs.setdefault(1, []).append(await cluster.drain_by_kubectl(1))
        theirs[scale.by_kubectl] = [await cluster.drain_by_kubectl(scale.by_kubectl)]
        for nodes in (scale.some, scale.many):
            log(f"{nodes} nodes at once")
            alone[nodes] = [await cluster.evict(nodes)]
            ours[nodes] = [await cluster.maintain(nodes)]
    return Section(
        "Drains", _TEXT, ("Measurement", "Result", "Details", "Target", ""), _rows(scale, alone, ours, theirs)
    )


class _DrainCluster:
    """A control plane with kubelets, and the operator beside it."""

    def __init__(
        self, client: Client, view: NodeInformers, kubectl: Sequence[str], operator_handle: OperatorHandle
    ) -> None:
        self._client = client
        self._view = view
        self._clock = client.clock
        self._kubectl = kubectl
        self._ours = operator_handle
        self._terminating_since: dict[str, float] = {}  # when each pod began to end
        self._slowest = 0.0
        view.pods.subscribe(self._on_pod_change)

    @classmethod
    @asynccontextmanager
    async def running(cls, kubeconfig: str, kubectl: str, *, nodes: int) -> AsyncIterator["_DrainCluster"]:
        """Yield it when all nodes are ready."""
        clock = RealClock()
        transports = [HttpTransport(config.load(kubeconfig=kubeconfig, clock=clock), clock=clock) for _ in range(2)]
        own_client, kubelets_client = (Client(transport, clock=clock, random=Random(1)) for transport in transports)
        view = NodeInformers(kubelets_client)
        kubelets = Kubelets(kubelets_client, view, delays=Delays.zero(), heartbeat=timedelta(seconds=30))
        for name in _names(nodes):
            kubelets.add(Machine(name=name))
        await own_client.create(CUSTOM_RESOURCE_DEFINITIONS, custom_resource_definition())
        await own_client.create(NAMESPACES, {"metadata": {"name": _NAMESPACE}})
        async with operator(kubeconfig) as operator_handle, asyncio.TaskGroup() as group:
            tasks = [group.create_task(run()) for run in (view.run, kubelets.run)]
            await view.wait_synced()
            cluster = cls(own_client, view, (kubectl, "--kubeconfig", kubeconfig), operator_handle)
            await cluster._wait_until(lambda: len(view.nodes.all()) == nodes)
            try:
                yield cluster
            finally:
                for task in tasks:
                    task.cancel()
                for client in (own_client, kubelets_client):
                    await client.close()

    # What is measured

    async def evict(self, nodes: int) -> Numbers:
        """Evict all pods at once, and nothing else."""
        pods = await self._fill(nodes)
        began = self._clock.monotonic()
        await for_each(pods, lambda name: self._client.evict(name, namespace=_NAMESPACE), at_once=32)
        await self._wait_until(self._is_empty)
        return {"empty": self._clock.monotonic() - began}

    async def maintain(self, nodes: int) -> Numbers:
        """Order the maintenance of nodes, and give them back."""
        await self._fill(nodes)
        before = await self._ours.numbers()
        began = self._clock.monotonic()
        await for_each(_names(nodes), self._create_maintenance, at_once=nodes)
        await self._wait_until(self._is_empty)
        empty = self._clock.monotonic() - began
        slowest = self._slowest
        await self._all_succeeded(nodes)
        reported = self._clock.monotonic() - began
        after = await self._ours.numbers()
        await for_each(_names(nodes), lambda name: self._client.delete(NODE_MAINTENANCES, name), at_once=nodes)
        await self._none_left()
        used = {key: after[key] - before[key] for key in ("sent", "cpu")}
        memory_use = {key: after[key] for key in ("memory", "peak")}
        return {"empty": empty, "slowest": slowest, "reported": reported, **used, **memory_use}

    async def drain_by_kubectl(self, nodes: int) -> Numbers:
        """Let kubectl drain nodes."""
        await self._fill(nodes)
        began = self._clock.monotonic()
        await self._run("drain", *_names(nodes), "--force", "--ignore-daemonsets", "--delete-emptydir-data")
        took = self._clock.monotonic() - began
        await self._run("uncordon", *_names(nodes))
        return {"empty": took}

    # How

    async def _fill(self, nodes: int) -> list[str]:
        pods = [_pod(node, number) for node in _names(nodes) for number in range(_PODS)]
        await for_each(pods, lambda pod: self._client.create(PODS, pod, namespace=_NAMESPACE), at_once=_CREATING)
        await self._wait_until(lambda: sum(pod.phase == "Running" for pod in self._view.pods.all()) == len(pods))
        await self._clock.sleep(timedelta(seconds=1))
        self._slowest = 0.0
        return [pod["metadata"]["name"] for pod in pods]

    async def _create_maintenance(self, node: str) -> None:
        kind = {"apiVersion": NODE_MAINTENANCES.api_version, "kind": NODE_MAINTENANCES.kind}
        body = kind | {"metadata": {"name": node}, "spec": {"nodeName": node}}
        await self._client.create(NODE_MAINTENANCES, body)

    async def _all_succeeded(self, nodes: int) -> None:
        async with self._client.watch(NODE_MAINTENANCES, initial_list=True) as events:
            done: set[str] = set()
            async for event in events:
                found: Any = getattr(event, "object", None)
                if found is not None and found.status.phase == NodeMaintenancePhase.SUCCEEDED:
                    done.add(found.name)
                if len(done) == nodes:
                    return

    async def _none_left(self) -> None:
        while (await self._client.list(NODE_MAINTENANCES)).items:
            await self._clock.sleep(timedelta(milliseconds=200))

    async def _run(self, *arguments: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._kubectl, *arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        _, stderr = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"kubectl {arguments[0]}: {stderr.decode()}")

    def _on_pod_change(self, old: PodView | None, new: PodView | None) -> None:
        now = self._clock.monotonic()
        if new is not None and new.deleted_at is not None:
            self._terminating_since.setdefault(new.uid, now)
        elif new is None and old is not None and old.uid in self._terminating_since:
            self._slowest = max(self._slowest, now - self._terminating_since.pop(old.uid))

    def _is_empty(self) -> bool:
        return not self._view.pods.all()

    async def _wait_until(self, check: Callable[[], bool]) -> None:
        while not check():
            await self._clock.sleep(timedelta(milliseconds=5))


def _names(nodes: int) -> list[str]:
    return [f"n{number:03}" for number in range(nodes)]


def _pod(node: str, number: int) -> RawObject:
    position = Random(node).sample(range(_PODS), _PODS)[number]  # how long a pod takes does not depend on its name
    stop = _SHORTEST + (_LONGEST - _SHORTEST) * position / (_PODS - 1)
    return {
        "metadata": {
            "name": f"{node}-{number:02}",
            "annotations": {"sandbox.haulout.dev/stop-seconds": f"{stop:.2f}"},
        },
        "spec": {
            "nodeName": node,
            "serviceAccountName": "default",
            "containers": [{"name": "main", "image": "example/main"}],
        },
    }


def _rows(
    scale: Scale,
    alone: dict[int, list[Numbers]],
    ours: dict[int, list[Numbers]],
    theirs: dict[int, list[Numbers]],
) -> list[tuple[str, ...]]:
    comparison = TargetComparison(is_fair=scale is FULL)
    rows = []
    for nodes, target in ((1, 1.05), (scale.few, 1.1)):
        ratios = [figures["empty"] / figures["slowest"] for figures in ours[nodes]]
        note = _note(ours[nodes], alone[nodes])
        rows.append(comparison.row(f"{_count(nodes)}, until empty", ratios, RATIO, target=target, note=note))
    for nodes, results in theirs.items():
        ratio = median(numbers["empty"] for numbers in results) / median(numbers["slowest"] for numbers in ours[1])
        label = f"{_count(nodes).removesuffix(' at once')} by kubectl drain"
        rows.append((label, RATIO.show(ratio), _seconds(results), "", ""))
    for nodes in (scale.some, scale.many):
        figures = ours[nodes][0]
        ratio = figures["empty"] / figures["slowest"]
        rows.append((f"{_count(nodes)}, until empty", RATIO.show(ratio), _note(ours[nodes], alone[nodes]), "", ""))
        calls = figures["sent"] / (nodes * _PODS)
        each_pod = MILLISECONDS.show(figures["cpu"] / (nodes * _PODS))
        note = f"{each_pod} of CPU time per pod"
        rows.append(comparison.row(f"{_count(nodes)}, API calls per pod", [calls], COUNT, target=3, note=note))
    memory = ours[scale.some][0]
    note = (
        f"peak {MEGABYTES.show(memory['peak'])}; at {scale.many} nodes {MEGABYTES.show(ours[scale.many][0]['memory'])}"
    )
    label = f"the operator's memory at {scale.some} nodes"
    rows.append(comparison.row(label, [memory["memory"]], MEGABYTES, target=80e6, note=note))
    return rows


def _note(ours: Sequence[Numbers], alone: Sequence[Numbers]) -> str:
    slowest, reported = _seconds(ours, "slowest"), _seconds(ours, "reported")
    return f"{_seconds(ours)}, the slowest pod {slowest}, evictions alone {_seconds(alone)}, reported {reported}"


def _seconds(results: Sequence[Numbers], key: str = "empty") -> str:
    return SECONDS.show(median(result[key] for result in results))


def _count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes at once"


_TEXT = f"""
A real etcd and kube-apiserver over TLS; the kubelets are those of the sandbox. Each node has {_PODS} bare pods that
take {_SHORTEST:g} to {_LONGEST:g} s to terminate, in an order that is unrelated to their names. Figures are multiples
of the time of the slowest pod in the same drain, from when it was first seen terminating until it was deleted: 1x is
the best possible drain. For one node and for ten they are medians of {FULL.rounds} drains, since they depend on where
within a second a drain begins. "Evictions alone" is the time from the first eviction until the last pod is deleted if
nothing but evictions is sent, 32 at a time: what the server needs. The operator is a separate process with the
environment of its Deployment. Its time runs from before the first NodeMaintenance is created until the last pod is
deleted; "reported" runs until all NodeMaintenances are Succeeded. API calls are all that the operator sends, including
watches, leases, events and status. kubectl drains one node after the other; its figure is a multiple of the time of the
slowest pod of one node.
"""
