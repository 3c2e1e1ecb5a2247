"""A session with the vCenter of one zone: every call has a timeout, and the session is logged out at the end.

A failed session is dropped, and the next call logs in again. That recovers from any problem with the session, for
example if an administrator ended it. A refused login is not retried at once, since a vCenter locks accounts; with
changed credentials it is.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from haulout.controllers.esx.settings import VCenterAccess
from haulout.controllers.esx.vcenter import INVALID_LOGIN, VCenter, VCenterLogin
from haulout.core import duration
from haulout.core.backoff import Backoff
from haulout.core.retry import Retry
from haulout.core.timeouts import await_with_timeout
from haulout.errors import CloudError
from haulout.kube.client import Client

log = logging.getLogger(__name__)

T = TypeVar("T")

_SESSION_LOST_FAULTS = (
    "",
    "NotAuthenticated",
    "ManagedObjectNotFound",
)  # no meaningful response, no session, or an expired one
_LOGOUT_TIMEOUT = timedelta(seconds=10)
_LOGIN_BACKOFF = Backoff(first=timedelta(minutes=2), limit=timedelta(minutes=15), jitter=0.1)


class VCenterSession:
    """A session with one vCenter, opened with `connect`."""

    def __init__(self, client: Client, connect: VCenterLogin) -> None:
        self._clock = client.clock
        self._connect = connect
        self._access: VCenterAccess | None = None
        self._vcenter: VCenter | None = None
        self._retry = Retry(client.clock, client.random, _LOGIN_BACKOFF)  # of a refused login
        self._next_login_at = 0.0  # on the monotonic clock

    async def open(self, access: VCenterAccess) -> None:
        """Log in, unless a session exists; raise `CloudError`."""
        if access != self._access:
            await self.close()
            self._access, self._next_login_at = access, 0.0
            self._retry.reset()
        if self._vcenter is not None:
            return
        doing = f"logging in at {access.url} as {access.credentials.username}"
        remaining = timedelta(seconds=math.ceil(self._next_login_at - self._clock.monotonic()))
        if remaining > timedelta():
            retry_text = (
                f"the next attempt is in {duration.format_short(remaining)}, or when the credentials file changes"
            )
            raise CloudError(f"the login was refused; {retry_text}", doing=doing, code=INVALID_LOGIN)
        try:
            self._vcenter = await await_with_timeout(self._connect(access), doing=doing)
        except CloudError as error:
            if error.code == INVALID_LOGIN:
                self._next_login_at = self._clock.monotonic() + self._retry.delay(error).total_seconds()
            raise
        self._retry.reset()

    async def call(self, operation: Callable[[VCenter], Awaitable[T]], *, doing: str) -> T:
        """Call the vCenter and return the result; raise `CloudError`, after which `open` must be called again."""
        vcenter = self._vcenter
        if vcenter is None:
            raise CloudError("the session has ended", doing=doing)
        try:
            return await await_with_timeout(operation(vcenter), doing=doing)
        except CloudError as error:
            if error.code in _SESSION_LOST_FAULTS:
                await self.close()
            raise

    async def close(self) -> None:
        """Log out; errors are only logged."""
        vcenter, self._vcenter = self._vcenter, None
        if vcenter is None or self._access is None:
            return
        try:
            await await_with_timeout(
                vcenter.close(), doing=f"logging out at {self._access.url}", within=_LOGOUT_TIMEOUT
            )
        except CloudError as error:
            log.debug("%s", error)
