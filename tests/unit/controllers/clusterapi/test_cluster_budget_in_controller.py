"""A hub that respects the cluster budget."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

import pytest

from haulout.api.clusterapi import REQUESTED
from haulout.controllers.clusterapi.cluster_budget import ClusterBudget, LimitedClusterBudget, new_cluster_budget
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from support.platforms.hub import HubClusters, WorkloadCluster

HOME = "default"


def a_budget(world: HubClusters, clock: Clock, *limits: str, identity: str = "hub") -> ClusterBudget:
    return new_cluster_budget(
        Client(world.api.transport(identity), clock=clock, random=Random(identity)), limits, namespace=HOME
    )


@asynccontextmanager
async def two_clusters(clock: Clock) -> AsyncIterator[tuple[HubClusters, WorkloadCluster, WorkloadCluster]]:
    """Yield a management cluster with two clusters; each has one Machine, called like its namespace."""
    world = await HubClusters(clock).install_crds()
    one, other = [await world.add_cluster(namespace, "prod") for namespace in ("team-a", "team-b")]
    for side in (one, other):
        await world.add_machine(side, side.key.namespace)
    yield world, one, other


async def request_maintenance(world: HubClusters, machine: str, value: str | None = REQUESTED) -> None:
    await world.label_machine(machine, maintenance=value)


async def test_clusters_start_one_after_the_other_and_the_waiting_one_names_the_slot_holder(clock: Clock) -> None:
    async with two_clusters(clock) as (world, one, other), world.running_hub(a_budget(world, clock, "1")):
        await request_maintenance(world, "team-a/team-a")
        await world.eventually(lambda: world.is_maintenance_requested(one, "team-a/team-a"))
        await request_maintenance(world, "team-b/team-b")
        await world.assert_stays(lambda: not world.is_maintenance_requested(other, "team-b/team-b"))
        status = world.hub_status(other)
        assert status is not None
        assert status.waiting_reason == "1 of 1 cluster is in maintenance: team-a/prod"
        await request_maintenance(world, "team-a/team-a", None)
        await world.eventually(lambda: world.is_maintenance_requested(other, "team-b/team-b"))


async def test_waiting_cluster_retries_with_backoff_and_leaves_the_waiting_list_when_withdrawn(clock: Clock) -> None:
    async with two_clusters(clock) as (world, one, _):
        transport = world.api.transport("budget")
        budget = new_cluster_budget(Client(transport, clock=clock, random=Random(1)), ("1",), namespace=HOME)
        async with world.running_hub(budget):
            await request_maintenance(world, "team-a/team-a")
            await world.eventually(lambda: world.is_maintenance_requested(one, "team-a/team-a"))
            await request_maintenance(world, "team-b/team-b")
            await clock.sleep(timedelta(minutes=1))
            before = len(transport.requests)
            await clock.sleep(timedelta(minutes=10))
            assert len(transport.requests) - before < 100
            assert isinstance(budget, LimitedClusterBudget)
            assert (await budget.usage())[0].waiting == ("team-b/prod",)
            await request_maintenance(world, "team-b/team-b", None)
            await clock.sleep(timedelta(minutes=1))
            assert (await budget.usage())[0].waiting == ()


async def test_unreachable_cluster_in_maintenance_counts(clock: Clock) -> None:
    async with two_clusters(clock) as (world, one, other), world.running_hub(a_budget(world, clock, "1")):
        await request_maintenance(world, "team-a/team-a")
        await world.eventually(lambda: world.is_maintenance_requested(one, "team-a/team-a"))
        one.become_unreachable()
        await clock.sleep(timedelta(minutes=5))
        await request_maintenance(world, "team-b/team-b")
        await world.assert_stays(lambda: not world.is_maintenance_requested(other, "team-b/team-b"), seconds=300)
        one.recover()
        await request_maintenance(world, "team-a/team-a", None)
        await world.eventually(lambda: world.is_maintenance_requested(other, "team-b/team-b"), seconds=600)


async def test_paused_cluster_in_maintenance_counts(clock: Clock) -> None:
    """What was requested of its nodes before stays requested."""
    async with two_clusters(clock) as (world, one, other), world.running_hub(a_budget(world, clock, "1")):
        await request_maintenance(world, "team-a/team-a")
        await world.eventually(lambda: world.is_maintenance_requested(one, "team-a/team-a"))
        change = merge_patch({"spec": {"paused": True}})
        await world.admin.patch(world.clusters, one.key.name, change, namespace=one.key.namespace)
        await clock.sleep(timedelta(minutes=5))
        await request_maintenance(world, "team-b/team-b")
        await world.assert_stays(lambda: not world.is_maintenance_requested(other, "team-b/team-b"), seconds=300)


async def test_slot_of_an_unreachable_cluster_is_kept_by_a_successor(clock: Clock) -> None:
    async with two_clusters(clock) as (world, one, other):
        async with world.running_hub(a_budget(world, clock, "1")):
            await request_maintenance(world, "team-a/team-a")
            await world.eventually(lambda: world.is_maintenance_requested(one, "team-a/team-a"))
        one.become_unreachable()
        await request_maintenance(world, "team-b/team-b")
        async with world.running_hub(a_budget(world, clock, "1", identity="successor")):
            await world.assert_stays(lambda: not world.is_maintenance_requested(other, "team-b/team-b"), seconds=300)


async def test_request_withdrawn_without_a_leader_counts_until_the_node_is_cleaned_up(clock: Clock) -> None:
    async with two_clusters(clock) as (world, one, other):
        async with world.running_hub(a_budget(world, clock, "1")):
            await request_maintenance(world, "team-a/team-a")
            await world.eventually(lambda: world.is_maintenance_requested(one, "team-a/team-a"))
        one.become_unreachable()
        await request_maintenance(world, "team-a/team-a", None)
        await request_maintenance(world, "team-b/team-b")
        async with world.running_hub(a_budget(world, clock, "1", identity="successor")):
            await world.assert_stays(lambda: not world.is_maintenance_requested(other, "team-b/team-b"), seconds=300)
            one.recover()
            await world.eventually(lambda: world.is_maintenance_requested(other, "team-b/team-b"), seconds=600)
            assert not world.is_maintenance_requested(one, "team-a/team-a")


@pytest.mark.parametrize("hubs", [1, 2])
async def test_maintenance_started_without_a_budget_counts_under_one(clock: Clock, hubs: int) -> None:
    async with two_clusters(clock) as (world, one, other):
        async with world.running_hub():
            await request_maintenance(world, "team-a/team-a")
            await world.eventually(lambda: world.is_maintenance_requested(one, "team-a/team-a"))
        for number in range(hubs):
            async with world.running_hub(a_budget(world, clock, "1", identity=f"hub-{number}")):
                await clock.sleep(timedelta(seconds=30))
                await request_maintenance(world, "team-b/team-b")
                await world.assert_stays(lambda: not world.is_maintenance_requested(other, "team-b/team-b"))


async def test_slot_passes_to_the_next_machine_of_the_same_cluster(clock: Clock) -> None:
    """During a rollout the cluster is in maintenance all the time."""
    async with two_clusters(clock) as (world, one, other), world.running_hub(a_budget(world, clock, "1")):
        await world.add_machine(one, "team-a2")
        await request_maintenance(world, "team-a/team-a")
        await world.eventually(lambda: world.is_maintenance_requested(one, "team-a/team-a"))
        await request_maintenance(world, "team-b/team-b")
        for _ in range(5):
            await request_maintenance(world, "team-a/team-a2")
            await request_maintenance(world, "team-a/team-a", None)
            await world.eventually(lambda: world.is_maintenance_requested(one, "team-a/team-a2"))
            await request_maintenance(world, "team-a/team-a")
            await request_maintenance(world, "team-a/team-a2", None)
            await world.eventually(lambda: world.is_maintenance_requested(one, "team-a/team-a"))
            assert not (
                world.is_maintenance_requested(other, "team-b/team-b")
                and world.is_maintenance_requested(one, "team-a/team-a")
            )
