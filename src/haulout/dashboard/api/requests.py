"""Requests to the API: query strings, and JSON bodies with limits on size and time.

Parsing is strict: a mistyped parameter is an error and does not return everything.
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

from aiohttp import web
from multidict import MultiMapping

from haulout.core.clock import real_seconds
from haulout.dashboard.api import backend
from haulout.dashboard.api.backend import HistoryQuery, HttpError, NodeFilter, TimelineQuery
from haulout.dashboard.api.types import NodeState

_MAX_ROWS = 5000
_MAX_ECHOED = 200  # characters of a value that an error repeats

Query = MultiMapping[str]

_SENT_WITHIN = timedelta(seconds=10)


def require_no_parameters(query: Query) -> None:
    _refuse_unknown(query, ())


def nodes_query(query: Query) -> NodeFilter:
    _refuse_unknown(query, backend.PARAMETERS)
    return _parse_node_filter(query)


def timeline_query(query: Query) -> TimelineQuery:
    _refuse_unknown(query, ("from", "to", "limit", *backend.PARAMETERS))
    start, end = _instant(query, "from"), _instant(query, "to")
    if start is not None and end is not None and start >= end:
        raise bad_request("`from` must be before `to`")
    return TimelineQuery(start=start, end=end, limit=_limit(query), node_filter=_parse_node_filter(query))


def history_query(query: Query) -> HistoryQuery:
    _refuse_unknown(query, ("from", "to", "node", "object", "q", "limit"))
    since, until = _instant(query, "from"), _instant(query, "to")
    if since is not None and until is not None and since >= until:
        raise bad_request("`from` must be before `to`")
    return HistoryQuery(
        since=since,
        until=until,
        nodes=frozenset(_values(query, "node")),
        objects=frozenset(_values(query, "object")),
        terms=_search_terms(query),
        limit=_limit(query),
    )


def event_stream_query(query: Query) -> tuple[str, str]:
    """Return the node whose details the stream includes, and the id of the last event seen; either may be empty."""
    _refuse_unknown(query, ("node", "since"))
    return query.get("node", ""), query.get("since", "")


def bad_request(text: str) -> HttpError:
    """Return the error to raise for an invalid request."""
    return HttpError(text, HTTPStatus.BAD_REQUEST)


def _refuse_unknown(query: Query, allowed: Iterable[str]) -> None:
    names = tuple(allowed)
    for name in query:
        if name not in names:
            known_parameters = (
                f"there are {', '.join(f'`{known_name}`' for known_name in names)}"
                if names
                else "none are supported here"
            )
            raise bad_request(f"unknown parameter {_quote(name)}; {known_parameters}")


def _parse_node_filter(query: Query) -> NodeFilter:
    return NodeFilter(
        states=frozenset(map(_state, _values(query, "state"))),
        zones=frozenset(_values(query, "zone")),
        pools=frozenset(_values(query, "pool")),
        profiles=frozenset(_values(query, "profile")),
        terms=_search_terms(query),
    )


def _search_terms(query: Query) -> tuple[str, ...]:
    return tuple(term for text in query.getall("q", []) for term in text.casefold().split())


def _values(query: Query, name: str) -> list[str]:
    return [value for text in query.getall(name, []) for value in text.split(",") if value]


def _state(text: str) -> NodeState:
    try:
        return NodeState(text)
    except ValueError:
        raise bad_request(f"unknown state {_quote(text)}; there are {', '.join(NodeState)}") from None


def _instant(query: Query, name: str) -> datetime | None:
    text = query.get(name, "")
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise bad_request(f"`{name}` must be an instant such as 2026-05-01T10:00:00Z, found {_quote(text)}") from None
    if found.tzinfo is None:
        raise bad_request(f"`{name}` needs a time zone, as in 2026-05-01T10:00:00Z, found {_quote(text)}")
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise bad_request(f"`{name}` is too far away: {_quote(text)}") from None


def _limit(query: Query) -> int | None:
    text = query.get("limit", "")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:_MAX_ECHOED]) <= _MAX_ROWS:
        raise bad_request(f"`limit` must be a number from 1 to {_MAX_ROWS}, found {_quote(text)}")
    return int(text)


def _quote(text: str) -> str:
    return repr(text if len(text) <= _MAX_ECHOED else f"{text[:_MAX_ECHOED]}…")


async def read_body(request: web.Request, *, max_bytes: int) -> bytes:
    """Return the body; raise `HttpError` for a wrong type, size or timeout."""
    if request.content_type != "application/json":
        text = f"expected application/json, found {request.content_type}"
        raise HttpError(text, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    body = bytearray()
    try:
        async with asyncio.timeout(real_seconds(_SENT_WITHIN)):
            async for piece in request.content.iter_any():
                body += piece
                if len(body) > max_bytes:
                    raise HttpError(f"more than {max_bytes} bytes", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    except TimeoutError:
        raise HttpError("the request took too long to arrive", HTTPStatus.REQUEST_TIMEOUT) from None
    return bytes(body)
