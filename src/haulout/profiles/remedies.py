"""What would have to change so that a chain of checks passes: the smallest changes that are enough.

remedies(parse("window && (approved || urgent)").evaluate, {"window": True, "approved": False, "urgent": False})
# ((Change("approved", True),), (Change("urgent", True),)): one of them would do
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product

Values = Mapping[str, bool | None]

_MOST_NAMES = 16  # the number of combinations grows fast; nobody reads a longer chain that way
_MOST_CHANGES = 4
_MOST_REMEDIES = 5


@dataclass(frozen=True, slots=True)
class Change:
    """A check that must have this verdict."""

    name: str
    passed: bool


Remedy = tuple[Change, ...]
"""Changes that are enough together."""


def said(remedy: Remedy) -> str:
    """Return what would have to be so, for people."""
    return " and ".join(f"{it.name} passed" if it.passed else f"{it.name} did not pass" for it in remedy)


def remedies(evaluate: Callable[[Values], bool | None], values: Values) -> tuple[Remedy, ...]:
    """Return the smallest changes of `values` that make the chain pass, the smallest first; none if it does."""
    if evaluate(values) is True or len(values) > _MOST_NAMES:
        return ()
    found: list[Remedy] = []
    for size in range(1, min(_MOST_CHANGES, len(values)) + 1):
        for remedy in _of_size(size, values):
            is_more_than_enough = any(set(it) <= set(remedy) for it in found)
            if not is_more_than_enough and evaluate({**values, **{it.name: it.passed for it in remedy}}) is True:
                found.append(remedy)
                if len(found) == _MOST_REMEDIES:
                    return tuple(found)
    return tuple(found)


def _of_size(size: int, values: Values) -> Iterator[Remedy]:
    for names in combinations(values, size):
        others = [(True, False) if values[name] is None else (not values[name],) for name in names]
        yield from (tuple(map(Change, names, verdicts)) for verdicts in product(*others))
