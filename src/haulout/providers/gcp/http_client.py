"""HTTP to Google for the operator: aiohttp, with the proxies of the environment.

    source = new_event_source(settings, client=client, nodes=nodes)

This connects to nothing yet. Each request has its own session: there are few, minutes apart. The metadata server is
link-local, so no proxy is used for it.
"""

import os
from collections.abc import Mapping
from datetime import timedelta

import aiohttp

from haulout import __version__
from haulout.api.objects import Node
from haulout.core.limited_reader import BodyTooLarge, read_body
from haulout.errors import CloudError, KubeconfigError
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.transports import proxy
from haulout.providers.gcp.compute_api import RestCompute
from haulout.providers.gcp.compute_event_source import GcpComputeEventSource, GcpEarlyStartSource
from haulout.providers.gcp.settings import GcpSettings, GoogleEarlyStart
from haulout.providers.gcp.tokens import FileTokenIssuer, MetadataTokenIssuer, TokenCache
from haulout.providers.http_fetch import Fetch, FetchedResponse

_TIMEOUT = timedelta(seconds=10)
_MAX_BODY_BYTES = 16 << 20  # for a page of 500 instances with few fields each


def new_event_source(settings: GcpSettings, *, client: Client, nodes: Informer[Node]) -> GcpComputeEventSource:
    """Return the event source for the Compute API."""
    clock = client.clock
    if settings.credentials is None:
        issuer: MetadataTokenIssuer | FileTokenIssuer = MetadataTokenIssuer(
            aiohttp_fetch(settings.metadata, is_local=True)
        )
    else:
        issuer = FileTokenIssuer(path=settings.credentials, scope=settings.scope, fetch_for=aiohttp_fetch, clock=clock)
    compute = RestCompute(aiohttp_fetch(settings.endpoint), TokenCache(issuer, clock=clock))
    source = GcpComputeEventSource if settings.early_start is GoogleEarlyStart.NEVER else GcpEarlyStartSource
    return source(compute, client=client, nodes=nodes, settings=settings)


def aiohttp_fetch(address: str, *, is_local: bool = False) -> Fetch:
    """Return a `Fetch` for an address; `is_local`: never use a proxy."""

    async def fetch(
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        within: timedelta = _TIMEOUT,
    ) -> FetchedResponse:
        doing = f"{method} {address}{target.partition('?')[0]}"
        limit = aiohttp.ClientTimeout(total=within.total_seconds())
        request_headers = {"User-Agent": f"haulout/{__version__}", **headers}
        try:
            proxy_url = None if is_local else proxy.from_environment(address, os.environ)
            async with (
                aiohttp.ClientSession(timeout=limit) as session,
                session.request(
                    method,
                    f"{address}{target}",
                    headers=request_headers,
                    data=body,
                    proxy=proxy_url,
                    allow_redirects=False,
                ) as answer,
            ):
                names = {name.lower(): value for name, value in answer.headers.items()}
                return FetchedResponse(
                    answer.status, names, await read_body(answer.content.readany, limit=_MAX_BODY_BYTES)
                )
        except TimeoutError:
            raise CloudError(f"no answer within {within.total_seconds():g} s", doing=doing) from None
        except (aiohttp.ClientError, OSError, KubeconfigError, BodyTooLarge) as error:
            raise CloudError(str(error) or type(error).__name__, doing=doing) from error

    return fetch
