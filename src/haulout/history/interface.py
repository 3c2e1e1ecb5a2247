"""The interface through which controllers record history, and an implementation that records nothing."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Protocol

from haulout.api.maintenancerecord import NewEntry
from haulout.api.objects import Node

IsGone = Callable[[str, str], Awaitable[bool]]  # called with name and instance


class History(Protocol):
    """Where controllers record what happened to nodes."""

    def add(self, node: Node, *new_entries: NewEntry) -> None:
        """Append entries to a node's record soon, without blocking."""
        ...

    def ensure_state(self, node: Node, *claims: NewEntry) -> None:
        """Append those claims that the node's record does not contain yet."""
        ...

    def register_kind(self, kind: str, is_gone: IsGone) -> None:
        """Register a kind whose objects may end unobserved: their end is recorded when `is_gone` is true."""
        ...

    def subscribe(self, callback: Callable[[], object]) -> None:
        """Call `callback` whenever history becomes enabled, so that it supplies the current states again."""
        ...

    def has_pending(self, node: str) -> bool: ...

    def problems(self) -> Iterable[str]:
        """Return one line for each reason why entries cannot be written."""
        ...

    async def wait_written(self, node: str, *, within: timedelta) -> None:
        """Wait until all entries of a node are written, cannot be written for now, or `within` has passed."""
        ...


class NoHistory:
    """A history that records nothing, so that controllers need not ask whether there is one."""

    def add(self, node: Node, *notes: NewEntry) -> None: ...

    def ensure_state(self, node: Node, *claims: NewEntry) -> None: ...

    def register_kind(self, kind: str, is_gone: IsGone) -> None: ...

    def subscribe(self, callback: Callable[[], object]) -> None: ...

    def has_pending(self, node: str) -> bool:
        del node
        return False

    def problems(self) -> Iterable[str]:
        return ()

    async def wait_written(self, node: str, *, within: timedelta) -> None: ...
