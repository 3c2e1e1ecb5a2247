"""HTTPS for the webhook: one path, one method, and a sane answer to whatever else is sent.

The body is bounded, as is the time to send it: an object is at most some megabytes, and a review holds two. How long
the API server waits is in the query of its request. Whether a caller is the API server is known by its certificate, if
it shows one (`haulout.web.client_certificates`).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from haulout.core import duration
from haulout.core.duration import DurationError
from haulout.web import connections
from haulout.web.client_certificates import ClientCertificates
from haulout.web.listening import listening
from haulout.web.reviews import NotAReview
from haulout.web.validator import PATIENCE, Validator
from haulout.web.wishes import ClientAuth

_LARGEST = 8 << 20
_LONGEST_PATIENCE = timedelta(seconds=30)  # that an API server can be told to have


class WebhookServer:
    """Answers reviews at `path`."""

    def __init__(self, validator: Validator, clients: ClientCertificates, *, path: str) -> None:
        self._validator = validator
        self._clients = clients
        self._path = path

    @contextlib.asynccontextmanager
    async def serving(self, *, host: str | None, port: int) -> AsyncIterator[int]:
        """Listen while the context lasts; yields the port. Leaving it lets those finish who are being answered."""
        app = web.Application(client_max_size=_LARGEST)
        app.router.add_post(self._path, self._handle)
        async with listening(
            app, host=host, port=port, what="the webhook", limits=connections.WEBHOOK, tls=self._clients.context
        ) as chosen:
            yield chosen

    async def _handle(self, request: web.Request) -> web.Response:
        is_authenticated = self._clients.is_api_server(_verified_certificate(request))
        if self._clients.mode is ClientAuth.REQUIRED and not is_authenticated:
            return _text(HTTPStatus.FORBIDDEN, "expected a client certificate of the API server")
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                body = await request.read()
        except TimeoutError:
            return _text(HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive")
        if request.content_type != "application/json":
            return _text(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected application/json, found {request.content_type}")
        try:
            within = _patience(request.query.get("timeout", ""))
            answer = await self._validator.review(body, within=within, authenticated=is_authenticated)
        except NotAReview as problem:
            return _text(HTTPStatus.BAD_REQUEST, str(problem))
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def _patience(text: str) -> timedelta:
    """Return how long the API server waits: `timeout=15s`."""
    try:
        told = duration.parse(text)
    except DurationError:
        return PATIENCE
    return min(told, _LONGEST_PATIENCE) if told > timedelta() else PATIENCE


def _verified_certificate(request: web.Request) -> Mapping[str, Any] | None:
    """Return the client certificate that was verified for this connection.

    A session that is resumed was verified when it began, maybe by an authority that is withdrawn by now. The module
    `ssl` can keep clients from resuming sessions by tickets, but not by their IDs (TLS 1.2). API servers resume none.
    """
    connection = request.transport.get_extra_info("ssl_object") if request.transport else None
    if connection is None or connection.session_reused:
        return None
    certificate: Mapping[str, Any] | None = connection.getpeercert()
    return certificate


def _text(status: HTTPStatus, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")
