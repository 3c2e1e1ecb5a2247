"""The sandbox's API server on the network: HTTPS in front of the in-process one, for kubectl and whoever else asks.

It only carries. Each caller is known by a token and has an in-process transport of its own, so that what befalls one
(its faults, its name in the history) befalls no other.
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl

from aiohttp import web

from haulout.errors import Unreachable
from haulout.kube.transport import Request, Response, Stream
from haulout.sandbox.apiserver import ApiServer, InProcessTransport
from haulout.sandbox.apiserver.status import answer, failure

LARGEST_BODY = 3 << 20  # as the real server: MaxRequestBodyBytes in apiserver/pkg/server/config.go

_OK = 200


class Front:
    """Serves `api` to those who show one of the `tokens`; each stands for the name of a user."""

    def __init__(self, api: ApiServer, *, tokens: Mapping[str, str]) -> None:
        self._api = api
        self._tokens = dict(tokens)
        self._transports: dict[str, InProcessTransport] = {}

    @asynccontextmanager
    async def serving(self, *, host: str, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        """Listen while the context lasts; yields the port. Leaving it ends all watches at once."""
        runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, ssl_context=tls).start()
            yield runner.addresses[0][1]
        finally:
            for transport in self._transports.values():
                await transport.close()
            await runner.cleanup()

    async def _handle(self, asked: web.BaseRequest) -> web.StreamResponse:
        user = self._tokens.get(asked.headers.get("Authorization", "").removeprefix("Bearer "))
        if user is None:
            return _whole(answer(401, failure(401, "Unauthorized", "Unauthorized")))
        body = await _body(asked)
        if body is None:
            said = f"Request entity too large: limit is {LARGEST_BODY}"
            return _whole(answer(413, failure(413, "RequestEntityTooLarge", said)))
        request = Request(
            method=asked.method,
            path=asked.rel_url.raw_path,
            query=tuple(parse_qsl(asked.rel_url.raw_query_string, keep_blank_values=True)),
            body=body or None,
            content_type=asked.headers.get("Content-Type", ""),
            accept=asked.headers.get("Accept", "application/json"),
        )
        transport = self._transports.setdefault(user, self._api.transport(user))
        if dict(request.query).get("watch") not in ("1", "true"):
            return _whole(await transport.send(request))
        async with transport.stream(request) as stream:
            return await _carry(asked, stream)


async def _body(asked: web.BaseRequest) -> bytes | None:
    """Return what was sent, or None if that is more than anybody may send."""
    parts: list[bytes] = []
    room = LARGEST_BODY
    async for part in asked.content.iter_any():
        room -= len(part)
        if room < 0:
            return None
        parts.append(part)
    return b"".join(parts)


def _whole(response: Response) -> web.Response:
    return web.Response(status=response.status, headers=response.headers, body=response.body)


async def _carry(asked: web.BaseRequest, stream: Stream) -> web.StreamResponse:
    """Pass a watch on, line by line, until one of the two sides ends it."""
    carried = web.StreamResponse(status=stream.status, headers=stream.headers)
    await carried.prepare(asked)
    try:
        async for line in stream.lines():
            await carried.write(line + b"\n")
    except (Unreachable, ConnectionError):
        # Our side was cut, or theirs left: a stream that just stops is what a broken connection looks like.
        if asked.transport is not None:
            asked.transport.abort()
    return carried
