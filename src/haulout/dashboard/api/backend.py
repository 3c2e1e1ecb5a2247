"""The interface between the routes of `/api/v2` and the leader.

Only the leader has a `Backend`, because only its informers have the data. Other replicas forward requests
(`haulout.dashboard.api.forwarder`). All methods may wait, none may block the event loop for long, and nothing is
computed without viewers.
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
    ConfigurationEdit,
    ConfigurationPreview,
    Health,
    HistoryList,
    NodeDetail,
    NodeList,
    NoticeList,
    Summary,
    Timeline,
)
from haulout.errors import HauloutError


class HttpError(HauloutError):
    """A request that cannot be answered, with its HTTP status and maybe a `Retry-After`."""

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
    """The parameters of a timeline request."""

    start: datetime | None = None  # None: the default of the backend
    end: datetime | None = None
    limit: int | None = None  # maximum number of rows
    node_filter: NodeFilter = ALL_NODES


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """The parameters of a history request."""

    since: datetime | None = None
    until: datetime | None = None
    nodes: frozenset[str] = frozenset()  # empty: all
    objects: frozenset[str] = frozenset()  # such as `profile` or `profile/os`; empty: all
    terms: tuple[str, ...] = ()  # an entry must contain all of them
    limit: int | None = None


class EventStream(Protocol):
    """The events of one viewer."""

    async def next(self) -> bytes | None:
        """Return the next event or heartbeat; None: the stream ends, and the client reconnects."""
        ...


class Backend(Protocol):
    """The leader's answers. Methods raise `HttpError` if there is no answer."""

    async def summary(self) -> Summary:
        """Return the state of the fleet as a whole."""
        ...

    async def fleet(self) -> NodeList:
        """Return all nodes."""
        ...

    async def detail(self, name: str) -> NodeDetail | None:
        """Return all details of a node; None: there is no such node."""
        ...

    async def timeline(self, query: TimelineQuery) -> Timeline:
        """Return past, current and coming maintenance."""
        ...

    async def history(self, query: HistoryQuery) -> HistoryList:
        """Return the newest history entries of all nodes."""
        ...

    def history_csv(self, query: HistoryQuery) -> AsyncGenerator[bytes, None]:
        """Yield all history entries as CSV, in chunks."""
        ...

    async def notices(self) -> NoticeList: ...

    async def clusters(self) -> ClusterList: ...

    async def configuration(self) -> Configuration:
        """Return the configuration of profiles."""
        ...

    async def check(self, edit: ConfigurationEdit) -> ConfigurationPreview:
        """Return what would change with another configuration."""
        ...

    async def health(self) -> Health:
        """Return the health of the operator."""
        ...

    def subscribe(self, *, since: str = "", node: str = "") -> AbstractAsyncContextManager[EventStream]:
        """Subscribe a viewer while the context lasts, from the event with id `since`.

        With `node` the stream also has the details of that node.
        """
        ...
