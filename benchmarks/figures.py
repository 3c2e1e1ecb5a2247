"""From the numbers that tasks return to figures that can be compared."""

from collections.abc import Sequence
from typing import Any

Numbers = dict[str, Any]


def rate(numbers: Numbers, of: str) -> float:
    """Return how many there were in a second."""
    return float(numbers[f"{of}_count"] / numbers[f"{of}_wall"])


def rates(results: Sequence[Numbers], of: str) -> list[float]:
    """Return how many there were in a second, for each round."""
    return [rate(numbers, of) for numbers in results]


def costs(results: Sequence[Numbers], of: str) -> list[float]:
    """Return the seconds of the processor that each one took, for each round."""
    return [float(numbers[f"{of}_cpu"] / numbers[f"{of}_count"]) for numbers in results]
