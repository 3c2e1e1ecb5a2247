"""Watches of the PodDisruptionBudgets that block a drain."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from haulout.core.clock import Clock
from haulout.drain.openings import PREFIX, Openings
from support.draining import SHOP, Town, a_budget, a_town

CART = f"{PREFIX}{SHOP}/cart"
LONGEST_FIRST_PAUSE = 2.1  # seconds


@asynccontextmanager
async def following(town: Town) -> AsyncIterator[Openings]:
    """Watch one budget."""
    openings = Openings(town.client, opened=lambda _: None)
    async with asyncio.TaskGroup() as group:
        openings.follow([CART], group)
        try:
            yield openings
        finally:
            openings.close()


async def test_a_watch_that_fails_once_is_opened_again_after_the_first_pause(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        town.put(a_budget("cart", app="cart", minAvailable=1))
        town.line.faults.before(path="/poddisruptionbudgets", answer=500)
        async with following(town) as openings:
            assert await town.until(lambda: openings.is_followed(CART)) < LONGEST_FIRST_PAUSE


async def test_a_watch_that_breaks_after_it_worked_is_opened_again_after_the_first_pause(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        town.put(a_budget("cart", app="cart", minAvailable=1))
        town.line.faults.before(path="/poddisruptionbudgets", answer=500, times=4)
        async with following(town) as openings:
            await town.until(lambda: openings.is_followed(CART))
            await clock.sleep(timedelta(minutes=1))
            town.line.faults.break_stream(path="/poddisruptionbudgets")
            town.put(a_budget("cart", app="cart", minAvailable=2))
            await town.until(lambda: not openings.is_followed(CART))
            assert await town.until(lambda: openings.is_followed(CART)) < LONGEST_FIRST_PAUSE
