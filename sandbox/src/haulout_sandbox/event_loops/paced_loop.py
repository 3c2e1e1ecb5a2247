"""Time that keeps pace with the machine's, at any speed: sixty times faster than life, or as fast as it can.

    with asyncio.Runner(loop_factory=PacedLoop) as runner:     # hurries: an hour passes as fast as its work is done
        …
        loop.keep_pace(60)                                     # from now on a minute passes each second

`loop.time()`, `asyncio.timeout` and a `VirtualClock` agree, as on simulated time. Like there, time moves only when
nothing is runnable, and never past a timer that is due. It follows the machine's time and may fall behind it, when the
work takes longer than the speed allows or when the machine was asleep; it then hurries until it has caught up. So a
slow machine makes a slow cluster, but never one whose leases run out because a computation took long.

Sockets, pipes and threads are served in real time. Whoever talks to the outside must know that a time-out of 60 s on
this loop lasts 60 s divided by the speed.
"""

import math
import selectors
from collections.abc import Callable

from haulout.core.clock import RealClock
from haulout_sandbox.event_loops.stepped_loop import SteppedLoop

_REAL_CLOCK = RealClock()


class PacedLoop(SteppedLoop):
    """An event loop whose time follows the machine's, of which `monotonic` tells."""

    def __init__(self, *, monotonic: Callable[[], float] = _REAL_CLOCK.monotonic) -> None:
        self.speed = math.inf
        self.on_iteration: Callable[[], object] | None = None  # adds no timer, so that it changes nothing that happens
        self._monotonic = monotonic
        self._pace_origin = 0.0, 0.0  # the machine's time and ours, when we set out at this speed
        super().__init__(_WaitingSelector(self))

    def set_speed(self, speed: float) -> None:
        """Let `speed` seconds pass in each second of life from now on; infinity is: hurry."""
        if not speed > 0:
            raise ValueError(f"expected a speed above 0, found {speed}")
        self.speed = speed
        self._pace_origin = self._monotonic(), self.time()

    def real_seconds(self, ahead: float) -> float:
        """Return how long the machine has to wait until our time is `ahead` seconds further; 0 if we are behind."""
        return 0.0 if math.isinf(self.speed) else max(ahead - self._seconds_behind(), 0.0) / self.speed

    def advance(self, at_most: float) -> None:
        """Move our time to where the machine's is, but `at_most` so far."""
        seconds = min(self._seconds_behind(), at_most)
        if 0 < seconds < math.inf:
            self.step(seconds)

    def _seconds_behind(self) -> float:
        if math.isinf(self.speed):
            return math.inf
        real_origin, loop_origin = self._pace_origin
        return (self._monotonic() - real_origin) * self.speed - (self.time() - loop_origin)


class _WaitingSelector(selectors.DefaultSelector):
    """Waits for files no longer than until the loop's next timer, and then moves its time."""

    def __init__(self, loop: PacedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._loop.on_iteration is not None:
            self._loop.on_iteration()
        if timeout is not None and timeout <= 0:  # something is runnable: time stands still
            return super().select(0)
        events = super().select(None if timeout is None else self._loop.real_seconds(timeout))
        self._loop.advance(math.inf if timeout is None else timeout)
        return events
