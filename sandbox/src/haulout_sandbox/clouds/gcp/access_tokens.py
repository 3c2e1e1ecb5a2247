"""The access tokens of the project, which the metadata servers of its machines issue and the Compute API checks."""

import itertools
from datetime import timedelta

from haulout.core.clock import Clock
from haulout_sandbox.clouds.gcp.instances import Document, api_error

TOKEN_LIFETIME = timedelta(hours=1)


class AccessTokens:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self._expires_at: dict[str, float] = {}

    def issue(self) -> Document:
        """Return a new token as the document that a metadata server answers with."""
        token, seconds = f"ya29.sandbox-{next(self._numbers)}", TOKEN_LIFETIME.total_seconds()
        self._expires_at[token] = self._clock.monotonic() + seconds
        return {"access_token": token, "expires_in": int(seconds), "token_type": "Bearer"}

    def revoke_all(self) -> None:
        self._expires_at.clear()

    def check(self, authorization: str) -> None:
        """Raise `CloudError` unless the header has a valid token."""
        expires_at = self._expires_at.get(authorization.removeprefix("Bearer "), 0.0)
        if self._clock.monotonic() >= expires_at:
            raise api_error("Request had invalid authentication credentials.", status=401, code="authError")
