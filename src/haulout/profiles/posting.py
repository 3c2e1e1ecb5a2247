"""Sending notifications, so that nothing waits for them.

    poster = Poster(outside, clock=clock, random=random, tell=tell)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(poster.run())
        …
        poster.post("ask-the-team", notification, message)

`post` returns at once. What is posted is sent by tasks of `run`, and tried again if that fails: after a second, then
more and more rarely, until it is accepted or too old. It is never sent again once it is accepted. That it is sent at
most once although a process may die is up to whoever posts: it writes down that it does before it does.

Messages about one node by one instance keep their order; a message that cannot be sent holds up no other node. To one
instance one message is sent at a time, since receivers limit how fast they may be told. All is bounded: how long an
attempt may take, how old a message may become, how many may wait. Whatever becomes of a message is told by `tell`.
"""

import asyncio
import traceback
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from random import Random

from haulout.core import duration
from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import HauloutError, OutsideError, Unsendable
from haulout.profiles.plugin import Message, Notification, Outside
from haulout.profiles.said import no_answer

_AGAIN = Backoff(first=timedelta(seconds=1), limit=timedelta(minutes=2), jitter=0.3)
_ATTEMPT_LASTS = timedelta(minutes=1)


class Fate(StrEnum):
    """What became of a message."""

    SENT = "sent"
    DELAYED = "delayed"  # an attempt failed, and there will be another
    LOST = "lost"  # it will not be sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """What became of a message by now."""

    instance: str
    type: str  # of the notification
    message: Message
    fate: Fate
    attempts: int
    problem: str = ""  # a sentence without secrets; empty if it was sent
    next_at: datetime | None = None  # of the next attempt, if it is delayed

    @property
    def node(self) -> str:
        """The name of the node that the message is about."""
        return self.message.node


@dataclass(slots=True)
class _Item:
    instance: str
    notification: Notification
    message: Message
    posted_at: datetime
    attempts: int = 0


_Line = tuple[str, str]  # instance and node


class Poster:
    """Sends what is posted, for as long as `run` runs."""

    def __init__(
        self,
        outside: Outside,
        *,
        clock: Clock,
        random: Random,
        tell: Callable[[Posted], object],
        patience: timedelta = timedelta(minutes=30),
        most_waiting: int = 1000,
    ) -> None:
        self._outside = outside
        self._clock = clock
        self._random = random
        self._tell = tell
        self._patience = patience
        self._most_waiting = most_waiting
        self._lines: dict[_Line, deque[_Item]] = {}
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(1))
        self._new: deque[_Line] = deque()  # lines that nobody serves yet
        self._bell = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        """How many messages are neither sent nor lost."""
        return sum(map(len, self._lines.values()))

    def post(self, instance: str, notification: Notification, message: Message) -> None:
        """Have a message sent; return at once."""
        item = _Item(instance, notification, message, self._clock.now())
        if self.waiting >= self._most_waiting:
            self._report(item, Fate.LOST, f"{self._most_waiting} notifications wait to be sent, and no more may")
            return
        line = (instance, message.node)
        if line in self._lines:
            self._lines[line].append(item)
            return
        self._lines[line] = deque([item])
        self._new.append(line)
        self._idle.clear()
        self._bell.set()

    async def run(self) -> None:
        """Send what is posted until it is cancelled; what then still waits is lost, and told."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    while self._new:
                        line = self._new.popleft()
                        tasks.create_task(self._serve(line), name=f"notifying {line[0]} about {line[1]}")
                    self._bell.clear()
                    await self._bell.wait()
        finally:
            self._lose_all("this process ends before it could be sent")

    async def settle(self, within: timedelta) -> None:
        """Return when nothing waits any more, or after `within`: for a last moment before the end."""
        try:
            async with asyncio.timeout(within.total_seconds()):
                await self._idle.wait()
        except TimeoutError:
            return

    async def _serve(self, line: _Line) -> None:
        """Send what is in a line, in order, until it is empty."""
        items = self._lines[line]
        while items:
            await self._bring_to_an_end(items[0])
            items.popleft()
        del self._lines[line]
        if not self._lines:
            self._idle.set()

    async def _bring_to_an_end(self, item: _Item) -> None:
        while True:
            error = await self._attempt(item)
            if error is None:
                self._report(item, Fate.SENT)
                return
            wait = _AGAIN.delay(item.attempts, self._random)
            next_at = self._clock.now() + wait
            if isinstance(error, Unsendable) or next_at > item.posted_at + self._patience:
                self._report(item, Fate.LOST, str(error))
                return
            self._report(item, Fate.DELAYED, str(error), next_at=next_at)
            await self._clock.sleep(wait)

    async def _attempt(self, item: _Item) -> HauloutError | None:
        """Send a message; return what is wrong."""
        async with self._turns[item.instance]:
            if self._clock.now() > item.posted_at + self._patience:
                waited = duration.format(self._patience)
                return Unsendable(f"it waited for its turn for more than {waited}: {item.instance} is too slow")
            item.attempts += 1
            try:
                async with asyncio.timeout(_ATTEMPT_LASTS.total_seconds()):
                    await item.notification.send(item.message, self._outside)
            except TimeoutError:
                return OutsideError(no_answer(f"the receiver of {item.instance}", _ATTEMPT_LASTS))
            except HauloutError as error:
                return error
            except Exception as error:  # noqa: BLE001 - a plugin of anybody: the boundary of its task
                return OutsideError(f"the plugin {item.notification.type} failed: {_where(error)}")
        return None

    def _report(self, item: _Item, fate: Fate, problem: str = "", *, next_at: datetime | None = None) -> None:
        self._tell(
            Posted(
                instance=item.instance,
                type=item.notification.type,
                message=item.message,
                fate=fate,
                attempts=item.attempts,
                problem=problem,
                next_at=next_at,
            )
        )

    def _lose_all(self, problem: str) -> None:
        lines, self._lines = self._lines, {}
        self._new.clear()
        self._idle.set()
        for items in lines.values():
            for item in items:
                self._report(item, Fate.LOST, problem)


def _where(error: Exception) -> str:
    """Return what kind of error it is and where it happened, but not its words: there may be a secret in them."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"
