"""How long status writes wait, and when they do not."""

from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.errors import Conflict, Unreachable
from haulout.runtime.status_writer import MAX_INTERVAL, StatusWriter

MOMENT = timedelta(milliseconds=100)


def after(writer: StatusWriter[str], others: int) -> timedelta:
    """Record the write of one status, then those of others; return the delay of the first."""
    for name in ("it", *(f"other-{number}" for number in range(others))):
        writer.record_write(name)
    return writer.delay("it")


@pytest.mark.parametrize(("others", "seconds"), [(0, 1), (10, 1), (59, 3), (199, 10), (1999, 10)])
async def test_more_objects_make_each_status_wait_longer(clock: Clock, others: int, seconds: float) -> None:
    assert after(StatusWriter(clock), others) == timedelta(seconds=seconds)


async def test_status_without_a_recent_write_does_not_wait(clock: Clock) -> None:
    writer: StatusWriter[str] = StatusWriter(clock)
    after(writer, 500)
    assert writer.delay("another") == timedelta()


async def test_objects_without_recent_writes_do_not_slow_down_others(clock: Clock) -> None:
    writer: StatusWriter[str] = StatusWriter(clock)
    after(writer, 500)
    await clock.sleep(MAX_INTERVAL)
    assert writer.delay("it") == timedelta()
    writer.record_write("it")
    await clock.sleep(MOMENT)
    assert writer.delay("it") == timedelta(seconds=1) - MOMENT


async def test_interval_starts_at_the_last_write(clock: Clock) -> None:
    writer: StatusWriter[str] = StatusWriter(clock)
    writer.record_write("it")
    await clock.sleep(MAX_INTERVAL - MOMENT)
    writer.record_write("other")
    writer.record_write("it")
    await clock.sleep(2 * MOMENT)
    assert writer.delay("it") == timedelta(seconds=1) - 2 * MOMENT


class StatusEndpoint:
    """Counts writes, and fails while `error` is set."""

    def __init__(self) -> None:
        self.writes = 0
        self.error: Exception | None = None

    async def write(self) -> None:
        self.writes += 1
        if self.error is not None:
            raise self.error


async def test_write_within_the_interval_is_postponed(clock: Clock) -> None:
    writer: StatusWriter[str] = StatusWriter(clock)
    endpoint = StatusEndpoint()
    assert await writer.write("a", endpoint.write) is None
    write_at = await writer.write("a", endpoint.write)
    assert endpoint.writes == 1
    assert write_at is not None
    await clock.sleep(write_at - clock.now())
    assert await writer.write("a", endpoint.write) is None
    assert endpoint.writes == 2


async def test_urgent_write_is_not_postponed(clock: Clock) -> None:
    writer: StatusWriter[str] = StatusWriter(clock)
    endpoint = StatusEndpoint()
    for _ in range(3):
        assert await writer.write("a", endpoint.write, at_once=True) is None
    assert endpoint.writes == 3


async def test_failed_write_is_repeated_by_the_next_reconcile(clock: Clock) -> None:
    writer: StatusWriter[str] = StatusWriter(clock)
    endpoint = StatusEndpoint()
    endpoint.error = Unreachable("connection refused", sent=False)
    for _ in range(2):
        with pytest.raises(Unreachable):
            await writer.write("a", endpoint.write)
    endpoint.error = None
    assert await writer.write("a", endpoint.write) is None
    assert endpoint.writes == 3
    assert await writer.write("a", endpoint.write) is not None


async def test_conflict_does_not_bypass_the_interval(clock: Clock) -> None:
    writer: StatusWriter[str] = StatusWriter(clock)
    endpoint = StatusEndpoint()
    endpoint.error = Conflict("the object has been modified", code=409)
    with pytest.raises(Conflict):
        await writer.write("a", endpoint.write)
    assert await writer.write("a", endpoint.write) is not None
    assert endpoint.writes == 1
