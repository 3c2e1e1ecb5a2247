"""The way to the outside world: HTTP and mail over this machine's network, for notifications and for checks that ask.

What is out there may be slow, gone, wrong or hostile, so everything has a limit: connections, time, the length of an
answer. Proxies come from the environment, by the same rules as for the cluster. A redirect is followed only on the same
host and never away from TLS, a few times; one that would turn a POST into a GET is an answer like any other. Whatever
goes wrong is an `OutsideError` of one sentence that names the host and no secret.

Connections are not kept: a request is rare here, and one that meets an old connection which is being closed would fail
for no reason.
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
from urllib.parse import urljoin, urlsplit

import aiohttp

from haulout import __version__
from haulout.errors import KubeconfigError, KubeError, OutsideError, Unsendable
from haulout.kube.client import Client
from haulout.kube.network import failures, proxy
from haulout.kube.network.bounded import TooLarge, read_body
from haulout.kube.objects import object_key
from haulout.kube.resources import SECRETS
from haulout.profiles import smtp
from haulout.profiles.plugin import Reply
from haulout.profiles.said import no_answer, origin, quoted, url_problem, why
from haulout.profiles.smtp import Envelope

_HTTP_WITHIN = timedelta(seconds=10)
_MAIL_WITHIN = timedelta(seconds=30)
_MOST_REDIRECTS = 3
_READS = {"GET", "HEAD"}
_REDIRECTS = {301, 302, 303, 307, 308}
_SAME_METHOD = {307, 308}


class Network:
    """Reaches the outside over the network; `tls` says whom to trust, `environ` which proxies to use.

    Secrets are read by `client`.
    """

    def __init__(
        self,
        *,
        client: Client | None = None,
        environ: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        connections: int = 20,
        largest_answer: int = 1 << 20,
    ) -> None:
        self._client = client
        self._environ = os.environ if environ is None else environ
        self._given_tls = tls
        self._connections = connections
        self._largest_answer = largest_answer
        self._letters = asyncio.Semaphore(connections)
        self._session: aiohttp.ClientSession | None = None

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext:
        """Whom to trust; made when it is needed, as the certificates of all authorities take megabytes."""
        return ssl.create_default_context() if self._given_tls is None else self._given_tls

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: timedelta = _HTTP_WITHIN,  # noqa: ASYNC109 - part of the Outside protocol
    ) -> tuple[int, bytes]:
        """Send an HTTP request; return the status and the body."""
        reply = await self.exchange(method, url, body=body, headers=headers, timeout=timeout)
        return reply.status, reply.body

    async def exchange(
        self,
        method: str,
        url: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: timedelta = _HTTP_WITHIN,  # noqa: ASYNC109 - as above
    ) -> Reply:
        """Send an HTTP request; return all of the answer."""
        if complaint := url_problem(url):
            raise Unsendable(f"a request cannot be sent: {complaint}")
        url = url.strip()
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                return await self._follow(method, url, body=body, headers=headers or {})
        except TimeoutError:
            raise OutsideError(no_answer(origin(url), timeout)) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise OutsideError(f"{origin(url)}: {_problem(error)}") from None

    async def mail(self, envelope: Envelope) -> None:
        """Hand a letter to its mail server."""
        async with self._letters:
            await smtp.deliver(envelope, tls=self._tls, within=_MAIL_WITHIN)

    async def secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Return the data of a Secret in the cluster, decoded."""
        where = f"Secret {object_key(name, namespace)}"
        if self._client is None:
            raise OutsideError(f"{where} cannot be read: there is no cluster")
        try:
            found = await self._client.get(SECRETS, name, namespace=namespace)
            return {key: base64.b64decode(value, validate=True) for key, value in (found.data or {}).items()}
        except binascii.Error:
            raise OutsideError(f"{where} holds something else than base64") from None
        except KubeError as error:
            raise OutsideError(f"{where} cannot be read: {error}") from None

    async def file(self, path: str) -> bytes:
        """Return the content of a file."""
        try:
            data = await asyncio.to_thread(_read_file, path, self._largest_answer + 1)
        except (OSError, ValueError) as error:
            words = error.strerror if isinstance(error, OSError) else None
            raise OutsideError(f"{path} cannot be read: {(words or 'this is no path').lower()}") from None
        if len(data) > self._largest_answer:
            raise OutsideError(f"{path} is longer than {self._largest_answer} bytes")
        return data

    async def close(self) -> None:
        """Give up all connections; requests under way fail."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _follow(self, method: str, url: str, *, body: bytes, headers: Mapping[str, str]) -> Reply:
        first = url
        for _ in range(_MOST_REDIRECTS + 1):
            reply = await self._exchange(method, url, body=body, headers=headers)
            location = reply.headers.get("location")
            if not location or reply.status not in (_REDIRECTS if method in _READS else _SAME_METHOD):
                return reply
            url = _next(url, location)
        raise OutsideError(f"{origin(first)} sends us from one address to the next, more than {_MOST_REDIRECTS} times")

    async def _exchange(self, method: str, url: str, *, body: bytes, headers: Mapping[str, str]) -> Reply:
        async with self._open_session().request(
            method,
            url,
            data=body or None,
            headers={"User-Agent": f"haulout/{__version__}", **headers},
            proxy=self._proxy_for(url),
            allow_redirects=False,
        ) as answer:
            heads = {name.lower(): value for name, value in answer.headers.items()}
            return Reply(answer.status, await self._read(answer), heads)

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        try:
            return await read_body(answer.content.readany, limit=self._largest_answer)
        except TooLarge as error:
            raise OutsideError(f"{origin(str(answer.url))}: {error}") from None

    def _proxy_for(self, url: str) -> str | None:
        try:
            return proxy.from_environment(url, self._environ)
        except KubeconfigError as error:
            raise OutsideError(f"{origin(url)}: {error}") from None

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls, limit=self._connections, force_close=True)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),  # each request brings its own
            )
        return self._session


def _read_file(path: str, most: int) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(most)


def _next(url: str, location: str) -> str:
    """Return where a redirect leads to, if we go there."""
    there = urljoin(url, location)
    try:
        here, next_ = urlsplit(url), urlsplit(there)
        same_host = next_.hostname == here.hostname
    except ValueError:
        raise OutsideError(f"{origin(url)} sends us to {quoted(location)}, which is no address") from None
    if not same_host or next_.scheme not in {here.scheme, "https"}:
        raise OutsideError(f"{origin(url)} sends us to {origin(there)}, where we do not follow; give the right address")
    return there


def _problem(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy in the environment does not connect us: {error.status} {quoted(error.message)}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"the proxy in the environment cannot be reached: {why(error.os_error)}"
    for kind, text in _PROBLEMS.items():
        if isinstance(error, kind):
            return text
    if found := failures.cause(error, OSError):
        return why(found)
    is_ours = isinstance(error, ValueError)  # not that of a certificate, which has a cause
    return "a token or an address has a line break in it" if is_ours else "the connection was lost"


_PROBLEMS = {
    aiohttp.ClientConnectorDNSError: "its address cannot be found",
    aiohttp.ClientPayloadError: "the answer broke off",
    aiohttp.ClientResponseError: "the answer is not HTTP",
    aiohttp.ServerDisconnectedError: "it hung up without an answer",
}
