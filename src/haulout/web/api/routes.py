"""The addresses of `/api/v2`: which question each of them is, and how it is answered.

    app = web.Application()
    add_routes(app, Answerer(source=lambda: leading_or_none, forwarding=forwarding, last_resort=summary_of_a_follower))

Whoever leads answers from its `Source`; anybody else forwards. Whatever goes wrong is a `Problem` with a fitting
status. A defect in one answer is logged, and is a problem of whoever asked only.
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

from haulout.web.api import asking
from haulout.web.api.answering import answer, encoded, once, problem
from haulout.web.api.bodies import body_of
from haulout.web.api.forwarding import Forwarding
from haulout.web.api.limits import Turnstile
from haulout.web.api.openapi import document
from haulout.web.api.pace import seconds_of_life
from haulout.web.api.shapes import AuthMode, Edit, Fleet, Session, Shape, Summary
from haulout.web.api.source import Source, Unanswerable, Viewer
from haulout.web.info import FORWARDED

log = logging.getLogger(__name__)

ROOT = "/api/v2"
WHO = web.RequestKey("who", str)  # asks, where that is known
CLIENT = web.RequestKey("client", str)  # the address that a request counts for; behind a follower, the one it names
ENDS_AFTER = web.RequestKey("ends_after", timedelta)  # how long a stream lasts before they are to ask anew

_LARGEST_EDIT = 1 << 20
_READ_WITHIN = timedelta(seconds=30)  # of each piece
_VERY_LONG = timedelta(days=1000)

Ask = Callable[[Source, web.Request], Awaitable[Shape]]


class Answerer:
    """Answers as the leader, or has the leader answer."""

    def __init__(
        self,
        *,
        source: Callable[[], Source | None],
        forwarding: Forwarding,
        last_resort: Callable[[str], Summary],
        turnstile: Turnstile | None = None,
    ) -> None:
        self.turnstile = turnstile or Turnstile()
        self.forwarding = forwarding
        self._source = source
        self._last_resort = last_resort
        self._streams: set[asyncio.Task[object]] = set()

    async def get(self, ask: Ask, request: web.Request) -> web.StreamResponse:
        """Answer a question."""
        source = self._source()
        if source is None:
            return await self.forwarding.forward(request)
        return await answer(request, encoded(await ask(source, request)))

    async def summary(self, request: web.Request) -> web.StreamResponse:
        """Answer how it stands; if nobody leads, that is the answer."""
        try:
            return await self.get(_summary, request)
        except Unanswerable as error:
            if FORWARDED in request.headers or error.status == HTTPStatus.BAD_REQUEST:
                raise
            return once(self._last_resort(str(error)))

    async def check(self, request: web.Request) -> web.StreamResponse:
        """Answer what an edit would change."""
        body = await body_of(request, largest=_LARGEST_EDIT)
        source = self._source()
        if source is None:
            return await self.forwarding.forward(request, body)
        try:
            edit = msgspec.json.decode(body, type=Edit)
        except msgspec.MsgspecError as error:
            raise asking.bad(f'expected {{"text": "…"}}: {error}') from None
        return once(await source.check(edit))

    async def history_csv(self, request: web.Request) -> web.StreamResponse:
        """Send the history as a file, piece by piece, to somebody who may read slowly."""
        query = asking.history(request.query)
        source = self._source()
        if source is None:
            return await self.forwarding.forward(request)
        async with contextlib.aclosing(source.history_csv(query)) as pieces:
            first = await anext(pieces)  # what is wrong is a problem as long as nothing is sent
            response = web.StreamResponse(headers=_CSV)
            await response.prepare(request)
            try:
                await _sent(response, first)
                async for piece in pieces:
                    await _sent(response, piece)
                await response.write_eof()
            except (TimeoutError, Unanswerable) as error:
                # A file that ends early must not look complete.
                log.warning("%s is not sent to its end: %s", request.path, error or "nobody reads it")
                _abort(request)
            except ConnectionError:
                log.debug("%s has left", request.remote)
            return response

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Tell what changes, until they leave."""
        node, since = asking.looking(request.query)
        with self.turnstile.passed(_address(request)), self._running():
            source = self._source()
            if source is None:
                return await self.forwarding.forward(request)
            if node and await source.detail(node) is None:
                raise _no_node(node)
            async with source.looking(since=request.headers.get("Last-Event-ID", since), node=node) as viewer:
                return await _told(viewer, request)

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        """Remember that a stream is open, which has no end of its own."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("streams are tasks")
        self._streams.add(task)
        try:
            yield
        finally:
            self._streams.discard(task)

    async def end_streams(self, _app: web.Application) -> None:
        """Let all go who look on, so that the server need not wait for them to leave."""
        for task in tuple(self._streams):
            task.cancel()


async def _told(viewer: Viewer, request: web.Request) -> web.StreamResponse:
    """Send what is told, to somebody who may read slowly, or not at all."""
    now = asyncio.get_running_loop().time
    ends_at = now() + seconds_of_life(request.get(ENDS_AFTER, _VERY_LONG))
    response = web.StreamResponse(headers=_STREAM)
    await response.prepare(request)
    try:
        while (told := await viewer.next()) is not None:
            await _sent(response, told)
            if now() >= ends_at:
                break
    except TimeoutError:
        _abort(request)
    except ConnectionError:
        log.debug("%s has left", request.remote)
    return response


async def _sent(response: web.StreamResponse, piece: bytes) -> None:
    async with asyncio.timeout(seconds_of_life(_READ_WITHIN)):
        await response.write(piece)


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


_CSV = {
    "Content-Type": "text/csv; charset=utf-8",
    "Content-Disposition": 'attachment; filename="haulout-history.csv"',
    "Cache-Control": "no-store",
}
_STREAM = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def add_routes(
    app: web.Application, answerer: Answerer, *, add_more: Callable[[web.Application], None] | None = None
) -> None:
    """Add all addresses of the API to `app`; what is added later under `ROOT` is not reached.

    `add_more` adds those that are about who asks; without it everybody may read, and nobody is known.
    """
    app.cleanup_ctx.append(answerer.forwarding.running)
    app.on_shutdown.append(answerer.end_streams)
    get = app.router.add_get
    get(f"{ROOT}/summary", guarded(answerer.summary))
    for path, ask in _ASKS.items():
        get(f"{ROOT}/{path}", guarded(partial(answerer.get, ask)))
    get(f"{ROOT}/history.csv", guarded(answerer.history_csv), allow_head=False)
    app.router.add_post(f"{ROOT}/configuration/check", guarded(answerer.check))
    get(f"{ROOT}/events", guarded(answerer.events), allow_head=False)
    if add_more is not None:
        add_more(app)
    else:
        get(f"{ROOT}/session", guarded(_session))
    get(f"{ROOT}/openapi.json", guarded(_openapi))
    app.router.add_route("*", f"{ROOT}{{rest:(/.*)?}}", _nothing)


# The questions


async def _summary(source: Source, request: web.Request) -> Shape:
    asking.no_parameters(request.query)
    found = await source.summary()
    # Whoever is asked by a follower is not the one that people have asked.
    leader = msgspec.structs.replace(found.leader, is_asked=FORWARDED not in request.headers)
    return msgspec.structs.replace(found, leader=leader)


async def _nodes(source: Source, request: web.Request) -> Shape:
    narrowing = asking.narrowed(request.query)
    fleet = await source.fleet()
    return Fleet(revision=fleet.revision, total=fleet.total, nodes=narrowing.of(fleet.nodes))


async def _node(source: Source, request: web.Request) -> Shape:
    asking.no_parameters(request.query)
    name = request.match_info["name"]
    found = await source.detail(name)
    if found is None:
        raise _no_node(name)
    return found


async def _timeline(source: Source, request: web.Request) -> Shape:
    return await source.timeline(asking.stretch(request.query))


async def _history(source: Source, request: web.Request) -> Shape:
    return await source.history(asking.history(request.query))


async def _notices(source: Source, request: web.Request) -> Shape:
    asking.no_parameters(request.query)
    return await source.notices()


async def _clusters(source: Source, request: web.Request) -> Shape:
    asking.no_parameters(request.query)
    return await source.clusters()


async def _configuration(source: Source, request: web.Request) -> Shape:
    asking.no_parameters(request.query)
    return await source.configuration()


async def _health(source: Source, request: web.Request) -> Shape:
    asking.no_parameters(request.query)
    return await source.health()


_ASKS: dict[str, Ask] = {
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
    return once(Session(mode=AuthMode.OFF, may_read=True))


async def _openapi(request: web.Request) -> web.StreamResponse:
    return await answer(request, document())


async def _nothing(request: web.Request) -> web.StreamResponse:
    return problem(f"there is no {request.method} {request.path[:200]}; {ROOT}/openapi.json tells what there is", _404)


# What they have in common


def guarded(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return a handler whose errors are problems of whoever asked only."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except Unanswerable as error:
            later = None if error.retry_after is None else {"Retry-After": f"{error.retry_after.total_seconds():.0f}"}
            return problem(str(error), error.status, headers=later)
        except (web.HTTPException, web.RequestPayloadError, ConnectionError):
            raise
        except Exception:
            log.exception("%s %s cannot be answered", request.method, request.path)
            return problem("this is a defect, and the log tells where", HTTPStatus.INTERNAL_SERVER_ERROR)

    return handle


def _address(request: web.Request) -> str:
    """Return who asks: a user, or else an address. An Ingress has one address for all."""
    return request.get(WHO) or request.get(CLIENT) or request.remote or "unknown"


def _no_node(name: str) -> Unanswerable:
    return Unanswerable(f"there is no node {name[:253]!r}", _404)


_404 = HTTPStatus.NOT_FOUND
