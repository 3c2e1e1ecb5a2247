"""Times that are about people and networks, not about the cluster: where its time runs faster than life, these do not.

A sandbox may run sixty times faster. Its timers are then, too; but nobody can read sixty times
faster, and no network is.
"""

import asyncio
import math
from datetime import timedelta


def real_time(span: timedelta) -> timedelta:
    """Return how long a timer must be set so that it lasts as long for people."""
    speed = getattr(asyncio.get_running_loop(), "speed", 1.0)
    return span * speed if 1 < speed < math.inf else span


def real_seconds(span: timedelta) -> float:
    """Return the same in seconds."""
    return real_time(span).total_seconds()
