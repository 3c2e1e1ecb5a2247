"""Waits for a condition: `await eventually(clock, lambda: cluster.pods_on("n1"), becomes=[])`.

The probe is repeated on the time of the given clock. A failure shows the last value, and the latest writes if known.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from haulout.core.clock import Clock

_POLL_INTERVAL = timedelta(milliseconds=20)
_TRUE = object()  # anything that is true will do


async def eventually(
    clock: Clock,
    probe: Callable[[], Any | Awaitable[Any]],
    *,
    becomes: Any = _TRUE,
    within: timedelta = timedelta(minutes=1),
    every: timedelta = _POLL_INTERVAL,
    recent_events: Callable[[], Sequence[str]] = tuple,
) -> Any:
    """Return what `probe` sees as soon as it is true, or equals `becomes`; fail if that takes longer than `within`.

    The probe is also repeated after a `KeyError` or an `AssertionError`.
    """
    end = clock.monotonic() + within.total_seconds()
    while True:
        try:
            value = probe()
            if inspect.isawaitable(value):
                value = await value
        except (KeyError, AssertionError) as problem:
            value, holds = problem, False
        else:
            holds = bool(value) if becomes is _TRUE else bool(value == becomes)
        if holds:
            return value
        if clock.monotonic() >= end:
            wanted = "" if becomes is _TRUE else f", and not {becomes!r}"
            listing = "".join(f"\n  {line}" for line in recent_events())
            last = f"\nwhat happened last:{listing}" if listing else ""
            raise AssertionError(f"not within {within}: {_source(probe)}\nit was {value!r}{wanted}{last}")
        await clock.sleep(every)


def _source(probe: Callable[[], object]) -> str:
    """Return the text of a check, as its test has it."""
    try:
        lines = inspect.getsource(probe).strip().splitlines()
    except (OSError, TypeError):
        return repr(probe)
    return " ".join(line.strip() for line in lines)
