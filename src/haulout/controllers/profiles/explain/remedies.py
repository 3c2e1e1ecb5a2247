"""The smallest changes of check results that make a chain of checks pass.

remedies(parse("window && (approved || urgent)").evaluate, {"window": True, "approved": False, "urgent": False})
# ((RequiredResult("approved", True),), (RequiredResult("urgent", True),)): either is sufficient
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product

Values = Mapping[str, bool | None]

_MAX_NAMES = 16  # the number of combinations grows exponentially
_MAX_CHANGES = 4
_MAX_REMEDIES = 5  # more than a person would read


@dataclass(frozen=True, slots=True)
class RequiredResult:
    """A check and the result that it must have."""

    name: str
    passed: bool


# Changes that are enough together.
Remedy = tuple[RequiredResult, ...]


def format_remedy(remedy: Remedy) -> str:
    """Return a remedy for people, such as `window passed and urgent did not pass`."""
    return " and ".join(
        f"{change.name} passed" if change.passed else f"{change.name} did not pass" for change in remedy
    )


def remedies(evaluate: Callable[[Values], bool | None], values: Values) -> tuple[Remedy, ...]:
    """Return the smallest changes of `values` that make the chain pass, the smallest first; none if it passes."""
    if evaluate(values) is True or len(values) > _MAX_NAMES:
        return ()
    found: list[Remedy] = []
    for size in range(1, min(_MAX_CHANGES, len(values)) + 1):
        for remedy in _of_size(size, values):
            is_more_than_enough = any(set(smaller) <= set(remedy) for smaller in found)
            if (
                not is_more_than_enough
                and evaluate({**values, **{smaller.name: smaller.passed for smaller in remedy}}) is True
            ):
                found.append(remedy)
                if len(found) == _MAX_REMEDIES:
                    return tuple(found)
    return tuple(found)


def _of_size(size: int, values: Values) -> Iterator[Remedy]:
    for names in combinations(values, size):
        others = [(True, False) if values[name] is None else (not values[name],) for name in names]
        yield from (tuple(map(RequiredResult, names, outcomes)) for outcomes in product(*others))
