"""Under any fault a maintenance reaches the same end state, and all invariants hold."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from support.builders.objects import a_pod
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.faults.named_faults import Fault, fault_mixture
from support.faults.selection import faults_for_turn
from support.operators.nodemaintenance import (
    assert_converges,
    create_maintenance,
    end_maintenance,
    has_lease,
    invariants,
    is_released,
    run_controller,
    wait_for_success,
    with_nodemaintenance_crd,
)

SLOW = a_pod("shop/slow", on="n1", behaviour={"stop-seconds": "8"})


@asynccontextmanager
async def a_shop(clock: Clock, *, is_dated: bool = False) -> AsyncIterator[SandboxCluster]:
    """Run a cluster with slowly terminating pods, and pods protected by a PodDisruptionBudget.

    With `is_dated`, the clock of the operator may be wrong.
    """
    plan = (
        with_nodemaintenance_crd(a_cluster(clock)).with_nodes(3).with_deployment("shop/cart", replicas=3, budget="60%")
    )
    # One fault is a test that copies a node, with what the operator did to it.
    held = invariants("operator", "operator-2", "test", max_silence=timedelta(minutes=2), knows_time=not is_dated)
    async with plan.with_objects(SLOW).with_invariants(*held).on_the_sandbox() as cluster:
        yield cluster


@asynccontextmanager
async def with_fault(cluster: SandboxCluster, fault: Fault, *, seed: int = 0) -> AsyncIterator[None]:
    """Inject a fault while the context lasts; it has ended afterwards."""
    async with asyncio.TaskGroup() as group:
        group.create_task(cluster.inject_fault(fault, seed=seed))
        yield


async def assert_all_released(cluster: SandboxCluster) -> None:
    """Wait until no node has traces of a maintenance, and no lease is left."""
    await assert_converges(cluster)
    names = ("n1", "n2", "n3")
    assert [it for it in names if not is_released(cluster, it) or has_lease(cluster, it)] == []


@pytest.mark.parametrize("fault", faults_for_turn(0), ids=str)
async def test_maintenance_completes_despite_any_fault(clock: Clock, fault: Fault) -> None:
    async with a_shop(clock, is_dated="clock" in fault.name) as cluster:
        cluster.run(run_controller)
        async with with_fault(cluster, fault):
            await create_maintenance(cluster, "n1")
            await wait_for_success(cluster)
        await assert_converges(cluster)
        async with with_fault(cluster, fault, seed=1):
            await end_maintenance(cluster)
        await assert_all_released(cluster)
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/cart"), becomes=3)


@pytest.mark.parametrize("seed", range(12))
async def test_maintenance_completes_despite_any_mixture_of_faults(clock: Clock, seed: int) -> None:
    async with a_shop(clock, is_dated=True) as cluster:
        cluster.run(run_controller)
        async with with_fault(cluster, fault_mixture(seed), seed=seed):
            await create_maintenance(cluster, "n1")
            await cluster.pass_time(seconds=45)
        await assert_converges(cluster)
        async with with_fault(cluster, fault_mixture(seed + 100), seed=seed):
            await end_maintenance(cluster)
        await assert_all_released(cluster)
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/cart"), becomes=3)
