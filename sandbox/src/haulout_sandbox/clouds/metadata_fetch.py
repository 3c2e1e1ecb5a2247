"""A client of the metadata service of one machine, in this process."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from haulout.errors import CloudError
from haulout.kube.transports.h11_client import FetchedResponse


@dataclass(frozen=True, slots=True)
class MetadataFetch:
    """Sends requests to `handle`, which takes the method, the target, headers and a body."""

    handle: Callable[[str, str, Mapping[str, str], bytes | None], Awaitable[FetchedResponse]]

    async def __call__(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        within: timedelta = timedelta(seconds=10),
    ) -> FetchedResponse:
        """Send a request, with a timeout."""
        try:
            async with asyncio.timeout(within.total_seconds()):
                return await self.handle(method, target, headers, body)
        except TimeoutError:
            raise CloudError(f"no answer within {within.total_seconds():g} s", doing=f"{method} {target}") from None
