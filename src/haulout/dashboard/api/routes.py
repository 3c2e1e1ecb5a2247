"""The routes of `/api/v2` and their handlers.

    app = web.Application()
    add_routes(app, ApiHandler(backend=lambda: leading_or_none, forwarder=forwarder, fallback_summary=summary))

The leader answers from its `Backend`; other replicas forward. Every error is a `Problem` with a suitable status. A bug
in one handler is logged, and affects only its request.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from functools import partial
from http import HTTPStatus

import msgspec
from aiohttp import web

from haulout.core.clock import real_seconds
from haulout.dashboard.api import requests
from haulout.dashboard.api.backend import Backend, EventStream, HttpError
from haulout.dashboard.api.forwarder import LeaderForwarder
from haulout.dashboard.api.openapi import document
from haulout.dashboard.api.requests import read_body
from haulout.dashboard.api.responses import cacheable_response, encode, problem_response, uncached_response
from haulout.dashboard.api.types import ApiType, AuthMode, ConfigurationEdit, NodeList, Session, Summary
from haulout.dashboard.server import FORWARDED_HEADER
from haulout.dashboard.stream.broadcaster import StreamLimiter

log = logging.getLogger(__name__)

ROOT = "/api/v2"
USER_NAME = web.RequestKey("who", str)  # the authenticated user, if known
CLIENT_ADDRESS = web.RequestKey(
    "client", str
)  # the client for rate limits; for a forwarded request, the one that the replica names
STREAM_DURATION = web.RequestKey("ends_after", timedelta)  # after which a stream ends, and the client reconnects

_MAX_EDIT_BYTES = 1 << 20
_READ_WITHIN = timedelta(seconds=30)  # per chunk
_VERY_LONG = timedelta(days=1000)

BackendHandler = Callable[[Backend, web.Request], Awaitable[ApiType]]


class ApiHandler:
    """Answers requests from the backend if this replica leads, else forwards them."""

    def __init__(
        self,
        *,
        backend: Callable[[], Backend | None],
        forwarder: LeaderForwarder,
        fallback_summary: Callable[[str], Summary],
        stream_limiter: StreamLimiter | None = None,
    ) -> None:
        self.stream_limiter = stream_limiter or StreamLimiter()
        self.forwarder = forwarder
        self._backend = backend
        self._fallback_summary = fallback_summary
        self._streams: set[asyncio.Task[object]] = set()

    async def get(self, handler: BackendHandler, request: web.Request) -> web.StreamResponse:
        backend = self._backend()
        if backend is None:
            return await self.forwarder.forward(request)
        return await cacheable_response(request, encode(await handler(backend, request)))

    async def summary(self, request: web.Request) -> web.StreamResponse:
        """Answer the summary; without a leader, answer that fact."""
        try:
            return await self.get(_summary, request)
        except HttpError as error:
            if FORWARDED_HEADER in request.headers or error.status == HTTPStatus.BAD_REQUEST:
                raise
            return uncached_response(self._fallback_summary(str(error)))

    async def check(self, request: web.Request) -> web.StreamResponse:
        """Answer what an edit would change."""
        body = await read_body(request, max_bytes=_MAX_EDIT_BYTES)
        backend = self._backend()
        if backend is None:
            return await self.forwarder.forward(request, body)
        try:
            edit = msgspec.json.decode(body, type=ConfigurationEdit)
        except msgspec.MsgspecError as error:
            raise requests.bad_request(f'expected {{"text": "…"}}: {error}') from None
        return uncached_response(await backend.check(edit))

    async def history_csv(self, request: web.Request) -> web.StreamResponse:
        """Send the history as a file, in chunks, to a client that may read slowly."""
        history_query = requests.history_query(request.query)
        backend = self._backend()
        if backend is None:
            return await self.forwarder.forward(request)
        async with contextlib.aclosing(backend.history_csv(history_query)) as pieces:
            first = await anext(pieces)  # before the response begins, errors still become a Problem
            response = web.StreamResponse(headers=_CSV_HEADERS)
            await response.prepare(request)
            try:
                await _send(response, first)
                async for piece in pieces:
                    await _send(response, piece)
                await response.write_eof()
            except (TimeoutError, HttpError) as error:
                # A truncated file must not look complete.
                log.warning("closing the event stream of %s: %s", request.path, error or "the client does not read it")
                _abort(request)
            except ConnectionError:
                log.debug("client %s disconnected", request.remote)
            return response

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Send events until the client disconnects."""
        node, since = requests.event_stream_query(request.query)
        with self.stream_limiter.admit(_client_key(request)), self._track_stream():
            backend = self._backend()
            if backend is None:
                return await self.forwarder.forward(request)
            if node and await backend.detail(node) is None:
                raise _node_not_found(node)
            async with backend.subscribe(since=request.headers.get("Last-Event-ID", since), node=node) as stream:
                return await _send_events(stream, request)

    @contextlib.contextmanager
    def _track_stream(self) -> Iterator[None]:
        """Register the task of an open stream, which has no end of its own."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("streams are tasks")
        self._streams.add(task)
        try:
            yield
        finally:
            self._streams.discard(task)

    async def end_streams(self, _app: web.Application) -> None:
        """Cancel all streams at shutdown, so that the server need not wait for clients to disconnect."""
        for task in tuple(self._streams):
            task.cancel()


async def _send_events(stream: EventStream, request: web.Request) -> web.StreamResponse:
    """Send events to a client that may read slowly or not at all."""
    now = asyncio.get_running_loop().time
    ends_at = now() + real_seconds(request.get(STREAM_DURATION, _VERY_LONG))
    response = web.StreamResponse(headers=_STREAM_HEADERS)
    await response.prepare(request)
    try:
        while (message := await stream.next()) is not None:
            await _send(response, message)
            if now() >= ends_at:
                break
    except TimeoutError:
        _abort(request)
    except ConnectionError:
        log.debug("client %s disconnected", request.remote)
    return response


async def _send(response: web.StreamResponse, piece: bytes) -> None:
    async with asyncio.timeout(real_seconds(_READ_WITHIN)):
        await response.write(piece)


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


_CSV_HEADERS = {
    "Content-Type": "text/csv; charset=utf-8",
    "Content-Disposition": 'attachment; filename="haulout-history.csv"',
    "Cache-Control": "no-store",
}
_STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}


def add_routes(
    app: web.Application, api_handler: ApiHandler, *, add_auth_routes: Callable[[web.Application], None] | None = None
) -> None:
    """Add all routes of the API to `app`; routes below `ROOT` that are added later are not reached.

    `add_auth_routes` adds the routes for sessions and actions; without it everyone may read, and nobody is
    authenticated.
    """
    app.cleanup_ctx.append(api_handler.forwarder.lifespan)
    app.on_shutdown.append(api_handler.end_streams)
    get = app.router.add_get
    get(f"{ROOT}/summary", handle_errors(api_handler.summary))
    for path, handler in _HANDLERS.items():
        get(f"{ROOT}/{path}", handle_errors(partial(api_handler.get, handler)))
    get(f"{ROOT}/history.csv", handle_errors(api_handler.history_csv), allow_head=False)
    app.router.add_post(f"{ROOT}/configuration/check", handle_errors(api_handler.check))
    get(f"{ROOT}/events", handle_errors(api_handler.events), allow_head=False)
    if add_auth_routes is not None:
        add_auth_routes(app)
    else:
        get(f"{ROOT}/session", handle_errors(_session))
    get(f"{ROOT}/openapi.json", handle_errors(_openapi))
    app.router.add_route("*", f"{ROOT}{{rest:(/.*)?}}", _not_found)


# Handlers


async def _summary(backend: Backend, request: web.Request) -> ApiType:
    requests.require_no_parameters(request.query)
    found = await backend.summary()
    # A leader that gets a forwarded request is not the replica that the user's browser asked.
    leader = msgspec.structs.replace(found.leader, is_this_replica=FORWARDED_HEADER not in request.headers)
    return msgspec.structs.replace(found, leader=leader)


async def _nodes(backend: Backend, request: web.Request) -> ApiType:
    node_filter = requests.nodes_query(request.query)
    fleet = await backend.fleet()
    return NodeList(revision=fleet.revision, total=fleet.total, nodes=node_filter.apply(fleet.nodes))


async def _node(backend: Backend, request: web.Request) -> ApiType:
    requests.require_no_parameters(request.query)
    name = request.match_info["name"]
    found = await backend.detail(name)
    if found is None:
        raise _node_not_found(name)
    return found


async def _timeline(backend: Backend, request: web.Request) -> ApiType:
    return await backend.timeline(requests.timeline_query(request.query))


async def _history(backend: Backend, request: web.Request) -> ApiType:
    return await backend.history(requests.history_query(request.query))


async def _notices(backend: Backend, request: web.Request) -> ApiType:
    requests.require_no_parameters(request.query)
    return await backend.notices()


async def _clusters(backend: Backend, request: web.Request) -> ApiType:
    requests.require_no_parameters(request.query)
    return await backend.clusters()


async def _configuration(backend: Backend, request: web.Request) -> ApiType:
    requests.require_no_parameters(request.query)
    return await backend.configuration()


async def _health(backend: Backend, request: web.Request) -> ApiType:
    requests.require_no_parameters(request.query)
    return await backend.health()


_HANDLERS: dict[str, BackendHandler] = {
    "nodes": _nodes,
    "nodes/{name}": _node,
    "timeline": _timeline,
    "history": _history,
    "notices": _notices,
    "clusters": _clusters,
    "configuration": _configuration,
    "health": _health,
}


async def _session(_: web.Request) -> web.StreamResponse:
    return uncached_response(Session(mode=AuthMode.OFF, may_read=True))


async def _openapi(request: web.Request) -> web.StreamResponse:
    return await cacheable_response(request, document())


async def _not_found(request: web.Request) -> web.StreamResponse:
    return problem_response(
        f"there is no {request.method} {request.path[:200]}; {ROOT}/openapi.json lists the endpoints", _404
    )


# Shared by all handlers


def handle_errors(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return a handler whose errors become error responses."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except HttpError as error:
            headers = None if error.retry_after is None else {"Retry-After": f"{error.retry_after.total_seconds():.0f}"}
            return problem_response(str(error), error.status, headers=headers)
        except (web.HTTPException, web.RequestPayloadError, ConnectionError):
            raise
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return problem_response("internal error: see the log of the operator", HTTPStatus.INTERNAL_SERVER_ERROR)

    return handle


def _client_key(request: web.Request) -> str:
    """Return the user or else the address: behind an Ingress all clients have the same address."""
    return request.get(USER_NAME) or request.get(CLIENT_ADDRESS) or request.remote or "unknown"


def _node_not_found(name: str) -> HttpError:
    return HttpError(f"there is no node {name[:253]!r}", _404)


_404 = HTTPStatus.NOT_FOUND
