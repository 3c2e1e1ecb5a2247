"""Finds out which cloud this machine is in: whoever answers as its metadata service does.

All of them live at the same address, and answer each other's questions with an error. So each is asked for what only it
says. A machine that has just started may have to ask for a while.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from random import Random

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.providers.aws.imds import Ec2InstanceMetadata
from haulout.providers.azure.imds import AzureInstanceMetadata
from haulout.providers.http_fetch import Fetch

log = logging.getLogger(__name__)

_GCP_HEADER = "metadata-flavor"
_TIMEOUT = timedelta(seconds=5)
_BACKOFF = Backoff(first=timedelta(seconds=2), limit=timedelta(minutes=1), jitter=0.3)


async def detect_cloud(services: Mapping[str, Fetch], *, clock: Clock, random: Random) -> str:
    """Return which of the clouds answers, however long that takes; `services` are their metadata services."""
    probes: dict[str, Callable[[Fetch], Awaitable[bool]]] = {
        "aws": partial(_is_aws, clock=clock),
        "azure": _is_azure,
        "gcp": _is_gcp,
    }
    attempt = 0
    while True:
        for cloud, fetch in services.items():
            if await probes[cloud](fetch):
                return cloud
        attempt += 1
        if attempt == 1:
            log.warning("no metadata service of %s answers here; asking again and again", " or ".join(services))
        await clock.sleep(_BACKOFF.delay(attempt, random))


async def _is_aws(fetch: Fetch, *, clock: Clock) -> bool:
    try:
        return bool(await Ec2InstanceMetadata(fetch, clock=clock).instance())
    except CloudError as error:
        log.debug("not aws: %s", error)
        return False


async def _is_azure(fetch: Fetch) -> bool:
    try:
        return bool(await AzureInstanceMetadata(fetch).machine())
    except CloudError as error:
        log.debug("not azure: %s", error)
        return False


async def _is_gcp(fetch: Fetch) -> bool:
    try:
        answer = await fetch("GET", "/", headers={"Metadata-Flavor": "Google"}, within=_TIMEOUT)
    except CloudError as error:
        log.debug("not gcp: %s", error)
        return False
    return answer.headers.get(_GCP_HEADER) == "Google"
