"""A cluster with notices and their controller, which can be killed at any of its writes or cloud calls.

async with a_notice_cluster(clock) as cluster:
    await cluster.announce("m1", start=HOUR)
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from haulout.api import maintenancerecord as records
from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    MaintenanceKind,
    MaintenanceNotice,
    NoticeCondition,
    definition,
)
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS, DrainFacts, Entry, RecordContent
from haulout.api.objects import Condition, Node, RawObject
from haulout.api.resources import EVENTS, NODES, PODS
from haulout.controllers.notices.controller import MaintenanceNoticeController, notice_informer
from haulout.controllers.notices.profile_policy import ProfilePolicy
from haulout.controllers.notices.reschedule import Calendar
from haulout.core.clock import Clock
from haulout.history.record_store import new_record
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import merge_patch
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout.providers.event_source import EarlyStartSource, ReschedulableSource
from haulout.runtime.freezes import NoFreezes
from haulout_sandbox.apiserver import InProcessTransport
from support.builders.objects import a_node, a_pod
from support.clusters.backends import SandboxBackend
from support.clusters.crd_installation import install_crd

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NAMESPACE = SandboxBackend.namespace
_RESTART_DELAY = timedelta(seconds=5)


@dataclass
class NoticeCluster:
    """The cluster, and the controllers that run."""

    clock: Clock
    client: Client
    cluster: SandboxBackend
    group: asyncio.TaskGroup
    reschedulable_sources: dict[str, ReschedulableSource] = field(default_factory=dict)
    early_start_sources: dict[str, EarlyStartSource] = field(default_factory=dict)
    calendar: Calendar = lambda *_: None
    crash_at: int | None = None  # the step at which the first controller is killed
    steps: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    transports: list[InProcessTransport] = field(default_factory=list)  # of the controllers, the latest last
    _controller_count: int = 0
    _running: list[asyncio.Task[None]] = field(default_factory=list)

    # The controller

    def start(self) -> None:
        """Run a controller, as a new process, beside those that run."""
        self._controller_count += 1
        self._running.append(self.group.create_task(self._run(Random(self._controller_count))))

    async def stop(self) -> None:
        """Kill all that run."""
        running, self._running = self._running, []
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def step(self, description: str) -> None:
        """Count a step; at the chosen one the controller is killed, and another one starts soon."""
        self.steps.append(description)
        if len(self.steps) == self.crash_at:
            for task in self._running:
                task.cancel()
            self._running.clear()
            self.group.create_task(self._restart_later())
            await asyncio.Event().wait()

    async def _restart_later(self) -> None:
        await self.clock.sleep(_RESTART_DELAY)
        self.start()

    async def _run(self, random: Random) -> None:
        transport = self.cluster.api_server.transport()
        self.transports.append(transport)
        client = Client(_SteppingTransport(transport, self), clock=self.clock, random=random)
        events = EventRecorder(client, instance="test")
        nodes: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
        controller = MaintenanceNoticeController(
            client,
            events=events,
            nodes=nodes,
            notices=notice_informer(client),
            freezes=NoFreezes(),
            reschedulable_source_of=self.reschedulable_sources.get,
            early_start_source_of=self.early_start_sources.get,
            profile_policy=ProfilePolicy(calendar=self._preferred_start),
        )
        async with asyncio.TaskGroup() as group:
            for run in (nodes.run, controller.notices.run, events.run, controller.run):
                group.create_task(run())

    def _preferred_start(self, node: Node, notice: MaintenanceNotice) -> datetime | None:
        return self.calendar(node, notice)

    # The cluster

    async def create_node(self, name: str = "n1", **labels: str) -> None:
        """Create a node."""
        await self.client.create(NODES, a_node(name, labels={k.replace("_", "-"): v for k, v in labels.items()}))

    async def create_pods(self, count: int, *, node: str = "n1") -> None:
        """Create running pods on a node, one of which belongs to a DaemonSet."""
        for number in range(count):
            pod = a_pod(f"{NAMESPACE}/{node}-{number}", on=node, owner="ReplicaSet/cart")
            await self.client.create(PODS, pod, namespace=NAMESPACE)
        logs = a_pod(f"{NAMESPACE}/{node}-logs", on=node).owned_by(
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "logs"}}
        )
        await self.client.create(PODS, logs, namespace=NAMESPACE)

    async def delete_pods(self, *numbers: int, node: str = "n1") -> None:
        """Delete pods."""
        for number in numbers:
            await self.client.delete(PODS, f"{node}-{number}", namespace=NAMESPACE, grace=timedelta())

    async def cordon(self, node: str = "n1") -> None:
        """Mark a node as being drained by the operator."""
        cordon_annotation = f'{{"owners": {{"profile/x": {{"since": "{self.clock.now().isoformat()}"}}}}}}'
        change = {
            "metadata": {"annotations": {"haulout.dev/cordon": cordon_annotation}},
            "spec": {"unschedulable": True},
        }
        await self.client.patch(NODES, node, merge_patch(change))

    async def announce(
        self,
        name: str = "m1",
        *,
        start: timedelta | None,
        node: str = "n1",
        kind: MaintenanceKind = MaintenanceKind.REBOOT,
        duration: timedelta = 5 * HOUR,
        **spec: object,
    ) -> None:
        """Announce maintenance of a node, that long from now."""
        now = self.clock.now().replace(microsecond=0)
        times = (
            {}
            if start is None
            else {"start": _format_instant(now + start), "end": _format_instant(now + start + duration)}
        )
        body: RawObject = {
            "apiVersion": MAINTENANCE_NOTICES.api_version,
            "kind": MAINTENANCE_NOTICES.kind,
            "metadata": {"name": name},
            "spec": {"nodeName": node, "kind": kind, "source": "ticket", **times, **spec},
        }
        await self.client.create(MAINTENANCE_NOTICES, body)

    async def patch_notice(self, name: str = "m1", **spec: object) -> None:
        """Change a notice."""
        written = {key: _format_instant(value) if isinstance(value, datetime) else value for key, value in spec.items()}
        await self.client.patch(MAINTENANCE_NOTICES, name, merge_patch({"spec": written}))

    async def create_record(self, node: str, *seconds: float, pods: int = 5) -> None:
        """Create a record with the durations of a node's drains."""
        entries = tuple(
            Entry(
                time=self.clock.now() + number * SECOND,
                object="profile/x",
                result="Drained",
                drain=DrainFacts(seconds=took, pods=pods),
            )
            for number, took in enumerate(seconds)
        )
        await self.client.create(
            MAINTENANCE_RECORDS, new_record(node, f"uid-of-{node}", RecordContent(entries, len(entries)))
        )

    # Results

    async def notice(self, name: str = "m1") -> MaintenanceNotice:
        """Return a notice."""
        return await self.client.get(MAINTENANCE_NOTICES, name)

    async def on_time(self, name: str = "m1") -> tuple[str, str]:
        """Return status and reason of the condition OnTime, once all work is done."""
        found = await self.condition(NoticeCondition.ON_TIME, name)
        return found.status, found.reason

    async def condition(self, kind: NoticeCondition, name: str = "m1") -> Condition:
        """Return a condition of a notice, once all work is done."""
        await self.clock.sleep(SECOND)
        return (await self.notice(name)).status.condition(kind) or Condition()

    async def node_event_notes(self, reason: str) -> Sequence[str]:
        """Return the notes of events about nodes."""
        found = (await self.client.list(EVENTS.with_model(RawObject), namespace="default")).items
        return [event["note"] for event in found if event["reason"] == reason and event["regarding"]["kind"] == "Node"]

    async def node_condition(self, kind: str, node: str = "n1") -> tuple[str, str, str]:
        """Return status, reason and message of a condition of a node, once all work is done."""
        await self.clock.sleep(3 * SECOND)
        found = (await self.client.get(NODES, node)).status.conditions
        condition = next((candidate for candidate in found if candidate.type == kind), Condition())
        return condition.status, condition.reason, condition.message

    def count_requests(self, predicate: Callable[[str], bool]) -> int:
        """Return how many requests of controllers there were."""
        return sum(map(predicate, self.requests))


class _SteppingTransport:
    """A transport that counts a step before and after each write other than Events."""

    def __init__(self, transport: Transport, world: NoticeCluster) -> None:
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
async def a_notice_cluster(
    clock: Clock, *, nodes: Sequence[str] = ("n1",), history: bool = False
) -> AsyncIterator[NoticeCluster]:
    """Yield a world in which a controller runs."""
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    if history:
        await install_crd(cluster, client, MAINTENANCE_RECORDS, records.custom_resource_definition())
    async with asyncio.TaskGroup() as group:
        notice_cluster = NoticeCluster(clock, client, cluster, group)
        for name in nodes:
            await notice_cluster.create_node(name)
        notice_cluster.start()
        try:
            yield notice_cluster
        finally:
            await notice_cluster.stop()


def _format_instant(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"
