"""What can go wrong with calls of a cloud, for whoever speaks to a model of one.

    cloud.faults.fail("GetMessages", status=429, times=3)
    cloud.faults.fail("ConsumerCommit", status=0, after=True)       # it takes effect, and no answer comes
    cloud.faults.hang("GetMessages")

Each call goes through `Faults.call`, which also keeps a list of all calls that were made.
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
_MOST_CALLS = 10_000


@dataclass(slots=True)
class Rule:
    """One thing that goes wrong, some times or for ever."""

    operation: str  # empty: any
    error: CloudError | None
    after: bool  # the call takes effect first
    lasting: timedelta | None  # how long it takes; None: it never comes back
    left: int | None

    def strikes(self, operation: str, *, after: bool) -> bool:
        """Tell whether it is the turn of this rule, and count that."""
        if self.after is not after or self.left == 0 or self.operation not in ("", operation):
            return False
        self.left = None if self.left is None else self.left - 1
        return True


class Faults:
    """Has calls fail, hang or take long."""

    def __init__(self, clock: Clock) -> None:
        self.calls: deque[str] = deque(maxlen=_MOST_CALLS)
        self.watcher: Callable[[str, bool], Awaitable[None]] | None = None  # hears of each call, before and after it
        self._clock = clock
        self._rules: list[Rule] = []

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
    ) -> Rule:
        """Have calls answered with an error; a status of 0 is no answer."""
        error = CloudError(message, doing=operation or "a call", status=status, code=code, retry_after=retry_after)
        return self._add(Rule(operation, error, after, timedelta(), times))

    def hang(self, operation: str = "", *, times: int | None = 1, after: bool = False) -> Rule:
        """Have calls never come back."""
        return self._add(Rule(operation, None, after, None, times))

    def slow(self, operation: str = "", *, by: timedelta, times: int | None = None) -> Rule:
        """Have calls take longer."""
        return self._add(Rule(operation, None, after=False, lasting=by, left=times))

    def lift(self, *rules: Rule) -> None:
        """Have things go well again; without rules, all of them."""
        self._rules = [it for it in self._rules if rules and it not in rules]

    async def call(self, operation: str, work: Callable[[], T]) -> T:
        """Do `work`, unless something goes wrong."""
        self.calls.append(operation)
        await self._befall(operation, after=False)
        result = work()
        await self._befall(operation, after=True)
        return result

    def _add(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule

    async def _befall(self, operation: str, *, after: bool) -> None:
        if self.watcher is not None:
            await self.watcher(operation, after)
        for rule in self._rules:
            if not rule.strikes(operation, after=after):
                continue
            if rule.lasting is None:
                await asyncio.Event().wait()
            elif rule.lasting:
                await self._clock.sleep(rule.lasting)
            if rule.error is not None:
                raise rule.error
