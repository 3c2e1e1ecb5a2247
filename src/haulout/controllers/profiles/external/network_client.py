"""Network access for notifications and external queries: HTTP, SMTP, Secrets and files.

Any peer may be slow, missing, wrong or hostile, so everything is limited: connections, time, the size of a response.
Proxies come from the environment, by the same rules as for the cluster. Redirects are followed a few times, only on the
same host and never from https to http. A redirect that would turn a POST into a GET is returned as the response. Every
failure is an `ExternalError` with one sentence that names the host and contains no secret.

Connections are not reused: requests are rare, and one on an idle connection that the peer is closing would fail without
a real cause.
"""

import asyncio
import base64
import binascii
import functools
import os
import ssl
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import aiohttp

from haulout import __version__
from haulout.api.objects import object_key
from haulout.api.resources import SECRETS
from haulout.controllers.profiles.external.error_text import (
    connection_error_text,
    origin,
    quote_response,
    timeout_text,
    url_problem,
)
from haulout.controllers.profiles.plugin import HttpResponse
from haulout.core.limited_reader import BodyTooLarge, read_body
from haulout.errors import ExternalError, KubeconfigError, KubeError, UndeliverableMessage
from haulout.kube.client import Client
from haulout.kube.transports import aiohttp_errors, proxy

if TYPE_CHECKING:
    from haulout.controllers.profiles.external.smtp import Envelope

_HTTP_TIMEOUT = timedelta(seconds=10)
_MAIL_TIMEOUT = timedelta(seconds=30)
_MAX_REDIRECTS = 3
# 301, 302 and 303 may turn a POST into a GET; 307 and 308 keep the method (RFC 9110, section 15.4). A message that
# arrives as a GET is lost.
_SAFE_METHODS = {"GET", "HEAD"}
_REDIRECTS = {301, 302, 303, 307, 308}
_SAME_METHOD = {307, 308}


class NetworkClient:
    """Sends requests over the network. `tls` configures trusted certificates, `environ` has the proxy settings.

    `client` reads Secrets.
    """

    def __init__(
        self,
        *,
        client: Client | None = None,
        environ: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        connections: int = 20,
        max_response_bytes: int = 1 << 20,
    ) -> None:
        self._client = client
        self._environ = os.environ if environ is None else environ
        self._given_tls = tls
        self._connections = connections
        self._max_response_bytes = max_response_bytes
        # HTTP connections are limited by the connector, mail by this.
        self._mail_slots = asyncio.Semaphore(connections)
        self._session: aiohttp.ClientSession | None = None

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext:
        """Created on first use, since the system's CA certificates take megabytes of memory."""
        return ssl.create_default_context() if self._given_tls is None else self._given_tls

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: timedelta = _HTTP_TIMEOUT,
    ) -> HttpResponse:
        """Send an HTTP request; return the response."""
        if problem := url_problem(url):
            raise UndeliverableMessage(f"a request cannot be sent: {problem}")
        url = url.strip()
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                return await self._follow(method, url, body=body, headers=headers or {})
        except TimeoutError:
            raise ExternalError(timeout_text(origin(url), timeout)) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ExternalError(f"{origin(url)}: {_problem(error)}") from None

    async def send_mail(self, envelope: "Envelope") -> None:
        """Send a mail through its SMTP server."""
        from haulout.controllers.profiles.external import smtp  # with the SMTP client, which most operators never need

        async with self._mail_slots:
            await smtp.deliver(envelope, tls=self._tls, timeout=_MAIL_TIMEOUT)

    async def read_secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Return the decoded data of a Secret in the cluster."""
        where = f"Secret {object_key(name, namespace)}"
        if self._client is None:
            raise ExternalError(f"{where} cannot be read: there is no cluster")
        try:
            found = await self._client.get(SECRETS, name, namespace=namespace)
            return {key: base64.b64decode(value, validate=True) for key, value in (found.data or {}).items()}
        except binascii.Error:
            raise ExternalError(f"{where} contains data that is not base64") from None
        except KubeError as error:
            raise ExternalError(f"{where} cannot be read: {error}") from None

    async def read_file(self, path: str) -> bytes:
        try:
            data = await asyncio.to_thread(_read_file, path, self._max_response_bytes + 1)
        except (OSError, ValueError) as error:
            words = error.strerror if isinstance(error, OSError) else None
            raise ExternalError(f"{path} cannot be read: {(words or 'this is not a path').lower()}") from None
        if len(data) > self._max_response_bytes:
            raise ExternalError(f"{path} is longer than {self._max_response_bytes} bytes")
        return data

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _follow(self, method: str, url: str, *, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        first = url
        for _ in range(_MAX_REDIRECTS + 1):
            reply = await self._exchange(method, url, body=body, headers=headers)
            location = reply.headers.get("location")
            if not location or reply.status not in (_REDIRECTS if method in _SAFE_METHODS else _SAME_METHOD):
                return reply
            url = _redirect_target(url, location)
        raise ExternalError(f"{origin(first)} redirects more than {_MAX_REDIRECTS} times")

    async def _exchange(self, method: str, url: str, *, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        async with self._open_session().request(
            method,
            url,
            data=body or None,
            headers={"User-Agent": f"haulout/{__version__}", **headers},
            proxy=self._proxy_for(url),
            allow_redirects=False,
        ) as response:
            response_headers = {name.lower(): value for name, value in response.headers.items()}
            return HttpResponse(response.status, await self._read(response), response_headers)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        try:
            return await read_body(response.content.readany, limit=self._max_response_bytes)
        except BodyTooLarge as error:
            raise ExternalError(f"{origin(str(response.url))}: {error}") from None

    def _proxy_for(self, url: str) -> str | None:
        try:
            return proxy.from_environment(url, self._environ)
        except KubeconfigError as error:
            raise ExternalError(f"{origin(url)}: {error}") from None

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls, limit=self._connections, force_close=True)
            self._session = aiohttp.ClientSession(
                connector=connector,
                # Receivers must not be able to recognize one request by another.
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),  # each request sets its own
            )
        return self._session


def _read_file(path: str, limit: int) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(limit)


def _redirect_target(url: str, location: str) -> str:
    """Return the URL that a redirect leads to. Raise `ExternalError` if we do not follow it."""
    target = urljoin(url, location)
    try:
        origin_parts, target_parts = urlsplit(url), urlsplit(target)
        same_host = target_parts.hostname == origin_parts.hostname
    except ValueError:
        raise ExternalError(
            f"{origin(url)} redirects to {quote_response(location)}, which is not a valid URL"
        ) from None
    if not same_host or target_parts.scheme not in {origin_parts.scheme, "https"}:
        raise ExternalError(
            f"{origin(url)} redirects to {origin(target)}, which is not followed; configure the final URL"
        )
    return target


def _problem(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy in the environment refuses the connection: {error.status} {quote_response(error.message)}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"the proxy in the environment cannot be reached: {connection_error_text(error.os_error)}"
    for kind, text in _PROBLEMS.items():
        if isinstance(error, kind):
            return text
    if found := aiohttp_errors.cause(error, OSError):
        return connection_error_text(found)
    is_ours = isinstance(error, ValueError)  # not that of a certificate error, which has a cause
    return "a token or a URL contains a line break" if is_ours else "the connection was lost"


_PROBLEMS = {
    aiohttp.ClientConnectorDNSError: "its host name cannot be resolved",
    aiohttp.ClientPayloadError: "the response ended early",
    aiohttp.ClientResponseError: "the response is not HTTP",
    aiohttp.ServerDisconnectedError: "the server closed the connection without a response",
}
