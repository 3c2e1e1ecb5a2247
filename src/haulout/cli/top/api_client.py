"""Clients of the operator's API: by URL, or through the API server's pod proxy.

The pod proxy needs no open port: permission for `pods/proxy` suffices. Any replica works, because replicas forward to
the leader.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Protocol

import aiohttp

from haulout.api.objects import Pod
from haulout.api.resources import PODS
from haulout.core.limited_reader import BodyTooLarge, read_body, read_prefix
from haulout.errors import ExternalError, Forbidden, HauloutError, KubeError, NotFound, ServerFailure
from haulout.kube.client import Client
from haulout.kube.transport import Request
from haulout.kube.transports.connection_errors import error_text

API = "api/v2"
_PORT = 8080
_OPERATOR_LABELS = "app.kubernetes.io/name=haulout"
_HUB_LABELS = "app.kubernetes.io/name=haulout-hub"
_OK = 200
_REQUEST_TIMEOUT = timedelta(seconds=10)
_STREAM_TIMEOUT = timedelta(seconds=45)  # a stream has a heartbeat every 15 s
_MAX_LINE_BYTES = 16 << 20
_MAX_BODY_BYTES = 256 << 20  # a fleet of 15,000 nodes needs about 10 MB
_ERROR_BYTES = 200  # shown of an error response
_STREAM_TIMEOUT_TEXT = "no data received within the timeout"
PORT_FORWARD_HINT = (
    "kubectl -n NAMESPACE port-forward deploy/haulout 8080, then: haulout top --from http://127.0.0.1:8080"
)


class ApiClient(Protocol):
    """A connection to an operator."""

    name: str  # display name

    async def get(self, path: str) -> bytes:
        """Return the body of a response; raise `HauloutError`."""
        ...

    def stream(self, path: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Return the lines of an event stream; raise `HauloutError`."""
        ...


class UrlApiClient:
    """An operator at a URL."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.name = url.rstrip("/")
        self._session = session

    async def get(self, path: str) -> bytes:
        address = f"{self.name}/{API}/{path}"
        try:
            async with self._session.get(
                address, timeout=aiohttp.ClientTimeout(_REQUEST_TIMEOUT.total_seconds())
            ) as response:
                body = await read_body(response.content.readany, limit=_MAX_BODY_BYTES)
        except (aiohttp.ClientError, TimeoutError, ValueError, BodyTooLarge) as error:
            raise _request_error(address, error, timeout_text="no answer in time") from None
        return _check_status(address, response.status, body)

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        address = f"{self.name}/{API}/{path}"
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_REQUEST_TIMEOUT.total_seconds())
        try:
            async with self._session.get(address, timeout=limits) as response:
                if response.status != _OK:
                    _check_status(
                        address, response.status, await read_prefix(response.content.readany, limit=_ERROR_BYTES)
                    )
                yield _with_stream_timeout(_split_lines(response.content))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise _request_error(address, error, timeout_text=_STREAM_TIMEOUT_TEXT) from None


class PodProxyApiClient:
    """An operator's pod, through the proxy of the API server."""

    def __init__(self, client: Client, *, namespace: str, pod: str, headers: Mapping[str, str]) -> None:
        self.name = f"pod {namespace}/{pod}"
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/pods/{pod}:{_PORT}/proxy/{API}/"
        self._headers = tuple(headers.items())

    async def get(self, path: str) -> bytes:
        request = self._request(path)
        try:
            return (await self._client.request(request, doing=f"asking {self.name}")).body
        except (Forbidden, NotFound, ServerFailure) as error:
            raise HauloutError(f"{error}; to connect another way: {PORT_FORWARD_HINT}") from None

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._client.transport.stream(self._request(path)) as stream:
            if stream.status != _OK:
                body = b"\n".join([line async for line in stream.lines()])
                _check_status(self.name, stream.status, body)
            yield _with_stream_timeout(stream.lines())

    def _request(self, path: str) -> Request:
        name, _, query = path.partition("?")
        pairs = tuple((key, value) for key, _, value in (pair.partition("=") for pair in query.split("&") if pair))
        return Request(
            method="GET", path=self._path + name, query=pairs, timeout=_REQUEST_TIMEOUT, headers=self._headers
        )


async def find_operator(
    client: Client, namespace: str | None, headers: Mapping[str, str] | None = None
) -> PodProxyApiClient:
    """Find a running operator or hub; raise `HauloutError` with advice how else to connect."""
    try:
        running = await _running_pods(client, namespace, _OPERATOR_LABELS) or await _running_pods(
            client, namespace, _HUB_LABELS
        )
    except KubeError as error:
        raise HauloutError(f"cannot list the operator's pods ({error}); try: {PORT_FORWARD_HINT}") from None
    if not running:
        raise HauloutError(
            f"no running pod has the label {_OPERATOR_LABELS}; if the operator has other labels, try: "
            f"{PORT_FORWARD_HINT}"
        )
    return PodProxyApiClient(client, namespace=running[0].namespace, pod=running[0].name, headers=headers or {})


async def _running_pods(client: Client, namespace: str | None, labels: str) -> list[Pod]:
    found = await client.list(PODS, namespace=namespace, labels=labels)
    return [pod for pod in found.items if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp]


async def _split_lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield lines of any length; aiohttp's own iterator has a limit."""
    remainder = b""
    async for chunk in content.iter_any():
        *lines, remainder = (remainder + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(remainder) > _MAX_LINE_BYTES:
            raise ExternalError("the operator sent a line that is too long")


async def _with_stream_timeout(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield lines; raise after _STREAM_TIMEOUT without one, because a lost connection may not report an error."""
    while True:
        try:
            async with asyncio.timeout(_STREAM_TIMEOUT.total_seconds()):
                line = await anext(lines, None)
        except TimeoutError:
            raise ExternalError(_STREAM_TIMEOUT_TEXT) from None
        if line is None:
            return
        yield line


def _request_error(address: str, error: Exception, *, timeout_text: str) -> ExternalError:
    if isinstance(error, aiohttp.ClientConnectorError):
        return ExternalError(f"{address}: {error_text(error.os_error)}")
    return ExternalError(f"{address}: {error or timeout_text}")


def _check_status(address: str, status: int, body: bytes) -> bytes:
    if status != _OK:
        raise ExternalError(
            f"{address} answered with status {status}: {body[:_ERROR_BYTES].decode(errors='replace').strip()}"
        )
    return body
