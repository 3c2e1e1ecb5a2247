"""Numbers of things and lists, as people say them."""

from collections.abc import Iterable

_FEW = 3


def pods(count: int) -> str:
    """Return `1 pod` or `3 pods`."""
    return "1 pod" if count == 1 else f"{count} pods"


def some(names: Iterable[str], *, most: int = _FEW) -> str:
    """Return the first names and how many more there are: `a, b, c and 4 more`."""
    listed = list(names)
    shown, rest = ", ".join(listed[:most]), len(listed) - most
    return f"{shown} and {rest} more" if rest > 0 else shown
