"""Watches of the PodDisruptionBudgets that block a drain."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from haulout.core.clock import Clock
from haulout.drain.pdb_watch import PDB_PREFIX, PodDisruptionBudgetWatch
from support.clusters.drain_cluster import SHOP, DrainCluster, a_drain_cluster, a_pdb

CART = f"{PDB_PREFIX}{SHOP}/cart"
LONGEST_FIRST_PAUSE = 2.1  # seconds


@asynccontextmanager
async def watching(cluster: DrainCluster) -> AsyncIterator[PodDisruptionBudgetWatch]:
    """Watch one budget."""
    pdb_watch = PodDisruptionBudgetWatch(cluster.client, on_allowed=lambda _: None)
    async with asyncio.TaskGroup() as group:
        pdb_watch.watch([CART], group)
        try:
            yield pdb_watch
        finally:
            pdb_watch.close()


async def test_watch_that_fails_once_is_reopened_after_the_first_backoff(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.put(a_pdb("cart", app="cart", minAvailable=1))
        cluster.transport.faults.fail_before_effect(path="/poddisruptionbudgets", response=500)
        async with watching(cluster) as pdb_watch:
            assert await cluster.wait_until(lambda: pdb_watch.is_watched(CART)) < LONGEST_FIRST_PAUSE


async def test_watch_that_breaks_after_it_worked_is_reopened_after_the_first_backoff(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.put(a_pdb("cart", app="cart", minAvailable=1))
        cluster.transport.faults.fail_before_effect(path="/poddisruptionbudgets", response=500, times=4)
        async with watching(cluster) as pdb_watch:
            await cluster.wait_until(lambda: pdb_watch.is_watched(CART))
            await clock.sleep(timedelta(minutes=1))
            cluster.transport.faults.break_stream(path="/poddisruptionbudgets")
            cluster.put(a_pdb("cart", app="cart", minAvailable=2))
            await cluster.wait_until(lambda: not pdb_watch.is_watched(CART))
            assert await cluster.wait_until(lambda: pdb_watch.is_watched(CART)) < LONGEST_FIRST_PAUSE
