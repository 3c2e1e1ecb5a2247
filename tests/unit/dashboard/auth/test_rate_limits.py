"""Rate limits of callers, and the queue for reviews of unknown tokens."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.dashboard.auth.rate_limits import RateLimited, RequestLimits, TokenReviewLimits

SHORTLY = timedelta(milliseconds=1)


async def test_anonymous_requests_share_a_limit_that_does_not_affect_users(clock: Clock) -> None:
    limits = RequestLimits(clock)
    for number in range(3000):
        limits.check_anonymous(f"10.0.{number // 250}.{number % 250}")
    with pytest.raises(RateLimited):
        limits.check_anonymous("10.1.0.1")
    limits.check_user("vera")


async def test_token_reviews_of_all_addresses_share_a_limit(clock: Clock) -> None:
    reviews = TokenReviewLimits(clock)
    assert [reviews.take(f"10.0.0.{number}") for number in range(100)] == [0] * 100
    assert reviews.take("10.0.1.1") > 0
    reviews.refund("10.0.0.1")
    assert reviews.take("10.0.1.1") == 0


async def wait_for_turns(
    reviews: TokenReviewLimits, address: str, count: int, group: asyncio.TaskGroup, clock: Clock
) -> None:
    async def wait() -> None:
        async with reviews.wait_for_turn(address):
            pass

    for _ in range(count):
        group.create_task(wait())
    await clock.sleep(SHORTLY)


async def test_one_address_cannot_fill_the_review_queue(clock: Clock) -> None:
    reviews = TokenReviewLimits(clock)
    async with asyncio.TaskGroup() as group:
        await wait_for_turns(reviews, "10.0.0.1", 100, group, clock)
        with pytest.raises(RateLimited):
            async with reviews.wait_for_turn("10.0.0.1"):
                pass
        async with reviews.wait_for_turn("10.0.0.2"):
            pass


async def test_review_queue_is_bounded(clock: Clock) -> None:
    reviews = TokenReviewLimits(clock)
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [
            group.create_task(wait_forever(reviews, f"10.0.0.{number % 10}"), name=str(number))
            for number in range(1000)
        ]
        await clock.sleep(SHORTLY)
        with pytest.raises(RateLimited):
            async with reviews.wait_for_turn("10.0.0.11"):
                pass
        for task in tasks:
            task.cancel()
    async with reviews.wait_for_turn("10.0.0.11"):
        pass


async def wait_forever(reviews: TokenReviewLimits, address: str) -> None:
    async with reviews.wait_for_turn(address):
        await asyncio.Event().wait()


async def test_queued_token_reviews_run_at_a_fixed_rate(clock: Clock) -> None:
    reviews, began = TokenReviewLimits(clock), clock.monotonic()
    async with asyncio.TaskGroup() as group:
        await wait_for_turns(reviews, "10.0.0.1", 50, group, clock)
    assert clock.monotonic() - began == pytest.approx(50 * timedelta(milliseconds=20).total_seconds())
