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
async def watching(town: DrainCluster) -> AsyncIterator[PodDisruptionBudgetWatch]:
    """Watch one budget."""
    openings = PodDisruptionBudgetWatch(town.client, on_allowed=lambda _: None)
    async with asyncio.TaskGroup() as group:
        openings.watch([CART], group)
        try:
            yield openings
        finally:
            openings.close()


async def test_a_watch_that_fails_once_is_opened_again_after_the_first_pause(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        town.put(a_pdb("cart", app="cart", minAvailable=1))
        town.transport.faults.fail_before_effect(path="/poddisruptionbudgets", response=500)
        async with watching(town) as openings:
            assert await town.wait_until(lambda: openings.is_watched(CART)) < LONGEST_FIRST_PAUSE


async def test_a_watch_that_breaks_after_it_worked_is_opened_again_after_the_first_pause(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        town.put(a_pdb("cart", app="cart", minAvailable=1))
        town.transport.faults.fail_before_effect(path="/poddisruptionbudgets", response=500, times=4)
        async with watching(town) as openings:
            await town.wait_until(lambda: openings.is_watched(CART))
            await clock.sleep(timedelta(minutes=1))
            town.transport.faults.break_stream(path="/poddisruptionbudgets")
            town.put(a_pdb("cart", app="cart", minAvailable=2))
            await town.wait_until(lambda: not openings.is_watched(CART))
            assert await town.wait_until(lambda: openings.is_watched(CART)) < LONGEST_FIRST_PAUSE
