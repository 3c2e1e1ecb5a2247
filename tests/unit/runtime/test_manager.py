"""The manager: leadership, isolation of components, second leases and hand-over."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from haulout.api.resources import LEASES
from haulout.app.operator import shared_informers
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.runtime.component import Component, Leader
from haulout.runtime.manager import Manager, ManagerSettings
from support.clusters.drain_cluster import DrainCluster
from support.clusters.process import Process
from support.operators.replicas import NAMESPACE, a_replica_cluster, event_notes

LEASE, SECOND_LEASE = "first", "second"
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


class Recorded(Component):
    """A component that records when it runs; it fails `failures` times after ten seconds."""

    failure_reason, action = "TestFailed", "RunTest"

    def __init__(self, title: str, *, lease: str = "", failures: int = 0, hands_over: bool = False) -> None:
        self.title, self.lease = title, lease  # type: ignore[misc]  # of the class elsewhere
        super().__init__()
        self.runs = 0
        self.is_running = False
        self.is_served = False
        self.is_needed = asyncio.Event()
        self.remaining_failures = failures
        self.hands_over = hands_over

    async def serve(self, client: Client) -> None:
        del client
        self.is_served = True
        await asyncio.Event().wait()

    async def wait_until_needed(self, leader: Leader) -> None:
        del leader
        if self.lease:
            await self.is_needed.wait()

    async def lead(self, leader: Leader) -> None:
        self.runs += 1
        self.is_running = True
        try:
            await leader.nodes.wait_synced()
            await leader.client.clock.sleep(10 * SECOND)
            if self.remaining_failures:
                self.remaining_failures -= 1
                raise RuntimeError("boom")
            if self.hands_over:
                leader.handover.before_drain("n1")
            await asyncio.Event().wait()
        finally:
            self.is_running = False


@dataclass
class Replica:
    """A manager in a process, and its components."""

    process: Process
    components: Sequence[Recorded]
    managers: list[Manager] = field(default_factory=list)

    @property
    def manager(self) -> Manager:
        return self.managers[-1]


def start(cluster: DrainCluster, name: str, *components: Recorded, node: str = "") -> Replica:
    """Start a replica."""
    managers: list[Manager] = []

    async def program(client: Client) -> None:
        settings = ManagerSettings(namespace=NAMESPACE, identity=name, lease=LEASE, reporter="test", node=node)
        managers.append(Manager(client, components, settings=settings, share=shared_informers))
        await managers[-1].run()

    process = Process(cluster.cluster, name, program)
    process.start()
    return Replica(process, components, managers)


async def holder(cluster: DrainCluster, lease: str) -> str | None:
    """Return who holds a lease."""
    found = await cluster.cluster.client("test").find(LEASES, lease, namespace=NAMESPACE)
    return None if found is None else found.spec.holder_identity


@asynccontextmanager
async def a_cluster(clock: Clock) -> AsyncIterator[DrainCluster]:
    async with a_replica_cluster(clock, "n1", "n2") as cluster:
        yield cluster


async def test_failed_component_restarts_alone_and_is_reported(clock: Clock) -> None:
    broken, healthy = Recorded("broken", failures=1), Recorded("healthy")
    async with a_cluster(clock) as cluster:
        start(cluster, "one", broken, healthy)
        await cluster.wait_until(lambda: broken.runs == 2)
        assert healthy.runs == 1
        assert list(broken.problems()) == [
            "broken failed and restarts, other components continue: RuntimeError('boom'); see the log"
        ]
        await cluster.wait_until(lambda: "TestFailed" in event_notes(cluster, NAMESPACE))
        assert await holder(cluster, LEASE) == "one"


async def test_every_replica_serves_and_only_one_leads(clock: Clock) -> None:
    async with a_cluster(clock) as cluster:
        one, two = start(cluster, "one", Recorded("a")), start(cluster, "two", Recorded("a"))
        await cluster.wait_until(lambda: any(it.components[0].is_running for it in (one, two)))
        await clock.sleep(MINUTE)
        assert [it.components[0].is_served for it in (one, two)] == [True, True]
        assert sum(it.components[0].is_running for it in (one, two)) == 1
        assert sum(it.manager.is_leader for it in (one, two)) == 1
        assert [it.components[0].leads for it in (one, two)] == [it.manager.is_leader for it in (one, two)]


async def test_second_lease_is_taken_once_a_component_needs_it_and_only_by_the_leader(clock: Clock) -> None:
    first, second = Recorded("first"), Recorded("second", lease=SECOND_LEASE)
    async with a_cluster(clock) as cluster:
        start(cluster, "one", first, second)
        await cluster.wait_until(lambda: first.is_running)
        standby = start(cluster, "two", Recorded("first"), Recorded("second", lease=SECOND_LEASE))
        standby.components[1].is_needed.set()
        await clock.sleep(MINUTE)
        assert await holder(cluster, SECOND_LEASE) is None
        assert not second.is_running
        second.is_needed.set()
        await cluster.wait_until(lambda: second.is_running)
        assert (await holder(cluster, LEASE), await holder(cluster, SECOND_LEASE)) == ("one", "one")
        assert not standby.components[1].is_running


async def test_failure_under_a_second_lease_keeps_both_leases(clock: Clock) -> None:
    broken, healthy = Recorded("broken", lease=SECOND_LEASE, failures=2), Recorded("healthy", lease=SECOND_LEASE)
    broken.is_needed.set()
    async with a_cluster(clock) as cluster:
        start(cluster, "one", broken, healthy)
        await cluster.wait_until(lambda: broken.runs == 3)
        assert healthy.runs == 1
        assert (await holder(cluster, LEASE), await holder(cluster, SECOND_LEASE)) == ("one", "one")


async def test_component_runs_while_another_operator_holds_its_lease_only_after_that_releases_it(clock: Clock) -> None:
    first, second = Recorded("first"), Recorded("second", lease=SECOND_LEASE)
    second.is_needed.set()
    async with a_cluster(clock) as cluster:
        other = Recorded("other")

        async def predecessor(client: Client) -> None:
            settings = ManagerSettings(namespace=NAMESPACE, identity="old", lease=SECOND_LEASE, reporter="test")
            await Manager(client, [other], settings=settings, share=shared_informers).run()

        old = Process(cluster.cluster, "old", predecessor)
        old.start()
        await cluster.wait_until(lambda: other.is_running)
        start(cluster, "one", first, second)
        await cluster.wait_until(lambda: first.is_running)
        await clock.sleep(2 * MINUTE)
        assert not second.is_running
        old.kill()
        await cluster.wait_until(lambda: second.is_running)
        assert first.runs == 1


async def test_hand_over_of_a_component_under_a_second_lease_passes_both_leases_on(clock: Clock) -> None:
    first, second = Recorded("first"), Recorded("second", lease=SECOND_LEASE, hands_over=True)
    second.is_needed.set()
    async with a_cluster(clock) as cluster:
        start(cluster, "one", first, second, node="n1")
        await cluster.wait_until(lambda: second.is_running)
        standby = start(cluster, "two", Recorded("first"), Recorded("second", lease=SECOND_LEASE), node="n2")
        standby.components[1].is_needed.set()
        await cluster.wait_until(lambda: standby.components[1].is_running)
        assert (await holder(cluster, LEASE), await holder(cluster, SECOND_LEASE)) == ("two", "two")
        assert not first.is_running
        assert not second.is_running


async def test_leader_without_a_standby_continues_although_its_node_is_drained(clock: Clock) -> None:
    component = Recorded("only", hands_over=True)
    async with a_cluster(clock) as cluster:
        start(cluster, "one", component, node="n1")
        await cluster.wait_until(lambda: component.runs == 2)
        await clock.sleep(5 * MINUTE)
        assert component.runs == 2
        assert component.is_running
        assert await holder(cluster, LEASE) == "one"
