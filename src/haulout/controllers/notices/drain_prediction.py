"""How long emptying a node will take, from how long it took before. Pure.

    predicted(node.name, own=(2400.0, 2520.0), alike=[("nodes of pool blue", samples)])

What a node's own last drains took counts most: its workloads and their budgets are much the same each time. A node that
was never drained is compared with its like, from the nearest kind to all nodes, and only where there are enough of them
to mean something. Of what is known the slow end counts (nine in ten were faster), and some time is added: who begins
too early loses little.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from haulout.core import duration

MAX_LEAD_TIME: Final = timedelta(hours=6)  # nobody wants a node emptied a day ahead because of one drain that hung
SAFETY_FACTOR: Final = 1.25
MAX_SAMPLES: Final = 5  # drains of one node: what it ran a year ago tells little
_PERCENTILE = 0.9
_MIN_SAMPLES = 3  # drains of other nodes
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class DrainPrediction:
    """How long it takes, with time to spare, and where that is known from."""

    with_margin: timedelta
    reason: str = ""  # for people: "emptying n1 took 42m last time"

    @property
    def expected(self) -> timedelta:
        """How long it takes without time to spare."""
        return self.with_margin / SAFETY_FACTOR


PENDING: Final = DrainPrediction(timedelta(), "the history is being read")  # compare with `is`


def predict_drain(
    node: str, *, own: Sequence[float], similar: Iterable[tuple[str, Sequence[float]]]
) -> DrainPrediction | None:
    """Return what to expect; None if nothing is known. All drains are in seconds, a node's own from old to new."""
    if own:
        return _prediction(_percentile(own), _own_reason(node, own))
    for group, samples in similar:
        if len(samples) >= _MIN_SAMPLES:
            seconds = _percentile(samples)
            reason = f"of {len(samples)} drains of {group} nine in ten took no longer than {format_seconds(seconds)}"
            return _prediction(seconds, reason)
    return None


def format_seconds(seconds: float) -> str:
    """Return a length of time as people say it: minutes, and seconds only if it is less than ten of them."""
    unit = 1 if seconds < 10 * _MINUTE.total_seconds() else 60
    return duration.format_short(timedelta(seconds=round(seconds / unit) * unit))


def _prediction(seconds: float, reason: str) -> DrainPrediction:
    # In whole minutes, so that a second more or less is not told as news.
    with_margin = math.ceil(seconds * SAFETY_FACTOR / _MINUTE.total_seconds()) * _MINUTE
    if with_margin <= MAX_LEAD_TIME:
        return DrainPrediction(with_margin, reason)
    return DrainPrediction(
        MAX_LEAD_TIME, f"{reason}; no node is emptied more than {duration.format_short(MAX_LEAD_TIME)} ahead"
    )


def _own_reason(node: str, own: Sequence[float]) -> str:
    slowest, last = format_seconds(_percentile(own)), format_seconds(own[-1])
    return f"emptying {node} took {last} last time" + (f", and {slowest} before" if slowest != last else "")


def _percentile(samples: Sequence[float]) -> float:
    """Return what nine in ten do not exceed, by the nearest rank: of a few, the longest."""
    return sorted(samples)[math.ceil(_PERCENTILE * len(samples)) - 1]
