"""The result of an action: a message, and how to undo the action if it is temporary."""

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
    """The message of an action. After `duration`, `undo` reverts the action and returns another message.

    `follow_ups` run concurrently with later actions and report their own messages.
    """

    message: str
    duration: timedelta | None = None
    undo: Callable[[], Awaitable[str]] | None = None
    follow_ups: tuple[Callable[[OnEvent], Awaitable[object]], ...] = ()


ActionHandler = Callable[[Any, Random], Awaitable[ActionResult]]


def random_sample(names: Sequence[str], count: int | None, random: Random) -> list[str]:
    """Return `count` random names, or all."""
    ordered = sorted(names)
    return ordered if count is None or count >= len(ordered) else sorted(random.sample(ordered, count))


def format_names(names: Sequence[str], if_empty: str) -> str:
    """Return names as text, shortened if there are many, and `if_empty` if there are none."""
    hidden_count = len(names) - _MAX_NAMES
    if hidden_count > 1:
        return f"{', '.join(names[:_MAX_NAMES])} and {hidden_count} more"
    return ", ".join(names) or if_empty


def format_for(duration: timedelta | None) -> str:
    """Return the duration as text that follows an action's message; empty if the action is permanent."""
    return "" if duration is None else f" for {format_short(duration)}"
