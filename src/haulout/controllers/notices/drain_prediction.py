"""Predict how long a drain takes from the durations of past drains. Pure.

    predict_drain(node.name, own=(2400.0, 2520.0), similar=[("nodes of pool blue", samples)])

The node's own last drains count first: its workloads and their PodDisruptionBudgets rarely change much. A node that was
never drained is compared with similar nodes, from the most specific group to all nodes, and only with groups that have
enough samples. The prediction is the 90th percentile plus a safety margin, since a drain that begins too early costs
little.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from haulout.core import duration

MAX_LEAD_TIME: Final = timedelta(hours=6)  # one drain that hung must not make the next one begin a day early
SAFETY_FACTOR: Final = 1.25
MAX_SAMPLES: Final = 5  # drains per node: older drains say little
_PERCENTILE = 0.9
_MIN_SAMPLES = 3  # drains of similar nodes
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class DrainPrediction:
    """A predicted drain duration, including the safety margin, and its basis."""

    with_margin: timedelta
    reason: str = ""  # for users: "draining node n1 took 42m last time"

    @property
    def expected(self) -> timedelta:
        """The predicted duration without the safety margin."""
        return self.with_margin / SAFETY_FACTOR


PENDING: Final = DrainPrediction(timedelta(), "the drain history is still being read")  # compare with `is`


def predict_drain(
    node: str, *, own: Sequence[float], similar: Iterable[tuple[str, Sequence[float]]]
) -> DrainPrediction | None:
    """Return the predicted duration; None if nothing is known.

    All durations are in seconds, those in `own` oldest first.
    """
    if own:
        return _prediction(_percentile(own), _own_reason(node, own))
    for group, samples in similar:
        if len(samples) >= _MIN_SAMPLES:
            seconds = _percentile(samples)
            reason = f"90% of {len(samples)} drains of {group} took at most {format_seconds(seconds)}"
            return _prediction(seconds, reason)
    return None


def format_seconds(seconds: float) -> str:
    """Format a duration in minutes; in seconds if it is below ten minutes."""
    unit = 1 if seconds < 10 * _MINUTE.total_seconds() else 60
    return duration.format_short(timedelta(seconds=round(seconds / unit) * unit))


def _prediction(seconds: float, reason: str) -> DrainPrediction:
    # Round up to whole minutes, so that a difference of seconds causes no event.
    with_margin = math.ceil(seconds * SAFETY_FACTOR / _MINUTE.total_seconds()) * _MINUTE
    if with_margin <= MAX_LEAD_TIME:
        return DrainPrediction(with_margin, reason)
    return DrainPrediction(
        MAX_LEAD_TIME, f"{reason}; no drain begins more than {duration.format_short(MAX_LEAD_TIME)} ahead"
    )


def _own_reason(node: str, own: Sequence[float]) -> str:
    slowest, last = format_seconds(_percentile(own)), format_seconds(own[-1])
    return f"draining node {node} took {last} last time" + (f", and {slowest} before" if slowest != last else "")


def _percentile(samples: Sequence[float]) -> float:
    """Return the 90th percentile by the nearest-rank method: of few samples, the longest."""
    return sorted(samples)[math.ceil(_PERCENTILE * len(samples)) - 1]
