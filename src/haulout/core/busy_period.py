"""A time at which nothing may be done, and why."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class BusyPeriod:
    """From when to when (exclusive) something is going on."""

    start: datetime
    end: datetime
    reason: str
