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
from statistics import median_high, quantiles

import aiohttp
import uvloop

from haulout.api.clusterapi import (
    CLUSTER_NAME,
    ENABLED,
    KUBECONFIG_KEY,
    MACHINE_MAINTENANCE,
    MAINTENANCE,
    MAINTENANCE_STATE,
    PRE_DRAIN_HOOK,
    REQUESTED,
    TRUE,
    ClusterKey,
    Machine,
    machine_resource,
)
from haulout.api.objects import RawObject
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES, SECRETS
from haulout.core.clock import RealClock
from haulout.kube.client import Client
from haulout.kube.discovery import discover
from haulout.kube.patches import merge_patch
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from haulout_sandbox.clusterapi.objects import custom_resource_definitions
from operator_handle import ENVIRONMENT
from real_apiserver import control_plane
from report import MEGABYTES, MILLISECONDS, SECONDS, SHARE, Section, TargetComparison
from resource_usage import memory_of
from tasks import IN_FLIGHT, for_each

Log = Callable[[str], None]

_LOCAL = "127.0.0.1"
_NAMESPACE = "default"
_VERSION = "v1beta2"
_MACHINES = machine_resource(_VERSION)
_TIMEOUT_SECONDS = 600
_POLL_INTERVAL = timedelta(milliseconds=20)
_SETTLE_TIME = timedelta(seconds=10)
_SILENT = ClusterKey(_NAMESPACE, "silent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a run is."""

    clusters: int
    nodes: int  # that each of them shows
    requests: int  # of maintenance, one after the other
    idle_seconds: int


FULL = Scale(clusters=200, nodes=50, requests=50, idle_seconds=30)
QUICK = Scale(clusters=5, nodes=5, requests=3, idle_seconds=2)


def run(scale: Scale, log: Log) -> list[Section]:
    """Measure a hub, first with clusters that all answer, then with one more that never does."""
    with (
        control_plane(log, separate_cores=False) as (management, _),
        control_plane(log, separate_cores=False) as (workload, _),
    ):
        rows = uvloop.run(_measured(scale, TargetComparison(is_fair=scale is FULL), management, workload, log))
    return [Section("Hub", _TEXT, ("Measurement", "Result", "Details", "Target", ""), rows)]


async def _measured(
    scale: Scale, comparison: TargetComparison, management: str, workload: str, log: Log
) -> list[tuple[str, ...]]:
    async with asyncio.timeout(_TIMEOUT_SECONDS), _HubClusters.of(management, workload) as hub_clusters:
        log(f"creating {scale.clusters:,} clusters")
        await hub_clusters.fill(scale, _content(workload))
        clock = RealClock()
        with _hub(management) as (process, port), _unresponsive_port() as silent_port:
            began = clock.monotonic()
            await _wait_until(lambda: _reached(port, scale.clusters))
            await _wait_until(lambda: hub_clusters.have_hooks(scale.nodes))
            took = clock.monotonic() - began
            await clock.sleep(_SETTLE_TIME)
            log("waiting")
            idle = await _idle_cpu_share(process.pid, scale.idle_seconds)
            memory_use = memory_of(process.pid)
            log("one request after the other")
            latencies = [await hub_clusters.request_latency(number % scale.nodes) for number in range(scale.requests)]
            log("the same, beside a cluster that does not answer")
            await hub_clusters.add_cluster(_SILENT, _kubeconfig_of(silent_port))
            await hub_clusters.add_machine(_SILENT, node="elsewhere")
            await clock.sleep(_SETTLE_TIME)
            latencies_with_silent_cluster = [
                await hub_clusters.request_latency(number % scale.nodes) for number in range(scale.requests)
            ]
    clusters = f"{scale.clusters:,} clusters of {scale.nodes} nodes"
    slowest = quantiles(latencies, n=20)[-1] if len(latencies) > 1 else latencies[0]
    return [
        comparison.row(
            f"{clusters}, from start until all are connected and have hooks", [took], SECONDS, target=None, note=""
        ),
        comparison.row(f"{clusters}, memory", [memory_use], MEGABYTES, target=None, note=""),
        comparison.row(f"{clusters}, CPU usage of one core when idle", [idle], SHARE, target=None, note=""),
        comparison.row(
            "from a request on a Machine to the label on its node",
            latencies,
            MILLISECONDS,
            target=None,
            note=f"slowest of 20: {MILLISECONDS.show(slowest)}",
        ),
        comparison.row(
            "the same, while another cluster does not respond",
            latencies_with_silent_cluster,
            MILLISECONDS,
            target=None,
            note=f"{median_high(latencies_with_silent_cluster) / median_high(latencies):.2f}x",
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
    command += ["--namespace", _NAMESPACE, "--metrics-port", str(port), "--dashboard-auth", "off"]
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as process:
        try:
            yield process, port
        finally:
            process.terminate()


@contextmanager
def _unresponsive_port() -> Iterator[int]:
    """Open a port that accepts connections and never answers."""
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


async def _idle_cpu_share(pid: int, seconds: int) -> float:
    before = _cpu_seconds(pid)
    await RealClock().sleep(timedelta(seconds=seconds))
    return (_cpu_seconds(pid) - before) / seconds


def _cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _reached(port: int, count: int) -> bool:
    """Return whether the hub is connected to that many clusters."""
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://{_LOCAL}:{port}/metrics") as answer:
            metrics_text = await answer.text()
    except aiohttp.ClientError:
        return False
    return f'haulout_hub_clusters{{connection="connected"}} {count}\n' in metrics_text


async def _wait_until(probe: Callable[[], Awaitable[bool]]) -> None:
    while not await probe():
        await RealClock().sleep(_POLL_INTERVAL)


@dataclass(slots=True)
class _HubClusters:
    """A management cluster, and what all workload clusters have behind them."""

    management: Client
    workload: Client

    @classmethod
    @asynccontextmanager
    async def of(cls, *kubeconfigs: str) -> AsyncIterator["_HubClusters"]:
        """Yield it, while it can be spoken to."""
        clock = RealClock()
        transports = [
            HttpTransport(config.load(kubeconfig=kubeconfig, clock=clock), clock=clock) for kubeconfig in kubeconfigs
        ]
        clients = [Client(transport, clock=clock, random=Random(1)) for transport in transports]
        try:
            yield cls(*clients)
        finally:
            for client in clients:
                await client.close()

    async def fill(self, scale: Scale, kubeconfig: bytes) -> None:
        """Make nodes, clusters, and a Machine of each cluster; those of the first clusters have a node each."""
        for definition in custom_resource_definitions(_VERSION):
            await self.management.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        await _wait_until(self._is_served)
        await for_each([self._node(number) for number in range(scale.nodes)], self._create_node, at_once=IN_FLIGHT)
        for number in range(scale.clusters):
            key = ClusterKey(_NAMESPACE, f"c-{number}")
            await self.add_cluster(key, kubeconfig)
            await self.add_machine(key, node=f"n-{number}" if number < scale.nodes else "")

    async def _is_served(self) -> bool:
        return (await discover(self.management)).serves(_MACHINES)

    def _node(self, number: int) -> RawObject:
        node_metadata = {"name": f"n-{number}", "labels": {MAINTENANCE_STATE: "operational"}}
        return {"apiVersion": "v1", "kind": "Node", "metadata": node_metadata}

    async def _create_node(self, node: RawObject) -> None:
        await self.workload.create(NODES, node)

    async def add_cluster(self, key: ClusterKey, kubeconfig: bytes) -> None:
        """Make the Secret of a cluster."""
        data = {KUBECONFIG_KEY: base64.b64encode(kubeconfig).decode()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": key.kubeconfig_secret}, "data": data}
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

    async def have_hooks(self, count: int) -> bool:
        """Tell whether that many Machines have the hook."""
        found = await self.management.list(_MACHINES)
        return sum(PRE_DRAIN_HOOK in item.metadata.annotations for item in found.items) >= count

    async def request_latency(self, number: int) -> float:
        """Request maintenance of a Machine; return how long it took until its node was labelled.

        Then withdraw the request.
        """
        clock, name = RealClock(), f"m-c-{number}"
        began = clock.monotonic()
        await self._label(name, REQUESTED)
        await _wait_until(lambda: self._is_labelled(number, expected=True))
        took = clock.monotonic() - began
        await self._label(name, None)
        await _wait_until(lambda: self._is_labelled(number, expected=False))
        return took

    async def _label(self, machine: str, value: str | None) -> Machine:
        patch = merge_patch({"metadata": {"labels": {MAINTENANCE: value}}})
        return await self.management.patch(_MACHINES, machine, patch, namespace=_NAMESPACE)

    async def _is_labelled(self, number: int, *, expected: bool) -> bool:
        node = await self.workload.get(NODES, f"n-{number}")
        return (MACHINE_MAINTENANCE in node.metadata.labels) == expected


def _spec(cluster: str) -> RawObject:
    reference = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "BenchMachine", "name": "m"}
    return {"clusterName": cluster, "infrastructureRef": reference, "bootstrap": {"dataSecretName": "none"}}


_TEXT = f"""
Two real control planes, one with Machines and Secrets, the other behind all kubeconfigs, and the hub in a separate
process, all on the same cores. A request is the label `{MAINTENANCE}` on a Machine. The
time runs from before it is written until the Machine's node in the other cluster has the label, polled every
{_POLL_INTERVAL.microseconds // 1000} ms. A cluster that does not respond accepts connections and sends nothing.
"""
