"""Asks whoever leads: the holder of the leader lease is a pod, and the pod has an address.

Everything has a limit: the time it takes all together, and the size of an answer. The environment's proxies are for
the outside and are not used between pods.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus

import aiohttp

from haulout.core import duration
from haulout.errors import HauloutError, KubeError, OutsideError
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.kube.network.bounded import TooLarge, read_body
from haulout.kube.objects import RawObject
from haulout.kube.resources import PODS
from haulout.web.info import FORWARDED, INFO, PORT

_WITHIN = timedelta(seconds=5)
_LARGEST = 64 << 20  # some thousand nodes with some profiles


class NobodyLeads(HauloutError):
    """Nobody holds the lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLeader:
    """The holder of a lease; its identity is `<pod>_<anything>`."""

    client: Client
    lease: str
    namespace: str
    identity: str  # our own
    port: int = PORT
    within: timedelta = _WITHIN
    largest: int = _LARGEST

    async def info(self, headers: Mapping[str, str] | None = None) -> bytes:
        """Return what the leader answers to `/api/v1/info`, to who asks with these headers."""
        try:
            async with asyncio.timeout(self.within.total_seconds()):
                return await self._ask(await self.base() + INFO, headers or {})
        except TimeoutError:
            raise OutsideError(f"the leader did not answer within {duration.format(self.within)}") from None

    async def base(self) -> str:
        """Return how addresses at the leader begin."""
        try:
            lease = await leases.find(self.client, self.lease, namespace=self.namespace)
            holder = (lease and lease.spec.holder_identity) or ""
            if not holder:
                raise NobodyLeads("nobody leads at the moment")
            if holder == self.identity:
                raise HauloutError("this replica is about to lead, and knows nothing yet")
            pod = holder.partition("_")[0]
            found = await self.client.get(PODS.of(RawObject), pod, namespace=self.namespace)
        except KubeError as error:
            raise HauloutError(f"where the leader is cannot be found out: {error}") from None
        ip = str((found.get("status") or {}).get("podIP") or "")
        if not ip:
            raise HauloutError(f"pod {self.namespace}/{pod}, which leads, has no address")
        return f"http://[{ip}]:{self.port}" if ":" in ip else f"http://{ip}:{self.port}"

    async def _ask(self, url: str, headers: Mapping[str, str]) -> bytes:
        try:
            async with (
                aiohttp.ClientSession(trust_env=False) as session,
                session.get(url, headers={FORWARDED: "unknown", **headers}, allow_redirects=False) as answer,
            ):
                body = await read_body(answer.content.readany, limit=self.largest)
        except TooLarge as error:
            raise OutsideError(f"the leader at {url}: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise OutsideError(f"the leader at {url} does not answer: {str(error) or type(error).__name__}") from None
        if answer.status != HTTPStatus.OK:
            raise OutsideError(f"the leader at {url} answered with status {answer.status}")
        return body
