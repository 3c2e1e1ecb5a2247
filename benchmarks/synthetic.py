"""Part one: clients against a server that only sends (`server`), so that what is measured is the client alone."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import fake_apiserver
from client_libraries import OPENERS, OURS
from fleet import PODS_PER_NODE, fleet
from rates import Numbers, costs, rate, rates
from report import KILOBYTES, MEGABYTES, MICROSECONDS, RATE, Section, TargetComparison, comparison_row
from tasks import IN_FLIGHT
from worker import cores, measure

Log = Callable[[str], None]

OBJECTS_PER_SECOND = 20_000
EVENTS_PER_SECOND = 20_000
BYTES_PER_ROW = 1_500
REQUESTS_PER_SECOND = 2_000


@dataclass(frozen=True, slots=True)
class Load:
    """How much a contender gets to do: the slow ones less, as what is compared is the time for each thing."""

    pods: int
    events: int
    gets: int


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a run is."""

    rounds: int
    pods: int
    events: int
    loads: Mapping[str, Load]


FULL = Scale(
    rounds=3,
    pods=150_000,
    events=200_000,
    loads={
        OURS: Load(pods=20_000, events=20_000, gets=4_000),
        "lightkube": Load(pods=10_000, events=10_000, gets=1_000),
        "kubernetes_asyncio": Load(pods=4_000, events=2_000, gets=1_000),
    },
)
QUICK = Scale(
    rounds=1,
    pods=6_000,
    events=6_000,
    loads={name: Load(pods=600, events=300, gets=100) for name in OPENERS},
)


def run(scale: Scale, log: Log) -> list[Section]:
    """Measure ours at full size, and all contenders side by side."""
    sizes = sorted({scale.pods, *(load.pods for load in scale.loads.values())})
    syncs: dict[str, list[Numbers]] = {"streaming": [], "paged": []}
    compares: dict[str, list[Numbers]] = {name: [] for name in OPENERS}
    with _running_server(sizes) as location:
        log("the server alone")
        deluge = measure("deluge", port=location.port, pods=scale.pods, events=scale.events)
        for number in range(1, scale.rounds + 1):
            log(f"round {number} of {scale.rounds}: {scale.pods:,} pods")
            for mode, results in syncs.items():
                events = scale.events if mode == "streaming" else 0
                kubeconfig = location.kubeconfig(mode, scale.pods)
                results.append(measure("sync", kubeconfig=kubeconfig, port=location.port, events=events))
            for name, load in scale.loads.items():
                log(f"round {number} of {scale.rounds}: {name}")
                compares[name].append(_compare(location, name, load))
        log("memory")
        memory_results = {mode: measure("keep", kubeconfig=location.kubeconfig(mode, scale.pods)) for mode in syncs}
    figures = _Figures(syncs, memory_results, compares[OURS], deluge)
    return [_targets(scale, figures), _comparison(scale, compares)]


def _compare(location: "_ServerLocation", name: str, load: Load) -> Numbers:
    arguments = {"kubeconfig": location.kubeconfig("streaming", load.pods), "contender": name}
    return measure("compare", **arguments, port=location.port, events=load.events) | measure(
        "request", **arguments, gets=load.gets
    )


@dataclass(frozen=True, slots=True)
class _Figures:
    """The measurements of Haulout."""

    syncs: Mapping[str, list[Numbers]]  # by the way in which lists are served
    keeps: Mapping[str, Numbers]  # the same
    requests: list[Numbers]
    deluge: Numbers


def _targets(scale: Scale, of: _Figures) -> Section:
    sample = fleet(QUICK.pods)  # large enough to have the mean of any fleet
    text = _TARGETS_TEXT.format(
        pods=scale.pods,
        nodes=scale.pods // PODS_PER_NODE,
        pod_size=_mean_size(sample.pods),
        node_size=_mean_size(sample.nodes),
        events=scale.events,
        rounds=scale.rounds,
        deluge=RATE.show(rate(of.deluge, "deluge")),
    )
    return Section("Targets", text, ("Measurement", "Median", "Details", "Target", ""), list(_target_rows(scale, of)))


def _target_rows(scale: Scale, of: _Figures) -> Iterator[tuple[str, ...]]:
    comparison = TargetComparison(is_fair=scale is FULL)
    for mode, results in of.syncs.items():
        speed, note = rates(results, "load"), _seconds(results, "load")
        yield comparison.row(f"sync, {mode} list", speed, RATE, target=OBJECTS_PER_SECOND, note=note)
    streaming = of.syncs["streaming"]
    speed, note = rates(streaming, "follow"), _per_item(streaming, "follow")
    yield comparison.row("watch events", speed, RATE, target=EVENTS_PER_SECOND, note=note)
    for mode, kept in of.keeps.items():
        size = kept["memory"] / kept["objects"]
        note = f"process {MEGABYTES.show(kept['after'])}, peak {MEGABYTES.show(kept['peak'])}"
        yield comparison.row(f"memory per pod, {mode} list", [size], KILOBYTES, target=BYTES_PER_ROW, note=note)
    label = f"small requests, {IN_FLIGHT} in flight"
    speed, note = rates(of.requests, "get_together"), _per_item(of.requests, "get_together")
    yield comparison.row(label, speed, RATE, target=REQUESTS_PER_SECOND, note=note)


def _comparison(scale: Scale, results: Mapping[str, list[Numbers]]) -> Section:
    def speed(of: str) -> dict[str, list[float]]:
        return {name: rates(numbers, of) for name, numbers in results.items()}

    def cost(of: str) -> dict[str, list[float]]:
        return {name: costs(numbers, of) for name, numbers in results.items()}

    memory = {name: [each["memory"] / each["objects"] for each in numbers] for name, numbers in results.items()}
    rows = [
        comparison_row("pods loaded", speed("load"), RATE),
        comparison_row("CPU time per pod loaded", cost("load"), MICROSECONDS),
        comparison_row("memory per pod kept", memory, KILOBYTES),
        comparison_row("watch events", speed("follow"), RATE),
        comparison_row("CPU time per event", cost("follow"), MICROSECONDS),
        comparison_row("small requests, one at a time", speed("get"), RATE),
        comparison_row(f"small requests, {IN_FLIGHT} in flight", speed("get_together"), RATE),
        comparison_row(f"CPU time per request, {IN_FLIGHT} in flight", cost("get_together"), MICROSECONDS),
    ]
    loads = "; ".join(
        f"{name} {load.pods:,} pods, {load.events:,} events, {load.gets:,} requests"
        for name, load in scale.loads.items()
    )
    return Section(
        "Comparison with other clients", _COMPARISON_TEXT.format(loads=loads), ("Measurement", *OPENERS), rows
    )


_TARGETS_TEXT = """
This measures only Haulout's client, with {pods:,} pods ({pod_size:.1f} KB of JSON each, with managedFields) and
{nodes:,} nodes ({node_size:.1f} KB). A local server sends prepared bytes over plain HTTP, uncompressed, each object in
its own HTTP chunk, as an API server does. The client has one core to itself, the server has the others. Nodes and pods
are loaded in parallel, pods into rows with an index by node. Then {events:,} changes arrive at the full cache, which
has a handler. Each round is a new process; rounds: {rounds} (memory: 1). Memory is the resident memory after the load
minus that before it, both after a garbage collection. A service has 25 replicas, whose rows share labels and owner. A
reader that discards everything gets {deluge} from this server, so the server is not the bottleneck. There is no TLS,
and the stream is always full, so this is the lower limit of the cost of an object. The section "On a real API server"
has a server that is slower than its client.
"""

_COMPARISON_TEXT = """
All clients use the same server and the same core, in turn, each in a new process (another one for small requests). All
run on uvloop with their default settings, also of the garbage collector. Haulout loads with a streaming list into a
cache of rows with an index by node. The others have no cache; they list in pages of 500 into a dict of their objects.
Each figure in brackets is relative to Haulout's. Each round: {loads}.
"""


def _seconds(results: list[Numbers], task: str) -> str:
    wall = median(numbers[f"{task}_wall"] for numbers in results)
    cpu = median(numbers[f"{task}_cpu"] for numbers in results)
    return f"{wall:.1f} s, CPU time {cpu:.1f} s"


def _per_item(results: list[Numbers], task: str) -> str:
    return f"{MICROSECONDS.show(median(costs(results, task)))} of CPU time each"


def _mean_size(objects: list[bytes]) -> float:
    return sum(map(len, objects)) / len(objects) / 1e3


@dataclass(frozen=True, slots=True)
class _ServerLocation:
    """Where the server is, and how to get there."""

    port: int
    folder: Path

    def kubeconfig(self, mode: str, pods: int) -> str:
        """Return the path of a kubeconfig for a cluster of so many pods, served in this way."""
        path = self.folder / f"{mode}-{pods}.json"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bench", "cluster": {"server": f"http://127.0.0.1:{self.port}/{mode}/{pods}"}}],
            "users": [{"name": "bench", "user": {}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "current-context": "bench",
        }
        path.write_text(json.dumps(content))
        return str(path)


@contextmanager
def _running_server(sizes: list[int]) -> Iterator[_ServerLocation]:
    core_list = ",".join(map(str, cores().servers))
    command = [sys.executable, fake_apiserver.__file__, core_list, *map(str, sizes)]
    with (
        TemporaryDirectory() as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        if process.stdout is None or not (port := process.stdout.readline()):
            raise RuntimeError("the server of the benchmark did not start")
        yield _ServerLocation(int(port), Path(folder))
