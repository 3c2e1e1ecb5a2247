"""What a thing that happens comes to: words for the one who watches, and how it ends if it lasts for a while only."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from haulout.core.duration import format_short

_MAX_NAMES = 4


OnEvent = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What was done. After `duration` it is undone, by `undo`, which says what that comes to.

    What `follow_ups` are stories of their own, which tell themselves while others begin.
    """

    message: str
    duration: timedelta | None = None
    undo: Callable[[], Awaitable[str]] | None = None
    follow_ups: tuple[Callable[[OnEvent], Awaitable[object]], ...] = ()


ActionHandler = Callable[[Any, Random], Awaitable[ActionResult]]


def random_sample(names: Sequence[str], count: int | None, random: Random) -> list[str]:
    """Return `count` of the names, by chance, or all."""
    ordered = sorted(names)
    return ordered if count is None or count >= len(ordered) else sorted(random.sample(ordered, count))


def format_names(names: Sequence[str], if_empty: str) -> str:
    """Return names for people: not more than they want to read, and `if_empty` if there are none."""
    hidden_count = len(names) - _MAX_NAMES
    if hidden_count > 1:
        return f"{', '.join(names[:_MAX_NAMES])} and {hidden_count} more"
    return ", ".join(names) or if_empty


def format_for(duration: timedelta | None) -> str:
    """Return for how long, as it follows what happens; nothing if that is for good."""
    return "" if duration is None else f" for {format_short(duration)}"
