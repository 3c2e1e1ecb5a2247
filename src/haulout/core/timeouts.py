"""Timeouts for calls to external services. Agents call clouds without an SDK, so this is not part of `cloud_sdk`."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar

from haulout.errors import CloudError

T = TypeVar("T")

_DEFAULT_TIMEOUT = timedelta(seconds=60)


async def await_with_timeout(call: Awaitable[T], *, doing: str, within: timedelta = _DEFAULT_TIMEOUT) -> T:
    """Return the result of `call`. Raise a `CloudError` with status 0 on timeout."""
    try:
        async with asyncio.timeout(within.total_seconds()):
            return await call
    except TimeoutError:
        raise CloudError(f"no answer within {within.total_seconds():g} s", doing=doing) from None
