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

from haulout.core import duration
from haulout.core.answering import answered
from haulout.core.backoff import Backoff
from haulout.errors import CloudError
from haulout.esx.settings import Access
from haulout.esx.vcenter import BAD_LOGIN, Connect, VCenter
from haulout.kube.client import Client

log = logging.getLogger(__name__)

T = TypeVar("T")

_FATAL = ("", "NotAuthenticated", "ManagedObjectNotFound")  # no answer that makes sense, no session, or an old one
_LOGS_OUT_WITHIN = timedelta(seconds=10)
_REFUSED = Backoff(first=timedelta(minutes=2), limit=timedelta(minutes=15), jitter=0.1)


class Session:
    """The way to one vCenter, by `connect`."""

    def __init__(self, client: Client, connect: Connect) -> None:
        self._clock, self._random = client.clock, client.random
        self._connect = connect
        self._access: Access | None = None
        self._vcenter: VCenter | None = None
        self._refusals = 0
        self._tries_from = 0.0  # on the monotonic clock

    async def open(self, access: Access) -> None:
        """Log in, unless we are; raises `CloudError`."""
        if access != self._access:
            await self.close()
            self._access, self._refusals, self._tries_from = access, 0, 0.0
        if self._vcenter is not None:
            return
        doing = f"logging in at {access.url} as {access.credentials.username}"
        pause = timedelta(seconds=math.ceil(self._tries_from - self._clock.monotonic()))
        if pause > timedelta():
            again = f"it is tried again in {duration.short(pause)}, or when the file says otherwise"
            raise CloudError(f"it was refused before; {again}", doing=doing, code=BAD_LOGIN)
        try:
            self._vcenter = await answered(self._connect(access), doing=doing)
        except CloudError as error:
            if error.code == BAD_LOGIN:
                self._refusals += 1
                wait = _REFUSED.delay(self._refusals, self._random)
                self._tries_from = self._clock.monotonic() + wait.total_seconds()
            raise
        self._refusals = 0

    async def ask(self, call: Callable[[VCenter], Awaitable[T]], *, doing: str) -> T:
        """Return what a call comes to; raises `CloudError`, after which `open` is needed again."""
        vcenter = self._vcenter
        if vcenter is None:
            raise CloudError("there is no session any more", doing=doing)
        try:
            return await answered(call(vcenter), doing=doing)
        except CloudError as error:
            if error.code in _FATAL:
                await self.close()
            raise

    async def close(self) -> None:
        """Log out; what goes wrong with that is of no consequence."""
        vcenter, self._vcenter = self._vcenter, None
        if vcenter is None or self._access is None:
            return
        try:
            await answered(vcenter.close(), doing=f"logging out at {self._access.url}", within=_LOGS_OUT_WITHIN)
        except CloudError as error:
            log.debug("%s", error)
