"""A cluster with notices and their controller, which can be killed at any of its writes or calls of a cloud.

async with noticed(clock) as world:
    await world.announce("m1", start=HOUR)
    await world.says("m1", "True", Verdict.PLANNED)
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from haulout.core.clock import Clock
from haulout.history import record as records
from haulout.history.document import new
from haulout.history.record import MAINTENANCE_RECORDS, Content, DrainFacts, Entry
from haulout.kinds.notice import MAINTENANCE_NOTICES, Kind, MaintenanceNotice, NoticeCondition, definition
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.follow import Selection
from haulout.kube.objects import Condition, Node, RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import EVENTS, NODES, PODS
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout.notices.controller import By, Controller
from haulout.notices.moving import Calendar
from haulout.notices.sources import Mover, Starter
from support.backends import Sandbox
from support.builders import a_node, a_pod
from support.defining import define

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
SPACE = Sandbox.namespace
_DOWN_FOR = timedelta(seconds=5)


@dataclass
class NoticedWorld:
    """The cluster, and the controllers that run."""

    clock: Clock
    client: Client
    cluster: Sandbox
    group: asyncio.TaskGroup
    movers: dict[str, Mover] = field(default_factory=dict)
    starters: dict[str, Starter] = field(default_factory=dict)
    calendar: Calendar = lambda *_: None
    crash_at: int | None = None  # the step at which the first controller dies
    steps: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _lives: int = 0
    _running: list[asyncio.Task[None]] = field(default_factory=list)

    # The controller

    def start(self) -> None:
        """Run a controller, as a new process, beside those that run."""
        self._lives += 1
        self._running.append(self.group.create_task(self._run(Random(self._lives))))

    async def stop(self) -> None:
        """Kill all that run."""
        running, self._running = self._running, []
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def step(self, what: str) -> None:
        """Count a step; at a chosen one the controller dies, and another begins soon."""
        self.steps.append(what)
        if len(self.steps) == self.crash_at:
            for task in self._running:
                task.cancel()
            self._running.clear()
            self.group.create_task(self._revive())
            await asyncio.Event().wait()

    async def _revive(self) -> None:
        await self.clock.sleep(_DOWN_FOR)
        self.start()

    async def _run(self, random: Random) -> None:
        client = Client(_Stepping(self.cluster.cluster.transport(), self), clock=self.clock, random=random)
        events = EventRecorder(client, instance="test")
        nodes: Cache[Node] = Cache(client, Selection(NODES), row=as_is)
        controller = Controller(
            client,
            events=events,
            nodes=nodes,
            mover_of=self.movers.get,
            starter_of=self.starters.get,
            by=By(calendar=self._suits),
        )
        async with asyncio.TaskGroup() as group:
            for run in (nodes.run, events.run, controller.run):
                group.create_task(run())

    def _suits(self, node: Node, notice: MaintenanceNotice) -> datetime | None:
        return self.calendar(node, notice)

    # The cluster

    async def node(self, name: str = "n1", **labels: str) -> None:
        """Have a node."""
        await self.client.create(NODES, a_node(name, labels={k.replace("_", "-"): v for k, v in labels.items()}))

    async def pods(self, count: int, *, node: str = "n1") -> None:
        """Have pods run on a node, one of which belongs to a DaemonSet."""
        for number in range(count):
            pod = a_pod(f"{SPACE}/{node}-{number}", on=node, owner="ReplicaSet/cart")
            await self.client.create(PODS, pod, namespace=SPACE)
        logs = a_pod(f"{SPACE}/{node}-logs", on=node).owned_by(
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "logs"}}
        )
        await self.client.create(PODS, logs, namespace=SPACE)

    async def evict(self, *numbers: int, node: str = "n1") -> None:
        """Have pods be gone."""
        for number in numbers:
            await self.client.delete(PODS, f"{node}-{number}", namespace=SPACE, grace=timedelta())

    async def cordon(self, node: str = "n1") -> None:
        """Have one of us begin to empty a node."""
        mark = f'{{"owners": {{"profile/x": {{"since": "{self.clock.now().isoformat()}"}}}}}}'
        change = {"metadata": {"annotations": {"haulout.dev/cordon": mark}}, "spec": {"unschedulable": True}}
        await self.client.patch(NODES, node, merge_patch(change))

    async def announce(
        self,
        name: str = "m1",
        *,
        start: timedelta | None,
        node: str = "n1",
        kind: Kind = Kind.REBOOT,
        last: timedelta = 5 * HOUR,
        **spec: object,
    ) -> None:
        """Say that a node needs maintenance, so long from now."""
        now = self.clock.now().replace(microsecond=0)
        times = {} if start is None else {"start": _told(now + start), "end": _told(now + start + last)}
        body: RawObject = {
            "apiVersion": MAINTENANCE_NOTICES.api_version,
            "kind": MAINTENANCE_NOTICES.kind,
            "metadata": {"name": name},
            "spec": {"nodeName": node, "kind": kind, "source": "ticket", **times, **spec},
        }
        await self.client.create(MAINTENANCE_NOTICES, body)

    async def change(self, name: str = "m1", **spec: object) -> None:
        """Say something else."""
        written = {key: _told(value) if isinstance(value, datetime) else value for key, value in spec.items()}
        await self.client.patch(MAINTENANCE_NOTICES, name, merge_patch({"spec": written}))

    async def record(self, node: str, *seconds: float, pods: int = 5) -> None:
        """Have a history of what drains of a node took."""
        entries = tuple(
            Entry(
                time=self.clock.now() + number * SECOND,
                what="profile/x",
                result="Drained",
                drain=DrainFacts(seconds=took, pods=pods),
            )
            for number, took in enumerate(seconds)
        )
        await self.client.create(MAINTENANCE_RECORDS, new(node, f"uid-of-{node}", Content(entries, len(entries))))

    # What came of it

    async def notice(self, name: str = "m1") -> MaintenanceNotice:
        """Return a notice."""
        return await self.client.get(MAINTENANCE_NOTICES, name)

    async def on_time(self, name: str = "m1") -> tuple[str, str]:
        """Return status and reason of the condition OnTime, once all is quiet."""
        found = await self.condition(NoticeCondition.ON_TIME, name)
        return found.status, found.reason

    async def condition(self, kind: NoticeCondition, name: str = "m1") -> Condition:
        """Return a condition of a notice, once all is quiet."""
        await self.clock.sleep(SECOND)
        return (await self.notice(name)).status.condition(kind) or Condition()

    async def events(self, reason: str) -> Sequence[str]:
        """Return the notes of events about nodes."""
        found = (await self.client.list(EVENTS.of(RawObject), namespace="default")).items
        return [it["note"] for it in found if it["reason"] == reason and it["regarding"]["kind"] == "Node"]

    async def node_says(self, kind: str, node: str = "n1") -> tuple[str, str, str]:
        """Return status, reason and message of a condition of a node, once all is quiet."""
        await self.clock.sleep(3 * SECOND)
        found = (await self.client.get(NODES, node)).status.conditions
        said = next((it for it in found if it.type == kind), Condition())
        return said.status, said.reason, said.message

    def count(self, what: Callable[[str], bool]) -> int:
        """Return how many requests of controllers there were."""
        return sum(map(what, self.requests))


class _Stepping:
    """A transport that tells of each write that is no event, before and after."""

    def __init__(self, transport: Transport, world: NoticedWorld) -> None:
        self.server = transport.server
        self._transport = transport
        self._world = world

    async def send(self, request: Request) -> Response:
        """Send it."""
        path = request.path
        self._world.requests.append(f"{request.method} {path}?{request.query}")
        is_write = request.method != "GET" and "/events" not in path
        if is_write:
            await self._world.step(f"before {request.method} {path}")
        response = await self._transport.send(request)
        if is_write:
            await self._world.step(f"after {request.method} {path}")
        return response

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Open a stream."""
        self._world.requests.append(f"WATCH {request.path}?{request.query}")
        return self._transport.stream(request)

    async def close(self) -> None:
        """Close it."""
        await self._transport.close()


@asynccontextmanager
async def noticed(
    clock: Clock, *, nodes: Sequence[str] = ("n1",), history: bool = False
) -> AsyncIterator[NoticedWorld]:
    """Yield a world in which a controller runs."""
    cluster = Sandbox(clock)
    client = await cluster.client()
    await define(cluster, client, MAINTENANCE_NOTICES, definition())
    if history:
        await define(cluster, client, MAINTENANCE_RECORDS, records.definition())
    async with asyncio.TaskGroup() as group:
        world = NoticedWorld(clock, client, cluster, group)
        for name in nodes:
            await world.node(name)
        world.start()
        try:
            yield world
        finally:
            await world.stop()


def _told(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"
