"""A notice of 30 seconds during a failover: the time until its node is empty, in virtual time and to 50 ms."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.api.resources import NODES, PODS
from haulout.app.manifests.operator_manifests import definitions
from haulout.app.operator import OperatorSettings, run_operator
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.leaderelection_config import LeaderElectionConfig
from support.builders.objects import a_node, a_pod
from support.clusters.drain_cluster import SHOP, DrainCluster
from support.clusters.process import Process
from support.fakes.external_client import FakeExternalClient
from support.operators.event_sources import a_notice
from support.operators.replicas import NAMESPACE, a_replica_cluster, all_leases_held_by, leader, lease_holders

RETRY_PERIOD = LeaderElectionConfig().retry_period.total_seconds()


class Replica:
    """An operator without any configuration, which can be killed or stopped."""

    def __init__(self, town: DrainCluster, name: str) -> None:
        settings = OperatorSettings(namespace=NAMESPACE, identity=name)
        self.stop_requested = asyncio.Event()

        async def program(client: Client) -> None:
            file = ProfilesFile(Path("no such file"), environ={}, clock=client.clock, is_optional=True)
            async with asyncio.TaskGroup() as group:
                operator = group.create_task(
                    run_operator(client, settings, profiles=ProfilesComponent(file, FakeExternalClient()))
                )
                await self.stop_requested.wait()
                operator.cancel()

        self.process = Process(town.cluster, name, program)
        self.process.start()


async def announce(town: DrainCluster, node: str) -> None:
    """Create a node with a pod, and a notice that its machine is preempted in 30 seconds."""
    admin = town.cluster.client("admin")
    await admin.create(NODES, a_node(node))
    await admin.create(PODS, a_pod(f"web-{node}", on=node, grace=0), namespace=SHOP)
    start = town.clock.now() + timedelta(seconds=30)
    town.put(a_notice(f"preempt-{node}", node, start=start, source="azure", kind="Terminate"))


async def emptied(town: DrainCluster, node: str) -> float:
    """Return after how many seconds no pod is on a node."""
    return await town.wait_until(lambda: not town.pods(on=node), within=timedelta(minutes=1))


async def two_replicas(town: DrainCluster) -> tuple[Replica, Replica]:
    """Return a leader that has both leases, and a standby."""
    town.put(*definitions())
    first = Replica(town, "one")
    await town.wait_until(lambda: leader(town) == "one")
    await announce(town, "warm-up")
    await emptied(town, "warm-up")
    second = Replica(town, "two")
    await town.clock.sleep(timedelta(seconds=5))
    assert lease_holders(town) == all_leases_held_by("one")
    return first, second


@pytest.mark.parametrize("phase", range(16))
async def test_node_is_empty_within_12_seconds_after_the_leader_is_killed(phase: int, clock: Clock) -> None:
    """At any instant between two renewals of the lease. It takes the lease duration, and a moment."""
    async with a_replica_cluster(clock) as town:
        first, _ = await two_replicas(town)
        await clock.sleep(timedelta(seconds=RETRY_PERIOD * phase / 16))
        first.process.kill()
        await announce(town, "n1")
        took = await emptied(town, "n1")
        assert took <= LeaderElectionConfig().lease_duration.total_seconds() + 0.5
        assert took <= LeaderElectionConfig().max_takeover_time.total_seconds() == 12
        assert lease_holders(town) == all_leases_held_by("two")


@pytest.mark.parametrize("phase", range(4))
async def test_node_is_empty_within_a_second_after_the_leader_is_stopped(phase: int, clock: Clock) -> None:
    async with a_replica_cluster(clock) as town:
        first, _ = await two_replicas(town)
        await clock.sleep(timedelta(seconds=RETRY_PERIOD * phase / 4))
        first.stop_requested.set()
        await announce(town, "n1")
        assert await emptied(town, "n1") <= 1
        assert lease_holders(town) == all_leases_held_by("two")


async def test_a_standby_sends_nothing_but_watches_while_another_leads(clock: Clock) -> None:
    async with a_replica_cluster(clock) as town:
        _, second = await two_replicas(town)
        transport = second.process.transport
        transport.requests.clear()
        await clock.sleep(timedelta(minutes=4))
        assert transport.sent_requests() == []
        await clock.sleep(timedelta(hours=1))
        # A server ends watches after a while; then the lease is read once.
        assert len([it for it in transport.sent_requests() if ("watch", "true") not in it.query]) <= 2 * 60 / 5
