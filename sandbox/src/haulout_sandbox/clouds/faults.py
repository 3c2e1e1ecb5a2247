"""Faults that tests inject into calls of a cloud.

    cloud.faults.fail("GetMessages", status=429, times=3)
    cloud.faults.fail("ConsumerCommit", status=0, after=True)       # it takes effect, but no response arrives
    cloud.faults.hang("GetMessages")

Each call goes through `Faults.call`, which also records all calls.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from haulout.core.clock import Clock
from haulout.errors import CloudError

T = TypeVar("T")
_MAX_RECORDED_CALLS = 10_000


@dataclass(slots=True)
class CloudFaultRule:
    """A fault that applies to some or all calls."""

    operation: str  # empty: any
    error: CloudError | None
    after: bool  # the call takes effect first
    delay: timedelta | None  # the duration of the call; None: it never returns
    remaining: int | None

    def try_consume(self, operation: str, *, after: bool) -> bool:
        """Return whether the fault applies to this call, and count it."""
        if self.after is not after or self.remaining == 0 or self.operation not in ("", operation):
            return False
        self.remaining = None if self.remaining is None else self.remaining - 1
        return True


class Faults:
    """Lets calls fail, hang or take long."""

    def __init__(self, clock: Clock) -> None:
        self.calls: deque[str] = deque(maxlen=_MAX_RECORDED_CALLS)
        self.on_call: Callable[[str, bool], Awaitable[None]] | None = None  # called before and after each call
        self._clock = clock
        self._rules: list[CloudFaultRule] = []

    def fail(
        self,
        operation: str = "",
        *,
        status: int,
        code: str = "",
        message: str = "told to fail",
        times: int | None = 1,
        after: bool = False,
        retry_after: timedelta | None = None,
    ) -> CloudFaultRule:
        """Fail calls with an error; status 0 means no response."""
        error = CloudError(message, doing=operation or "a call", status=status, code=code, retry_after=retry_after)
        return self._add_rule(CloudFaultRule(operation, error, after, timedelta(), times))

    def hang(self, operation: str = "", *, times: int | None = 1, after: bool = False) -> CloudFaultRule:
        """Let calls hang forever."""
        return self._add_rule(CloudFaultRule(operation, None, after, None, times))

    def delay(self, operation: str = "", *, duration: timedelta, times: int | None = None) -> CloudFaultRule:
        return self._add_rule(CloudFaultRule(operation, None, after=False, delay=duration, remaining=times))

    def remove(self, *rules: CloudFaultRule) -> None:
        """Remove these rules; without arguments, all rules."""
        self._rules = [rule for rule in self._rules if rules and rule not in rules]

    async def call(self, operation: str, work: Callable[[], T]) -> T:
        """Run `work`, unless a fault applies."""
        self.calls.append(operation)
        await self._inject(operation, after=False)
        result = work()
        await self._inject(operation, after=True)
        return result

    def _add_rule(self, rule: CloudFaultRule) -> CloudFaultRule:
        self._rules.append(rule)
        return rule

    async def _inject(self, operation: str, *, after: bool) -> None:
        if self.on_call is not None:
            await self.on_call(operation, after)
        for rule in self._rules:
            if not rule.try_consume(operation, after=after):
                continue
            if rule.delay is None:
                await asyncio.Event().wait()
            elif rule.delay:
                await self._clock.sleep(rule.delay)
            if rule.error is not None:
                raise rule.error
