"""Forward API requests from a replica to the leader.

Responses are streamed, so that event streams pass as well. Finding the leader takes two requests to the API server; the
result is cached for a while, or until the leader does not answer.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from http import HTTPStatus
from typing import Protocol

import aiohttp
from aiohttp import web

from haulout.core.clock import Clock, real_seconds
from haulout.dashboard.api.backend import HttpError
from haulout.dashboard.server import FORWARDED_HEADER, FORWARDED_IDENTITY, NO_FORWARDED_IDENTITY
from haulout.errors import HauloutError

_CONNECT_TIMEOUT = timedelta(seconds=3)
_LOOKUP_TIMEOUT = timedelta(seconds=5)
_READ_TIMEOUT = timedelta(seconds=45)  # the heartbeat of a stream is more frequent
_LEADER_TTL = timedelta(seconds=10)
_MAX_CONNECTIONS = 600
_REQUEST_HEADERS = ("Accept", "Accept-Encoding", "Authorization", "Content-Type", "If-None-Match", "Last-Event-ID")
_RESPONSE_HEADERS = (
    "Cache-Control",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Type",
    "ETag",
    "Retry-After",
    "Vary",
    "X-Accel-Buffering",
    "X-Content-Type-Options",
)


class LeaderLocator(Protocol):
    """Finds the leader."""

    async def base_url(self) -> str:
        """Return the leader's base URL, such as `http://10.0.0.7:8080`; raise `HauloutError`."""
        ...


class LeaderForwarder:
    """Forwards requests; its client session lives as long as the application."""

    def __init__(self, leader: LeaderLocator, clock: Clock) -> None:
        self._leader = leader
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._base_url = ""
        self._base_url_expires_at = 0.0

    async def lifespan(self, _app: web.Application) -> AsyncIterator[None]:
        """Close the session when the application ends."""
        yield
        if self._session is not None:
            await self._session.close()

    async def forward(self, request: web.Request, body: bytes | None = None) -> web.StreamResponse:
        """Forward a request; raise `HttpError` unless the response has begun."""
        if FORWARDED_HEADER in request.headers:
            raise HttpError("the request was forwarded to this replica as the leader, but it is not the leader")
        url = await self._leader_url() + request.rel_url.raw_path_qs
        headers = {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers}
        headers |= request.get(FORWARDED_IDENTITY, NO_FORWARDED_IDENTITY).headers()
        headers[FORWARDED_HEADER] = request.remote or "unknown"
        try:
            async with self._client_session().request(
                request.method, url, data=body, headers=headers, allow_redirects=False
            ) as upstream:
                return await self._relay(request, upstream)
        except (aiohttp.ClientError, OSError) as error:
            self._base_url = ""
            why = str(error) or type(error).__name__
            raise HttpError(f"the leader does not answer: {why}", HTTPStatus.BAD_GATEWAY) from None

    async def _relay(self, request: web.Request, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        headers = {name: upstream.headers[name] for name in _RESPONSE_HEADERS if name in upstream.headers}
        response = web.StreamResponse(status=upstream.status, headers=headers)
        await response.prepare(request)
        # The response has begun: later errors can only truncate it.
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async for piece in upstream.content.iter_any():
                await response.write(piece)
            await response.write_eof()
        return response

    async def _leader_url(self) -> str:
        now = self._clock.monotonic()
        if not self._base_url or now >= self._base_url_expires_at:
            try:
                async with asyncio.timeout(real_seconds(_LOOKUP_TIMEOUT)):
                    self._base_url = await self._leader.base_url()
            except TimeoutError:
                raise HttpError("finding the leader timed out") from None
            except HauloutError as error:
                raise HttpError(str(error)) from None
            self._base_url_expires_at = now + real_seconds(_LEADER_TTL)
        return self._base_url

    def _client_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                auto_decompress=False,
                trust_env=False,
                connector=aiohttp.TCPConnector(limit=_MAX_CONNECTIONS),
                timeout=aiohttp.ClientTimeout(
                    total=None,
                    sock_connect=real_seconds(_CONNECT_TIMEOUT),
                    sock_read=real_seconds(_READ_TIMEOUT),
                ),
            )
        return self._session
