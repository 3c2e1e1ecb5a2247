"""The HTTPS server of the webhook: one path, one method, and a clear error for any other request.

The size of the body is limited, and so is the time to send it: an object has at most some megabytes, and a review
contains two. The API server sends its timeout in the query. The client certificate, if any, proves that the caller is
the API server (`haulout.webhook.client_certificates`).
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
from haulout.httpserver import connections
from haulout.httpserver.listener import listen
from haulout.webhook.client_certificates import ClientCertificates
from haulout.webhook.settings import ClientAuth
from haulout.webhook.validator import REVIEW_TIMEOUT, InvalidReview, Validator

_MAX_BODY_BYTES = 8 << 20
_MAX_REVIEW_TIMEOUT = timedelta(seconds=30)  # the longest timeout that Kubernetes allows for a webhook


class WebhookServer:
    """Answers AdmissionReviews at `path`, from API servers and from anybody else who reaches the port."""

    def __init__(self, validator: Validator, clients: ClientCertificates, *, path: str) -> None:
        self._validator = validator
        self._clients = clients
        self._path = path

    @contextlib.asynccontextmanager
    async def serve(self, *, host: str | None, port: int) -> AsyncIterator[int]:
        """Listen while the context lasts; yield the port. On exit, finish the requests in progress."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post(self._path, self._handle)
        async with listen(
            app, host=host, port=port, what="the webhook", limits=connections.WEBHOOK, tls=self._clients.context
        ) as bound_port:
            yield bound_port

    async def _handle(self, request: web.Request) -> web.Response:
        is_authenticated = self._clients.is_api_server(_verified_certificate(request))
        if self._clients.mode is ClientAuth.REQUIRED and not is_authenticated:
            return _text(HTTPStatus.FORBIDDEN, "expected a client certificate of the API server")
        try:
            # A caller that sends slowly holds its connection. Many of them would leave none for the API server.
            async with asyncio.timeout(REVIEW_TIMEOUT.total_seconds()):
                body = await request.read()
        except TimeoutError:
            return _text(HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive")
        if request.content_type != "application/json":
            return _text(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected application/json, found {request.content_type}")
        try:
            timeout = _review_timeout(request.query.get("timeout", ""))
            response = await self._validator.review(body, timeout=timeout, authenticated=is_authenticated)
        except InvalidReview as problem:
            return _text(HTTPStatus.BAD_REQUEST, str(problem))
        return web.Response(body=msgspec.json.encode(response), content_type="application/json")


def _review_timeout(text: str) -> timedelta:
    """Return the timeout of the API server, from `timeout=15s` in the query."""
    try:
        requested = duration.parse(text)
    except DurationError:
        return REVIEW_TIMEOUT
    return min(requested, _MAX_REVIEW_TIMEOUT) if requested > timedelta() else REVIEW_TIMEOUT


def _verified_certificate(request: web.Request) -> Mapping[str, Any] | None:
    """Return the verified client certificate of this connection, or None.

    A resumed TLS session was verified when it began, maybe by a CA that is revoked by now, so it does not count. The
    `ssl` module can disable resumption by tickets, but not by session IDs (TLS 1.2). API servers do not resume
    sessions.
    """
    connection = request.transport.get_extra_info("ssl_object") if request.transport else None
    if connection is None or connection.session_reused:
        return None
    certificate: Mapping[str, Any] | None = connection.getpeercert()
    return certificate


def _text(status: HTTPStatus, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")
