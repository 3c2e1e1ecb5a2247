"""The OCI calls in use, as protocols: `sdk` implements them with Oracle's SDK; the sandbox has a model of them.

Documents are as the API returns them, with names in camelCase. Every failure is a `CloudError`. A `status` of 0 means
no response: it is unknown whether the call took effect.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

Document = dict[str, Any]

NOT_FOUND = 404


class Streaming(Protocol):
    """A stream, for one consumer of a group that commits explicitly."""

    async def group_cursor(self, *, group: str, instance: str) -> str:
        """Return a cursor at the group's committed offset; for a new group, at the oldest message."""
        ...

    async def messages(self, cursor: str, *, limit: int) -> tuple[Sequence[Document], str]:
        """Return the next messages, and the cursor to continue with."""
        ...

    async def commit(self, cursor: str) -> str:
        """Commit everything before the cursor for the group; return the cursor to continue with."""
        ...

    async def heartbeat(self, cursor: str) -> str:
        """Keep the consumer's partitions assigned; return the cursor to continue with."""
        ...


class Compute(Protocol):
    """Instances and their maintenance. Lists need a compartment; there is none over all compartments."""

    async def maintenance_events(
        self, compartment: str, *, state: str, page: str = ""
    ) -> tuple[Sequence[Document], str]:
        """Return a page of the maintenance events in a state, and the token of the next page; empty: last page."""
        ...

    async def maintenance_event(self, event: str) -> tuple[Document, str]:
        """Return a maintenance event and its etag."""
        ...

    async def move_event(self, event: str, *, start: datetime, etag: str, token: str) -> None:
        """Move a maintenance event, if its etag is unchanged. `token` makes the call idempotent."""
        ...

    async def instance(self, instance: str) -> Document: ...
