"""Detect the cloud of this machine by its metadata service.

All clouds use the same address, and answer requests for another cloud's paths with an error. So each is probed with a
request that only it can answer. A machine that has just booted may need several attempts.
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
    """Return the cloud that responds, however long that takes; `services` are the metadata services to probe."""
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
            log.warning("no metadata service of %s answers on this machine; retrying", " or ".join(services))
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
