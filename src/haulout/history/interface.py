"""What controllers tell the history, and a history that remembers nothing."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Protocol

from haulout.api.maintenancerecord import NewEntry
from haulout.api.objects import Node

IsGone = Callable[[str, str], Awaitable[bool]]  # by name and instance


class History(Protocol):
    """Where controllers tell what happened."""

    def add(self, node: Node, *new_entries: NewEntry) -> None:
        """Have it written down some time soon."""
        ...

    def ensure_state(self, node: Node, *claims: NewEntry) -> None:
        """Have it completed, if it says something else about where things stand."""
        ...

    def register_kind(self, kind: str, is_gone: IsGone) -> None:
        """Have the end written down of objects of this kind that are gone, and of whose end nobody knows."""
        ...

    def subscribe(self, callback: Callable[[], object]) -> None:
        """Have `callback` called when history is switched on, so that it is told where everything stands."""
        ...

    def has_pending(self, node: str) -> bool:
        """Tell whether something of a node is not written down yet."""
        ...

    def problems(self) -> Iterable[str]:
        """Return why entries cannot be written, in a line each."""
        ...

    async def wait_written(self, node: str, *, within: timedelta) -> None:
        """Return when all that was noted of a node is written down, or cannot be for now, or after `within`."""
        ...


class NoHistory:
    """Remembers nothing."""

    def add(self, node: Node, *notes: NewEntry) -> None:
        """Forget it."""

    def ensure_state(self, node: Node, *claims: NewEntry) -> None:
        """Forget it."""

    def register_kind(self, kind: str, is_gone: IsGone) -> None:
        """Forget it."""

    def subscribe(self, callback: Callable[[], object]) -> None:
        """Forget it."""

    def has_pending(self, node: str) -> bool:
        """Tell that nothing ever will."""
        del node
        return False

    def problems(self) -> Iterable[str]:
        """Return nothing."""
        return ()

    async def wait_written(self, node: str, *, within: timedelta) -> None:
        """Return at once."""
