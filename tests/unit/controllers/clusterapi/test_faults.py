"""The hub completes requests after faults between it and either cluster, within the cluster budget."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from haulout.api.clusterapi import ENABLED, MAINTENANCE, ClusterKey
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
    return lambda transport: (tell(transport.faults), None)[1]


FAULTS: dict[str, InjectFault] = {
    "writes fail": with_faults(lambda it: it.fail_before_effect(method="PATCH", response=500, times=4)),
    "writes are answered to nobody": with_faults(lambda it: it.fail_after_effect(method="PATCH", times=4)),
    "too many requests": with_faults(lambda it: it.fail_before_effect(response=429, times=5)),
    "conflicts": with_faults(lambda it: it.fail_before_effect(method="PATCH", response=409, times=4)),
    "events are repeated": with_faults(lambda it: it.duplicate(times=3)),
    "the line breaks": lambda transport: transport.disconnect(),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("where", ["management", "workload"])
async def test_requests_complete_after_faults_stop(world: HubClusters, fault: str, where: str) -> None:
    prod = await world.add_cluster("a", "prod")
    async with world.running_hub():
        machine, other = await world.add_machine(prod, "m1"), await world.add_machine(prod, "m2")
        await world.eventually(lambda: world.has_hook(machine) and world.has_hook(other))
        transport = world.hub_transport if where == "management" else prod.hub_transports[0]
        assert transport is not None
        FAULTS[fault](transport)
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
    """Wait; lost watch events arrive when the watch is reopened, after ten minutes at most."""
    await world.eventually(condition, seconds=1200)


async def test_stale_caches_release_no_machine(world: HubClusters) -> None:
    """Watch events of nodes are minutes late, but a request requires the current node version."""
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
        """Answer with a page, or forward the request."""
        return Response(200, HTML, PAGE) if self.answers else await self._transport.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Answer with a page, or forward the request."""
        if self.answers:
            yield InProcessStream(200, HTML, first=PAGE)
            return
        async with self._transport.stream(request) as stream:
            yield stream

    async def close(self) -> None:
        """Close the line behind it."""
        await self._transport.close()


HTML, PAGE = {"content-type": "text/html; charset=utf-8"}, b"<html>Please log in</html>"


async def test_cluster_behind_a_login_page_is_unreachable(world: HubClusters) -> None:
    """A response of another server does not count as reachable."""
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


async def test_crashed_cluster_task_restarts_soon_even_the_tenth_time(
    world: HubClusters, caplog: pytest.LogCaptureFixture
) -> None:
    """An unexpected error affects no other cluster."""
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
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 11
    assert all(error.startswith("cluster a/prod failed and restarts in ") for error in errors)


async def test_event_of_a_request_survives_a_conflict_on_its_machine(world: HubClusters) -> None:
    """The node is written before the Machine: what failed then must not hide what was done."""
    prod = await world.add_cluster("a", "prod")
    async with world.running_hub():
        first, second = await world.add_machine(prod, "m1"), await world.add_machine(prod, "m2", enabled=None)
        await world.eventually(lambda: world.has_hook(first))
        assert world.hub_transport is not None
        world.hub_transport.faults.fail_before_effect(method="PATCH", path="/machines/m2", response=409)
        await world.patch_machine(second, metadata={"labels": {ENABLED: "true", MAINTENANCE: "requested"}})
        await world.eventually(lambda: world.has_hook(second) and world.is_maintenance_requested(prod, second))
        await world.eventually(lambda: world.event_reasons().count("MaintenanceRequested"), becomes=1)
        assert world.event_reasons(prod.api) == ["MaintenanceRequested"]


async def test_status_of_a_machine_names_the_failure_of_its_reconcile(world: HubClusters) -> None:
    prod = await world.add_cluster("a", "prod")

    def reasons() -> list[str]:
        status = world.hub_status(prod)
        return [] if status is None else [request.reason for request in status.requests if not request.is_approved]

    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        faults = prod.hub_transports[0].faults
        faults.fail_before_effect(method="PATCH", path="/nodes", response=403, times=None)
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: any("403" in reason or "forbidden" in reason.lower() for reason in reasons()))
        faults.clear()
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine), seconds=120)
        await world.eventually(lambda: any(reason.startswith("waiting for label") for reason in reasons()))


# The budget across clusters


class FixedClusterBudget:
    """A cluster budget with a fixed limit."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.holders: set[ClusterKey] = set()
        self.started: list[ClusterKey] = []

    async def acquire(self, key: ClusterKey, *, is_running: bool = False) -> str:
        """Return why the cluster is refused."""
        if is_running:
            self.started.append(key)
        elif key not in self.holders and len(self.holders) >= self.most:
            return f"{self.most} of {self.most} clusters are in maintenance"
        self.holders.add(key)
        return ""

    async def release(self, key: ClusterKey) -> None:
        """Release the slot."""
        self.holders.discard(key)


async def test_clusters_start_one_after_the_other_within_the_budget(world: HubClusters) -> None:
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


async def test_running_maintenance_counts_for_the_next_hub(world: HubClusters) -> None:
    prod = await world.add_cluster("a", "prod")
    async with world.running_hub(FixedClusterBudget(1)):
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine))
    next_one = FixedClusterBudget(1)
    async with world.running_hub(next_one):
        await world.eventually(lambda: next_one.holders, becomes={prod.key})
        assert next_one.started == [prod.key]
        await world.label_machine(machine, maintenance=None)
        await world.eventually(lambda: not next_one.holders)


async def test_unreachable_cluster_keeps_its_slot(world: HubClusters) -> None:
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


async def test_leftover_slot_is_released(world: HubClusters) -> None:
    prod = await world.add_cluster("a", "prod")
    budget = FixedClusterBudget(1)
    budget.holders.add(prod.key)
    async with world.running_hub(budget):
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.eventually(lambda: not budget.holders)
