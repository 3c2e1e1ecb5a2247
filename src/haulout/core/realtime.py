"""Real-time durations: for timers that concern people and networks, even if the cluster's time runs faster.

A sandbox may run sixty times faster, and so do its timers. People do not read faster, and networks are not faster.
"""

import asyncio
import math
from datetime import timedelta


def real_time(span: timedelta) -> timedelta:
    """Return the timer duration that lasts `span` in real time."""
    speed = getattr(asyncio.get_running_loop(), "speed", 1.0)
    return span * speed if 1 < speed < math.inf else span


def real_seconds(span: timedelta) -> float:
    """Return the timer duration that lasts `span` in real time, in seconds."""
    return real_time(span).total_seconds()
