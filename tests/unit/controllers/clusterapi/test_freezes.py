"""A freeze in the management cluster: no new request is written to a node of any cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from haulout.api.clusterapi import REQUESTED
from haulout.api.maintenancefreeze import MAINTENANCE_FREEZES, definition
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from haulout.core.clock import Clock
from support.operators.freezes import a_freeze, freeze_source
from support.platforms.hub import HubClusters, WorkloadCluster

A, B = "team-a/team-a", "team-b/team-b"


@asynccontextmanager
async def two_clusters(clock: Clock) -> AsyncIterator[tuple[HubClusters, WorkloadCluster, WorkloadCluster]]:
    """Yield a hub with two clusters; each has one Machine, called like its namespace."""
    world = await HubClusters(clock).install_crds()
    await world.admin.create(CUSTOM_RESOURCE_DEFINITIONS, definition())
    one, other = [await world.add_cluster(namespace, "prod") for namespace in ("team-a", "team-b")]
    for side in (one, other):
        await world.add_machine(side, side.key.namespace)
    async with (
        freeze_source(world.admin, reads_freezes=True) as freezes,
        world.running_hub(freezes=freezes),
    ):
        yield world, one, other


async def test_one_freeze_holds_the_requests_of_all_clusters_until_it_is_deleted(clock: Clock) -> None:
    async with two_clusters(clock) as (world, one, other):
        await world.label_machine(A, maintenance=REQUESTED)
        await world.eventually(lambda: world.is_maintenance_requested(one, A))
        await world.admin.create(MAINTENANCE_FREEZES, a_freeze())
        await clock.sleep(timedelta(seconds=2))
        await world.label_machine(B, maintenance=REQUESTED)
        await world.assert_stays(lambda: not world.is_maintenance_requested(other, B))
        assert world.is_maintenance_requested(one, A)  # it has begun
        status = world.hub_status(other)
        assert status is not None
        assert [request.reason.partition(" is ")[2] for request in status.requests] == ["frozen by alice: Black Friday"]
        await world.admin.delete(MAINTENANCE_FREEZES, "black-friday")
        await world.eventually(lambda: world.is_maintenance_requested(other, B), seconds=2)


async def test_requests_are_written_when_the_freeze_expires_although_nobody_writes_its_status(clock: Clock) -> None:
    async with two_clusters(clock) as (world, _, other):
        until = clock.now().replace(microsecond=0) + timedelta(minutes=10)
        await world.admin.create(MAINTENANCE_FREEZES, a_freeze(until=f"{until:%Y-%m-%dT%H:%M:%SZ}"))
        await clock.sleep(timedelta(seconds=2))
        await world.label_machine(B, maintenance=REQUESTED)
        await world.assert_stays(lambda: not world.is_maintenance_requested(other, B), seconds=500)
        await world.eventually(lambda: world.is_maintenance_requested(other, B), seconds=110)
        assert timedelta() <= clock.now() - until < timedelta(seconds=3)
