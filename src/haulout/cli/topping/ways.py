"""How an operator is asked: at an address, or through the API server of the cluster that it runs in.

Through the API server it needs no port that is open to anybody: whoever may use `pods/proxy` may look. Any replica will
do, as those that do not lead ask the one that does.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Protocol

import aiohttp

from haulout.errors import Forbidden, HauloutError, KubeError, NotFound, OutsideError, ServerFailure
from haulout.kube.client import Client
from haulout.kube.network.bounded import TooLarge, read_beginning, read_body
from haulout.kube.objects import Pod
from haulout.kube.resources import PODS
from haulout.kube.transport import Request

API = "api/v2"
_PORT = 8080
_PODS = "app.kubernetes.io/name=haulout"
_HUBS = "app.kubernetes.io/name=haulout-hub"
_OK = 200
_WITHIN = timedelta(seconds=10)
_SILENT_FOR = timedelta(seconds=45)  # a stream says something every 15 s
_LONGEST_LINE = 16 << 20
_LARGEST = 256 << 20  # a fleet of 15,000 nodes takes some ten
_SHOWN = 200  # bytes of an answer that is an error
FORWARD = "kubectl -n NAMESPACE port-forward deploy/haulout 8080, then: haulout top --from http://127.0.0.1:8080"


class Way(Protocol):
    """A way to an operator."""

    name: str  # for people

    async def get(self, path: str) -> bytes:
        """Return what it answers; raises `HauloutError`."""
        ...

    def stream(self, path: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Return the lines of an answer that goes on; raises `HauloutError`."""
        ...


class ByAddress:
    """An operator at an address."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.name = url.rstrip("/")
        self._session = session

    async def get(self, path: str) -> bytes:
        """Return what it answers."""
        address = f"{self.name}/{API}/{path}"
        try:
            async with self._session.get(address, timeout=aiohttp.ClientTimeout(_WITHIN.total_seconds())) as response:
                body = await read_body(response.content.readany, limit=_LARGEST)
        except (aiohttp.ClientError, TimeoutError, ValueError, TooLarge) as error:
            raise OutsideError(f"{address}: {error or 'no answer in time'}") from None
        return _good(address, response.status, body)

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Return the lines."""
        address = f"{self.name}/{API}/{path}"
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_WITHIN.total_seconds())
        try:
            async with self._session.get(address, timeout=limits) as response:
                if response.status != _OK:
                    _good(address, response.status, await read_beginning(response.content.readany, limit=_SHOWN))
                yield _audible(_lines(response.content))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise OutsideError(f"{address}: {error or 'nothing is heard any more'}") from None


class ByCluster:
    """An operator in a cluster, through its API server."""

    def __init__(self, client: Client, *, namespace: str, pod: str, headers: Mapping[str, str]) -> None:
        self.name = f"pod {namespace}/{pod}"
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/pods/{pod}:{_PORT}/proxy/{API}/"
        self._headers = tuple(headers.items())

    async def get(self, path: str) -> bytes:
        """Return what it answers."""
        request = self._request(path)
        try:
            return (await self._client.request(request, doing=f"asking {self.name}")).body
        except (Forbidden, NotFound, ServerFailure) as error:
            raise HauloutError(f"{error}; it may be reached otherwise: {FORWARD}") from None

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Return the lines."""
        async with self._client.transport.stream(self._request(path)) as stream:
            if stream.status != _OK:
                body = b"\n".join([line async for line in stream.lines()])
                _good(self.name, stream.status, body)
            yield _audible(stream.lines())

    def _request(self, path: str) -> Request:
        name, _, query = path.partition("?")
        pairs = tuple((key, value) for key, _, value in (it.partition("=") for it in query.split("&") if it))
        return Request(method="GET", path=self._path + name, query=pairs, timeout=_WITHIN, headers=self._headers)


async def find(client: Client, namespace: str | None, headers: Mapping[str, str] | None = None) -> ByCluster:
    """Return the way to an operator in a cluster; raises `HauloutError` that says how else it may be reached."""
    try:
        running = await _running(client, namespace, _PODS) or await _running(client, namespace, _HUBS)
    except KubeError as error:
        raise HauloutError(f"the operator's pod cannot be looked for ({error}); try: {FORWARD}") from None
    if not running:
        raise HauloutError(f"no pod with {_PODS} runs; if the operator is called otherwise, try: {FORWARD}")
    return ByCluster(client, namespace=running[0].namespace, pod=running[0].name, headers=headers or {})


async def _running(client: Client, namespace: str | None, labels: str) -> list[Pod]:
    found = await client.list(PODS, namespace=namespace, labels=labels)
    return [it for it in found.items if it.status.phase == "Running" and not it.metadata.deletion_timestamp]


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield lines of whatever length; aiohttp's own give up at some."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > _LONGEST_LINE:
            raise OutsideError("the operator sends a line without an end")


async def _audible(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield lines for as long as any come: who cannot be heard any more does not say so."""
    while True:
        try:
            async with asyncio.timeout(_SILENT_FOR.total_seconds()):
                line = await anext(lines, None)
        except TimeoutError:
            raise OutsideError("nothing is heard any more") from None
        if line is None:
            return
        yield line


def _good(address: str, status: int, body: bytes) -> bytes:
    if status != _OK:
        raise OutsideError(f"{address} answered with status {status}: {body[:_SHOWN].decode(errors='replace').strip()}")
    return body
