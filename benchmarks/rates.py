"""From the numbers that tasks return to figures that can be compared."""

from collections.abc import Sequence
from typing import Any

Numbers = dict[str, Any]


def rate(numbers: Numbers, task: str) -> float:
    """Return how many there were in a second."""
    return float(numbers[f"{task}_count"] / numbers[f"{task}_wall"])


def rates(results: Sequence[Numbers], task: str) -> list[float]:
    """Return how many there were in a second, for each round."""
    return [rate(numbers, task) for numbers in results]


def costs(results: Sequence[Numbers], task: str) -> list[float]:
    """Return the CPU seconds that each one took, for each round."""
    return [float(numbers[f"{task}_cpu"] / numbers[f"{task}_count"]) for numbers in results]
