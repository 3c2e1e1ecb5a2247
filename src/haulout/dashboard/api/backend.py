"""The interface between the routes of `/api/v2` and the leader.

Only the leader has a `Backend`, because only its informers have the data. Other replicas forward requests
(`haulout.dashboard.api.forwarder`). All methods may wait, none may block the event loop for long, and nothing is
computed without viewers.

The filter of nodes in a query: `?state=blocked,draining&zone=eu-1a&q=shop`. Values of one parameter are alternatives,
separated by commas or given by repeating it; all parameters must match. An empty value matches everything, so that a
form can send all its fields. In `q` every word must occur somewhere in the tile.
"""

from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Protocol, TypeVar

from haulout.dashboard.api.types import (
    ClusterList,
    Configuration,
    ConfigurationEdit,
    ConfigurationPreview,
    Health,
    HistoryList,
    NodeDetail,
    NodeList,
    NodeState,
    NodeSummary,
    NoticeList,
    Summary,
    Timeline,
)
from haulout.errors import HauloutError

PARAMETERS = ("state", "zone", "pool", "profile", "q")

_Value = TypeVar("_Value", bound=str)


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
class NodeFilter:
    """The conditions on a tile; an empty one matches everything."""

    states: frozenset[NodeState] = frozenset()
    zones: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()
    profiles: frozenset[str] = frozenset()
    terms: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, condition.name) for condition in fields(self))

    def matches(self, tile: NodeSummary) -> bool:
        return (
            _is_in(tile.state, self.states)
            and _is_in(tile.zone, self.zones)
            and _is_in(tile.pool, self.pools)
            and (not self.profiles or not self.profiles.isdisjoint(tile.profiles))
            and (not self.terms or _has_terms(tile, self.terms))
        )

    def apply(self, tiles: Iterable[NodeSummary]) -> tuple[NodeSummary, ...]:
        return tuple(tile for tile in tiles if self.matches(tile)) if self else tuple(tiles)


def _is_in(value: _Value, allowed: frozenset[_Value]) -> bool:
    return not allowed or value in allowed


def _has_terms(tile: NodeSummary, terms: tuple[str, ...]) -> bool:
    texts = (tile.name, tile.state, tile.message, tile.zone, tile.pool, tile.maintenance, tile.hold)
    pairs = (f"{key}={value}" for mapping in (tile.profiles, tile.labels) for key, value in mapping.items())
    text = "\n".join((*texts, *pairs)).casefold()
    return all(term in text for term in terms)


ALL_NODES = NodeFilter()


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

    async def fleet(self) -> NodeList: ...

    async def detail(self, name: str) -> NodeDetail | None:
        """Return all details of a node; None: there is no such node."""
        ...

    async def timeline(self, query: TimelineQuery) -> Timeline: ...

    async def history(self, query: HistoryQuery) -> HistoryList:
        """Return the newest history entries of all nodes."""
        ...

    def history_csv(self, query: HistoryQuery) -> AsyncGenerator[bytes, None]:
        """Yield all history entries as CSV, in chunks."""
        ...

    async def notices(self) -> NoticeList: ...

    async def clusters(self) -> ClusterList: ...

    async def configuration(self) -> Configuration: ...

    async def check(self, edit: ConfigurationEdit) -> ConfigurationPreview:
        """Return what would change with another configuration."""
        ...

    async def health(self) -> Health: ...

    def subscribe(self, *, since: str = "", node: str = "") -> AbstractAsyncContextManager[EventStream]:
        """Subscribe a viewer while the context lasts, from the event with id `since`.

        With `node` the stream also has the details of that node.
        """
        ...
