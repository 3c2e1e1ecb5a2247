"""A replica that does not lead has the leader answer: question and answer pass through it as they are.

The answer is handed on piece by piece, so that an event stream passes as well. Where the leader is takes two requests
to the API server to find out, and is remembered for a while, or until it does not answer.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from http import HTTPStatus
from typing import Protocol

import aiohttp
from aiohttp import web

from haulout.core.clock import Clock
from haulout.errors import HauloutError
from haulout.web.api.pace import seconds_of_life
from haulout.web.api.source import Unanswerable
from haulout.web.info import FORWARDED, NOTHING_PASSED_ON, PASSED_ON

_CONNECTS_WITHIN = timedelta(seconds=3)
_FOUND_WITHIN = timedelta(seconds=5)
_SILENT_FOR = timedelta(seconds=45)  # a stream has a heartbeat more often than that
_REMEMBERED = timedelta(seconds=10)
_MOST_CONNECTIONS = 600
_ASKED_WITH = ("Accept", "Accept-Encoding", "Authorization", "Content-Type", "If-None-Match", "Last-Event-ID")
_ANSWERED_WITH = (
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


class Whereabouts(Protocol):
    """Knows where the leader is."""

    async def base(self) -> str:
        """Return how addresses at the leader begin: `http://10.0.0.7:8080`; raises `HauloutError`."""
        ...


class Forwarding:
    """Hands requests on; `session` belongs to the application."""

    def __init__(self, leader: Whereabouts, clock: Clock) -> None:
        self._leader = leader
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._base = ""
        self._known_until = 0.0

    async def running(self, _app: web.Application) -> AsyncIterator[None]:
        """Keep connections while the application runs."""
        yield
        if self._session is not None:
            await self._session.close()

    async def forward(self, request: web.Request, body: bytes | None = None) -> web.StreamResponse:
        """Have the leader answer; raises `Unanswerable` unless it began to."""
        if FORWARDED in request.headers:
            raise Unanswerable("this replica was asked as the leader, and does not lead")
        url = await self._where() + request.rel_url.raw_path_qs
        headers = {name: request.headers[name] for name in _ASKED_WITH if name in request.headers}
        headers |= request.get(PASSED_ON, NOTHING_PASSED_ON).headers()
        headers[FORWARDED] = request.remote or "unknown"
        try:
            async with self._connections().request(
                request.method, url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                return await self._hand_on(request, answer)
        except (aiohttp.ClientError, OSError) as error:
            self._base = ""
            why = str(error) or type(error).__name__
            raise Unanswerable(f"the leader does not answer: {why}", HTTPStatus.BAD_GATEWAY) from None

    async def _hand_on(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        headers = {name: answer.headers[name] for name in _ANSWERED_WITH if name in answer.headers}
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        # It has begun: what fails now ends the answer early, as it did at the leader.
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
        return response

    async def _where(self) -> str:
        now = self._clock.monotonic()
        if not self._base or now >= self._known_until:
            try:
                async with asyncio.timeout(seconds_of_life(_FOUND_WITHIN)):
                    self._base = await self._leader.base()
            except TimeoutError:
                raise Unanswerable("where the leader is could not be found out in time") from None
            except HauloutError as error:
                raise Unanswerable(str(error)) from None
            self._known_until = now + seconds_of_life(_REMEMBERED)
        return self._base

    def _connections(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                auto_decompress=False,
                trust_env=False,
                connector=aiohttp.TCPConnector(limit=_MOST_CONNECTIONS),
                timeout=aiohttp.ClientTimeout(
                    total=None,
                    sock_connect=seconds_of_life(_CONNECTS_WITHIN),
                    sock_read=seconds_of_life(_SILENT_FOR),
                ),
            )
        return self._session
