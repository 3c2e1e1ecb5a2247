"""Whatever befalls the operator and the cluster, a maintenance comes to the same end, and nobody is hurt on the way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from support.builders import a_pod
from support.clusters import a_cluster
from support.faults import Fault, mixture
from support.live import SandboxCluster
from support.maintaining import (
    has_lease,
    invariants,
    is_given_back,
    maintained,
    operate,
    order,
    over,
    settles,
    succeeded,
)
from support.suffered import faults_for

SLOW = a_pod("shop/slow", on="n1", act={"stop-seconds": "8"})


@asynccontextmanager
async def a_shop(clock: Clock, *, is_dated: bool = False) -> AsyncIterator[SandboxCluster]:
    """Run a cluster in which a node has pods that take their time, and others that a budget protects.

    With `is_dated`, the operator does not always know what time it is.
    """
    plan = maintained(a_cluster(clock)).with_nodes(3).with_deployment("shop/cart", replicas=3, budget="60%")
    # One fault is a test that copies a node, with what the operator did to it.
    held = invariants("operator", "operator-2", "test", silent_for=timedelta(minutes=2), dated=not is_dated)
    async with plan.with_objects(SLOW).upholding(*held).on_the_sandbox() as cluster:
        yield cluster


@asynccontextmanager
async def suffering(cluster: SandboxCluster, fault: Fault, *, seed: int = 0) -> AsyncIterator[None]:
    """Let a fault befall the operator while something goes on; it is over in the end."""
    async with asyncio.TaskGroup() as group:
        group.create_task(cluster.suffer(fault, seed=seed))
        yield


async def are_back(cluster: SandboxCluster) -> None:
    """See that soon nothing of a maintenance is left on any node, nor anything of it elsewhere."""
    await settles(cluster)
    names = ("n1", "n2", "n3")
    assert [it for it in names if not is_given_back(cluster, it) or has_lease(cluster, it)] == []


@pytest.mark.parametrize("fault", faults_for(0), ids=str)
async def test_a_maintenance_comes_to_its_end_through_any_fault(clock: Clock, fault: Fault) -> None:
    async with a_shop(clock, is_dated="clock" in fault.name) as cluster:
        cluster.run(operate)
        async with suffering(cluster, fault):
            await order(cluster, "n1")
            await succeeded(cluster)
        await settles(cluster)
        async with suffering(cluster, fault, seed=1):
            await over(cluster)
        await are_back(cluster)
        await cluster.eventually(lambda: cluster.ready("shop/cart"), becomes=3)


@pytest.mark.parametrize("seed", range(12))
async def test_a_maintenance_comes_to_its_end_through_any_mixture_of_faults(clock: Clock, seed: int) -> None:
    async with a_shop(clock, is_dated=True) as cluster:
        cluster.run(operate)
        async with suffering(cluster, mixture(seed), seed=seed):
            await order(cluster, "n1")
            await cluster.pass_time(seconds=45)
        await settles(cluster)
        async with suffering(cluster, mixture(seed + 100), seed=seed):
            await over(cluster)
        await are_back(cluster)
        await cluster.eventually(lambda: cluster.ready("shop/cart"), becomes=3)
