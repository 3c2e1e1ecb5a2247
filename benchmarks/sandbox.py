"""The sandbox: how much of a core it takes to simulate, to stand by, and to serve."""

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import sandbox_server
from client_libraries import OURS
from rates import Numbers, costs, rates
from report import MEGABYTES, MICROSECONDS, RATE, SECONDS, SHARE, Section, TargetComparison
from simulations import HEARTBEAT
from tasks import IN_FLIGHT
from worker import cores, measure
from workload_cluster import Size

Log = Callable[[str], None]

DAY_SECONDS = 60
START_SECONDS = 20
REQUESTS_PER_SECOND = 1_000
IDLE_SHARE = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a run is."""

    rounds: int
    day: Size
    hours: float
    restarts_an_hour: int  # of pods
    start: Size
    idle_nodes: int
    idle_seconds: float
    gets: int

    @property
    def restart_every_seconds(self) -> float:
        """How long people wait until they restart the next deployment."""
        return 3600 * self.day.replicas / self.restarts_an_hour


FULL = Scale(
    rounds=3,
    day=Size(nodes=100, deployments=76, replicas=25),
    hours=24,
    restarts_an_hour=600,
    start=Size(nodes=1_000, deployments=95, replicas=200),
    idle_nodes=30,
    idle_seconds=30,
    gets=4_000,
)
QUICK = Scale(
    rounds=1,
    day=Size(nodes=10, deployments=4, replicas=10),
    hours=0.25,
    restarts_an_hour=600,
    start=Size(nodes=20, deployments=4, replicas=20),
    idle_nodes=10,
    idle_seconds=2,
    gets=200,
)


def run(scale: Scale, log: Log) -> list[Section]:
    """Measure all targets of the sandbox."""
    days, starts, idles, requests = [], [], [], []
    for number in range(1, scale.rounds + 1):
        progress = f"round {number} of {scale.rounds}: the sandbox,"
        log(f"{progress} {scale.hours:g} hours of {scale.day.pods:,} pods")
        every = scale.restart_every_seconds
        days.append(measure("day", **_size_arguments(scale.day), hours=scale.hours, restart_every_seconds=every))
        log(f"{progress} {scale.start.pods:,} pods from nothing")
        starts.append(measure("start", **_size_arguments(scale.start)))
        log(f"{progress} standing by")
        idles.append(measure("idle", nodes=scale.idle_nodes, seconds=scale.idle_seconds))
        log(f"{progress} over HTTP")
        with _running_server() as kubeconfig:
            requests.append(measure("request", kubeconfig=kubeconfig, contender=OURS, gets=scale.gets))
    figures = _Figures(days, starts, idles, requests)
    return [
        Section(
            "Sandbox", _text(scale), ("Measurement", "Median", "Details", "Target", ""), list(_rows(scale, figures))
        )
    ]


@dataclass(frozen=True, slots=True)
class _Figures:
    """What was measured, round by round."""

    days: list[Numbers]
    starts: list[Numbers]
    idles: list[Numbers]
    requests: list[Numbers]


def _rows(scale: Scale, of: _Figures) -> Iterator[tuple[str, ...]]:
    comparison = TargetComparison(is_fair=scale is FULL)
    label = f"{scale.hours:g} h of {scale.day.nodes:,} nodes and {scale.day.pods:,} pods, rolling restarts"
    note = f"{of.days[0]['restarts']:,} restarts, {_note(of.days)}"
    yield comparison.row(label, _cpu(of.days), SECONDS, target=DAY_SECONDS, note=note)
    label = f"start of {scale.start.nodes:,} nodes and {scale.start.pods:,} pods"
    yield comparison.row(label, _cpu(of.starts), SECONDS, target=START_SECONDS, note=_note(of.starts))
    shares = [numbers["cpu"] / numbers["wall"] for numbers in of.idles]
    note = f"of one core, over {scale.idle_seconds:g} s"
    yield comparison.row(f"{scale.idle_nodes} idle nodes", shares, SHARE, target=IDLE_SHARE, note=note)
    each = MICROSECONDS.show(median(costs(of.requests, "get_together")))
    note = f"one at a time {RATE.show(median(rates(of.requests, 'get')))}; the client takes {each} each"
    speed = rates(of.requests, "get_together")
    label = f"HTTP requests, {IN_FLIGHT} in flight"
    yield comparison.row(label, speed, RATE, target=REQUESTS_PER_SECOND, note=note)


def _cpu(results: list[Numbers]) -> list[float]:
    return [numbers["cpu"] for numbers in results]


def _note(results: list[Numbers]) -> str:
    quickest, slowest = (SECONDS.show(pick(_cpu(results))) for pick in (min, max))
    peak = MEGABYTES.show(median(numbers["peak"] for numbers in results))
    return f"{results[0]['writes']:,} writes, rounds from {quickest} to {slowest}, peak {peak}"


def _size_arguments(size: Size) -> dict[str, Any]:
    return {"nodes": size.nodes, "deployments": size.deployments, "replicas": size.replicas}


def _text(scale: Scale) -> str:
    return _TEXT.format(
        day=scale.day,
        start=scale.start,
        heartbeat=HEARTBEAT.total_seconds() / 60,
        pace=scale.restarts_an_hour,
        rounds=scale.rounds,
    )


_TEXT = """
The cluster runs in one process on one core: API server, scheduler, kubelets, node lifecycle and all controllers.
Seconds are CPU time. The first two rows use virtual time, in-process without latency, with leases renewed every
{heartbeat:g} minutes and no events. Each round does exactly the same, so differences between rounds come from the
machine. The first row has {day.deployments} Deployments of {day.replicas} pods with a PodDisruptionBudget each, and a
DaemonSet. The Deployments are restarted one after the other as by `kubectl rollout restart`, {pace} pods per hour. The
second row begins with registered, ready nodes, and ends when all pods of {start.deployments} Deployments of
{start.replicas} and of a DaemonSet, created meanwhile, are ready. Idle nodes run in real time with the usual
heartbeats. HTTP requests go to the sandbox's server: Haulout's client reads a small object over TLS with persistent
connections, from another process on another core. Rounds: {rounds}.
"""


@contextmanager
def _running_server() -> Iterator[str]:
    """Run the front off the client's core; yields a kubeconfig for it."""
    sys.path.append(str(Path(__file__).parent.parent / "tests"))
    from support.servers.certificates import Authority

    authority = Authority()
    issued = authority.issue("127.0.0.1")
    with TemporaryDirectory() as folder:
        certificate = Path(folder) / "server.pem"
        certificate.write_bytes(issued.key_pem + issued.cert_pem)
        core_list = ",".join(map(str, cores().servers))
        command = [sys.executable, sandbox_server.__file__, core_list, str(certificate)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            if process.stdout is None or not (port := process.stdout.readline()):
                raise RuntimeError("the sandbox's front did not start")
            yield kubeconfig(Path(folder), int(port), ca_pem=authority.pem)


def kubeconfig(folder: Path, port: int, *, ca_pem: bytes) -> str:
    """Return the path of a new kubeconfig for the front at `port`."""
    path = folder / "sandbox.json"
    server = {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": b64encode(ca_pem).decode()}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": server}],
        "users": [{"name": "bench", "user": {"token": sandbox_server.TOKEN}}],
        "contexts": [{"name": "bench", "context": {"cluster": "sandbox", "user": "bench"}}],
        "current-context": "bench",
    }
    path.write_text(json.dumps(content))
    return str(path)
