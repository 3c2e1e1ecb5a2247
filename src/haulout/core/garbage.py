"""How often Python looks for garbage that holds itself in cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

Pace = tuple[int, int, int]
"""After how many new objects, collections of the young, and collections of the middle-aged."""

RARELY: Pace = (10_000, 10, 10)  # it comes to the oldest, too: what connections leave must not add up over weeks
HARDLY_EVER: Pace = (50_000, 20, 100)  # for what has no connections, and is over within the hour


@contextmanager
def collected(pace: Pace) -> Iterator[None]:
    """Look for it less often than usual.

    What we run keeps many objects and leaves hardly any cycles: usually the collector takes a tenth of the time, of a
    simulation a sixth, and finds next to nothing.
    """
    usual = gc.get_threshold()
    gc.set_threshold(*pace)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
