"""The notice quota limits the notices of a compromised agent."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticePhase, definition
from haulout.api.objects import RawObject
from haulout.api.resources import EVENTS, NODES
from haulout.controllers.notices.controller import MaintenanceNoticeController, notice_informer
from haulout.controllers.notices.notice_quota import EVENT_REASON, MAX_PER_NODE
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import merge_patch
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout.runtime.freezes import NoFreezes
from support.builders.objects import a_node
from support.clusters.backends import SandboxBackend
from support.clusters.crd_installation import install_crd
from support.expectations.eventually import eventually


@asynccontextmanager
async def a_cluster(clock: Clock) -> AsyncIterator[Client]:
    """Yield a client of a cluster with the nodes n1 and n2, where notices can be."""
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    for name in ("n1", "n2"):
        await client.create(NODES, a_node(name))
    yield client


@asynccontextmanager
async def operating(client: Client) -> AsyncIterator[None]:
    events = EventRecorder(client, instance="test")
    nodes = Informer(client, ListWatch(NODES), transform=as_is)
    controller = MaintenanceNoticeController(
        client, events=events, nodes=nodes, notices=notice_informer(client), freezes=NoFreezes()
    )
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(node.run()) for node in (events, nodes, controller.notices, controller)]
        yield
        for task in tasks:
            task.cancel()


async def announce(
    client: Client, name: str, *, node: str = "n1", source: str = "azure", stage: str = "Scheduled"
) -> None:
    spec = {"nodeName": node, "source": source, "noticeID": name, "kind": "Reboot", "stage": stage}
    body: RawObject = {
        "apiVersion": MAINTENANCE_NOTICES.api_version,
        "kind": MAINTENANCE_NOTICES.kind,
        "metadata": {"name": f"{source}-{name}"},
        "spec": spec,
    }
    await client.create(MAINTENANCE_NOTICES, body)


async def notices(client: Client, node: str = "n1", source: str = "azure") -> list[MaintenanceNotice]:
    found = await client.list(MAINTENANCE_NOTICES)
    return [notice for notice in found.items if (notice.spec.node_name, notice.spec.source) == (node, source)]


async def test_notice_quota_keeps_the_first_notices_of_a_source_and_deletes_the_rest(clock: Clock) -> None:
    async with a_cluster(clock) as client, operating(client):
        await announce(client, "true")
        await announce(client, "other", node="n2")
        for number in range(MAX_PER_NODE + 10):
            await announce(client, f"{number}", source="ticket")
        await clock.sleep(timedelta(seconds=2))
        for number in range(500):
            await announce(client, f"forged-{number}")

        async def are_few() -> bool:
            return len(await notices(client)) <= MAX_PER_NODE

        await eventually(clock, are_few)
        await clock.sleep(timedelta(seconds=5))
        kept = await notices(client)
        assert len(kept) == MAX_PER_NODE
        assert "azure-true" in [item.name for item in kept]
        assert all(item.status.phase for item in kept), "the kept notices are reconciled"
        assert len(await notices(client, "n2")) == 1
        assert len(await notices(client, source="ticket")) == MAX_PER_NODE + 10
        written = {item.request.path for item in client.transport.requests if item.request.path.endswith("/status")}  # type: ignore[attr-defined] # of the sandbox
        assert sum("azure-forged" in item for item in written) <= MAX_PER_NODE
        found = (await client.list(EVENTS.with_model(RawObject), namespace="default")).items
        (event,) = [item for item in found if item["reason"] == EVENT_REASON]
        assert (event["regarding"]["name"], event["type"]) == ("n1", "Warning")


async def test_notice_quota_deletes_the_oldest_finished_notices_first(clock: Clock) -> None:
    async with a_cluster(clock) as client:
        for number in range(MAX_PER_NODE):
            await announce(client, f"ended-{number:02}", stage="Ended")
            await clock.sleep(timedelta(seconds=1))
        async with operating(client):
            await clock.sleep(timedelta(seconds=5))
            assert len(await notices(client)) == MAX_PER_NODE
            await announce(client, "new")

            async def phase() -> str:
                return (await client.get(MAINTENANCE_NOTICES, "azure-new")).status.phase

            await eventually(clock, phase, becomes=NoticePhase.DUE)
            names = {notice.name for notice in await notices(client)}
            assert len(names) == MAX_PER_NODE
            assert "azure-ended-00" not in names
            assert "azure-ended-01" in names


class InterruptingTransport:
    """A transport that runs a callback before a notice is deleted."""

    def __init__(self, transport: Transport, happens: Callable[[], Awaitable[None]]) -> None:
        self.server = transport.server
        self._transport = transport
        self._happens = happens

    async def send(self, request: Request) -> Response:
        """Send a request."""
        if request.method == "DELETE" and request.path.endswith("/azure-surplus"):
            await self._happens()
        return await self._transport.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Open a stream."""
        return self._transport.stream(request)

    async def close(self) -> None:
        """Close it."""
        await self._transport.close()


async def test_surplus_notice_is_deleted_although_it_changes_before_each_attempt(clock: Clock) -> None:
    changes = itertools.count()

    async def change() -> None:
        patch = merge_patch({"spec": {"reason": str(next(changes))}})
        await client.patch(MAINTENANCE_NOTICES, "azure-surplus", patch)

    async with (
        a_cluster(clock) as client,
        operating(client.with_transport(InterruptingTransport(client.transport, change))),
    ):
        await fill_up(clock, client)
        await clock.sleep(timedelta(seconds=60))
        assert next(changes) > 0
        assert "azure-surplus" not in [notice.name for notice in await notices(client)]


async def test_recreated_notice_is_not_deleted_for_its_predecessor(clock: Clock) -> None:
    """Another notice was deleted meanwhile, so there is no surplus any more."""
    is_over = False

    async def replace() -> None:
        nonlocal is_over
        if not is_over:
            is_over = True
            for name in ("azure-1", "azure-surplus"):
                await client.delete(MAINTENANCE_NOTICES, name)
            await announce(client, "surplus")

    async with (
        a_cluster(clock) as client,
        operating(client.with_transport(InterruptingTransport(client.transport, replace))),
    ):
        await fill_up(clock, client)
        await clock.sleep(timedelta(seconds=30))
        names = [notice.name for notice in await notices(client)]
        assert (len(names), is_over, "azure-surplus" in names) == (MAX_PER_NODE, True, True)


async def fill_up(clock: Clock, client: Client) -> None:
    """Create as many notices as one node may have, and then one more."""
    for number in range(MAX_PER_NODE):
        await announce(client, f"{number}")
    await clock.sleep(timedelta(seconds=2))
    await announce(client, "surplus")


async def test_surplus_notices_are_deleted_after_an_operator_restart(clock: Clock) -> None:
    async with a_cluster(clock) as client:
        for number in range(MAX_PER_NODE + 100):
            await announce(client, f"{number}")
        async with operating(client):
            await clock.sleep(timedelta(seconds=10))
            kept = await notices(client)
            assert len(kept) == MAX_PER_NODE
            assert all(notice.status.phase for notice in kept)
