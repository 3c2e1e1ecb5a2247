"""What to do about a write of which it is not known whether it took effect, or that others were quicker than."""

from datetime import timedelta

from haulout.core.backoff import Backoff
from haulout.errors import AlreadyExists, Conflict, KubeError, NotFound, ServerFailure, Unreachable
from haulout.kube.client import Client

_TRIES = 5
_PAUSE = Backoff(first=timedelta(milliseconds=50), limit=timedelta(seconds=1), jitter=0.5)


async def wait_before_retry(client: Client, error: KubeError, *, attempt: int) -> None:
    """Return when it is time to look again at what is there; raises the error if that is of no use."""
    is_overtaken = isinstance(error, AlreadyExists | Conflict | NotFound)
    may_have_worked = isinstance(error, ServerFailure) or (isinstance(error, Unreachable) and error.sent)
    if attempt >= _TRIES or not (is_overtaken or may_have_worked):
        raise error
    await client.clock.sleep(_PAUSE.delay(attempt, client.random))
