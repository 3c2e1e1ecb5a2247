"""Retry a write whose result is unknown, or that conflicted with another."""

from datetime import timedelta

from haulout.core.backoff import Backoff
from haulout.errors import AlreadyExists, Conflict, KubeError, NotFound, ServerFailure, Unreachable
from haulout.kube.client import Client

_TRIES = 5
_PAUSE = Backoff(first=timedelta(milliseconds=50), limit=timedelta(seconds=1), jitter=0.5)


async def wait_before_retry(client: Client, error: KubeError, *, attempt: int) -> None:
    """Wait before the next attempt; raise the error if a retry is useless."""
    is_overtaken = isinstance(error, AlreadyExists | Conflict | NotFound)
    may_have_worked = isinstance(error, ServerFailure) or (isinstance(error, Unreachable) and error.sent)
    if attempt >= _TRIES or not (is_overtaken or may_have_worked):
        raise error
    await client.clock.sleep(_PAUSE.delay(attempt, client.random))
