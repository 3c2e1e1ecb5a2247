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
from gauges import Stopwatch, memory
from haulout.app import manifests
from haulout.core.clock import Clock, RealClock
from haulout.kinds.notice import MAINTENANCE_NOTICES, Phase
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.compact import compact_nodes
from haulout.kube.follow import Selection
from haulout.kube.network import config
from haulout.kube.network.http import HttpTransport
from haulout.kube.objects import Node
from haulout.kube.resources import DEFINITIONS, NODES
from haulout.kube.timestamps import whole_seconds
from haulout.notices.inbox import Inbox
from haulout.notices.sources import Source
from haulout.notices.sources.aws.queue import QueueReader
from haulout.notices.sources.aws.settings import Settings
from haulout.notices.sources.aws.source import AwsSource
from haulout.notices.sources.oci.consumer import Place
from haulout.notices.sources.oci.source import OciSource
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.oci.cloud import StreamCalls
from operated import operator
from real import control_plane
from report import MEGABYTES, MILLISECONDS, RATE, SECONDS, Judge, Section
from tasks import IN_FLIGHT, each

Say = Callable[[str], None]

_DAY = timedelta(days=1)
_WITHIN_SECONDS = 600
_PAUSE = timedelta(milliseconds=250)  # between reads, so that a run does not take long
_LOOK_EVERY = timedelta(milliseconds=20)
_WAITING = 500  # messages that wait at a time: the models of clouds are made for fewer than clouds have
_LEAD = timedelta(minutes=15)
_UNTIL_DUE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a run is."""

    machines: int
    messages: int
    single: int  # one after the other


FULL = Scale(machines=1_000, messages=10_000, single=200)
QUICK = Scale(machines=20, messages=200, single=10)
_RATE, _SLOWEST_SECONDS, _GROWTH, _OUT_WITHIN_SECONDS = 300, 1.0, 30e6, 15.0


def run(scale: Scale, say: Say) -> list[Section]:
    """Measure each source, and the operator, each on a control plane of its own."""
    rows: list[tuple[str, ...]] = []
    for make in (_Oci, _Aws):
        with control_plane(say, apart=False) as (kubeconfig, _):
            rows += uvloop.run(_measured(scale, kubeconfig, make, say))
    with control_plane(say, apart=False) as (kubeconfig, _):
        rows += uvloop.run(_all_due(scale, kubeconfig, say))
    return [Section("Notices", _TEXT, ("What", "Figure", "Besides", "Target", ""), rows)]


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

    def source(self, client: Client, nodes: Cache[Node]) -> Source: ...

    def taken(self) -> int: ...


class _Oci:
    """Oracle's."""

    name = "OCI"

    def __init__(self, clock: Clock) -> None:
        self.cloud = OciCloud(clock)
        self.stream = _TimedStream(self.cloud, clock)
        self._source: OciSource | None = None

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

    def source(self, client: Client, _: Cache[Node]) -> Source:
        place = Place(instance="bench", idle_pause=_PAUSE, pause=_PAUSE)
        compute = self.cloud.compute()
        self._source = OciSource(compute, streaming=self.stream, place=place, clock=client.clock, random=Random(1))
        return self._source

    def taken(self) -> int:
        return 0 if self._source is None else self._source.taken


class _TimedStream(StreamCalls):
    """A stream that remembers when messages were handed over last."""

    def __init__(self, cloud: OciCloud, clock: Clock) -> None:
        super().__init__(cloud)
        self.delivered = 0.0
        self._clock = clock

    async def messages(self, cursor: str, *, limit: int) -> tuple[list[dict[str, Any]], str]:
        """Return the next messages."""
        found, following = await super().messages(cursor, limit=limit)
        if found:
            self.delivered = self._clock.monotonic()
        return found, following


class _Aws:
    """Amazon's."""

    name = "AWS"

    def __init__(self, clock: Clock) -> None:
        self.cloud = _TimedAws(clock)
        self._source: AwsSource | None = None

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

    def source(self, client: Client, nodes: Cache[Node]) -> Source:
        cloud, settings = self.cloud, Settings(queue_url="https://queue.example/1/q")
        self._source = AwsSource(ec2=cloud, groups=cloud, sqs=cloud, client=client, nodes=nodes, settings=settings)
        return self._source

    def taken(self) -> int:
        queue = None if self._source is None else self._source.queue
        return queue.taken if isinstance(queue, QueueReader) else 0


class _TimedAws(AwsCloud):
    """An account that remembers when messages were handed over last."""

    delivered = 0.0

    async def receive(self, *, most: int, wait: timedelta, hidden: timedelta) -> Sequence[dict[str, Any]]:
        """Return the next messages."""
        found = await super().receive(most=most, wait=wait, hidden=hidden)
        if found:
            self.delivered = self.clock.monotonic()
        return found


async def _measured(
    scale: Scale, kubeconfig: str, make: Callable[[Clock], _Cloud], say: Say
) -> Sequence[tuple[str, ...]]:
    async with asyncio.timeout(_WITHIN_SECONDS), _connected(kubeconfig) as client, asyncio.TaskGroup() as group:
        clock = client.clock
        cloud = make(clock)
        machines = [cloud.launch(number) for number in range(scale.machines)]
        await _prepare(client, [cloud.provider_id(it) for it in machines], say)
        nodes = Cache(client, Selection(NODES), row=compact_nodes())
        notices = Cache(client, Selection(MAINTENANCE_NOTICES), row=as_is)
        tasks = [group.create_task(_endless(it)) for it in (nodes, notices)]
        for it in (nodes, notices):
            await it.wait_synced()
        source, before = cloud.source(client, nodes), memory()
        say(f"{cloud.name}: {scale.messages:,} messages")
        with Stopwatch() as watch:
            tasks.append(group.create_task(source.run(Inbox(client))))
            await _send(cloud, machines, scale.messages, clock)
        grown = memory() - before
        say(f"{cloud.name}: {scale.single} messages, one at a time")
        latencies = [await _one(cloud, notices, machines[number], clock) for number in range(scale.single)]
        for task in tasks:
            task.cancel()
    return _rows(cloud.name, scale, watch, grown, latencies)


async def _send(cloud: _Cloud, machines: Sequence[str], messages: int, clock: Clock) -> None:
    """Have one maintenance for each machine announced, and then moved again and again; return when all is taken."""
    events: dict[str, str] = {}
    for number in range(messages):
        machine = machines[number % len(machines)]
        if machine in events:
            cloud.move(machine, events[machine], number)
        else:
            events[machine] = cloud.announce(machine)
        while number - cloud.taken() >= _WAITING:
            await clock.sleep(_LOOK_EVERY)
    while cloud.taken() < messages:
        await clock.sleep(_LOOK_EVERY)


async def _one(cloud: _Cloud, notices: Cache[Any], machine: str, clock: Clock) -> float:
    """Return the seconds from when a message is handed over to when a watch shows its notice."""
    seen: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    event = ""

    def note(_: object, new: Any) -> None:
        if new is not None and event and event in new.name and not seen.done():
            seen.set_result(clock.monotonic())

    unsubscribe = notices.subscribe(note)
    event = cloud.announce(machine)
    at = await seen
    unsubscribe()
    return at - cloud.delivered


def _rows(name: str, scale: Scale, watch: Stopwatch, grown: float, latencies: Sequence[float]) -> list[tuple[str, ...]]:
    judge = Judge(is_fair=scale is FULL)
    processor = f"{watch.cpu / scale.messages * 1e3:.2f} ms of the processor each"
    size = f"{name}, {scale.machines:,} nodes"
    return [
        judge.row(
            f"{size}: {scale.messages:,} messages",
            [scale.messages / watch.wall],
            RATE,
            target=_RATE,
            beside=processor,
        ),
        judge.row(f"{size}: memory that takes", [grown], MEGABYTES, target=_GROWTH, beside=""),
        judge.row(
            f"{size}: from a message to its notice, 99th percentile",
            [quantiles(latencies, n=100)[98]],
            MILLISECONDS,
            target=_SLOWEST_SECONDS,
            beside=f"median {MILLISECONDS.show(median(latencies))}",
        ),
    ]


# All at once


async def _all_due(scale: Scale, kubeconfig: str, say: Say) -> Sequence[tuple[str, ...]]:
    """Tell how long it takes until all nodes are cordoned whose maintenance is due at the same moment."""
    async with asyncio.timeout(_WITHIN_SECONDS), _connected(kubeconfig) as client, asyncio.TaskGroup() as group:
        clock = client.clock
        names = await _prepare(client, [f"example://{number}" for number in range(scale.machines)], say)
        caches = (
            Cache(client, Selection(NODES), row=compact_nodes()),
            Cache(client, Selection(MAINTENANCE_NOTICES), row=as_is),
        )
        nodes, notices = caches
        tasks = [group.create_task(_endless(it)) for it in caches]
        for it in caches:
            await it.wait_synced()
        async with operator(kubeconfig) as ours:
            start = clock.now().replace(microsecond=0) + _LEAD + _UNTIL_DUE  # as it is written
            say(f"{scale.machines:,} notices that fall due at once")
            await each(names, lambda name: client.create(MAINTENANCE_NOTICES, _notice(name, start)), at_once=IN_FLIGHT)
            await _until(clock, lambda: _count(notices, lambda it: it.status.phase == Phase.PLANNED) == len(names))
            before = await ours.numbers()
            due = start - _LEAD
            said = out = None
            while said is None or out is None:
                await clock.sleep(_LOOK_EVERY)
                late = (clock.now() - due).total_seconds()
                if said is None and _count(notices, lambda it: it.status.phase == Phase.DUE) == len(names):
                    said = late
                if out is None and _count(nodes, lambda it: it.spec.unschedulable) == len(names):
                    out = late
            after = await ours.numbers()
        for task in tasks:
            task.cancel()
    judge = Judge(is_fair=scale is FULL)
    requests = f"{(after['sent'] - before['sent']) / len(names):.1f} requests a node"
    beside = f"all notices say so after {SECONDS.show(said)}; {requests}; peak {MEGABYTES.show(after['peak'])}"
    what = f"{scale.machines:,} notices due at once: all nodes cordoned"
    return [judge.row(what, [out], SECONDS, target=_OUT_WITHIN_SECONDS, beside=beside)]


def _notice(node: str, start: Any) -> Mapping[str, Any]:
    spec = {"nodeName": node, "source": "bench", "noticeID": node, "kind": "Reboot", "start": whole_seconds(start)}
    of = {"apiVersion": MAINTENANCE_NOTICES.api_version, "kind": MAINTENANCE_NOTICES.kind}
    return {**of, "metadata": {"name": f"bench-{node}"}, "spec": spec}


def _count(cache: Cache[Any], holds: Callable[[Any], bool]) -> int:
    return sum(bool(holds(it)) for it in cache.all())


async def _until(clock: Clock, check: Callable[[], bool]) -> None:
    while not check():
        await clock.sleep(_LOOK_EVERY)


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


async def _prepare(client: Client, provider_ids: Sequence[str], say: Say) -> Sequence[str]:
    """Have nodes with these machines, and all definitions; return the names of the nodes."""
    for definition in manifests.definitions():
        await client.create(DEFINITIONS, definition)
    say(f"creating {len(provider_ids):,} nodes")
    bodies = [to_create(node) for node in fleet(1, len(provider_ids)).nodes]
    for body, provider_id in zip(bodies, provider_ids, strict=True):
        del body["status"]["images"]
        body["spec"]["providerID"] = provider_id
    await each(bodies, lambda body: client.create(NODES, body), at_once=IN_FLIGHT)
    return [body["metadata"]["name"] for body in bodies]


async def _endless(cache: Cache[Any]) -> None:
    await cache.run()


_TEXT = """
A real etcd and kube-apiserver over TLS; all share the machine's cores. A source shares its process with the model of
its cloud and with watches of all nodes and notices; each maintenance is announced once and then moved again and
again. Then messages come one at a time; each is measured from when the cloud hands it over until the watch shows its
notice. The operator, which sees to notices that are due at once, is a process of its own with nothing configured:
nodes have no pods, and are drained as soon as they are cordoned.
"""
