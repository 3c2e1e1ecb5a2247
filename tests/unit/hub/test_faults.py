"""Whatever befalls the hub's way to either cluster, all comes to its end once it stops; and what it may begin."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.hub.standing import Reach
from haulout.kinds.clusterapi import ClusterKey
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout_sandbox.apiserver import Faults, InProcessTransport
from haulout_sandbox.apiserver.transport import InProcessStream
from support.hubs import Side, World

Befall = Callable[[InProcessTransport], None]


@pytest.fixture
async def world(clock: Clock) -> World:
    return await World(clock).begin()


def ruled(tell: Callable[[Faults], object]) -> Befall:
    return lambda line: (tell(line.faults), None)[1]


FAULTS: dict[str, Befall] = {
    "writes fail": ruled(lambda it: it.before(method="PATCH", answer=500, times=4)),
    "writes are answered to nobody": ruled(lambda it: it.after(method="PATCH", times=4)),
    "too many requests": ruled(lambda it: it.before(answer=429, times=5)),
    "conflicts": ruled(lambda it: it.before(method="PATCH", answer=409, times=4)),
    "events are repeated": ruled(lambda it: it.repeat(times=3)),
    "the line breaks": lambda line: line.disconnect(),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("where", ["management", "workload"])
async def test_all_comes_to_its_end_once_faults_stop(world: World, fault: str, where: str) -> None:
    prod = await world.add_cluster("a", "prod")
    async with world.hub():
        machine, other = await world.add_machine(prod, "m1"), await world.add_machine(prod, "m2")
        await world.eventually(lambda: world.has_hook(machine) and world.has_hook(other))
        line = world.line if where == "management" else prod.lines[0]
        assert line is not None
        FAULTS[fault](line)
        await world.label(machine, maintenance="requested")
        await world.delete(other)
        await _until(world, lambda: world.is_maintained(prod, machine) and world.is_deleted(prod, other))
        assert world.has_hook(other)
        await world.mark(prod, machine, approve_maintenance="true")
        await world.mark(prod, other, approve_deletion="true")
        await _until(world, lambda: world.wish(machine) == "approved" and world.hook(other) is None)


async def _until(world: World, look: Callable[[], bool]) -> None:
    """Wait for it; what was lost of a watch comes when that is opened anew, after ten minutes at most."""
    await world.eventually(look, seconds=1200)


async def test_old_copies_release_nobody(world: World) -> None:
    """The watch of nodes tells minutes late: what is asked rests on how the node is, not on how it was."""
    prod = await world.add_cluster("a", "prod")
    async with world.hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        prod.lines[0].faults.late(by=timedelta(minutes=2), path="/nodes", times=None)
        await world.mark(prod, machine, approve_deletion="true")  # for something else, and not seen yet
        await world.delete(machine)
        await world.stays(lambda: world.has_hook(machine) and not world.is_deleted(prod, machine), seconds=600)
        await world.mark(prod, machine, approve_deletion=None)
        await _until(world, lambda: world.is_deleted(prod, machine))
        assert world.has_hook(machine)


class Astray:
    """A proxy that answers itself, while it does so."""

    def __init__(self, transport: Transport) -> None:
        self.server = transport.server
        self.answers = True
        self._transport = transport

    async def send(self, request: Request) -> Response:
        """Answer with a page, or let it through."""
        return Response(200, HTML, PAGE) if self.answers else await self._transport.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Answer with a page, or let it through."""
        if self.answers:
            yield InProcessStream(200, HTML, first=PAGE)
            return
        async with self._transport.stream(request) as stream:
            yield stream

    async def close(self) -> None:
        """Close the line behind it."""
        await self._transport.close()


HTML, PAGE = {"content-type": "text/html; charset=utf-8"}, b"<html>Please log in</html>"


async def test_a_cluster_in_whose_place_a_web_page_answers_is_unreachable_and_stays_so(world: World) -> None:
    """That there is an answer at all does not count: it would never be waited for in vain."""
    prod, proxies = await world.add_cluster("a", "prod"), list[Astray]()
    began = world.clock.now()

    def between(key: str, transport: Transport) -> Transport:
        if key == "management":
            return transport
        proxies.append(Astray(transport))
        return proxies[-1]

    world.between = between
    async with world.hub(unreachable_after=timedelta(minutes=10)):
        machine = await world.add_machine(prod, "m1")
        await world.clock.sleep(timedelta(minutes=5))
        standing = world.standing(prod)
        assert standing is not None
        assert standing.reach is Reach.UNREACHABLE
        assert "is a proxy or a login page in between?" in standing.reason
        assert standing.since is not None
        assert standing.since - began < timedelta(seconds=10), "it is the same trouble since then"
        for proxy in proxies:
            proxy.answers = False
        await world.eventually(lambda: world.has_hook(machine), seconds=120)
        for proxy in proxies:
            proxy.answers = True
            prod.lines[0].disconnect()
        await world.delete(machine)
        await world.eventually(lambda: "ClusterUnreachable" in world.told(), seconds=1500)
        assert world.hook(machine) is None


async def test_what_breaks_for_one_cluster_starts_again_soon_also_the_tenth_time(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """By a defect of ours, which no other cluster hears of."""
    prod, test, breaks = await world.add_cluster("a", "prod"), await world.add_cluster("a", "test"), list[str]()

    def between(key: str, transport: Transport) -> Transport:
        if key in breaks:
            breaks.remove(key)
            raise RuntimeError("a defect")
        return transport

    world.between = between
    async with world.hub():
        first, second = await world.add_machine(prod, "m1"), await world.add_machine(test, "m2")
        await world.eventually(lambda: world.has_hook(first) and world.has_hook(second))
        for number in range(10):
            breaks.append("a/prod")
            await world.give_key(prod, f"another-{number}")
            await world.eventually(lambda: not breaks, seconds=60)
            await world.clock.sleep(timedelta(hours=1))
        breaks.append("a/prod")
        await world.give_key(prod, "last")
        await world.eventually(lambda: not breaks, seconds=60)
        await world.delete(first)
        await world.delete(second)
        await world.eventually(lambda: world.is_deleted(test, second), seconds=1)
        await world.eventually(lambda: world.is_deleted(prod, first), seconds=10)
    said = "cluster a/prod: something broke, and starts again; all others go on"
    assert [it.getMessage() for it in caplog.records if it.levelname == "ERROR"] == [said] * 11


# The budget across clusters


class Only:
    """Lets so many clusters begin."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.holders: set[ClusterKey] = set()
        self.begun: list[ClusterKey] = []

    async def admit(self, key: ClusterKey, *, has_begun: bool = False) -> str:
        """Return why not."""
        if has_begun:
            self.begun.append(key)
        elif key not in self.holders and len(self.holders) >= self.most:
            return f"{self.most} of {self.most} clusters are in maintenance"
        self.holders.add(key)
        return ""

    async def release(self, key: ClusterKey) -> None:
        """Give it back."""
        self.holders.discard(key)


async def test_clusters_begin_one_after_the_other_if_the_budget_says_so(world: World) -> None:
    sides = [await world.add_cluster("fleet", f"c{number}") for number in range(3)]
    budget = Only(1)
    async with world.hub(budget):
        machines = {it.key: await world.add_machine(it, f"m-{it.key.name}") for it in sides}
        more = await world.add_machine(sides[0], "more")
        await world.eventually(lambda: all(map(world.has_hook, machines.values())))
        for machine in (*machines.values(), more):
            await world.delete(machine)
        left = list(sides)
        while left:
            [now] = await world.eventually(lambda left=left: _asked(world, left, machines), seconds=120)  # type: ignore[misc]  # a default
            await world.clock.sleep(timedelta(minutes=1))
            assert _asked(world, left, machines) == [now]
            waiting = [world.standing(it) for it in left if it is not now]
            assert all(it is not None and it.waits_for for it in waiting)
            for machine in [machines[now.key], *([more] if now is sides[0] else [])]:
                assert world.is_deleted(now, machine)
                await world.mark(now, machine, approve_deletion="true")
                await world.eventually(lambda machine=machine: world.hook(machine) is None)  # type: ignore[misc]  # a default
                await world.end_machine(machine)
            left.remove(now)
        await world.eventually(lambda: not budget.holders)
    assert "WaitsForBudget" in world.told()


def _asked(world: World, sides: list[Side], machines: dict[ClusterKey, str]) -> list[Side]:
    return [it for it in sides if world.is_deleted(it, machines[it.key])]


async def test_what_has_begun_counts_for_who_comes_next(world: World) -> None:
    prod = await world.add_cluster("a", "prod")
    async with world.hub(Only(1)):
        machine = await world.add_machine(prod, "m1")
        await world.label(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintained(prod, machine))
    next_one = Only(1)
    async with world.hub(next_one):
        await world.eventually(lambda: next_one.holders, becomes={prod.key})
        assert next_one.begun == [prod.key]
        await world.label(machine, maintenance=None)
        await world.eventually(lambda: not next_one.holders)


async def test_a_cluster_that_is_away_keeps_its_slot(world: World) -> None:
    prod = await world.add_cluster("a", "prod")
    budget = Only(1)
    async with world.hub(budget):
        machine = await world.add_machine(prod, "m1")
        await world.label(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintained(prod, machine))
        prod.go_away()
        await world.stays(lambda: budget.holders == {prod.key}, seconds=1200)
        await world.label(machine, maintenance=None)
        await world.stays(lambda: budget.holders == {prod.key}, seconds=1200)
        prod.come_back()
        await world.eventually(lambda: not budget.holders, seconds=120)
        assert not world.is_maintained(prod, machine)


async def test_a_slot_that_was_left_behind_is_given_back(world: World) -> None:
    prod = await world.add_cluster("a", "prod")
    budget = Only(1)
    budget.holders.add(prod.key)
    async with world.hub(budget):
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.eventually(lambda: not budget.holders)
