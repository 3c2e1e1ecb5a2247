"""What a thing that happens comes to: words for the one who watches, and how it ends if it lasts for a while only."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from haulout.core.duration import short

_SHOWN = 4


Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Deed:
    """What was done. After `lasts` it is undone, by `undo`, which says what that comes to.

    What `follows` are stories of their own, which tell themselves while others begin.
    """

    what: str
    lasts: timedelta | None = None
    undo: Callable[[], Awaitable[str]] | None = None
    follows: tuple[Callable[[Say], Awaitable[object]], ...] = ()


Does = Callable[[Any, Random], Awaitable[Deed]]


def chosen(names: Sequence[str], count: int | None, random: Random) -> list[str]:
    """Return `count` of the names, by chance, or all."""
    ordered = sorted(names)
    return ordered if count is None or count >= len(ordered) else sorted(random.sample(ordered, count))


def listed(names: Sequence[str], none: str) -> str:
    """Return names for people: not more than they want to read, and `none` if there are none."""
    more = len(names) - _SHOWN
    if more > 1:
        return f"{', '.join(names[:_SHOWN])} and {more} more"
    return ", ".join(names) or none


def for_(length: timedelta | None) -> str:
    """Return for how long, as it follows what happens; nothing if that is for good."""
    return "" if length is None else f" for {short(length)}"
