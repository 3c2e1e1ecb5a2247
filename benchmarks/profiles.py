"""Part four: profiles on a real kube-apiserver: how soon a label is processed, and what it costs to wait for one.

Of kubelets there is what they cost an operator: each node's report of its state, as often as kubelets make one when
nothing happens.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from random import Random
from statistics import median, quantiles

import uvloop

from fleet import fleet, to_create
from haulout.api import maintenancenotice, nodemaintenance
from haulout.api.objects import Object
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES
from haulout.controllers.profiles.plugin import PROFILE_LABEL, STATE_LABEL, State
from haulout.core.clock import RealClock
from haulout.core.timestamps import whole_seconds
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import node_patch, strategic_patch
from haulout.kube.reflector import ListWatch
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from operator_handle import OperatorHandle, operator
from real_apiserver import control_plane
from report import MEGABYTES, MILLISECONDS, SECONDS, Section, TargetComparison, Unit
from tasks import IN_FLIGHT, for_each

Log = Callable[[str], None]

_CONFIGURATION = """\
intervals: {requeue: 30s}
instances:
  check:
  - {name: asked, type: hasLabel, config: {key: asked, value: "true"}}
  - {name: room, type: maxMaintenance, config: {max: 1}}
  - name: open
    type: timeWindow
    config: {start: "00:00", end: "23:59", weekdays: [mon, tue, wed, thu, fri, sat, sun]}
profiles:
- name: os
  operational:
    transitions: [{check: asked && room && open, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: "!asked", next: operational}]
"""
_REQUEST_LABEL = "asked"
_UNUSED_LABEL = "written"  # a label that nobody answers
_NODES = NODES.with_model(Object)
_REPORTS_EVERY_SECONDS = 300  # a kubelet whose node is as it was
_TIMEOUT_SECONDS = 900
_SETTLE_TIME = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is wanted of a cluster of a size, and how the SAP maintenance-controller did there."""

    nodes: int
    seconds: float | None = None  # until the last of all nodes is processed
    idle: float | None = None  # CPU seconds per minute
    memory: float | None = None
    median: float | None = 0.008
    slowest: float | None = 0.020
    theirs: Mapping[str, str] = field(default_factory=dict)
    with_images: bool = False  # of which a kubelet lists fifty: they are most of a node

    def __str__(self) -> str:
        """Return what the cluster is called."""
        return f"{self.nodes:,} nodes{' with images' if self.with_images else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a run is."""

    goals: Sequence[Target]
    changes: int  # one after the other
    rounds: int  # of all nodes at once
    idle_seconds: float


_SMALL = Target(
    nodes=1_000,
    seconds=3,
    idle=0.3,
    memory=70e6,
    theirs={"median": "6.6 ms", "slowest": "9.4 ms", "all": "11.6 s", "idle": "2.5 s", "memory": "77 MB"},
)
_LARGE = Target(
    nodes=5_000, seconds=15, idle=1, memory=100e6, theirs={"all": "64 s", "idle": "20 s", "memory": "121 MB"}
)
_HEAVY = Target(nodes=1_000, median=None, slowest=None, with_images=True)
_TINY = Target(nodes=50, seconds=1, idle=1, memory=70e6)
FULL = Scale(goals=(_SMALL, _LARGE, _HEAVY), changes=1_000, rounds=3, idle_seconds=60)
QUICK = Scale(goals=(_TINY,), changes=20, rounds=1, idle_seconds=5)
CPU = Unit(lambda seconds: f"{seconds:.2f} s", more_is_better=False)


def run(scale: Scale, log: Log) -> list[Section]:
    """Measure profiles at each size, each on a control plane of its own."""
    rows: list[tuple[str, ...]] = []
    for target in scale.goals:
        with control_plane(log, separate_cores=False) as (kubeconfig, _):
            rows += uvloop.run(_measured(scale, target, kubeconfig, log))
    return [Section("Profiles", _TEXT, ("Measurement", "Result", "Details", "Target", ""), rows)]


async def _measured(scale: Scale, target: Target, kubeconfig: str, log: Log) -> list[tuple[str, ...]]:
    async with asyncio.timeout(_TIMEOUT_SECONDS), _ProfileCluster.running(kubeconfig, target, log) as cluster:
        log(f"{target}: as many writes, nobody answering")
        baseline = _WriteBaseline(
            await cluster.write_one_by_one(scale.changes), [await cluster.write_all() for _ in range(scale.rounds)]
        )
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "maintenance.yaml"
            file.write_text(_CONFIGURATION)
            async with operator(kubeconfig, config=file) as operator_handle:
                log(f"{target}: the first look at all of them")
                await cluster.wait_for_state(State.OPERATIONAL)
                await cluster.settle()
                log(f"{target}: waiting")
                idle = await cluster.measure_idle(operator_handle, scale.idle_seconds)
                log(f"{target}: one at a time")
                latencies = await cluster.change_one_by_one(scale.changes)
                all_at_once = []
                for number in range(scale.rounds):
                    log(f"{target}: all at once, round {number + 1} of {scale.rounds}")
                    all_at_once.append(await cluster.change_all())
                after = await operator_handle.numbers()
    return _rows(scale, target, baseline, latencies, all_at_once, idle, after)


@dataclass(frozen=True, slots=True)
class _WriteBaseline:
    """How long writes take if nobody answers: of two, one after the other, and of two for each of all nodes."""

    pairs: Sequence[float]
    all: Sequence[float]


class _ProfileCluster:
    """A control plane with nodes, all of which have the profile."""

    def __init__(self, client: Client, nodes: Informer[Object], names: Sequence[str]) -> None:
        self._client = client
        self._clock = client.clock
        self._nodes = nodes
        self._names = names
        self._states: dict[str, int] = {}
        self._changed = asyncio.Event()
        nodes.subscribe(self._on_node_change)

    @classmethod
    @asynccontextmanager
    async def running(cls, kubeconfig: str, target: Target, log: Log) -> AsyncIterator["_ProfileCluster"]:
        """Yield it when all nodes are there."""
        clock = RealClock()
        transports = [HttpTransport(config.load(kubeconfig=kubeconfig, clock=clock), clock=clock) for _ in range(2)]
        client, watching = (Client(transport, clock=clock, random=Random(1)) for transport in transports)
        log(f"creating {target}")
        for installed in (
            nodemaintenance.custom_resource_definition(),
            maintenancenotice.definition(),
        ):  # without records there is no history
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, installed)
        bodies = [to_create(node) for node in fleet(1, target.nodes).nodes]
        for body in bodies:
            body["metadata"]["labels"][PROFILE_LABEL] = "os"
            if not target.with_images:
                del body["status"]["images"]
        await for_each(bodies, lambda body: client.create(NODES, body), at_once=IN_FLIGHT)
        cache: Informer[Object] = Informer(watching, ListWatch(_NODES), transform=as_is)
        async with asyncio.TaskGroup() as group:
            cluster = cls(client, cache, [body["metadata"]["name"] for body in bodies])
            tasks = [group.create_task(run()) for run in (cache.run, cluster._report)]
            await cache.wait_synced()
            yield cluster
            for task in tasks:
                task.cancel()
        for each_client in (client, watching):
            await each_client.close()

    # What is measured

    async def write_one_by_one(self, changes: int) -> list[float]:
        """Label one node after the other, and take the label off; tell how long the watch took to show both."""
        return [await self._write_twice(name) for name, _ in zip(cycle(self._names), range(changes), strict=False)]

    async def write_all(self) -> float:
        """Label all nodes at once, and take the labels off; tell how long that took."""
        began = self._clock.monotonic()
        await for_each(self._names, lambda name: self._label(name, _UNUSED_LABEL, is_there=True), at_once=IN_FLIGHT)
        await for_each(self._names, lambda name: self._label(name, _UNUSED_LABEL, is_there=False), at_once=IN_FLIGHT)
        return self._clock.monotonic() - began

    async def measure_idle(self, operator_handle: OperatorHandle, seconds: float) -> dict[str, float]:
        """Tell what the operator does while nothing happens."""
        before = await operator_handle.numbers()
        await self._clock.sleep(timedelta(seconds=seconds))
        after = await operator_handle.numbers()
        a_minute = 60 / seconds
        used = {key: (after[key] - before[key]) * a_minute for key in ("cpu", "sent")}
        return {**used, "memory": after["memory"]}

    async def change_one_by_one(self, changes: int) -> list[float]:
        """Label one node after the other, and take the label off again; tell how long each took to be processed."""
        latencies = []
        for name, number in zip(cycle(self._names), range(changes), strict=False):
            is_requested = number < len(self._names) or (number // len(self._names)) % 2 == 0
            latencies.append(await self._change_one(name, is_requested=is_requested))
        await for_each(
            self._names[:changes], lambda name: self._label(name, _REQUEST_LABEL, is_there=False), at_once=IN_FLIGHT
        )
        await self.wait_for_state(State.OPERATIONAL)
        return latencies

    async def change_all(self) -> dict[str, float]:
        """Label all nodes at once; tell how long the labelling took, and how long it took until all were processed."""
        began = self._clock.monotonic()
        await for_each(self._names, lambda name: self._label(name, _REQUEST_LABEL, is_there=True), at_once=IN_FLIGHT)
        labelled = self._clock.monotonic() - began
        await self.wait_for_state(State.REQUIRED)
        answered = self._clock.monotonic() - began
        await for_each(self._names, lambda name: self._label(name, _REQUEST_LABEL, is_there=False), at_once=IN_FLIGHT)
        await self.wait_for_state(State.OPERATIONAL)
        await self.settle()
        return {"labelled": labelled, "answered": answered}

    async def wait_for_state(self, state: State) -> None:
        """Return when all nodes are in a state."""
        await self._wait_until(lambda: self._states.get(str(state)) == len(self._names))

    async def settle(self) -> None:
        """Let what is left to do be done: events."""
        await self._clock.sleep(_SETTLE_TIME)

    # How

    async def _change_one(self, name: str, *, is_requested: bool) -> float:
        wanted = State.REQUIRED if is_requested else State.OPERATIONAL
        began = self._clock.monotonic()
        await self._label(name, _REQUEST_LABEL, is_there=is_requested)
        await self._wait_until(lambda: self._state(name) == wanted)
        return self._clock.monotonic() - began

    async def _write_twice(self, name: str) -> float:
        began = self._clock.monotonic()
        await self._label(name, _UNUSED_LABEL, is_there=True)
        await self._wait_until(lambda: self._is_labelled(name, _UNUSED_LABEL))
        await self._label(name, _UNUSED_LABEL, is_there=False)
        await self._wait_until(lambda: not self._is_labelled(name, _UNUSED_LABEL))
        return self._clock.monotonic() - began

    async def _label(self, name: str, key: str, *, is_there: bool) -> None:
        labels = {key: "true" if is_there else None}
        await self._client.patch(_NODES, name, node_patch({"metadata": {"labels": labels}}))

    async def _report(self) -> None:
        """Report the state of one node after the other, as kubelets do."""
        pause = timedelta(seconds=_REPORTS_EVERY_SECONDS / len(self._names))
        for name in cycle(self._names):
            now = whole_seconds(self._clock.now())
            change = {"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": now}]}}
            await self._client.patch(_NODES, name, strategic_patch(change), subresource="status")
            await self._clock.sleep(pause)

    def _is_labelled(self, name: str, key: str) -> bool:
        node = self._nodes.get(name)
        return node is not None and key in node.metadata.labels

    def _state(self, name: str) -> str:
        node = self._nodes.get(name)
        return "" if node is None else _state(node)

    def _on_node_change(self, old: Object | None, new: Object | None) -> None:
        for node, amount in ((old, -1), (new, 1)):
            if node is not None:
                self._states[_state(node)] = self._states.get(_state(node), 0) + amount
        self._changed.set()

    async def _wait_until(self, check: Callable[[], bool]) -> None:
        while not check():
            self._changed.clear()
            await self._changed.wait()


def _state(node: Object) -> str:
    return node.metadata.labels.get(STATE_LABEL, "")


def _rows(
    scale: Scale,
    target: Target,
    baseline: _WriteBaseline,
    latencies: Sequence[float],
    all_at_once: Sequence[Mapping[str, float]],
    idle: Mapping[str, float],
    after: Mapping[str, float],
) -> list[tuple[str, ...]]:
    comparison = TargetComparison(is_fair=scale is FULL)

    def note(figure: str, more: str = "") -> str:
        go_controller_figure = target.theirs.get(figure)
        return "; ".join(filter(None, (go_controller_figure and f"the Go controller {go_controller_figure}", more)))

    labelled = SECONDS.show(median(round_result["labelled"] for round_result in all_at_once))
    as_many = f"labelled after {labelled}; the same writes without an operator {SECONDS.show(median(baseline.all))}"
    peak = f"peak {MEGABYTES.show(after['peak'])}"
    return [
        comparison.row(
            f"{target}: one label processed, median",
            [median(latencies)],
            MILLISECONDS,
            target=target.median,
            note=note("median", f"two writes without an operator {MILLISECONDS.show(median(baseline.pairs))}"),
        ),
        comparison.row(
            f"{target}: one label processed, 99th percentile",
            [_slowest(latencies)],
            MILLISECONDS,
            target=target.slowest,
            note=note("slowest", f"two writes without an operator {MILLISECONDS.show(_slowest(baseline.pairs))}"),
        ),
        comparison.row(
            f"{target}: all nodes at once, until the last is processed",
            [round_result["answered"] for round_result in all_at_once],
            SECONDS,
            target=target.seconds,
            note=note("all", as_many),
        ),
        comparison.row(
            f"{target}: CPU time per minute when idle",
            [idle["cpu"]],
            CPU,
            target=target.idle,
            note=note("idle", f"{idle['sent']:.0f} requests per minute"),
        ),
        comparison.row(
            f"{target}: memory", [idle["memory"]], MEGABYTES, target=target.memory, note=note("memory", peak)
        ),
    ]


def _slowest(took: Sequence[float]) -> float:
    return quantiles(took, n=100)[98]


_TEXT = f"""
A real etcd and kube-apiserver over TLS; all processes share the machine's cores. Targets are for nodes of 4 KB. Nodes
with images have 14 KB, which makes each write more expensive for the server. It is not known which nodes the targets
assume, or with which the Go controller was measured; the small ones are our choice. Labels are set with strategic merge
patches, as the operator writes them. One profile has `hasLabel`, `maxMaintenance` and `timeWindow`, with `requeue` of
30 s. Every node updates its status every {_REPORTS_EVERY_SECONDS} s. The time of one label runs from before it is set
until a watch shows the label with the new state; nodes one after the other. "All nodes at once" sets {IN_FLIGHT} labels
at a time, and ends when the watch shows the last new state. A label and its new state are two writes. "Without an
operator" is the time of these writes alone in the same run: each shown by the watch before the next, and for all nodes
at once. The operator is a separate process with the environment of its Deployment. NodeMaintenances and notices are
installed; the history of nodes, which the Go controller does not have, is not. Requests for the operator's own leases
do not count. The Go controller was measured in another run, on two cores as well.
"""
