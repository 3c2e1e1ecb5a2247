"""Part two: clients against a real etcd and kube-apiserver, where the server's own time counts, too."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from client_libraries import OPENERS, haulout
from fleet import fleet, to_create
from haulout.api.resources import LEASES, NAMESPACES, NODES, PODS
from haulout.errors import AlreadyExists
from haulout.kube.client import Client
from object_templates import Json
from rates import Numbers, costs, rates
from report import MICROSECONDS, MILLISECONDS, RATE, Section, comparison_row
from tasks import IN_FLIGHT, LEASE, for_each
from worker import cores, measure

Log = Callable[[str], None]
Pod = tuple[str, str]  # namespace, name

_EVICTIONS = "evictions"
_CREATED_WITHIN_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a run is."""

    rounds: int
    pods: int
    nodes: int
    writes: int  # per round
    evictions: int  # per round


FULL = Scale(rounds=3, pods=5_000, nodes=500, writes=100, evictions=200)
QUICK = Scale(rounds=1, pods=300, nodes=30, writes=20, evictions=40)


def run(scale: Scale, log: Log) -> list[Section]:
    """Measure all contenders side by side on a control plane that is made for it."""
    with control_plane(log) as (kubeconfig, _):
        log(f"creating {scale.pods:,} pods and {scale.nodes:,} nodes")
        created = asyncio.run(_create(kubeconfig, scale))
        results: dict[str, list[Numbers]] = {name: [] for name in OPENERS}
        for number in range(1, scale.rounds + 1):
            for name in OPENERS:
                log(f"round {number} of {scale.rounds}: {name}")
                victims = [created.victims.pop() for _ in range(scale.evictions)]
                arguments = {"kubeconfig": kubeconfig, "contender": name}
                results[name].append(
                    measure("load", **arguments)
                    | measure("write", **arguments, nodes=created.nodes, writes=scale.writes)
                    | measure("evict", **arguments, pods=victims)
                )
    return [_comparison(scale, results)]


@dataclass(frozen=True, slots=True)
class _CreatedObjects:
    """What was created."""

    nodes: list[str]
    victims: list[Pod]  # pods on no node: evicting one ends it at once


async def _create(kubeconfig: str, scale: Scale) -> _CreatedObjects:
    cluster = fleet(scale.pods, scale.nodes)
    nodes = [to_create(node) for node in cluster.nodes]
    pods = [to_create(pod) for pod in cluster.pods]
    victims = [_victim(pods[-1], number) for number in range(scale.evictions * scale.rounds * len(OPENERS))]
    async with asyncio.timeout(_CREATED_WITHIN_SECONDS), haulout(Path(kubeconfig)) as haulout_client:
        namespaces = {pod["metadata"]["namespace"] for pod in (*pods, *victims)}
        await for_each(namespaces, lambda name: _create_namespace(haulout_client.client, name), at_once=IN_FLIGHT)
        await haulout_client.client.create(LEASES, {"metadata": {"name": LEASE[1]}}, namespace=LEASE[0])
        await for_each(nodes, lambda node: haulout_client.client.create(NODES, node), at_once=IN_FLIGHT)
        await for_each(
            (*pods, *victims),
            lambda pod: haulout_client.client.create(PODS, pod, namespace=pod["metadata"]["namespace"]),
            at_once=IN_FLIGHT,
        )
    return _CreatedObjects(
        nodes=[node["metadata"]["name"] for node in nodes],
        victims=[(_EVICTIONS, victim["metadata"]["name"]) for victim in victims],
    )


def _victim(pattern: Json, number: int) -> Json:
    metadata = pattern["metadata"] | {"namespace": _EVICTIONS, "name": f"victim-{number}"}
    return pattern | {"metadata": metadata, "spec": pattern["spec"] | {"nodeName": ""}}


async def _create_namespace(client: Client, name: str) -> None:
    with suppress(AlreadyExists):
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def _comparison(scale: Scale, results: dict[str, list[Numbers]]) -> Section:
    latencies = {name: [second for each in numbers for second in each["seconds"]] for name, numbers in results.items()}
    slowest = {name: [quantiles(seconds, n=100)[98]] for name, seconds in latencies.items()}
    rows = [
        comparison_row("objects loaded", {name: rates(numbers, "load") for name, numbers in results.items()}, RATE),
        comparison_row(
            "CPU time per object loaded",
            {name: costs(numbers, "load") for name, numbers in results.items()},
            MICROSECONDS,
        ),
        comparison_row("write until own watch shows it, median", latencies, MILLISECONDS),
        comparison_row("write until own watch shows it, 99th percentile", slowest, MILLISECONDS),
        comparison_row("evictions", {name: rates(numbers, "evict") for name, numbers in results.items()}, RATE),
        comparison_row(
            "CPU time per eviction",
            {name: costs(numbers, "evict") for name, numbers in results.items()},
            MICROSECONDS,
        ),
    ]
    text = _TEXT.format(
        pods=scale.pods,
        nodes=scale.nodes,
        writes=scale.writes * scale.rounds,
        evictions=scale.evictions,
        in_flight=IN_FLIGHT,
        rounds=scale.rounds,
    )
    return Section("On a real API server", text, ("Measurement", *OPENERS), rows)


_TEXT = """
A real etcd and kube-apiserver over TLS run on the cores that the client does not use. The clients load {pods:,} pods
and {nodes:,} nodes: Haulout with a streaming list, the others in pages, which an API server compresses. Writes are
patches of nodes, one after the other, while all nodes are watched. The time runs from before the patch until the watch
shows the resourceVersion of the response ({writes} writes by each client). In each round {evictions} pods are evicted,
{in_flight} at a time. The clients take turns, each time in a new process; rounds: {rounds}. The server does most of the
work, so rates depend on it as much as on the client. CPU time is that of the client alone. If the stream is slower than
its reader, the reader wakes up for every object, which takes more CPU time than reading many at once. If the client's
core is busy with other work, Haulout's CPU time per object is about half of that on a quiet machine. Each figure in
brackets is relative to Haulout's.
"""


class NoControlPlane(RuntimeError):
    """This machine has no control plane, and cannot build one."""


@contextmanager
def control_plane(log: Log, *, separate_cores: bool = True) -> Iterator[tuple[str, str]]:
    """Run a control plane, mostly off our core; yields the administrator's kubeconfig, and where kubectl is."""
    sys.path.append(str(Path(__file__).parent.parent / "tests"))
    from controlplane import AssetsMissing, ControlPlane, find

    try:
        assets = find(log=log)
    except AssetsMissing as missing:
        raise NoControlPlane(str(missing)) from missing
    own_cores = os.sched_getaffinity(0)
    if separate_cores:
        os.sched_setaffinity(0, cores().servers)  # what is started now inherits it
    plane = ControlPlane(assets)
    try:
        plane.start()
        os.sched_setaffinity(0, own_cores)
        yield str(plane.kubeconfig()), str(assets.path("kubectl"))
    finally:
        plane.stop()
