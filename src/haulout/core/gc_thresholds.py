"""How often Python looks for garbage that holds itself in cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

GcThresholds = tuple[int, int, int]
"""After how many new objects, collections of the young, and collections of the middle-aged."""

LONG_RUNNING: GcThresholds = (
    10_000,
    10,
    10,
)  # it comes to the oldest, too: what connections leave must not add up over weeks
SHORT_LIVED: GcThresholds = (50_000, 20, 100)  # for what has no connections, and is over within the hour


@contextmanager
def gc_thresholds(thresholds: GcThresholds) -> Iterator[None]:
    """Look for it less often than usual.

    What we run keeps many objects and leaves hardly any cycles: usually the collector takes a tenth of the time, of a
    simulation a sixth, and finds next to nothing.
    """
    previous = gc.get_threshold()
    gc.set_threshold(*thresholds)
    try:
        yield
    finally:
        gc.set_threshold(*previous)
