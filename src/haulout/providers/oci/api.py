"""The calls of OCI that we make, as interfaces: `sdk` makes them by Oracle's SDK, the sandbox has a model of them.

Documents are as they are on the wire, with their names in camelCase. Whatever goes wrong is a `CloudError`; a `status`
of 0 is no answer, after which nobody knows whether the call took effect.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

Document = dict[str, Any]

NOT_FOUND = 404


class Streaming(Protocol):
    """A stream, for one consumer of a group that commits by itself."""

    async def group_cursor(self, *, group: str, instance: str) -> str:
        """Return a cursor: where the group has committed to; for a new group, the oldest message there is."""
        ...

    async def messages(self, cursor: str, *, limit: int) -> tuple[Sequence[Document], str]:
        """Return the next messages, and the cursor to go on with."""
        ...

    async def commit(self, cursor: str) -> str:
        """Have the group never see again what lies before a cursor; return the cursor to go on with."""
        ...

    async def heartbeat(self, cursor: str) -> str:
        """Say that we are still at work; return the cursor to go on with."""
        ...


class Compute(Protocol):
    """Instances and their maintenance."""

    async def maintenance_events(
        self, compartment: str, *, state: str, page: str = ""
    ) -> tuple[Sequence[Document], str]:
        """Return a page of the maintenance in a state, and the name of the next page; empty: it was the last."""
        ...

    async def maintenance_event(self, event: str) -> tuple[Document, str]:
        """Return one, and its etag."""
        ...

    async def move_event(self, event: str, *, start: datetime, etag: str, token: str) -> None:
        """Move one, if it still has this etag; the same token again changes nothing."""
        ...

    async def instance(self, instance: str) -> Document:
        """Return an instance."""
        ...
