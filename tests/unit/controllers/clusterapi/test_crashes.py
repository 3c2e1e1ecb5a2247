"""The hub crashes at each of its writes, in any cluster, and its successor reaches the same end state."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from haulout.controllers.clusterapi.settings import OldApprovals
from haulout.errors import KubeError
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from support.faults.crash_test import CRASH_SAMPLING, counts_as_write
from support.platforms.hub import HubClusters, WorkloadCluster

DOWN_FOR = timedelta(seconds=2)


@dataclass
class CrashPoint:
    """At which write the hub dies, from 1 on; 0: at none."""

    number: int = 0
    before: bool = False  # the write is not sent; otherwise it takes effect and its response is lost
    sent: int = 0
    dies: asyncio.Event = field(default_factory=asyncio.Event)

    def wrap_transport(self, _: str, transport: Transport) -> Transport:
        """Return a transport at which the hub may crash."""
        return _CrashingTransport(transport, self)


class _CrashingTransport:
    def __init__(self, transport: Transport, crash_point: CrashPoint) -> None:
        self.server = transport.server
        self._transport = transport
        self._crash_point = crash_point

    async def send(self, request: Request) -> Response:
        crash_point = self._crash_point
        if counts_as_write(request):
            crash_point.sent += 1
            if crash_point.sent == crash_point.number:
                if not crash_point.before:
                    with suppress(KubeError):
                        await self._transport.send(request)
                crash_point.dies.set()
                await asyncio.Event().wait()
        return await self._transport.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


@asynccontextmanager
async def restarting_hubs(world: HubClusters, crash_point: CrashPoint, **settings: Any) -> AsyncIterator[None]:
    """Run a hub while the context lasts, and restart it after each crash."""

    async def keep() -> None:
        while True:
            async with world.running_hub(**settings):
                await crash_point.dies.wait()
            crash_point.dies.clear()
            await world.clock.sleep(DOWN_FOR)

    world.wrap_transport = crash_point.wrap_transport
    async with asyncio.TaskGroup() as group:
        task = group.create_task(keep())
        try:
            yield
        finally:
            task.cancel()


async def full_lifecycle(crash_point: CrashPoint, settings: dict[str, Any]) -> list[Any]:
    """Maintain one Machine twice, delete another, opt the last one out; return the end state."""
    world = await HubClusters(VirtualClock()).install_crds()
    prod, other = await world.add_cluster("a", "prod"), await world.add_cluster("b", "prod")
    async with restarting_hubs(world, crash_point, **settings):
        one, two, three = [
            await world.add_machine(cluster, name) for cluster, name in ((prod, "m1"), (prod, "m2"), (other, "m3"))
        ]
        await world.eventually(lambda: all(map(world.has_hook, (one, two, three))), seconds=90)
        for _ in range(2):
            await maintain(world, prod, one)
        await world.delete_machine(two)
        await world.eventually(lambda: world.is_marked_deleted(prod, two), seconds=90)
        assert world.has_hook(two)
        await world.label_node(prod, two, approve_deletion="true")
        await world.eventually(lambda: world.hook_annotation(two) is None, seconds=90)
        await world.clock.sleep(timedelta(seconds=10))
        ended = state_of(world, prod, two)
        await world.finish_deletion(two)
        for machine, side in ((one, prod), (three, other)):
            await world.label_machine(machine, enabled=None)
            await world.eventually(lambda machine=machine: world.hook_annotation(machine) is None, seconds=90)  # type: ignore[misc]  # a default
            await world.eventually(lambda side=side: side.open_connections, becomes=0, seconds=90)  # type: ignore[misc]  # a default
        return [ended, state_of(world, prod, one), state_of(world, other, three)]


async def maintain(world: HubClusters, side: WorkloadCluster, machine: str) -> None:
    await world.label_machine(machine, maintenance="requested")
    await world.eventually(lambda: world.is_maintenance_requested(side, machine), seconds=90)
    assert world.maintenance_label(machine) == "requested"
    await world.label_node(side, machine, approve_maintenance="true")
    await world.eventually(lambda: world.maintenance_label(machine), becomes="approved", seconds=90)
    await world.label_machine(machine, maintenance=None)
    await world.eventually(lambda: not world.is_maintenance_requested(side, machine), seconds=90)
    await world.label_node(side, machine, approve_maintenance=None)


def state_of(world: HubClusters, side: WorkloadCluster, machine: str) -> Any:
    """Return labels and annotations of a Machine and its node, without request times."""
    on_machine, on_node = world.machine(machine)["metadata"], world.node_of(side, machine)["metadata"]
    return (
        on_machine.get("labels"),
        on_machine.get("annotations"),
        on_node.get("labels"),
        sorted(on_node.get("annotations", {})),
    )


@pytest.mark.parametrize("old_approvals", OldApprovals)
def test_crash_at_any_write_changes_nothing(old_approvals: OldApprovals) -> None:
    settings = {"old_approvals": old_approvals}
    undisturbed = CrashPoint()
    expected = run_virtual(full_lifecycle(undisturbed, settings))
    assert undisturbed.sent >= 12
    crashes = [(number, before) for number in range(1, undisturbed.sent + 1) for before in (True, False)]
    for number, before in CRASH_SAMPLING.select(crashes):
        crash_point = CrashPoint(number, before)
        found = run_virtual(full_lifecycle(crash_point, settings))
        assert found == expected, f"a crash {'before' if before else 'after'} write {number} of {undisturbed.sent}"
        assert crash_point.sent >= number


async def test_two_hubs_that_both_believe_they_lead_do_no_harm() -> None:
    world = await HubClusters(VirtualClock()).install_crds()
    prod = await world.add_cluster("a", "prod")
    async with world.running_hub(), world.running_hub():
        one, two = await world.add_machine(prod, "m1"), await world.add_machine(prod, "m2")
        await world.eventually(lambda: world.has_hook(one) and world.has_hook(two))
        for _ in range(3):
            await maintain(world, prod, one)
        await world.delete_machine(two)
        await world.eventually(lambda: world.is_marked_deleted(prod, two))
        assert world.has_hook(two)
        await world.label_node(prod, two, approve_deletion="true")
        await world.eventually(lambda: world.hook_annotation(two) is None)
        before = prod.api.revision
        await world.clock.sleep(timedelta(minutes=10))
        assert prod.api.revision - before <= 1  # an event of the other, at most
