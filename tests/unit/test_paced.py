"""Time at a pace: what passes for the loop and what passes in life, and that slow work is never late."""

import asyncio
import math
import selectors
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from haulout_sandbox.event_loops.paced_loop import PacedLoop
from haulout_sandbox.event_loops.virtual_time import VirtualClock

START = datetime(2026, 3, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class Machine:
    """A machine whose time passes only while a loop waits, or works."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.visit: tuple[float, Callable[[], object]] = math.inf, lambda: None  # who comes from outside, and when

    def wait(self, seconds: float) -> None:
        """Let time pass, until somebody comes."""
        at, comes = self.visit
        if at <= self.seconds + seconds:
            self.seconds, self.visit = max(at, self.seconds), (math.inf, lambda: None)
            comes()
        else:
            self.seconds += seconds

    def run(self, story: Callable[[PacedLoop, VirtualClock], Awaitable[Any]]) -> Any:
        """Run a story to its end on this machine, hurrying until it says otherwise."""

        async def main() -> Any:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, PacedLoop)
            return await story(loop, VirtualClock(START))

        with asyncio.Runner(loop_factory=lambda: PacedLoop(monotonic=lambda: self.seconds)) as runner:
            return runner.run(main())


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    simulated = Machine()
    real = selectors.DefaultSelector.select

    def select(selector: Any, timeout: float | None = None) -> Any:
        events = real(selector, 0)
        if not events:
            assert timeout is not None, "it would wait for ever"
            simulated.wait(timeout)
            events = real(selector, 0)
        return events

    monkeypatch.setattr(selectors.DefaultSelector, "select", select)
    return simulated


@pytest.mark.parametrize(("speed", "takes"), [(1, 3600), (60, 60), (3600, 1), (2.5, 1440), (0.5, 7200)])
def test_an_hour_takes_an_hour_divided_by_the_speed(machine: Machine, speed: float, takes: float) -> None:
    async def story(loop: PacedLoop, clock: VirtualClock) -> None:
        loop.set_speed(speed)
        await clock.sleep(HOUR)
        assert clock.now() == START + HOUR

    machine.run(story)
    assert machine.seconds == pytest.approx(1000 + takes)


def test_until_it_is_told_to_keep_pace_it_hurries(machine: Machine) -> None:
    async def story(loop: PacedLoop, clock: VirtualClock) -> None:
        await clock.sleep(HOUR)
        assert machine.seconds == 1000
        assert clock.now() == START + HOUR
        loop.set_speed(1)
        await clock.sleep(MINUTE)
        assert clock.now() == START + HOUR + MINUTE

    machine.run(story)
    assert machine.seconds == pytest.approx(1060)


def test_time_outs_and_the_clock_agree(machine: Machine) -> None:
    async def story(loop: PacedLoop, clock: VirtualClock) -> None:
        loop.set_speed(60)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(90):
                await asyncio.Event().wait()
        assert clock.now() == START + 1.5 * MINUTE

    machine.run(story)


def test_no_time_out_strikes_because_work_took_long(machine: Machine) -> None:
    """The work takes a second of life, an hour at this speed; the answer is still there in time."""

    async def story(loop: PacedLoop, clock: VirtualClock) -> None:
        loop.set_speed(3600)
        async with asyncio.timeout(30):
            machine.seconds += 1
            await clock.sleep(SECOND)
        assert clock.now() == START + SECOND

    machine.run(story)


def test_what_fell_behind_catches_up_one_timer_after_the_other(machine: Machine) -> None:
    async def story(loop: PacedLoop, clock: VirtualClock) -> list[tuple[timedelta, float]]:
        loop.set_speed(1)
        await clock.sleep(SECOND)
        machine.seconds += 10  # it was asleep
        seen = []
        for _ in range(12):
            await clock.sleep(SECOND)
            seen.append((clock.now() - START, machine.seconds))
        return seen

    seen = machine.run(story)
    assert [at for at, _ in seen] == [SECOND * number for number in range(2, 14)]
    assert [seconds for _, seconds in seen] == pytest.approx([1011] * 10 + [1012, 1013])


def test_what_comes_from_outside_finds_the_time_that_has_come(machine: Machine) -> None:
    """Between two timers a connection is served at its own moment, not at that of the timer before."""

    async def story(loop: PacedLoop, clock: VirtualClock) -> timedelta:
        loop.set_speed(10)
        ours, theirs = socket.socketpair()
        alarm = clock.call_at(START + HOUR, lambda: None)
        with ours, theirs:
            ours.setblocking(False)
            machine.visit = machine.seconds + 2, lambda: theirs.send(b"hello")
            assert await loop.sock_recv(ours, 5) == b"hello"
        alarm.cancel()
        return clock.now() - START

    assert machine.run(story) == 20 * SECOND


@pytest.mark.parametrize("speed", [0, -1, math.nan])
def test_a_speed_that_makes_no_sense_is_refused(machine: Machine, speed: float) -> None:
    async def story(loop: PacedLoop, _: VirtualClock) -> None:
        with pytest.raises(ValueError, match="expected a speed above 0"):
            loop.set_speed(speed)

    machine.run(story)


@pytest.mark.real_time
def test_on_a_real_machine_it_waits() -> None:
    async def story() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PacedLoop)
        loop.set_speed(100)
        before = loop._monotonic()
        await VirtualClock().sleep(10 * SECOND)
        return loop._monotonic() - before

    with asyncio.Runner(loop_factory=PacedLoop) as runner:
        assert runner.run(story()) >= 0.099
