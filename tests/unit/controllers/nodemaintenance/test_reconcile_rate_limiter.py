"""Who has done a lot for one maintenance of late pauses, and goes on after a while."""

from datetime import timedelta

from haulout.controllers.nodemaintenance.rate_limiters import MAX_CHANGES, RECONCILE_INTERVAL, ReconcileRateLimiter
from haulout.core.clock import Clock


async def test_much_within_a_short_time_is_braked(clock: Clock) -> None:
    brake = ReconcileRateLimiter(clock)
    for _ in range(MAX_CHANGES):
        assert brake.paused_until("a") is None
        brake.record_change("a")
    assert brake.paused_until("a") == clock.now() + RECONCILE_INTERVAL
    assert brake.paused_until("b") is None
    await clock.sleep(RECONCILE_INTERVAL)
    assert brake.paused_until("a") is None


async def test_as_much_in_a_longer_time_is_not(clock: Clock) -> None:
    brake = ReconcileRateLimiter(clock)
    for _ in range(5 * MAX_CHANGES):
        assert brake.paused_until("a") is None
        brake.record_change("a")
        await clock.sleep(RECONCILE_INTERVAL / MAX_CHANGES + timedelta(milliseconds=50))


async def test_what_is_gone_is_forgotten(clock: Clock) -> None:
    brake = ReconcileRateLimiter(clock)
    for _ in range(MAX_CHANGES):
        brake.record_change("a")
    brake.forget("a")
    assert brake.paused_until("a") is None
