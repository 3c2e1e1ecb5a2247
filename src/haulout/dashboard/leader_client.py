"""Requests to the leader: the holder of the leader lease is a pod, and the pod has an address.

The total time and the size of a response are limited. Proxies of the environment are for external systems and are not
used between pods.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus

import aiohttp

from haulout.api.objects import RawObject
from haulout.api.resources import LEASES, PODS
from haulout.core import duration
from haulout.core.limited_reader import BodyTooLarge, read_body
from haulout.dashboard.server import FORWARDED_HEADER, INFO_PATH, PORT
from haulout.errors import ExternalError, HauloutError, KubeError
from haulout.kube.client import Client

_TIMEOUT = timedelta(seconds=5)
_MAX_BYTES = 64 << 20  # enough for some thousand nodes with some profiles


class NoLeader(HauloutError):
    """Nobody holds the lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderClient:
    """A client for the holder of a lease, whose identity is `<pod>_<anything>`."""

    client: Client
    lease: str
    namespace: str
    identity: str  # of this replica
    port: int = PORT
    within: timedelta = _TIMEOUT
    largest: int = _MAX_BYTES

    async def info(self, headers: Mapping[str, str] | None = None) -> bytes:
        """Return the leader's answer to `/api/v1/info`; `headers` carry the identity of the user."""
        try:
            async with asyncio.timeout(self.within.total_seconds()):
                return await self._get(await self.base_url() + INFO_PATH, headers or {})
        except TimeoutError:
            raise ExternalError(f"the leader did not answer within {duration.format(self.within)}") from None

    async def base_url(self) -> str:
        """Return the leader's base URL; raise `HauloutError`."""
        try:
            lease = await self.client.find(LEASES, self.lease, namespace=self.namespace)
            holder = (lease and lease.spec.holder_identity) or ""
            if not holder:
                raise NoLeader("no replica is the leader at the moment")
            if holder == self.identity:
                raise HauloutError("this replica is becoming the leader and has no data yet")
            pod = holder.partition("_")[0]
            found = await self.client.get(PODS.with_model(RawObject), pod, namespace=self.namespace)
        except KubeError as error:
            raise HauloutError(f"cannot find the leader: {error}") from None
        ip = str((found.get("status") or {}).get("podIP") or "")
        if not ip:
            raise HauloutError(f"pod {self.namespace}/{pod}, which leads, has no address")
        return f"http://[{ip}]:{self.port}" if ":" in ip else f"http://{ip}:{self.port}"

    async def _get(self, url: str, headers: Mapping[str, str]) -> bytes:
        try:
            async with (
                aiohttp.ClientSession(trust_env=False) as session,
                session.get(url, headers={FORWARDED_HEADER: "unknown", **headers}, allow_redirects=False) as response,
            ):
                body = await read_body(response.content.readany, limit=self.largest)
        except BodyTooLarge as error:
            raise ExternalError(f"the leader at {url}: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ExternalError(f"the leader at {url} does not answer: {str(error) or type(error).__name__}") from None
        if response.status != HTTPStatus.OK:
            raise ExternalError(f"the leader at {url} answered with status {response.status}")
        return body
