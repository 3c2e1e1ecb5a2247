"""Part seven: a hub with many workload clusters, of which one does not answer.

Two real control planes: one is the management cluster, the other is all workload clusters at once, as whoever asks by
their Secrets cannot tell. So each of them shows all the nodes.
"""

import asyncio
import base64
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from statistics import quantiles

import aiohttp
import uvloop

from gauges import memory_of
from haulout.core.clock import RealClock
from haulout.kinds.clusterapi import (
    CLUSTER_NAME,
    ENABLED,
    HOOK,
    KUBECONFIG_KEY,
    MACHINE_MAINTENANCE,
    MAINTENANCE,
    MANAGED,
    REQUESTED,
    TRUE,
    ClusterKey,
    Machine,
    machines,
)
from haulout.kube.client import Client
from haulout.kube.discovery import discover
from haulout.kube.network import config
from haulout.kube.network.http import HttpTransport
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import DEFINITIONS, NODES, SECRETS
from haulout_sandbox.clusterapi.objects import definitions
from operated import ENVIRONMENT
from real import control_plane
from report import MEGABYTES, MILLISECONDS, SECONDS, SHARE, Judge, Section
from tasks import IN_FLIGHT, each

Say = Callable[[str], None]

_LOCAL = "127.0.0.1"
_HOME = "default"
_VERSION = "v1beta2"
_MACHINES = machines(_VERSION)
_WITHIN_SECONDS = 600
_SOON = timedelta(milliseconds=20)
_SETTLES = timedelta(seconds=10)
_SILENT = ClusterKey(_HOME, "silent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a run is."""

    clusters: int
    nodes: int  # that each of them shows
    requests: int  # of maintenance, one after the other
    idle_seconds: int


FULL = Scale(clusters=200, nodes=50, requests=50, idle_seconds=30)
QUICK = Scale(clusters=5, nodes=5, requests=3, idle_seconds=2)


def run(scale: Scale, say: Say) -> list[Section]:
    """Measure a hub, first with clusters that all answer, then with one more that never does."""
    with control_plane(say, apart=False) as (management, _), control_plane(say, apart=False) as (workload, _):
        rows = uvloop.run(_measured(scale, Judge(is_fair=scale is FULL), management, workload, say))
    return [Section("A hub", _TEXT, ("What", "Figure", "Besides", "Target", ""), rows)]


async def _measured(scale: Scale, judge: Judge, management: str, workload: str, say: Say) -> list[tuple[str, ...]]:
    async with asyncio.timeout(_WITHIN_SECONDS), _Site.of(management, workload) as site:
        say(f"creating {scale.clusters:,} clusters")
        await site.fill(scale, _content(workload))
        clock = RealClock()
        with _hub(management) as (process, port), _hole() as hole:
            began = clock.monotonic()
            await _until(lambda: _reached(port, scale.clusters))
            await _until(lambda: site.hooked(scale.nodes))
            took = clock.monotonic() - began
            await clock.sleep(_SETTLES)
            say("waiting")
            idle = await _idle(process.pid, scale.idle_seconds)
            held = memory_of(process.pid)
            say("one request after the other")
            calm = [await site.asked(number % scale.nodes) for number in range(scale.requests)]
            say("the same, beside a cluster that does not answer")
            await site.add_cluster(_SILENT, _kubeconfig_of(hole))
            await site.add_machine(_SILENT, node="elsewhere")
            await clock.sleep(_SETTLES)
            beside = [await site.asked(number % scale.nodes) for number in range(scale.requests)]
    clusters = f"{scale.clusters:,} clusters of {scale.nodes} nodes"
    slowest = quantiles(calm, n=20)[-1] if len(calm) > 1 else calm[0]
    return [
        judge.row(f"{clusters}, all reached and hooks set after a start", [took], SECONDS, target=None, beside=""),
        judge.row(f"{clusters}, memory", [held], MEGABYTES, target=None, beside=""),
        judge.row(f"{clusters}, of a core while nothing happens", [idle], SHARE, target=None, beside=""),
        judge.row(
            "from a request on a Machine to the label on its node",
            calm,
            MILLISECONDS,
            target=None,
            beside=f"of twenty the slowest {MILLISECONDS.show(slowest)}",
        ),
        judge.row(
            "the same, while another cluster never answers",
            beside,
            MILLISECONDS,
            target=None,
            beside=f"{sorted(beside)[len(beside) // 2] / sorted(calm)[len(calm) // 2]:.2f}x",
        ),
    ]


def _content(file: str) -> bytes:
    return Path(file).read_bytes()


@contextmanager
def _hub(kubeconfig: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Run the hub by its command."""
    with socket.create_server((_LOCAL, 0)) as free:
        port: int = free.getsockname()[1]
    command = [sys.executable, "-m", "haulout", "run", "--mode", "management", "--kubeconfig", kubeconfig]
    command += ["--namespace", _HOME, "--metrics-port", str(port), "--dashboard-auth", "off"]
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as process:
        try:
            yield process, port
        finally:
            process.terminate()


@contextmanager
def _hole() -> Iterator[int]:
    """Have a port that takes connections, and never says a word."""
    with socket.create_server((_LOCAL, 0), backlog=100) as silent:
        yield silent.getsockname()[1]


def _kubeconfig_of(port: int) -> bytes:
    return f"""\
apiVersion: v1
kind: Config
current-context: it
contexts: [{{name: it, context: {{cluster: it, user: it}}}}]
clusters: [{{name: it, cluster: {{server: "https://{_LOCAL}:{port}", insecure-skip-tls-verify: true}}}}]
users: [{{name: it, user: {{token: nobody}}}}]
""".encode()


async def _idle(pid: int, seconds: int) -> float:
    before = _used(pid)
    await RealClock().sleep(timedelta(seconds=seconds))
    return (_used(pid) - before) / seconds


def _used(pid: int) -> float:
    """Return the seconds of the processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _reached(port: int, count: int) -> bool:
    """Tell whether the hub has that many clusters in reach."""
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://{_LOCAL}:{port}/metrics") as answer:
            said = await answer.text()
    except aiohttp.ClientError:
        return False
    return f'haulout_hub_clusters{{reach="connected"}} {count}\n' in said


async def _until(look: Callable[[], Awaitable[bool]]) -> None:
    while not await look():
        await RealClock().sleep(_SOON)


@dataclass(slots=True)
class _Site:
    """A management cluster, and what all workload clusters have behind them."""

    management: Client
    workload: Client

    @classmethod
    @asynccontextmanager
    async def of(cls, *kubeconfigs: str) -> AsyncIterator["_Site"]:
        """Yield it, while it can be spoken to."""
        clock = RealClock()
        ways = [HttpTransport(config.load(kubeconfig=it, clock=clock), clock=clock) for it in kubeconfigs]
        clients = [Client(way, clock=clock, random=Random(1)) for way in ways]
        try:
            yield cls(*clients)
        finally:
            for client in clients:
                await client.close()

    async def fill(self, scale: Scale, kubeconfig: bytes) -> None:
        """Make nodes, clusters, and a Machine of each cluster; those of the first clusters have a node each."""
        for definition in definitions(_VERSION):
            await self.management.create(DEFINITIONS, definition)
        await _until(self._is_served)
        await each([self._node(number) for number in range(scale.nodes)], self._create_node, at_once=IN_FLIGHT)
        for number in range(scale.clusters):
            key = ClusterKey(_HOME, f"c-{number}")
            await self.add_cluster(key, kubeconfig)
            await self.add_machine(key, node=f"n-{number}" if number < scale.nodes else "")

    async def _is_served(self) -> bool:
        return (await discover(self.management)).serves(_MACHINES)

    def _node(self, number: int) -> RawObject:
        about = {"name": f"n-{number}", "labels": {MANAGED: "operational"}}
        return {"apiVersion": "v1", "kind": "Node", "metadata": about}

    async def _create_node(self, node: RawObject) -> None:
        await self.workload.create(NODES, node)

    async def add_cluster(self, key: ClusterKey, kubeconfig: bytes) -> None:
        """Make the Secret of a cluster."""
        data = {KUBECONFIG_KEY: base64.b64encode(kubeconfig).decode()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": key.secret}, "data": data}
        await self.management.create(SECRETS, secret, namespace=key.namespace)

    async def add_machine(self, key: ClusterKey, *, node: str) -> None:
        """Make a Machine, which has a node unless that is empty."""
        machine = {
            "apiVersion": _MACHINES.api_version,
            "kind": _MACHINES.kind,
            "metadata": {"name": f"m-{key.name}", "labels": {CLUSTER_NAME: key.name, ENABLED: TRUE}},
            "spec": _spec(key.name),
        }
        await self.management.create(_MACHINES, machine, namespace=key.namespace)
        if not node:
            return
        status = merge_patch({"status": {"nodeRef": {"name": node}}})
        await self.management.patch(_MACHINES, f"m-{key.name}", status, namespace=key.namespace, subresource="status")

    async def hooked(self, count: int) -> bool:
        """Tell whether that many Machines have the hook."""
        found = await self.management.list(_MACHINES)
        return sum(HOOK in it.metadata.annotations for it in found.items) >= count

    async def asked(self, number: int) -> float:
        """Ask for maintenance of a Machine; return after how long its node was told. Then withdraw it."""
        clock, name = RealClock(), f"m-c-{number}"
        began = clock.monotonic()
        await self._label(name, REQUESTED)
        await _until(lambda: self._is_told(number, is_told=True))
        took = clock.monotonic() - began
        await self._label(name, None)
        await _until(lambda: self._is_told(number, is_told=False))
        return took

    async def _label(self, machine: str, value: str | None) -> Machine:
        patch = merge_patch({"metadata": {"labels": {MAINTENANCE: value}}})
        return await self.management.patch(_MACHINES, machine, patch, namespace=_HOME)

    async def _is_told(self, number: int, *, is_told: bool) -> bool:
        node = await self.workload.get(NODES, f"n-{number}")
        return (MACHINE_MAINTENANCE in node.metadata.labels) == is_told


def _spec(cluster: str) -> RawObject:
    reference = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "BenchMachine", "name": "m"}
    return {"clusterName": cluster, "infrastructureRef": reference, "bootstrap": {"dataSecretName": "none"}}


_TEXT = f"""
Two real control planes, the one with Machines and Secrets, the other behind all kubeconfigs, and the hub in a process
of its own, all on the same cores. A request is the label `{MAINTENANCE}` on a Machine; the
time runs from before it is written until the label is seen on the Machine's node in the other cluster, by asking every
{_SOON.microseconds // 1000} ms. A cluster that never answers takes connections and says nothing.
"""
