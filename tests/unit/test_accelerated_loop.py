"""The accelerated loop: simulated and real time, and that slow work causes no timeouts."""

import asyncio
import math
import selectors
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from haulout_sandbox.event_loops.accelerated_loop import AcceleratedLoop
from haulout_sandbox.event_loops.virtual_time import VirtualClock

START = datetime(2026, 3, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class Machine:
    """A machine whose real time passes only while a loop waits or works."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.external_input: tuple[float, Callable[[], object]] = (
            math.inf,
            lambda: None,
        )  # the instant and the callback of an external input

    def wait(self, seconds: float) -> None:
        """Let time pass, until an external input."""
        at, callback = self.external_input
        if at <= self.seconds + seconds:
            self.seconds, self.external_input = max(at, self.seconds), (math.inf, lambda: None)
            callback()
        else:
            self.seconds += seconds

    def run(self, scenario: Callable[[AcceleratedLoop, VirtualClock], Awaitable[Any]]) -> Any:
        """Run a scenario on this machine, without waiting until it sets a speed."""

        async def main() -> Any:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, AcceleratedLoop)
            return await scenario(loop, VirtualClock(START))

        with asyncio.Runner(loop_factory=lambda: AcceleratedLoop(monotonic=lambda: self.seconds)) as runner:
            return runner.run(main())


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    simulated = Machine()
    real = selectors.DefaultSelector.select

    def select(selector: Any, timeout: float | None = None) -> Any:
        events = real(selector, 0)
        if not events:
            assert timeout is not None, "the loop would wait for ever"
            simulated.wait(timeout)
            events = real(selector, 0)
        return events

    monkeypatch.setattr(selectors.DefaultSelector, "select", select)
    return simulated


@pytest.mark.parametrize(("speed", "takes"), [(1, 3600), (60, 60), (3600, 1), (2.5, 1440), (0.5, 7200)])
def test_an_hour_takes_an_hour_divided_by_the_speed(machine: Machine, speed: float, takes: float) -> None:
    async def scenario(loop: AcceleratedLoop, clock: VirtualClock) -> None:
        loop.set_speed(speed)
        await clock.sleep(HOUR)
        assert clock.now() == START + HOUR

    machine.run(scenario)
    assert machine.seconds == pytest.approx(1000 + takes)


def test_loop_without_a_speed_does_not_wait(machine: Machine) -> None:
    async def scenario(loop: AcceleratedLoop, clock: VirtualClock) -> None:
        await clock.sleep(HOUR)
        assert machine.seconds == 1000
        assert clock.now() == START + HOUR
        loop.set_speed(1)
        await clock.sleep(MINUTE)
        assert clock.now() == START + HOUR + MINUTE

    machine.run(scenario)
    assert machine.seconds == pytest.approx(1060)


def test_timeouts_agree_with_the_virtual_clock(machine: Machine) -> None:
    async def scenario(loop: AcceleratedLoop, clock: VirtualClock) -> None:
        loop.set_speed(60)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(90):
                await asyncio.Event().wait()
        assert clock.now() == START + 1.5 * MINUTE

    machine.run(scenario)


def test_slow_work_does_not_cause_timeouts(machine: Machine) -> None:
    """The work takes a second of real time, an hour at this speed; the result is still in time."""

    async def scenario(loop: AcceleratedLoop, clock: VirtualClock) -> None:
        loop.set_speed(3600)
        async with asyncio.timeout(30):
            machine.seconds += 1
            await clock.sleep(SECOND)
        assert clock.now() == START + SECOND

    machine.run(scenario)


def test_delayed_timers_catch_up_in_order(machine: Machine) -> None:
    async def scenario(loop: AcceleratedLoop, clock: VirtualClock) -> list[tuple[timedelta, float]]:
        loop.set_speed(1)
        await clock.sleep(SECOND)
        machine.seconds += 10  # the machine was suspended
        instants = []
        for _ in range(12):
            await clock.sleep(SECOND)
            instants.append((clock.now() - START, machine.seconds))
        return instants

    instants = machine.run(scenario)
    assert [at for at, _ in instants] == [SECOND * number for number in range(2, 14)]
    assert [seconds for _, seconds in instants] == pytest.approx([1011] * 10 + [1012, 1013])


def test_external_input_is_handled_at_its_own_simulated_time(machine: Machine) -> None:
    """Between two timers, input is handled at its own instant, not at that of the previous timer."""

    async def scenario(loop: AcceleratedLoop, clock: VirtualClock) -> timedelta:
        loop.set_speed(10)
        ours, theirs = socket.socketpair()
        alarm = clock.call_at(START + HOUR, lambda: None)
        with ours, theirs:
            ours.setblocking(False)
            machine.external_input = machine.seconds + 2, lambda: theirs.send(b"hello")
            assert await loop.sock_recv(ours, 5) == b"hello"
        alarm.cancel()
        return clock.now() - START

    assert machine.run(scenario) == 20 * SECOND


@pytest.mark.parametrize("speed", [0, -1, math.nan])
def test_invalid_speed_is_rejected(machine: Machine, speed: float) -> None:
    async def scenario(loop: AcceleratedLoop, _: VirtualClock) -> None:
        with pytest.raises(ValueError, match="expected a speed above 0"):
            loop.set_speed(speed)

    machine.run(scenario)


@pytest.mark.real_time
def test_accelerated_loop_waits_in_real_time() -> None:
    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, AcceleratedLoop)
        loop.set_speed(100)
        before = loop._monotonic()
        await VirtualClock().sleep(10 * SECOND)
        return loop._monotonic() - before

    with asyncio.Runner(loop_factory=AcceleratedLoop) as runner:
        assert runner.run(scenario()) >= 0.099
