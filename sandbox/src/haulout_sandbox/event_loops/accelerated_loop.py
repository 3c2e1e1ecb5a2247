"""An event loop that runs faster than real time: at a fixed speed, or as fast as possible.

    with asyncio.Runner(loop_factory=AcceleratedLoop) as runner:  # full speed: an hour passes as fast as its work
        …
        loop.set_speed(60)                                         # from now on a minute passes each second

`loop.time()`, `asyncio.timeout` and a `VirtualClock` agree, as on simulated time. As there, time moves only when
nothing is runnable, and never past a due timer. It follows the machine's clock and may fall behind, when the work takes
longer than the speed allows or the machine was asleep; it then runs at full speed until it has caught up. So a slow
machine makes a slow cluster, but never one whose leases expire because a computation took long.

Sockets, pipes and threads are served in real time. Code that communicates with the outside must consider that a timeout
of 60 s on this loop lasts 60 s divided by the speed.
"""

import math
import selectors
from collections.abc import Callable

from haulout.core.clock import RealClock
from haulout_sandbox.event_loops.stepped_loop import SteppedLoop

_REAL_CLOCK = RealClock()


class AcceleratedLoop(SteppedLoop):
    """An event loop whose time follows the machine's clock (`monotonic`)."""

    def __init__(self, *, monotonic: Callable[[], float] = _REAL_CLOCK.monotonic) -> None:
        self.speed = math.inf
        # called in each iteration; needs no timer, which would change the simulation
        self.on_iteration: Callable[[], object] | None = None
        self._monotonic = monotonic
        self._pace_origin = 0.0, 0.0  # the machine's time and the loop's when the current speed was set
        super().__init__(_WaitingSelector(self))

    def set_speed(self, speed: float) -> None:
        """Let `speed` seconds pass per second of real time from now on; infinity means full speed."""
        if not speed > 0:
            raise ValueError(f"expected a speed above 0, found {speed}")
        self.speed = speed
        self._pace_origin = self._monotonic(), self.time()

    def real_seconds(self, ahead: float) -> float:
        """Return how long to wait in real time until the loop's time is `ahead` seconds further; 0 if it is behind."""
        return 0.0 if math.isinf(self.speed) else max(ahead - self._seconds_behind(), 0.0) / self.speed

    def advance(self, at_most: float) -> None:
        """Move the loop's time to the machine's, by `at_most` seconds."""
        seconds = min(self._seconds_behind(), at_most)
        if 0 < seconds < math.inf:
            self.step(seconds)

    def _seconds_behind(self) -> float:
        if math.isinf(self.speed):
            return math.inf
        real_origin, loop_origin = self._pace_origin
        return (self._monotonic() - real_origin) * self.speed - (self.time() - loop_origin)


class _WaitingSelector(selectors.DefaultSelector):
    """Waits for file descriptors until the loop's next timer at most, and then moves the loop's time."""

    def __init__(self, loop: AcceleratedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._loop.on_iteration is not None:
            self._loop.on_iteration()
        if timeout is not None and timeout <= 0:  # something is runnable: time does not move
            return super().select(0)
        events = super().select(None if timeout is None else self._loop.real_seconds(timeout))
        self._loop.advance(math.inf if timeout is None else timeout)
        return events
