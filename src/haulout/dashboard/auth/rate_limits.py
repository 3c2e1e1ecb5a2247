"""Rate limits: authenticated callers by user name, all others by address and in total.

Anonymous callers never consume the limit of an authenticated user. Both need TokenReviews, though, because an unknown
token may be anyone's. A few wrong tokens of each address are reviewed at once. After that, unknown tokens wait in one
queue, in which each connection has one place, and which calls the API server at a steady rate: an attacker who guesses
tokens is slowed down, and a new user still gets in.

Client addresses in canonical form, for comparison and rate limits.
"""

import asyncio
import contextlib
import ipaddress
import math
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from datetime import timedelta
from http import HTTPStatus

from haulout.core.clock import Clock, real_seconds
from haulout.dashboard.api.backend import HttpError

_ALL = ""  # key of the bucket for all callers together
_REVIEW_INTERVAL = timedelta(milliseconds=20)
_MAX_WAIT = timedelta(seconds=10)
_MAX_WAITING = 1000
_MAX_WAITING_PER_ADDRESS = 100

_MAX_KEYS = 10_000

_IPV6_CLIENT_PREFIX = 64  # bits: the owner of an IPv6 address can choose the rest


class RateLimited(HttpError):
    """The caller has to wait."""

    def __init__(self, text: str, seconds: int) -> None:
        super().__init__(text, HTTPStatus.TOO_MANY_REQUESTS, retry_after=timedelta(seconds=seconds))


class RequestLimits:
    """Limits requests."""

    def __init__(self, clock: Clock) -> None:
        self._by_user = TokenBuckets(clock, burst=600, refill=timedelta(milliseconds=20))
        self._by_address = TokenBuckets(clock, burst=600, refill=timedelta(milliseconds=20))
        self._all_anonymous = TokenBuckets(clock, burst=3000, refill=timedelta(milliseconds=4))

    def check_user(self, name: str) -> None:
        """Count a request of an authenticated user; raise `RateLimited`."""
        _check(self._by_user.take(name))

    def check_anonymous(self, address: str) -> None:
        """Count a request of an anonymous caller; raise `RateLimited`."""
        _check(self._by_address.take(address) or self._all_anonymous.take(_ALL))


def _check(wait: int) -> None:
    if wait:
        raise RateLimited(f"too many requests: try again in {wait} s", wait)


class TokenReviewLimits:
    """Limits TokenReviews of unknown tokens."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed = TokenBuckets(clock, burst=10, refill=timedelta(seconds=6))
        self._failed_by_all = TokenBuckets(clock, burst=100, refill=timedelta(milliseconds=200))
        self._waiting: Counter[str] = Counter()
        self._turn_lock = asyncio.Lock()  # wakes waiting tokens in their order
        self._next_at = 0.0

    def take(self, address: str) -> int:
        """Count a token as wrong; return 0 if it may be reviewed at once, else the seconds until the next one may."""
        if wait := self._failed.take(address):
            return wait
        if wait := self._failed_by_all.take(_ALL):
            self._failed.refund(address)
        return wait

    def refund(self, address: str) -> None:
        """Undo `take`, since only invalid tokens count."""
        self._failed.refund(address)
        self._failed_by_all.refund(_ALL)

    @contextlib.asynccontextmanager
    async def wait_for_turn(self, address: str) -> AsyncIterator[None]:
        """Wait for the turn of one token; raise `RateLimited` if too many wait, or after _MAX_WAIT."""
        if self._waiting.total() >= _MAX_WAITING or self._waiting[address] >= _MAX_WAITING_PER_ADDRESS:
            raise too_many_wrong_tokens(round(_MAX_WAIT.total_seconds()))
        self._waiting[address] += 1
        try:
            async with self._acquire_turn():
                yield
        finally:
            self._waiting[address] -= 1
            self._waiting += Counter()  # drops addresses that are zero

    @contextlib.asynccontextmanager
    async def _acquire_turn(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(real_seconds(_MAX_WAIT)):
                await self._turn_lock.acquire()
        except TimeoutError:
            raise too_many_wrong_tokens(round(_MAX_WAIT.total_seconds())) from None
        try:
            now = self._clock.monotonic()
            self._next_at = max(self._next_at, now) + _REVIEW_INTERVAL.total_seconds()
            await self._clock.sleep(timedelta(seconds=self._next_at - now))
            yield
        finally:
            self._turn_lock.release()


def too_many_wrong_tokens(wait: int) -> RateLimited:
    """Return the error for a wrong token that had to wait for its turn."""
    return RateLimited(f"too many invalid tokens: try again in {wait} s", wait)


class TokenBuckets:
    """A bucket per key: `burst` tokens, and one more every `refill`."""

    def __init__(self, clock: Clock, *, burst: int, refill: timedelta, max_keys: int = _MAX_KEYS) -> None:
        self._clock = clock
        self._burst = burst
        self._refill = refill.total_seconds()
        self._max_keys = max_keys
        self._full_at: OrderedDict[str, float] = OrderedDict()  # the least recently used key first

    def __len__(self) -> int:
        return len(self._full_at)

    def retry_after(self, key: str) -> int:
        """Return the seconds until a token is available; 0: now."""
        missing = self._full_at.get(key, 0.0) - self._clock.monotonic() - self._refill * (self._burst - 1)
        return max(math.ceil(missing), 0)

    def take(self, key: str) -> int:
        """Take a token if there is one; return 0, or the seconds until there is one."""
        if wait := self.retry_after(key):
            return wait
        now = self._clock.monotonic()
        self._full_at[key] = max(self._full_at.get(key, now), now) + self._refill
        self._full_at.move_to_end(key)
        if len(self._full_at) > self._max_keys:
            self._full_at.popitem(last=False)
        return 0

    def refund(self, key: str) -> None:
        """Undo `take`: put the token back into its bucket."""
        if key in self._full_at:
            self._full_at[key] -= self._refill


def canonical_address(text: str | None) -> str | None:
    """Return an address without zone, IPv4-mapped ones as IPv4; None if it is invalid."""
    try:
        address = ipaddress.ip_address((text or "").partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def rate_limit_key(address: str) -> str:
    """Return the rate limit key of a canonical address: itself, or for IPv6 its /64."""
    if ":" not in address:
        return address
    return str(ipaddress.ip_network((address, _IPV6_CLIENT_PREFIX), strict=False))
