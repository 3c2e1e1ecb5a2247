"""Whatever befalls the hub's way to either cluster, all comes to its end once it stops; and what it may begin."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from haulout.api.clusterapi import ClusterKey
from haulout.controllers.clusterapi.status import ConnectionState
from haulout.core.clock import Clock
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout_sandbox.apiserver import Faults, InProcessTransport
from haulout_sandbox.apiserver.transport.in_process import InProcessStream
from support.platforms.hub import HubClusters, WorkloadCluster

InjectFault = Callable[[InProcessTransport], None]


@pytest.fixture
async def world(clock: Clock) -> HubClusters:
    return await HubClusters(clock).install_crds()


def with_faults(tell: Callable[[Faults], object]) -> InjectFault:
    return lambda line: (tell(line.faults), None)[1]


FAULTS: dict[str, InjectFault] = {
    "writes fail": with_faults(lambda it: it.fail_before_effect(method="PATCH", response=500, times=4)),
    "writes are answered to nobody": with_faults(lambda it: it.fail_after_effect(method="PATCH", times=4)),
    "too many requests": with_faults(lambda it: it.fail_before_effect(response=429, times=5)),
    "conflicts": with_faults(lambda it: it.fail_before_effect(method="PATCH", response=409, times=4)),
    "events are repeated": with_faults(lambda it: it.duplicate(times=3)),
    "the line breaks": lambda line: line.disconnect(),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("where", ["management", "workload"])
async def test_all_comes_to_its_end_once_faults_stop(world: HubClusters, fault: str, where: str) -> None:
    prod = await world.add_cluster("a", "prod")
    async with world.running_hub():
        machine, other = await world.add_machine(prod, "m1"), await world.add_machine(prod, "m2")
        await world.eventually(lambda: world.has_hook(machine) and world.has_hook(other))
        line = world.hub_transport if where == "management" else prod.hub_transports[0]
        assert line is not None
        FAULTS[fault](line)
        await world.label_machine(machine, maintenance="requested")
        await world.delete_machine(other)
        await _eventually(
            world, lambda: world.is_maintenance_requested(prod, machine) and world.is_marked_deleted(prod, other)
        )
        assert world.has_hook(other)
        await world.label_node(prod, machine, approve_maintenance="true")
        await world.label_node(prod, other, approve_deletion="true")
        await _eventually(
            world, lambda: world.maintenance_label(machine) == "approved" and world.hook_annotation(other) is None
        )


async def _eventually(world: HubClusters, condition: Callable[[], bool]) -> None:
    """Wait for it; what was lost of a watch comes when that is opened anew, after ten minutes at most."""
    await world.eventually(condition, seconds=1200)


async def test_old_copies_release_nobody(world: HubClusters) -> None:
    """The watch of nodes tells minutes late: what is asked rests on how the node is, not on how it was."""
    prod = await world.add_cluster("a", "prod")
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        prod.hub_transports[0].faults.delay_event(by=timedelta(minutes=2), path="/nodes", times=None)
        await world.label_node(prod, machine, approve_deletion="true")  # for something else, and not seen yet
        await world.delete_machine(machine)
        await world.assert_stays(
            lambda: world.has_hook(machine) and not world.is_marked_deleted(prod, machine), seconds=600
        )
        await world.label_node(prod, machine, approve_deletion=None)
        await _eventually(world, lambda: world.is_marked_deleted(prod, machine))
        assert world.has_hook(machine)


class AnsweringProxy:
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


async def test_a_cluster_in_whose_place_a_web_page_answers_is_unreachable_and_stays_so(world: HubClusters) -> None:
    """That there is an answer at all does not count: it would never be waited for in vain."""
    prod, proxies = await world.add_cluster("a", "prod"), list[AnsweringProxy]()
    began = world.clock.now()

    def between(key: str, transport: Transport) -> Transport:
        if key == "management":
            return transport
        proxies.append(AnsweringProxy(transport))
        return proxies[-1]

    world.wrap_transport = between
    async with world.running_hub(unreachable_after=timedelta(minutes=10)):
        machine = await world.add_machine(prod, "m1")
        await world.clock.sleep(timedelta(minutes=5))
        status = world.hub_status(prod)
        assert status is not None
        assert status.connection_state is ConnectionState.UNREACHABLE
        assert "is a proxy or a login page in between?" in status.reason
        assert status.since is not None
        assert status.since - began < timedelta(seconds=10), "it is the same trouble since then"
        for proxy in proxies:
            proxy.answers = False
        await world.eventually(lambda: world.has_hook(machine), seconds=120)
        for proxy in proxies:
            proxy.answers = True
            prod.hub_transports[0].disconnect()
        await world.delete_machine(machine)
        await world.eventually(lambda: "ClusterUnreachable" in world.event_reasons(), seconds=1500)
        assert world.hook_annotation(machine) is None


async def test_what_breaks_for_one_cluster_starts_again_soon_also_the_tenth_time(
    world: HubClusters, caplog: pytest.LogCaptureFixture
) -> None:
    """By a defect of ours, which no other cluster hears of."""
    prod, test, breaks = await world.add_cluster("a", "prod"), await world.add_cluster("a", "test"), list[str]()

    def between(key: str, transport: Transport) -> Transport:
        if key in breaks:
            breaks.remove(key)
            raise RuntimeError("a defect")
        return transport

    world.wrap_transport = between
    async with world.running_hub():
        first, second = await world.add_machine(prod, "m1"), await world.add_machine(test, "m2")
        await world.eventually(lambda: world.has_hook(first) and world.has_hook(second))
        for number in range(10):
            breaks.append("a/prod")
            await world.rotate_token(prod, f"another-{number}")
            await world.eventually(lambda: not breaks, seconds=60)
            await world.clock.sleep(timedelta(hours=1))
        breaks.append("a/prod")
        await world.rotate_token(prod, "last")
        await world.eventually(lambda: not breaks, seconds=60)
        await world.delete_machine(first)
        await world.delete_machine(second)
        await world.eventually(lambda: world.is_marked_deleted(test, second), seconds=1)
        await world.eventually(lambda: world.is_marked_deleted(prod, first), seconds=10)
    expected_message = "cluster a/prod: unexpected error, restarting; other clusters are not affected"
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [expected_message] * 11


# The budget across clusters


class FixedClusterBudget:
    """Lets so many clusters begin."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.holders: set[ClusterKey] = set()
        self.begun: list[ClusterKey] = []

    async def acquire(self, key: ClusterKey, *, is_running: bool = False) -> str:
        """Return why not."""
        if is_running:
            self.begun.append(key)
        elif key not in self.holders and len(self.holders) >= self.most:
            return f"{self.most} of {self.most} clusters are in maintenance"
        self.holders.add(key)
        return ""

    async def release(self, key: ClusterKey) -> None:
        """Give it back."""
        self.holders.discard(key)


async def test_clusters_begin_one_after_the_other_if_the_budget_says_so(world: HubClusters) -> None:
    sides = [await world.add_cluster("fleet", f"c{number}") for number in range(3)]
    budget = FixedClusterBudget(1)
    async with world.running_hub(budget):
        machines = {side.key: await world.add_machine(side, f"m-{side.key.name}") for side in sides}
        more = await world.add_machine(sides[0], "more")
        await world.eventually(lambda: all(map(world.has_hook, machines.values())))
        for machine in (*machines.values(), more):
            await world.delete_machine(machine)
        left = list(sides)
        while left:
            [now] = await world.eventually(lambda left=left: _requested(world, left, machines), seconds=120)  # type: ignore[misc]  # a default
            await world.clock.sleep(timedelta(minutes=1))
            assert _requested(world, left, machines) == [now]
            waiting = [world.hub_status(side) for side in left if side is not now]
            assert all(side is not None and side.waiting_reason for side in waiting)
            for machine in [machines[now.key], *([more] if now is sides[0] else [])]:
                assert world.is_marked_deleted(now, machine)
                await world.label_node(now, machine, approve_deletion="true")
                await world.eventually(lambda machine=machine: world.hook_annotation(machine) is None)  # type: ignore[misc]  # a default
                await world.finish_deletion(machine)
            left.remove(now)
        await world.eventually(lambda: not budget.holders)
    assert "ClusterBudgetExhausted" in world.event_reasons()


def _requested(
    world: HubClusters, sides: list[WorkloadCluster], machines: dict[ClusterKey, str]
) -> list[WorkloadCluster]:
    return [side for side in sides if world.is_marked_deleted(side, machines[side.key])]


async def test_what_has_begun_counts_for_who_comes_next(world: HubClusters) -> None:
    prod = await world.add_cluster("a", "prod")
    async with world.running_hub(FixedClusterBudget(1)):
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine))
    next_one = FixedClusterBudget(1)
    async with world.running_hub(next_one):
        await world.eventually(lambda: next_one.holders, becomes={prod.key})
        assert next_one.begun == [prod.key]
        await world.label_machine(machine, maintenance=None)
        await world.eventually(lambda: not next_one.holders)


async def test_a_cluster_that_is_away_keeps_its_slot(world: HubClusters) -> None:
    prod = await world.add_cluster("a", "prod")
    budget = FixedClusterBudget(1)
    async with world.running_hub(budget):
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine))
        prod.become_unreachable()
        await world.assert_stays(lambda: budget.holders == {prod.key}, seconds=1200)
        await world.label_machine(machine, maintenance=None)
        await world.assert_stays(lambda: budget.holders == {prod.key}, seconds=1200)
        prod.recover()
        await world.eventually(lambda: not budget.holders, seconds=120)
        assert not world.is_maintenance_requested(prod, machine)


async def test_a_slot_that_was_left_behind_is_given_back(world: HubClusters) -> None:
    prod = await world.add_cluster("a", "prod")
    budget = FixedClusterBudget(1)
    budget.holders.add(prod.key)
    async with world.running_hub(budget):
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.eventually(lambda: not budget.holders)
