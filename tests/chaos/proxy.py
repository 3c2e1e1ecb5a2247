"""An HTTPS proxy between one replica and the API server, with faults that can be switched on and off.

It adds the credentials of its replica, which has none itself: so the audit log names the replica. Without a fault it
changes nothing else. It speaks TLS, as an API server does: a stall in the middle of a handshake is a separate case. A
request whose client has given up before the end of a partition is dropped, as after a connection reset.
"""

import asyncio
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import aiohttp
from aiohttp import web

from controlplane.ports import LOOPBACK
from haulout.core.clock import RealClock
from support.servers.certificates import Authority

_PER_HOP = {"connection", "host", "keep-alive", "transfer-encoding", "upgrade", "date", "server"}
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)
_SHUTDOWN_SECONDS = 0.1  # aiohttp takes 0 for no limit


@dataclass(slots=True)
class Network:
    """How the network behaves. All probabilities are from 0 to 1."""

    resets_connections: bool = False  # connections are reset
    latency_seconds: tuple[float, float] = (0.0, 0.0)  # of requests, at least and at most
    watch_lag_seconds: float = 0.0  # events of watches are late by this
    truncates: float = 0.0  # the probability that an answer breaks off in the middle
    loses_answers: float = 0.0  # the probability that a request is processed and its answer is lost
    overloaded: float = 0.0  # the probability of a 429 or 503 instead of an answer
    unblocked: asyncio.Event = field(default_factory=asyncio.Event)  # cleared: nothing passes, and nothing is reset

    def __post_init__(self) -> None:
        self.unblocked.set()


class Proxy:
    """A proxy in front of an API server; `network` may be changed at any time."""

    def __init__(self, server: str, tls: ssl.SSLContext, token: str, rng: random.Random) -> None:
        self.network = Network()
        self.address = ""
        authority = Authority()
        self.ca = authority.pem
        self._certificate = authority.issue(LOOPBACK)
        self._server = server
        self._tls = tls
        self._token = token
        self._rng = rng
        self._clock = RealClock()
        self._open: set[asyncio.Transport] = set()

    @property
    def connections(self) -> int:
        """How many requests are under way."""
        return len(self._open)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve on a free port of loopback, under `address`."""
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False, timeout=_NO_TIMEOUT) as session:
            self._session = session
            runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=_SHUTDOWN_SECONDS)
            await runner.setup()
            site = web.TCPSite(runner, LOOPBACK, 0, ssl_context=await asyncio.to_thread(self._server_tls))
            await site.start()
            host, port = runner.addresses[0][:2]
            self.address = f"https://{host}:{port}"
            try:
                yield
            finally:
                self.heal()
                self.cut()
                await runner.cleanup()

    def _server_tls(self) -> ssl.SSLContext:
        with TemporaryDirectory() as folder:
            return self._certificate.server_context(Path(folder))

    def heal(self) -> None:
        """Clear all faults."""
        old, self.network = self.network, Network()
        old.unblocked.set()

    def cut(self) -> None:
        """Reset all connections that are open now."""
        for transport in list(self._open):
            transport.abort()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            raise asyncio.CancelledError
        self._open.add(transport)
        try:
            return await self._answer(request)
        except (aiohttp.ClientError, OSError):
            _reset(request)
        finally:
            self._open.discard(transport)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        network = self.network
        await network.unblocked.wait()
        if request.transport is None or request.transport.is_closing() or network.resets_connections:
            _reset(request)
        if network.latency_seconds[1]:
            await self._pause(self._rng.uniform(*network.latency_seconds))
        if self._is_injected(network.overloaded):
            return _overloaded(self._rng.choice((429, 503)))
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _PER_HOP}
        headers["Authorization"] = f"Bearer {self._token}"
        body = await request.content.read()
        url = f"{self._server}{request.path_qs}"
        async with self._session.request(request.method, url, headers=headers, data=body or None) as answer:
            return await self._pass_back(request, answer)

    async def _pass_back(self, request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        if self._is_injected(self.network.loses_answers):
            _reset(request)
        kept = {key: value for key, value in answer.headers.items() if key.lower() not in _PER_HOP}
        response = web.StreamResponse(status=answer.status, headers=kept)
        await response.prepare(request)
        is_watch = "watch" in request.query
        async for chunk in answer.content.iter_any():
            network = self.network
            if is_watch and network.watch_lag_seconds:
                await self._pause(network.watch_lag_seconds)
            await network.unblocked.wait()
            if network.resets_connections:
                _reset(request)
            if self._is_injected(network.truncates):
                await response.write(chunk[: len(chunk) // 2])
                _reset(request)
            await response.write(chunk)
        await response.write_eof()
        return response

    def _is_injected(self, probability: float) -> bool:
        return probability > 0 and self._rng.random() < probability

    async def _pause(self, seconds: float) -> None:
        await self._clock.sleep(timedelta(seconds=seconds))


def _reset(request: web.BaseRequest) -> NoReturn:
    if request.transport is not None:
        request.transport.abort()
    raise asyncio.CancelledError


def _overloaded(status: int) -> web.Response:
    reason = "TooManyRequests" if status == 429 else "ServiceUnavailable"
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status}
    return web.json_response(body | {"message": "injected by a test"}, status=status, headers={"Retry-After": "1"})
