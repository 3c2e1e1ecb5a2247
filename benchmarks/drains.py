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

from haulout.core.clock import RealClock
from haulout.kube.client import Client
from haulout.kube.network import config
from haulout.kube.network.http import HttpTransport
from haulout.kube.objects import RawObject
from haulout.kube.resources import DEFINITIONS, NAMESPACES, PODS
from haulout.maintenance.resource import NODE_MAINTENANCES, Phase, definition
from haulout_sandbox.nodes import Delays, Kubelets, Machine, View
from haulout_sandbox.nodes.view import PodView
from operated import Numbers, Operator, operator
from real import control_plane
from report import MEGABYTES, MILLISECONDS, SECONDS, Judge, Section, Unit
from tasks import each

Say = Callable[[str], None]

_NAMESPACE = "load"
_PODS = 20  # on each node
_SHORTEST, _LONGEST = 0.5, 3.0  # seconds that a pod takes to end
_WITHIN_SECONDS = 600
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


def run(scale: Scale, say: Say) -> list[Section]:
    """Measure drains by the operator and by kubectl."""
    with control_plane(say) as (kubeconfig, kubectl):
        return [uvloop.run(_measured(scale, kubeconfig, kubectl, say))]


async def _measured(scale: Scale, kubeconfig: str, kubectl: str, say: Say) -> Section:
    async with asyncio.timeout(_WITHIN_SECONDS * 3), _Site.running(kubeconfig, kubectl, nodes=scale.many) as site:
        alone: dict[int, list[Numbers]] = {}
        ours: dict[int, list[Numbers]] = {}
        theirs: dict[int, list[Numbers]] = {}
        for number in range(1, scale.rounds + 1):
            for nodes in (1, scale.few):
                say(f"round {number} of {scale.rounds}: {_count(nodes)}")
                alone.setdefault(nodes, []).append(await site.evict(nodes))
                ours.setdefault(nodes, []).append(await site.maintain(nodes))
            theirs.setdefault(1, []).append(await site.drain_by_kubectl(1))
        theirs[scale.by_kubectl] = [await site.drain_by_kubectl(scale.by_kubectl)]
        for nodes in (scale.some, scale.many):
            say(f"{nodes} nodes at once")
            alone[nodes] = [await site.evict(nodes)]
            ours[nodes] = [await site.maintain(nodes)]
    return Section("Drains", _TEXT, ("What", "Figure", "Besides", "Target", ""), _rows(scale, alone, ours, theirs))


class _Site:
    """A control plane with kubelets, and the operator beside it."""

    def __init__(self, client: Client, view: View, kubectl: Sequence[str], ours: Operator) -> None:
        self._client = client
        self._view = view
        self._clock = client.clock
        self._kubectl = kubectl
        self._ours = ours
        self._ending: dict[str, float] = {}  # when each pod began to end
        self._slowest = 0.0
        view.pods.subscribe(self._note)

    @classmethod
    @asynccontextmanager
    async def running(cls, kubeconfig: str, kubectl: str, *, nodes: int) -> AsyncIterator["_Site"]:
        """Yield it when all nodes are ready."""
        clock = RealClock()
        ways = [HttpTransport(config.load(kubeconfig=kubeconfig, clock=clock), clock=clock) for _ in range(2)]
        mine, kubelets_client = (Client(way, clock=clock, random=Random(1)) for way in ways)
        view = View(kubelets_client)
        kubelets = Kubelets(kubelets_client, view, delays=Delays.none(), heartbeat=timedelta(seconds=30))
        for name in _names(nodes):
            kubelets.add(Machine(name=name))
        await mine.create(DEFINITIONS, definition())
        await mine.create(NAMESPACES, {"metadata": {"name": _NAMESPACE}})
        async with operator(kubeconfig) as ours, asyncio.TaskGroup() as group:
            tasks = [group.create_task(run()) for run in (view.run, kubelets.run)]
            await view.wait_synced()
            site = cls(mine, view, (kubectl, "--kubeconfig", kubeconfig), ours)
            await site._until(lambda: len(view.nodes.all()) == nodes)
            try:
                yield site
            finally:
                for task in tasks:
                    task.cancel()
                for client in (mine, kubelets_client):
                    await client.close()

    # What is measured

    async def evict(self, nodes: int) -> Numbers:
        """Evict all pods at once, and nothing else."""
        pods = await self._fill(nodes)
        began = self._clock.monotonic()
        await each(pods, lambda name: self._client.evict(name, namespace=_NAMESPACE), at_once=32)
        await self._until(self._is_empty)
        return {"empty": self._clock.monotonic() - began}

    async def maintain(self, nodes: int) -> Numbers:
        """Order the maintenance of nodes, and give them back."""
        await self._fill(nodes)
        before = await self._ours.numbers()
        began = self._clock.monotonic()
        await each(_names(nodes), self._order, at_once=nodes)
        await self._until(self._is_empty)
        empty = self._clock.monotonic() - began
        slowest = self._slowest
        await self._all_succeeded(nodes)
        told = self._clock.monotonic() - began
        after = await self._ours.numbers()
        await each(_names(nodes), lambda name: self._client.delete(NODE_MAINTENANCES, name), at_once=nodes)
        await self._none_left()
        used = {key: after[key] - before[key] for key in ("sent", "cpu")}
        held = {key: after[key] for key in ("memory", "peak")}
        return {"empty": empty, "slowest": slowest, "told": told, **used, **held}

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
        await each(pods, lambda pod: self._client.create(PODS, pod, namespace=_NAMESPACE), at_once=_CREATING)
        await self._until(lambda: sum(pod.phase == "Running" for pod in self._view.pods.all()) == len(pods))
        await self._clock.sleep(timedelta(seconds=1))
        self._slowest = 0.0
        return [pod["metadata"]["name"] for pod in pods]

    async def _order(self, node: str) -> None:
        kind = {"apiVersion": NODE_MAINTENANCES.api_version, "kind": NODE_MAINTENANCES.kind}
        body = kind | {"metadata": {"name": node}, "spec": {"nodeName": node}}
        await self._client.create(NODE_MAINTENANCES, body)

    async def _all_succeeded(self, nodes: int) -> None:
        async with self._client.watch(NODE_MAINTENANCES, initial_list=True) as events:
            done: set[str] = set()
            async for event in events:
                found: Any = getattr(event, "object", None)
                if found is not None and found.status.phase == Phase.SUCCEEDED:
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
        _, said = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"kubectl {arguments[0]}: {said.decode()}")

    def _note(self, old: PodView | None, new: PodView | None) -> None:
        now = self._clock.monotonic()
        if new is not None and new.deleted_at is not None:
            self._ending.setdefault(new.uid, now)
        elif new is None and old is not None and old.uid in self._ending:
            self._slowest = max(self._slowest, now - self._ending.pop(old.uid))

    def _is_empty(self) -> bool:
        return not self._view.pods.all()

    async def _until(self, check: Callable[[], bool]) -> None:
        while not check():
            await self._clock.sleep(timedelta(milliseconds=5))


def _names(nodes: int) -> list[str]:
    return [f"n{number:03}" for number in range(nodes)]


def _pod(node: str, number: int) -> RawObject:
    place = Random(node).sample(range(_PODS), _PODS)[number]  # how long a pod takes is not told by its name
    stop = _SHORTEST + (_LONGEST - _SHORTEST) * place / (_PODS - 1)
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
    judge = Judge(is_fair=scale is FULL)
    rows = []
    for nodes, target in ((1, 1.05), (scale.few, 1.1)):
        ratios = [mine["empty"] / mine["slowest"] for mine in ours[nodes]]
        beside = _beside(ours[nodes], alone[nodes])
        rows.append(judge.row(f"{_count(nodes)}, until empty", ratios, RATIO, target=target, beside=beside))
    for nodes, results in theirs.items():
        ratio = median(it["empty"] for it in results) / median(it["slowest"] for it in ours[1])
        what = f"{_count(nodes).removesuffix(' at once')} by kubectl drain"
        rows.append((what, RATIO.show(ratio), _seconds(results), "", ""))
    for nodes in (scale.some, scale.many):
        mine = ours[nodes][0]
        ratio = mine["empty"] / mine["slowest"]
        rows.append((f"{_count(nodes)}, until empty", RATIO.show(ratio), _beside(ours[nodes], alone[nodes]), "", ""))
        calls = mine["sent"] / (nodes * _PODS)
        each_pod = MILLISECONDS.show(mine["cpu"] / (nodes * _PODS))
        beside = f"{each_pod} of the processor a pod"
        rows.append(judge.row(f"{_count(nodes)}, API calls per pod", [calls], COUNT, target=3, beside=beside))
    memory = ours[scale.some][0]
    beside = (
        f"peak {MEGABYTES.show(memory['peak'])}; at {scale.many} nodes {MEGABYTES.show(ours[scale.many][0]['memory'])}"
    )
    what = f"the operator's memory at {scale.some} nodes"
    rows.append(judge.row(what, [memory["memory"]], MEGABYTES, target=80e6, beside=beside))
    return rows


def _beside(ours: Sequence[Numbers], alone: Sequence[Numbers]) -> str:
    slowest, told = _seconds(ours, "slowest"), _seconds(ours, "told")
    return f"{_seconds(ours)}, the slowest pod {slowest}, the pods alone {_seconds(alone)}, told {told}"


def _seconds(results: Sequence[Numbers], key: str = "empty") -> str:
    return SECONDS.show(median(it[key] for it in results))


def _count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes at once"


_TEXT = f"""
A real etcd and kube-apiserver over TLS; kubelets are the sandbox's. Each node has {_PODS} bare pods that take
{_SHORTEST:g} to {_LONGEST:g} s to end, in an order that their names do not tell. Figures are multiples of what the
slowest pod took in the same drain, from the moment it was seen to end until it was gone: 1x is the best that any drain
can do. Of one node and of ten they are medians of {FULL.rounds} drains, since they depend on where within a second a
drain begins. "The pods alone" is the time from the first of nothing but evictions, sent 32 at a time, until the last
pod is gone, and so what the server needs. The operator is a process of its own, with the environment of its Deployment;
its time runs from before the first NodeMaintenance is created until the last pod is gone, and "told" until all of them
say Succeeded. API calls are all that it sends, watches, leases, events and status included. kubectl drains one node
after the other; its figure is a multiple of the slowest pod of one node.
"""
