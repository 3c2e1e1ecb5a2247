"""A period during which nothing may be done."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class BusyPeriod:
    """The period from `start` to `end` (exclusive), and its reason."""

    start: datetime
    end: datetime
    reason: str
