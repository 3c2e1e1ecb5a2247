"""Keys that change again and again are paused."""

from datetime import timedelta

from haulout.core.clock import Clock
from haulout.runtime.flapping_guard import INTERVAL, MAX_CHANGES, FlappingGuard


async def test_much_within_a_short_time_is_guardd(clock: Clock) -> None:
    guard: FlappingGuard[str] = FlappingGuard(clock)
    for _ in range(MAX_CHANGES):
        assert guard.paused_until("a") is None
        guard.record_change("a")
    assert guard.paused_until("a") == clock.now() + INTERVAL
    assert guard.paused_until("b") is None
    await clock.sleep(INTERVAL)
    assert guard.paused_until("a") is None


async def test_key_with_as_many_changes_in_a_longer_time_is_not_paused(clock: Clock) -> None:
    guard: FlappingGuard[str] = FlappingGuard(clock)
    for _ in range(5 * MAX_CHANGES):
        assert guard.paused_until("a") is None
        guard.record_change("a")
        await clock.sleep(INTERVAL / MAX_CHANGES + timedelta(milliseconds=50))


async def test_forgotten_key_is_not_paused(clock: Clock) -> None:
    guard: FlappingGuard[str] = FlappingGuard(clock)
    for _ in range(MAX_CHANGES):
        guard.record_change("a")
    guard.forget("a")
    assert guard.paused_until("a") is None
