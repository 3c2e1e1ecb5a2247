"""Part five: maintenance notices on a real kube-apiserver: how many messages a source takes, and how soon each.

And how soon nodes are out of service if the maintenance of very many is due at the same moment.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from statistics import median, quantiles
from typing import Any, Protocol

import uvloop

from fleet import fleet, to_create
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticePhase
from haulout.api.objects import Node
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES
from haulout.app.manifests import operator_manifests
from haulout.core.clock import Clock, RealClock
from haulout.core.timestamps import whole_seconds
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout.kube.transforms import compact_nodes
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from haulout.providers.aws.event_source import AwsEventSource
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.aws.sqs_reader import SqsReader
from haulout.providers.event_source import EventSource
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.oci.event_source import OciEventSource
from haulout.providers.oci.stream_consumer import ConsumerOptions
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.oci.cloud import StreamingClient
from operator_handle import operator
from real_apiserver import control_plane
from report import MEGABYTES, MILLISECONDS, RATE, SECONDS, Section, TargetComparison
from resource_usage import Stopwatch, memory
from tasks import IN_FLIGHT, for_each

Log = Callable[[str], None]

_DAY = timedelta(days=1)
_TIMEOUT_SECONDS = 600
_PAUSE = timedelta(milliseconds=250)  # between reads, so that a run does not take long
_POLL_INTERVAL = timedelta(milliseconds=20)
_MAX_PENDING = 500  # messages that wait at a time: the models of clouds are made for fewer than clouds have
_LEAD_TIME = timedelta(minutes=15)
_UNTIL_DUE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a run is."""

    machines: int
    messages: int
    single: int  # one after the other


FULL = Scale(machines=1_000, messages=10_000, single=200)
QUICK = Scale(machines=20, messages=200, single=10)
_RATE, _SLOWEST_SECONDS, _GROWTH, _CORDONED_WITHIN_SECONDS = 300, 1.0, 30e6, 15.0


def run(scale: Scale, log: Log) -> list[Section]:
    """Measure each source, and the operator, each on a control plane of its own."""
    rows: list[tuple[str, ...]] = []
    for make in (_Oci, _Aws):
        with control_plane(log, separate_cores=False) as (kubeconfig, _):
            rows += uvloop.run(_measured(scale, kubeconfig, make, log))
    with control_plane(log, separate_cores=False) as (kubeconfig, _):
        rows += uvloop.run(_all_due(scale, kubeconfig, log))
    return [Section("Notices", _TEXT, ("Measurement", "Result", "Details", "Target", ""), rows)]


# Sources


class _Cloud(Protocol):
    """A model of a cloud, its machines, and a source that listens to it."""

    name: str

    @property
    def delivered(self) -> float: ...  # when messages were handed over last

    def provider_id(self, machine: str) -> str: ...

    def announce(self, machine: str) -> str: ...

    def move(self, machine: str, event: str, number: int) -> None: ...

    def launch(self, number: int) -> str: ...

    def source(self, client: Client, nodes: Informer[Node]) -> EventSource: ...

    def taken(self) -> int: ...


class _Oci:
    """Oracle's."""

    name = "OCI"

    def __init__(self, clock: Clock) -> None:
        self.cloud = OciCloud(clock)
        self.stream = _TimedStream(self.cloud, clock)
        self._source: OciEventSource | None = None

    @property
    def delivered(self) -> float:
        return self.stream.delivered

    def launch(self, number: int) -> str:
        return self.cloud.launch(f"worker-{number}")

    def provider_id(self, machine: str) -> str:
        return machine

    def announce(self, machine: str) -> str:
        return self.cloud.schedule(machine, start=self.cloud.clock.now() + _DAY)

    def move(self, _: str, event: str, number: int) -> None:
        self.cloud.reschedule(event, self.cloud.clock.now() + _DAY + timedelta(minutes=number))

    def source(self, client: Client, _: Informer[Node]) -> EventSource:
        consumer_options = ConsumerOptions(instance="bench", idle_pause=_PAUSE, pause=_PAUSE)
        compute = self.cloud.compute()
        self._source = OciEventSource(
            compute, streaming=self.stream, consumer_options=consumer_options, clock=client.clock, random=Random(1)
        )
        return self._source

    def taken(self) -> int:
        return 0 if self._source is None else self._source.messages_processed


class _TimedStream(StreamingClient):
    """A stream that remembers when messages were handed over last."""

    def __init__(self, cloud: OciCloud, clock: Clock) -> None:
        super().__init__(cloud)
        self.delivered = 0.0
        self._clock = clock

    async def messages(self, cursor: str, *, limit: int) -> tuple[list[dict[str, Any]], str]:
        """Return the next messages."""
        found, next_cursor = await super().messages(cursor, limit=limit)
        if found:
            self.delivered = self._clock.monotonic()
        return found, next_cursor


class _Aws:
    """Amazon's."""

    name = "AWS"

    def __init__(self, clock: Clock) -> None:
        self.cloud = _TimedAws(clock)
        self._source: AwsEventSource | None = None

    @property
    def delivered(self) -> float:
        return self.cloud.delivered

    def launch(self, _: int) -> str:
        return self.cloud.launch()

    def provider_id(self, machine: str) -> str:
        return f"aws:///eu-west-1a/{machine}"

    def announce(self, machine: str) -> str:
        return self.cloud.schedule(machine, start=self.cloud.clock.now() + _DAY)

    def move(self, machine: str, event: str, number: int) -> None:
        self.cloud.reschedule(machine, event, start=self.cloud.clock.now() + _DAY + timedelta(minutes=number))

    def source(self, client: Client, nodes: Informer[Node]) -> EventSource:
        cloud, settings = self.cloud, AwsSettings(queue_url="https://queue.example/1/q")
        self._source = AwsEventSource(
            ec2=cloud, auto_scaling=cloud, sqs=cloud, client=client, nodes=nodes, settings=settings
        )
        return self._source

    def taken(self) -> int:
        queue = None if self._source is None else self._source.sqs_reader
        return queue.messages_processed if isinstance(queue, SqsReader) else 0


class _TimedAws(AwsCloud):
    """An account that remembers when messages were handed over last."""

    delivered = 0.0

    async def receive(
        self, *, max_messages: int, wait: timedelta, visibility_timeout: timedelta
    ) -> Sequence[dict[str, Any]]:
        """Return the next messages."""
        found = await super().receive(max_messages=max_messages, wait=wait, visibility_timeout=visibility_timeout)
        if found:
            self.delivered = self.clock.monotonic()
        return found


async def _measured(
    scale: Scale, kubeconfig: str, make: Callable[[Clock], _Cloud], log: Log
) -> Sequence[tuple[str, ...]]:
    async with asyncio.timeout(_TIMEOUT_SECONDS), _connected(kubeconfig) as client, asyncio.TaskGroup() as group:
        clock = client.clock
        cloud = make(clock)
        machines = [cloud.launch(number) for number in range(scale.machines)]
        await _prepare(client, [cloud.provider_id(machine) for machine in machines], log)
        nodes = Informer(client, ListWatch(NODES), transform=compact_nodes())
        notices = Informer(client, ListWatch(MAINTENANCE_NOTICES), transform=as_is)
        tasks = [group.create_task(_run_informer(machine)) for machine in (nodes, notices)]
        for machine in (nodes, notices):
            await machine.wait_synced()
        source, before = cloud.source(client, nodes), memory()
        log(f"{cloud.name}: {scale.messages:,} messages")
        with Stopwatch() as stopwatch:
            tasks.append(group.create_task(source.run(NoticeWriter(client))))
            await _send(cloud, machines, scale.messages, clock)
        grown = memory() - before
        log(f"{cloud.name}: {scale.single} messages, one at a time")
        latencies = [await _notice_latency(cloud, notices, machines[number], clock) for number in range(scale.single)]
        for task in tasks:
            task.cancel()
    return _rows(cloud.name, scale, stopwatch, grown, latencies)


async def _send(cloud: _Cloud, machines: Sequence[str], messages: int, clock: Clock) -> None:
    """Have one maintenance for each machine announced, and then moved again and again; return when all is taken."""
    events: dict[str, str] = {}
    for number in range(messages):
        machine = machines[number % len(machines)]
        if machine in events:
            cloud.move(machine, events[machine], number)
        else:
            events[machine] = cloud.announce(machine)
        while number - cloud.taken() >= _MAX_PENDING:
            await clock.sleep(_POLL_INTERVAL)
    while cloud.taken() < messages:
        await clock.sleep(_POLL_INTERVAL)


async def _notice_latency(cloud: _Cloud, notices: Informer[Any], machine: str, clock: Clock) -> float:
    """Return the seconds from when a message is handed over to when a watch shows its notice."""
    observed: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    event = ""

    def on_change(_: object, new: Any) -> None:
        if new is not None and event and event in new.name and not observed.done():
            observed.set_result(clock.monotonic())

    unsubscribe = notices.subscribe(on_change)
    event = cloud.announce(machine)
    observed_at = await observed
    unsubscribe()
    return observed_at - cloud.delivered


def _rows(
    name: str, scale: Scale, stopwatch: Stopwatch, grown: float, latencies: Sequence[float]
) -> list[tuple[str, ...]]:
    comparison = TargetComparison(is_fair=scale is FULL)
    note = f"{stopwatch.cpu / scale.messages * 1e3:.2f} ms of CPU time each"
    size = f"{name}, {scale.machines:,} nodes"
    return [
        comparison.row(
            f"{size}: {scale.messages:,} messages",
            [scale.messages / stopwatch.wall],
            RATE,
            target=_RATE,
            note=note,
        ),
        comparison.row(f"{size}: additional memory", [grown], MEGABYTES, target=_GROWTH, note=""),
        comparison.row(
            f"{size}: from message to notice, 99th percentile",
            [quantiles(latencies, n=100)[98]],
            MILLISECONDS,
            target=_SLOWEST_SECONDS,
            note=f"median {MILLISECONDS.show(median(latencies))}",
        ),
    ]


# All at once


async def _all_due(scale: Scale, kubeconfig: str, log: Log) -> Sequence[tuple[str, ...]]:
    """Tell how long it takes until all nodes are cordoned whose maintenance is due at the same moment."""
    async with asyncio.timeout(_TIMEOUT_SECONDS), _connected(kubeconfig) as client, asyncio.TaskGroup() as group:
        clock = client.clock
        names = await _prepare(client, [f"example://{number}" for number in range(scale.machines)], log)
        caches = (
            Informer(client, ListWatch(NODES), transform=compact_nodes()),
            Informer(client, ListWatch(MAINTENANCE_NOTICES), transform=as_is),
        )
        nodes, notices = caches
        tasks = [group.create_task(_run_informer(cache)) for cache in caches]
        for cache in caches:
            await cache.wait_synced()
        async with operator(kubeconfig) as operator_handle:
            start = clock.now().replace(microsecond=0) + _LEAD_TIME + _UNTIL_DUE  # as it is written
            log(f"{scale.machines:,} notices that fall due at once")
            await for_each(
                names, lambda name: client.create(MAINTENANCE_NOTICES, _notice(name, start)), at_once=IN_FLIGHT
            )
            await _wait_until(
                clock, lambda: _count(notices, lambda cache: cache.status.phase == NoticePhase.PLANNED) == len(names)
            )
            before = await operator_handle.numbers()
            due = start - _LEAD_TIME
            all_due = all_cordoned = None
            while all_due is None or all_cordoned is None:
                await clock.sleep(_POLL_INTERVAL)
                elapsed = (clock.now() - due).total_seconds()
                if all_due is None and _count(notices, lambda cache: cache.status.phase == NoticePhase.DUE) == len(
                    names
                ):
                    all_due = elapsed
                if all_cordoned is None and _count(nodes, lambda cache: cache.spec.unschedulable) == len(names):
                    all_cordoned = elapsed
            after = await operator_handle.numbers()
        for task in tasks:
            task.cancel()
    comparison = TargetComparison(is_fair=scale is FULL)
    requests = f"{(after['sent'] - before['sent']) / len(names):.1f} requests per node"
    note = f"all notices are Due after {SECONDS.show(all_due)}; {requests}; peak {MEGABYTES.show(after['peak'])}"
    label = f"{scale.machines:,} notices due at once: all nodes cordoned"
    return [comparison.row(label, [all_cordoned], SECONDS, target=_CORDONED_WITHIN_SECONDS, note=note)]


def _notice(node: str, start: Any) -> Mapping[str, Any]:
    spec = {"nodeName": node, "source": "bench", "noticeID": node, "kind": "Reboot", "start": whole_seconds(start)}
    type_fields = {"apiVersion": MAINTENANCE_NOTICES.api_version, "kind": MAINTENANCE_NOTICES.kind}
    return {**type_fields, "metadata": {"name": f"bench-{node}"}, "spec": spec}


def _count(cache: Informer[Any], holds: Callable[[Any], bool]) -> int:
    return sum(bool(holds(obj)) for obj in cache.all())


async def _wait_until(clock: Clock, check: Callable[[], bool]) -> None:
    while not check():
        await clock.sleep(_POLL_INTERVAL)


# What all need


@asynccontextmanager
async def _connected(kubeconfig: str) -> AsyncIterator[Client]:
    clock = RealClock()
    transport = HttpTransport(config.load(kubeconfig=kubeconfig, clock=clock), clock=clock)
    client = Client(transport, clock=clock, random=Random(1))
    try:
        yield client
    finally:
        await client.close()


async def _prepare(client: Client, provider_ids: Sequence[str], log: Log) -> Sequence[str]:
    """Have nodes with these machines, and all definitions; return the names of the nodes."""
    for definition in operator_manifests.definitions():
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    log(f"creating {len(provider_ids):,} nodes")
    bodies = [to_create(node) for node in fleet(1, len(provider_ids)).nodes]
    for body, provider_id in zip(bodies, provider_ids, strict=True):
        del body["status"]["images"]
        body["spec"]["providerID"] = provider_id
    await for_each(bodies, lambda body: client.create(NODES, body), at_once=IN_FLIGHT)
    return [body["metadata"]["name"] for body in bodies]


async def _run_informer(cache: Informer[Any]) -> None:
    await cache.run()


_TEXT = """
A real etcd and kube-apiserver over TLS; all processes share the machine's cores. An event source shares its process
with the simulation of its cloud and with watches of all nodes and notices. Each maintenance is announced once and then
rescheduled again and again. Then messages arrive one at a time; the latency of each runs from when the cloud delivers
it until the watch shows its notice. The operator, which reconciles notices that are due at once, is a separate process
without configuration. Nodes have no pods, so they are drained as soon as they are cordoned.
"""
