"""A session with the vCenter of one zone: no call keeps us waiting for ever, and in the end it is logged out.

One that fails is given up, and the next call logs in anew: whatever is wrong with it, a session that an administrator
has ended included, is over then. A login that was refused is not tried again at once: a vCenter locks accounts. Once
the credentials are others it is.
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
from haulout.core.timeouts import await_with_timeout
from haulout.errors import CloudError
from haulout.kube.client import Client

log = logging.getLogger(__name__)

T = TypeVar("T")

_SESSION_LOST_FAULTS = (
    "",
    "NotAuthenticated",
    "ManagedObjectNotFound",
)  # no answer that makes sense, no session, or an old one
_LOGOUT_TIMEOUT = timedelta(seconds=10)
_LOGIN_BACKOFF = Backoff(first=timedelta(minutes=2), limit=timedelta(minutes=15), jitter=0.1)


class VCenterSession:
    """The way to one vCenter, by `connect`."""

    def __init__(self, client: Client, connect: VCenterLogin) -> None:
        self._clock, self._random = client.clock, client.random
        self._connect = connect
        self._access: VCenterAccess | None = None
        self._vcenter: VCenter | None = None
        self._login_failures = 0
        self._next_login_at = 0.0  # on the monotonic clock

    async def open(self, access: VCenterAccess) -> None:
        """Log in, unless we are; raises `CloudError`."""
        if access != self._access:
            await self.close()
            self._access, self._login_failures, self._next_login_at = access, 0, 0.0
        if self._vcenter is not None:
            return
        doing = f"logging in at {access.url} as {access.credentials.username}"
        remaining = timedelta(seconds=math.ceil(self._next_login_at - self._clock.monotonic()))
        if remaining > timedelta():
            retry_text = f"it is tried again in {duration.format_short(remaining)}, or when the file says otherwise"
            raise CloudError(f"it was refused before; {retry_text}", doing=doing, code=INVALID_LOGIN)
        try:
            self._vcenter = await await_with_timeout(self._connect(access), doing=doing)
        except CloudError as error:
            if error.code == INVALID_LOGIN:
                self._login_failures += 1
                delay = _LOGIN_BACKOFF.delay(self._login_failures, self._random)
                self._next_login_at = self._clock.monotonic() + delay.total_seconds()
            raise
        self._login_failures = 0

    async def call(self, operation: Callable[[VCenter], Awaitable[T]], *, doing: str) -> T:
        """Return what a call comes to; raises `CloudError`, after which `open` is needed again."""
        vcenter = self._vcenter
        if vcenter is None:
            raise CloudError("there is no session any more", doing=doing)
        try:
            return await await_with_timeout(operation(vcenter), doing=doing)
        except CloudError as error:
            if error.code in _SESSION_LOST_FAULTS:
                await self.close()
            raise

    async def close(self) -> None:
        """Log out; what goes wrong with that is of no consequence."""
        vcenter, self._vcenter = self._vcenter, None
        if vcenter is None or self._access is None:
            return
        try:
            await await_with_timeout(
                vcenter.close(), doing=f"logging out at {self._access.url}", within=_LOGOUT_TIMEOUT
            )
        except CloudError as error:
            log.debug("%s", error)
