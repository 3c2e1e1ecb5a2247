"""NodeMaintenances that wait for a budget slot, in order of creation.

Profiles let them go first: an order by a user must not wait behind a thousand nodes of a rolling maintenance. The list
is known to one process and only for fairness: no limit relies on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, order=True)
class WaitingNodeMaintenance:
    """A NodeMaintenance that waits."""

    since: datetime
    name: str
    node: str


class WaitingList:
    """The waiting NodeMaintenances."""

    def __init__(self) -> None:
        self._entries: dict[str, WaitingNodeMaintenance] = {}
        self._subscribers: list[Callable[[], object]] = []

    def add(self, entry: WaitingNodeMaintenance) -> None:
        self._entries[entry.name] = entry

    def remove(self, name: str) -> None:
        """Remove a NodeMaintenance; notify subscribers if it was waiting."""
        if self._entries.pop(name, None) is not None:
            for callback in tuple(self._subscribers):
                callback()

    def entries(self) -> tuple[WaitingNodeMaintenance, ...]:
        """Return the waiting NodeMaintenances, oldest first."""
        return tuple(sorted(self._entries.values()))

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` when an entry is removed, since others may go now; return the function to unsubscribe."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)
