"""Budgets that many share: who goes first when they are exceeded, and that nobody takes turns."""

import asyncio
from datetime import timedelta

import pytest

from haulout.core.clock import RealClock
from haulout.errors import LimitExceeded
from haulout.kube.shared_budget import Interruption, Share, SharedBudget


class Time(RealClock):
    """A clock that is set by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0

    def monotonic(self) -> float:
        """Return what was set."""
        return self.at


class Holder:
    """Takes a share, and notes when it is evicted."""

    def __init__(self, budget: SharedBudget) -> None:
        self.evictions: list[str] = []
        self.share: Share = budget.new_share(lambda error: self.evictions.append(str(error)))

    def take(self, *sizes: int) -> None:
        """Take so many MiB, one after the other."""
        for mib in sizes:
            self.share.resize(mib << 20, doing="following nodes")


def budget_of(mib: int, clock: Time | None = None) -> SharedBudget:
    return SharedBudget(mib << 20, what="the caches of all workload clusters", clock=clock or Time())


def test_the_largest_goes_first_and_small_ones_go_on() -> None:
    budget = budget_of(100)
    large, medium, small = (Holder(budget) for _ in range(3))
    large.share.resize(60 << 20, doing="following large nodes")
    medium.take(39)
    small.take(2)
    assert len(large.evictions) == 1
    assert "more than 100 MiB in the caches of all workload clusters" in large.evictions[0]
    assert large.evictions[0].startswith("following large nodes: ")
    assert not medium.evictions
    assert budget.taken == 41 << 20


def test_who_is_the_largest_itself_gets_the_error() -> None:
    budget = budget_of(100)
    small, large = Holder(budget), Holder(budget)
    small.take(2)
    with pytest.raises(LimitExceeded, match="following nodes: more than 100 MiB in the caches"):
        large.take(99)
    assert (small.evictions, budget.taken) == ([], 2 << 20)


def test_two_that_do_not_fit_together_do_not_take_turns() -> None:
    clock = Time()
    budget = budget_of(100, clock)
    one, other = Holder(budget), Holder(budget)
    one.take(60)
    other.take(10, 30, 41, 60)
    assert len(one.evictions) == 1
    for _ in range(50):
        clock.at += 60
        with pytest.raises(LimitExceeded):
            one.take(10, 30, 41, 60)
    assert not other.evictions


def test_who_was_evicted_comes_back_only_if_some_stays_free() -> None:
    budget = budget_of(100)
    one, other = Holder(budget), Holder(budget)
    one.take(60)
    other.take(35, 41, 35)
    with pytest.raises(LimitExceeded):
        one.take(60)
    other.take(20)
    one.take(60)
    one.share.is_returning = False
    other.take(40)
    assert len(one.evictions) == 1


def test_who_kept_to_the_limit_for_long_is_like_any_other_again() -> None:
    clock = Time()
    budget = budget_of(100, clock)
    one, other = Holder(budget), Holder(budget)
    one.take(60)
    other.take(41)
    clock.at += timedelta(minutes=11).total_seconds()
    other.take(80)
    one.take(10)
    one.share.is_returning = False
    one.take(21)
    assert len(other.evictions) == 1


def test_a_share_that_shrinks_evicts_nobody() -> None:
    budget = budget_of(100)
    one, other = Holder(budget), Holder(budget)
    one.take(60)
    other.take(40)
    budget.limit = 10 << 20
    other.take(39)
    assert not one.evictions


async def test_what_runs_is_ended_with_the_error_that_is_given() -> None:
    interruption = Interruption()

    asyncio.get_running_loop().call_later(0.01, interruption.end, LimitExceeded("too much"))
    with pytest.raises(LimitExceeded, match="too much"):
        async with interruption:
            await asyncio.get_running_loop().create_future()


async def test_an_interruption_that_comes_too_late_ends_nothing() -> None:
    interruption = Interruption()
    async with interruption:
        pass
    interruption.end(LimitExceeded("too much"))
    async with interruption:
        await RealClock().sleep(timedelta())
