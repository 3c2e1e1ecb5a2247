"""Waiting for what will be so: `await eventually(clock, lambda: cluster.pods_on("n1"), becomes=[])`.

It looks again and again, on whatever time the clock has, and when it gives up it says what it saw last, and what it was
told happened last.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from haulout.core.clock import Clock

_LOOK_EVERY = timedelta(milliseconds=20)
_TRUE = object()  # anything that is true will do


async def eventually(
    clock: Clock,
    look: Callable[[], Any | Awaitable[Any]],
    *,
    becomes: Any = _TRUE,
    within: timedelta = timedelta(minutes=1),
    every: timedelta = _LOOK_EVERY,
    happened: Callable[[], Sequence[str]] = tuple,
) -> Any:
    """Return what `look` sees as soon as it is true, or equals `becomes`; fail if that takes longer than `within`.

    What is not there yet (`KeyError`) or does not hold yet (`AssertionError`) is looked at again, too.
    """
    end = clock.monotonic() + within.total_seconds()
    while True:
        try:
            seen = look()
            if inspect.isawaitable(seen):
                seen = await seen
        except (KeyError, AssertionError) as problem:
            seen, holds = problem, False
        else:
            holds = bool(seen) if becomes is _TRUE else bool(seen == becomes)
        if holds:
            return seen
        if clock.monotonic() >= end:
            wanted = "" if becomes is _TRUE else f", and not {becomes!r}"
            told = "".join(f"\n  {line}" for line in happened())
            last = f"\nwhat happened last:{told}" if told else ""
            raise AssertionError(f"not within {within}: {_source(look)}\nit was {seen!r}{wanted}{last}")
        await clock.sleep(every)


def _source(look: Callable[[], object]) -> str:
    """Return the text of a check, as its test has it."""
    try:
        lines = inspect.getsource(look).strip().splitlines()
    except (OSError, TypeError):
        return repr(look)
    return " ".join(line.strip() for line in lines)
