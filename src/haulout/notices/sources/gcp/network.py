"""The way to Google over the network, for the operator: aiohttp, with the proxies that the environment names.

    source = listening(settings, client=client, nodes=nodes)

Nothing is connected yet when this returns. A session lives as long as one request: there are few, minutes apart. The
metadata server is on the link, where no proxy is asked.
"""

import os
from collections.abc import Mapping
from datetime import timedelta

import aiohttp

from haulout import __version__
from haulout.errors import CloudError, KubeconfigError
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.network import proxy
from haulout.kube.network.bounded import TooLarge, read_body
from haulout.kube.objects import Node
from haulout.notices.sources.fetching import Fetch, Fetched
from haulout.notices.sources.gcp.compute import RestCompute
from haulout.notices.sources.gcp.settings import Begin, Settings
from haulout.notices.sources.gcp.source import BeginningComputeSource, GcpComputeSource
from haulout.notices.sources.gcp.tokens import FromFile, FromMetadata, Tokens

_WITHIN = timedelta(seconds=10)
_LARGEST = 16 << 20  # a page of 500 instances, of each of which some fields are asked for


def listening(settings: Settings, *, client: Client, nodes: Cache[Node]) -> GcpComputeSource:
    """Return the source that asks the Compute API."""
    clock = client.clock
    if settings.credentials is None:
        issuer: FromMetadata | FromFile = FromMetadata(reaching(settings.metadata, is_local=True))
    else:
        issuer = FromFile(path=settings.credentials, scope=settings.scope, reach=reaching, clock=clock)
    compute = RestCompute(reaching(settings.endpoint), Tokens(issuer, clock=clock))
    source = GcpComputeSource if settings.begin is Begin.NEVER else BeginningComputeSource
    return source(compute, client=client, nodes=nodes, settings=settings)


def reaching(address: str, *, is_local: bool = False) -> Fetch:
    """Return how an address is asked; `is_local`: never through a proxy."""

    async def fetch(
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        within: timedelta = _WITHIN,
    ) -> Fetched:
        doing = f"{method} {address}{target.partition('?')[0]}"
        limit = aiohttp.ClientTimeout(total=within.total_seconds())
        sent = {"User-Agent": f"haulout/{__version__}", **headers}
        try:
            through = None if is_local else proxy.from_environment(address, os.environ)
            async with (
                aiohttp.ClientSession(timeout=limit) as session,
                session.request(
                    method, f"{address}{target}", headers=sent, data=body, proxy=through, allow_redirects=False
                ) as answer,
            ):
                names = {name.lower(): value for name, value in answer.headers.items()}
                return Fetched(answer.status, names, await read_body(answer.content.readany, limit=_LARGEST))
        except TimeoutError:
            raise CloudError(f"no answer within {within.total_seconds():g} s", doing=doing) from None
        except (aiohttp.ClientError, OSError, KubeconfigError, TooLarge) as error:
            raise CloudError(str(error) or type(error).__name__, doing=doing) from error

    return fetch
