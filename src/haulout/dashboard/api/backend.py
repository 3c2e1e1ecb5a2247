"""What the routes of `/api/v2` ask, and whoever leads answers.

Only the leader has a `Backend`: it is the one whose caches know what goes on. A replica that does not lead forwards the
question (`haulout.dashboard.api.forwarder`). All of it may wait for something, none of it may take the event loop for
long, and nothing is kept ready for those who do not ask.
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Protocol

from haulout.dashboard.api.nodes.node_filter import ALL_NODES, NodeFilter
from haulout.dashboard.api.types import (
    ClusterList,
    Configuration,
    Edit,
    Fleet,
    Health,
    HistoryList,
    NodeDetail,
    NoticeList,
    Summary,
    Timeline,
    WhatIf,
)
from haulout.errors import HauloutError


class HttpError(HauloutError):
    """There is no answer, and `status` says of what sort that is; there may be one `retry_after` a while."""

    def __init__(
        self,
        text: str,
        status: HTTPStatus = HTTPStatus.SERVICE_UNAVAILABLE,
        *,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineQuery:
    """What of the timeline is asked for."""

    start: datetime | None = None  # None: as whoever answers thinks best
    end: datetime | None = None
    limit: int | None = None  # rows, at most
    node_filter: NodeFilter = ALL_NODES


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """What of the history is asked for."""

    since: datetime | None = None
    until: datetime | None = None
    nodes: frozenset[str] = frozenset()  # empty: all of them
    what: frozenset[str] = frozenset()  # such as `profile` or `profile/os`; empty: all of it
    terms: tuple[str, ...] = ()  # all of which an entry must have
    limit: int | None = None


class EventStream(Protocol):
    """Somebody who looks on."""

    async def next(self) -> bytes | None:
        """Return what is to be sent next, which may be a heartbeat; None: that was all, they are to ask anew."""
        ...


class Backend(Protocol):
    """Whoever leads. What cannot be answered raises `HttpError`."""

    async def summary(self) -> Summary:
        """Return how it stands as a whole."""
        ...

    async def fleet(self) -> Fleet:
        """Return all nodes."""
        ...

    async def detail(self, name: str) -> NodeDetail | None:
        """Return all there is to know about a node; None: there is no such node."""
        ...

    async def timeline(self, query: TimelineQuery) -> Timeline:
        """Return what was, is and comes."""
        ...

    async def history(self, query: HistoryQuery) -> HistoryList:
        """Return what happened last to all nodes."""
        ...

    def history_csv(self, query: HistoryQuery) -> AsyncGenerator[bytes, None]:
        """Return all that happened as CSV, in pieces."""
        ...

    async def notices(self) -> NoticeList:
        """Return all notices."""
        ...

    async def clusters(self) -> ClusterList:
        """Return the workload clusters of a hub."""
        ...

    async def configuration(self) -> Configuration:
        """Return what profiles go by."""
        ...

    async def check(self, edit: Edit) -> WhatIf:
        """Return what would change with another configuration."""
        ...

    async def health(self) -> Health:
        """Return how the operator is doing."""
        ...

    def subscribe(self, *, since: str = "", node: str = "") -> AbstractAsyncContextManager[EventStream]:
        """Let somebody look on while the context lasts, from the event with id `since`.

        With `node` they are told of that node in detail as well.
        """
        ...
