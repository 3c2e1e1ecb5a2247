"""The sandbox's API server on the network: HTTPS in front of the in-process one, for kubectl and whoever else asks.

It only carries. Who asks is told by a token: one given here, or one that the server issued to a service account. Each
user has an in-process transport of its own, so that what befalls one (its faults) befalls no other.

What is no proper HTTP is answered as Go's server does. Memory stays bounded whatever is sent: a body is read up to the
largest that the API server takes, and a little further to spare the connection; whoever sends more is cut off after
the answer.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from http import HTTPStatus
from urllib.parse import unquote_plus

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong

from haulout.errors import Unreachable
from haulout.kube.transport import Request, Response, Stream
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, User
from haulout_sandbox.apiserver.bodies import LARGEST
from haulout_sandbox.apiserver.gate import administrator
from haulout_sandbox.apiserver.paths import is_watch
from haulout_sandbox.apiserver.status import Refused, answer, generic
from haulout_sandbox.patience import Patience

_LARGEST_HEAD = 1 << 20  # of a request, as Go's DefaultMaxHeaderBytes
_MOST_HEADERS = 10_000
_DRAINED = 256 << 10  # what Go reads of a body that nobody wants before it gives up the connection
_TEXT = "text/plain; charset=utf-8"
_BAD_PERCENT = re.compile(r"%(?![0-9a-fA-F]{2})")
_ABSOLUTE = re.compile(r"https?://[^/]*", re.IGNORECASE)
_OTHER_METHOD = re.compile(r"b'[A-Za-z]+ [!-~]+ HTTP/1\.[01]'")  # in the words of the parser
_CARRIED = ("impersonate-", "user-agent")  # headers that the API server looks at


class Front:
    """Serves `api` to those who show one of the `tokens`, or one of its own; a bare name is an administrator.

    Each user's way in is taken from `transports`, or put there: who has them, too, can let faults befall it. `pace` is
    how many seconds of the loop pass in one of the machine's.
    """

    def __init__(
        self,
        api: ApiServer,
        *,
        tokens: Mapping[str, str | User],
        transports: dict[str, InProcessTransport] | None = None,
        pace: float = 1.0,
    ) -> None:
        self._api = api
        self._transports = {} if transports is None else transports
        self._callers: dict[str, None] = {}  # a set with an order
        self._patience = Patience(pace)
        for token, user in tokens.items():
            api.give_token(token, administrator(user) if isinstance(user, str) else user)

    @asynccontextmanager
    async def serving(self, *, host: str, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        """Listen while the context lasts; yields the port. Leaving it ends all watches at once."""
        async with self.serving_on(listening(host, port), tls=tls) as chosen:
            yield chosen

    @asynccontextmanager
    async def serving_on(self, listener: socket.socket, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        """Take over a socket that listens, and do the same."""
        handler = _Server(
            self._handle,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=self._patience.idle,
            lingering_time=self._patience.farewell,  # to let a sender who is cut off read why
            max_line_size=_LARGEST_HEAD,
            max_field_size=_LARGEST_HEAD,
            max_headers=_MOST_HEADERS,
        )
        runner = web.ServerRunner(handler, shutdown_timeout=self._patience.farewell)
        await runner.setup()
        seconds = self._patience.handshake if tls else None
        server = await asyncio.get_running_loop().create_server(
            handler, sock=listener, ssl=tls, ssl_handshake_timeout=seconds, ssl_shutdown_timeout=seconds
        )
        try:
            yield listener.getsockname()[1]
        finally:
            server.close()
            for user in self._callers:
                await self._transports[user].close()
            await runner.cleanup()

    async def _handle(self, asked: web.BaseRequest) -> web.StreamResponse:
        target = asked.raw_path if asked.raw_path.startswith("/") else _ABSOLUTE.sub("", asked.raw_path)
        path, _, query = target.partition("?")
        if asked.method == "OPTIONS" and path == "*":
            return web.Response()
        if _BAD_PERCENT.search(path) or not path.startswith(("/", "*")):
            return _bad_request()
        try:
            user = self._api.identify(asked.headers.get("Authorization", ""))
        except Refused as refused:
            response = answer(refused.status["code"], refused.status)
            return await _whole(asked, response)
        request = Request(
            method=asked.method,
            path=path,
            query=_parameters(query),
            body=await _body(asked),
            content_type=asked.headers.get("Content-Type", ""),
            accept=asked.headers.get("Accept", "application/json"),
            headers=tuple((name, value) for name, value in asked.headers.items() if name.lower().startswith(_CARRIED)),
        )
        transport = self._transport(user)
        try:
            if not is_watch(request):
                return await _whole(asked, await transport.send(request))
            request = msgspec.structs.replace(request, query=self._patience.watching(request.query))
            async with transport.stream(request) as stream:
                return await _carry(asked, stream)
        except Unreachable:
            return _broken_off(asked)

    def _transport(self, user: User) -> InProcessTransport:
        self._callers[user.name] = None
        known = self._transports.get(user.name)
        if known is None:
            # The way over the network takes its own time.
            known = self._api.transport(user=user, latency=timedelta(), remembers=0)
            self._transports[user.name] = known
        return known if known.user == user else known.acting_as(user)


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens, on a free port if that is 0; OSError if the port is taken."""
    listener = socket.create_server((host, port), backlog=128)
    listener.setblocking(False)
    return listener


class _Server(web.Server):
    """Makes connections that answer broken HTTP as Go does."""

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP, or what we failed at."""
        if isinstance(exc, BadHttpMethod) and _OTHER_METHOD.search(exc.message):
            return _plain(answer(405, generic(405)))
        if isinstance(exc, LineTooLong):
            return _error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if isinstance(exc, HttpProcessingError):
            return _bad_request()
        return super().handle_error(request, status, exc, message)


def _bad_request() -> web.Response:
    return _error(HTTPStatus.BAD_REQUEST)


def _error(status: HTTPStatus) -> web.Response:
    text = f"{status.value} {status.phrase}"
    response = web.Response(status=status, body=text.encode(), headers={"Content-Type": _TEXT, "Connection": "close"})
    response.force_close()
    return response


def _parameters(query: str) -> tuple[tuple[str, str], ...]:
    """Return the parameters, as Go reads them: what is garbled is passed over."""
    pairs = (part.partition("=") for part in query.split("&") if part and ";" not in part)
    return tuple(
        (unquote_plus(name), unquote_plus(value))
        for name, _, value in pairs
        if not (_BAD_PERCENT.search(name) or _BAD_PERCENT.search(value))
    )


async def _body(asked: web.BaseRequest) -> bytes | None:
    """Return what was sent, or so much of it that it is too large."""
    if not asked.body_exists:
        return None
    parts: list[bytes] = []
    size = 0
    while size <= LARGEST and (part := await asked.content.readany()):
        parts.append(part)
        size += len(part)
    return b"".join(parts) or None


async def _whole(asked: web.BaseRequest, response: Response) -> web.Response:
    whole = _plain(response)
    if asked.body_exists and not await _is_drained(asked):
        whole.force_close()
    return whole


def _plain(response: Response) -> web.Response:
    return web.Response(status=response.status, headers=response.headers, body=response.body)


async def _is_drained(asked: web.BaseRequest) -> bool:
    """Read what is left of a body, if it is little; tell whether that was all."""
    room = _DRAINED
    while room > 0 and (part := await asked.content.readany()):
        room -= len(part)
    return asked.content.at_eof()


def _broken_off(asked: web.BaseRequest) -> web.Response:
    """Do what a server that is down does: say nothing, and hang up."""
    if asked.transport is not None:
        asked.transport.abort()
    return web.Response()


async def _carry(asked: web.BaseRequest, stream: Stream) -> web.StreamResponse:
    """Pass a watch on, line by line, until one of the two sides ends it."""
    carried = web.StreamResponse(status=stream.status, headers=stream.headers)
    await carried.prepare(asked)
    try:
        async for line in stream.lines():
            await carried.write(line + b"\n")
    except (Unreachable, ConnectionError):
        # Our side was cut, or theirs left: a stream that just stops is what a broken connection looks like.
        _broken_off(asked)
    return carried
