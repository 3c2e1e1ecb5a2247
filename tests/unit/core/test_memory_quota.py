"""Memory quotas of many shares: which share is evicted first, and that shares do not evict each other in turn."""

import asyncio
from datetime import timedelta

import pytest

from haulout.core.clock import RealClock
from haulout.core.memory import InterruptScope, MemoryQuota, MemoryShare
from haulout.errors import LimitExceeded


class ManualClock(RealClock):
    """A clock that the test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0

    def monotonic(self) -> float:
        """Return the time that the test has set."""
        return self.at


class Holder:
    """Has a share of a quota, and records its evictions."""

    def __init__(self, budget: MemoryQuota) -> None:
        self.evictions: list[str] = []
        self.share: MemoryShare = budget.new_share(lambda error: self.evictions.append(str(error)))

    def resize(self, *sizes: int) -> None:
        """Resize the share to each of these sizes in MiB."""
        for mib in sizes:
            self.share.resize(mib << 20, doing="following nodes")


def quota_of(mib: int, clock: ManualClock | None = None) -> MemoryQuota:
    return MemoryQuota(mib << 20, description="the caches of all workload clusters", clock=clock or ManualClock())


def test_largest_share_is_evicted_first_and_small_ones_are_kept() -> None:
    budget = quota_of(100)
    large, medium, small = (Holder(budget) for _ in range(3))
    large.share.resize(60 << 20, doing="following large nodes")
    medium.resize(39)
    small.resize(2)
    assert len(large.evictions) == 1
    assert "more than 100 MiB in the caches of all workload clusters" in large.evictions[0]
    assert large.evictions[0].startswith("following large nodes: ")
    assert not medium.evictions
    assert budget.used == 41 << 20


def test_share_that_exceeds_the_quota_as_the_largest_raises_limit_exceeded() -> None:
    budget = quota_of(100)
    small, large = Holder(budget), Holder(budget)
    small.resize(2)
    with pytest.raises(LimitExceeded, match="following nodes: more than 100 MiB in the caches"):
        large.resize(99)
    assert (small.evictions, budget.used) == ([], 2 << 20)


def test_shares_that_do_not_fit_together_do_not_evict_each_other_in_turn() -> None:
    clock = ManualClock()
    budget = quota_of(100, clock)
    one, other = Holder(budget), Holder(budget)
    one.resize(60)
    other.resize(10, 30, 41, 60)
    assert len(one.evictions) == 1
    for _ in range(50):
        clock.at += 60
        with pytest.raises(LimitExceeded):
            one.resize(10, 30, 41, 60)
    assert not other.evictions


def test_evicted_share_returns_only_if_part_of_the_quota_stays_free() -> None:
    budget = quota_of(100)
    one, other = Holder(budget), Holder(budget)
    one.resize(60)
    other.resize(35, 41, 35)
    with pytest.raises(LimitExceeded):
        one.resize(60)
    other.resize(20)
    one.resize(60)
    one.share.is_returning = False
    other.resize(40)
    assert len(one.evictions) == 1


def test_eviction_history_of_a_share_expires() -> None:
    clock = ManualClock()
    budget = quota_of(100, clock)
    one, other = Holder(budget), Holder(budget)
    one.resize(60)
    other.resize(41)
    clock.at += timedelta(minutes=11).total_seconds()
    other.resize(80)
    one.resize(10)
    one.share.is_returning = False
    one.resize(21)
    assert len(other.evictions) == 1


def test_shrinking_share_evicts_no_other() -> None:
    budget = quota_of(100)
    one, other = Holder(budget), Holder(budget)
    one.resize(60)
    other.resize(40)
    budget.limit = 10 << 20
    other.resize(39)
    assert not one.evictions


async def test_interrupt_ends_the_scope_with_the_given_error() -> None:
    interruption = InterruptScope()

    asyncio.get_running_loop().call_later(0.01, interruption.interrupt, LimitExceeded("too much"))
    with pytest.raises(LimitExceeded, match="too much"):
        async with interruption:
            await asyncio.get_running_loop().create_future()


async def test_interrupt_after_the_scope_has_no_effect() -> None:
    interruption = InterruptScope()
    async with interruption:
        pass
    interruption.interrupt(LimitExceeded("too much"))
    async with interruption:
        await RealClock().sleep(timedelta())
