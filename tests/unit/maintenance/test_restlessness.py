"""Who has done a lot for one maintenance of late pauses, and goes on after a while."""

from datetime import timedelta

from haulout.core.clock import Clock
from haulout.maintenance.restlessness import MOST, WITHIN, Restlessness


async def test_much_within_a_short_time_is_braked(clock: Clock) -> None:
    brake = Restlessness(clock)
    for _ in range(MOST):
        assert brake.pauses_until("a") is None
        brake.note("a")
    assert brake.pauses_until("a") == clock.now() + WITHIN
    assert brake.pauses_until("b") is None
    await clock.sleep(WITHIN)
    assert brake.pauses_until("a") is None


async def test_as_much_in_a_longer_time_is_not(clock: Clock) -> None:
    brake = Restlessness(clock)
    for _ in range(5 * MOST):
        assert brake.pauses_until("a") is None
        brake.note("a")
        await clock.sleep(WITHIN / MOST + timedelta(milliseconds=50))


async def test_what_is_gone_is_forgotten(clock: Clock) -> None:
    brake = Restlessness(clock)
    for _ in range(MOST):
        brake.note("a")
    brake.forget("a")
    assert brake.pauses_until("a") is None
