"""The hub is stopped at each of its writes, in whichever cluster, and its successor brings all to the same end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from haulout.errors import KubeError
from haulout.hub.settings import OldApprovals
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout_sandbox.event_loops.virtual import VirtualClock, run_virtual
from support.crashes import THOROUGHNESS, is_counted
from support.hubs import Side, World

DOWN_FOR = timedelta(seconds=2)


@dataclass
class Fate:
    """At which write the hub dies, from 1 on; 0: at none."""

    number: int = 0
    before: bool = False  # the write is never sent; otherwise it takes effect, and no answer is heard
    sent: int = 0
    dies: asyncio.Event = field(default_factory=asyncio.Event)

    def through(self, _: str, transport: Transport) -> Transport:
        """Return a way to a cluster on which it may die."""
        return _Counting(transport, self)


class _Counting:
    def __init__(self, transport: Transport, fate: Fate) -> None:
        self.server = transport.server
        self._transport = transport
        self._fate = fate

    async def send(self, request: Request) -> Response:
        fate = self._fate
        if is_counted(request):
            fate.sent += 1
            if fate.sent == fate.number:
                if not fate.before:
                    with suppress(KubeError):
                        await self._transport.send(request)
                fate.dies.set()
                await asyncio.Event().wait()
        return await self._transport.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


@asynccontextmanager
async def hubs(world: World, fate: Fate, **settings: Any) -> AsyncIterator[None]:
    """Have a hub run while the context lasts, and a successor should it die."""

    async def keep() -> None:
        while True:
            async with world.hub(**settings):
                await fate.dies.wait()
            fate.dies.clear()
            await world.clock.sleep(DOWN_FOR)

    world.between = fate.through
    async with asyncio.TaskGroup() as group:
        task = group.create_task(keep())
        try:
            yield
        finally:
            task.cancel()


async def a_life(fate: Fate, settings: dict[str, Any]) -> list[Any]:
    """Maintain one Machine twice, delete another, let the last opt out; return what all comes to."""
    world = await World(VirtualClock()).begin()
    prod, other = await world.add_cluster("a", "prod"), await world.add_cluster("b", "prod")
    async with hubs(world, fate, **settings):
        one, two, three = [
            await world.add_machine(it, name) for it, name in ((prod, "m1"), (prod, "m2"), (other, "m3"))
        ]
        await world.eventually(lambda: all(map(world.has_hook, (one, two, three))), seconds=90)
        for _ in range(2):
            await maintain(world, prod, one)
        await world.delete(two)
        await world.eventually(lambda: world.is_deleted(prod, two), seconds=90)
        assert world.has_hook(two)
        await world.mark(prod, two, approve_deletion="true")
        await world.eventually(lambda: world.hook(two) is None, seconds=90)
        await world.clock.sleep(timedelta(seconds=10))
        ended = shape(world, prod, two)
        await world.end_machine(two)
        for machine, side in ((one, prod), (three, other)):
            await world.label(machine, enabled=None)
            await world.eventually(lambda machine=machine: world.hook(machine) is None, seconds=90)  # type: ignore[misc]  # a default
            await world.eventually(lambda side=side: side.open, becomes=0, seconds=90)  # type: ignore[misc]  # a default
        return [ended, shape(world, prod, one), shape(world, other, three)]


async def maintain(world: World, side: Side, machine: str) -> None:
    await world.label(machine, maintenance="requested")
    await world.eventually(lambda: world.is_maintained(side, machine), seconds=90)
    assert world.wish(machine) == "requested"
    await world.mark(side, machine, approve_maintenance="true")
    await world.eventually(lambda: world.wish(machine), becomes="approved", seconds=90)
    await world.label(machine, maintenance=None)
    await world.eventually(lambda: not world.is_maintained(side, machine), seconds=90)
    await world.mark(side, machine, approve_maintenance=None)


def shape(world: World, side: Side, machine: str) -> Any:
    """Return what is on a Machine and its node; not when it was asked for."""
    on_machine, on_node = world.machine(machine)["metadata"], world.node(side, machine)["metadata"]
    return (
        on_machine.get("labels"),
        on_machine.get("annotations"),
        on_node.get("labels"),
        sorted(on_node.get("annotations", {})),
    )


@pytest.mark.parametrize("old_approvals", OldApprovals)
def test_a_crash_at_any_write_changes_nothing(old_approvals: OldApprovals) -> None:
    settings = {"old_approvals": old_approvals}
    calm = Fate()
    expected = run_virtual(a_life(calm, settings))
    assert calm.sent >= 12
    crashes = [(number, before) for number in range(1, calm.sent + 1) for before in (True, False)]
    for number, before in THOROUGHNESS.chosen(crashes):
        fate = Fate(number, before)
        found = run_virtual(a_life(fate, settings))
        assert found == expected, f"a crash {'before' if before else 'after'} write {number} of {calm.sent}"
        assert fate.sent >= number


async def test_two_hubs_that_both_believe_to_lead_do_no_harm() -> None:
    world = await World(VirtualClock()).begin()
    prod = await world.add_cluster("a", "prod")
    async with world.hub(), world.hub():
        one, two = await world.add_machine(prod, "m1"), await world.add_machine(prod, "m2")
        await world.eventually(lambda: world.has_hook(one) and world.has_hook(two))
        for _ in range(3):
            await maintain(world, prod, one)
        await world.delete(two)
        await world.eventually(lambda: world.is_deleted(prod, two))
        assert world.has_hook(two)
        await world.mark(prod, two, approve_deletion="true")
        await world.eventually(lambda: world.hook(two) is None)
        before = prod.api.revision
        await world.clock.sleep(timedelta(minutes=10))
        assert prod.api.revision - before <= 1  # an event of the other, at most
