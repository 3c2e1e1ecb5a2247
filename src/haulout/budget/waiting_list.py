"""Who waits for room on a person's order, in the order of their coming.

Profiles let them go first: a person who says "now" must not stand behind a thousand nodes that roll by themselves.
This is about fairness only, and known to one process: no limit rests on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, order=True)
class WaitingNodeMaintenance:
    """An order that waits."""

    since: datetime
    name: str
    node: str


class WaitingList:
    """Orders that wait for room."""

    def __init__(self) -> None:
        self._entries: dict[str, WaitingNodeMaintenance] = {}
        self._subscribers: list[Callable[[], object]] = []

    def add(self, entry: WaitingNodeMaintenance) -> None:
        """Let an order wait."""
        self._entries[entry.name] = entry

    def remove(self, name: str) -> None:
        """Let an order go; those behind it are told, if it waited."""
        if self._entries.pop(name, None) is not None:
            for callback in tuple(self._subscribers):
                callback()

    def entries(self) -> tuple[WaitingNodeMaintenance, ...]:
        """Return those that wait, the first to come first."""
        return tuple(sorted(self._entries.values()))

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` when an order has left, which may make room for others; returns what ends that."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)
