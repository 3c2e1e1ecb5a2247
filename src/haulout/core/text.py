"""Counts and lists as text."""

from collections.abc import Iterable

_MAX_NAMES = 3


def format_pod_count(count: int) -> str:
    """Return `1 pod` or `3 pods`."""
    return "1 pod" if count == 1 else f"{count} pods"


def format_list(names: Iterable[str], *, max_names: int = _MAX_NAMES) -> str:
    """Return the first names and the number of others: `a, b, c and 4 more`."""
    listed = list(names)
    shown, rest = ", ".join(listed[:max_names]), len(listed) - max_names
    return f"{shown} and {rest} more" if rest > 0 else shown
