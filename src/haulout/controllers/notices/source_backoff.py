"""When a source that did not answer is asked again about a notice.

Not the backoff of the work queue, which a changed notice shortens: a cloud that throttles must not be asked again
because somebody has written to the notice.
"""

from datetime import datetime

from haulout.core.backoff import Backoff
from haulout.core.retry import Retry
from haulout.errors import ExternalError
from haulout.kube.client import Client


class SourceBackoff:
    """The backoff per notice."""

    def __init__(self, client: Client, backoff: Backoff) -> None:
        self._clock = client.clock
        self._random = client.random
        self._backoff = backoff
        self._retries: dict[str, Retry] = {}
        self._retry_at: dict[str, datetime] = {}

    def record_failure(self, name: str, error: ExternalError) -> datetime:
        """Return when to ask again."""
        retry = self._retries.setdefault(name, Retry(self._clock, self._random, self._backoff))
        retry_at = self._retry_at[name] = self._clock.now() + retry.delay(error)
        return retry_at

    def retry_at(self, name: str) -> datetime | None:
        """Return when to ask again; None: now."""
        retry_at = self._retry_at.get(name)
        return retry_at if retry_at is not None and self._clock.now() < retry_at else None

    def forget(self, name: str) -> None:
        self._retries.pop(name, None)
        self._retry_at.pop(name, None)
