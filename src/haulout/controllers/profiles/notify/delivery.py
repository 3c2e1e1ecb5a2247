"""Delivers notifications in the background, with retries.

    delivery = DeliveryQueue(external, clock=clock, random=random, on_update=on_update)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(delivery.run())
        …
        delivery.enqueue("ask-the-team", notification, message)

`enqueue` returns at once. Tasks of `run` send the messages. A failed attempt is retried after a second, then with
exponential backoff, until the message is accepted or too old. An accepted message is never sent again. To send at most
once even if the process crashes, the caller must record the message as sent before it calls `enqueue`.

Messages from one instance about one node stay in order. A message that cannot be sent does not block other nodes. One
message at a time is sent per instance, since receivers have rate limits. Everything is limited: the duration of an
attempt, the age of a message, the number of queued messages. `on_update` is called with every outcome.
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

from haulout.controllers.profiles.external.error_text import timeout_text
from haulout.controllers.profiles.plugin import ExternalClient, Message, Notification
from haulout.core import duration
from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.core.retry import Retry
from haulout.errors import ExternalError, HauloutError, UndeliverableMessage

_RETRY_BACKOFF = Backoff(first=timedelta(seconds=1), limit=timedelta(minutes=2), jitter=0.3)
_ATTEMPT_TIMEOUT = timedelta(minutes=1)


class DeliveryState(StrEnum):
    """The outcome of a message, or of its last attempt."""

    SENT = "sent"
    DELAYED = "delayed"  # an attempt failed, another one follows
    LOST = "lost"  # it will not be sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The current outcome of a message, for `on_update`."""

    instance: str
    type: str  # of the notification
    message: Message
    state: DeliveryState
    attempts: int
    problem: str = ""  # one sentence without secrets; empty if the message was sent
    retry_at: datetime | None = None  # time of the next attempt, if the message is delayed

    @property
    def node(self) -> str:
        """The name of the node that the message is about."""
        return self.message.node


@dataclass(slots=True)
class _QueuedMessage:
    instance: str
    notification: Notification
    message: Message
    queued_at: datetime
    attempts: int = 0


_QueueKey = tuple[str, str]  # instance and node


class DeliveryQueue:
    """Sends queued messages while `run` runs. It keeps them in memory only; callers record them before."""

    def __init__(
        self,
        external: ExternalClient,
        *,
        clock: Clock,
        random: Random,
        on_update: Callable[[Delivery], object],
        max_age: timedelta = timedelta(minutes=30),
        max_queued: int = 1000,
    ) -> None:
        self._outside = external
        self._clock = clock
        self._random = random
        self._on_update = on_update
        self._max_age = max_age
        self._max_queued = max_queued
        self._queues: dict[_QueueKey, deque[_QueuedMessage]] = {}
        self._send_locks: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(1))
        self._unserved: deque[_QueueKey] = deque()  # queues without a task
        self._has_unserved = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def queued(self) -> int:
        """How many messages are neither sent nor lost."""
        return sum(map(len, self._queues.values()))

    def enqueue(self, instance: str, notification: Notification, message: Message) -> None:
        """Queue a message; return at once."""
        item = _QueuedMessage(instance, notification, message, self._clock.now())
        # The new message is dropped, not the oldest, which may be in flight.
        if self.queued >= self._max_queued:
            problem = f"the queue is full: {self._max_queued} notifications wait to be sent"
            self._report(item, DeliveryState.LOST, problem)
            return
        key = (instance, message.node)
        if key in self._queues:
            self._queues[key].append(item)
            return
        self._queues[key] = deque([item])
        self._unserved.append(key)
        self._idle.clear()
        self._has_unserved.set()

    async def run(self) -> None:
        """Send queued messages until cancelled. Report messages that are still queued then as lost."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    while self._unserved:
                        key = self._unserved.popleft()
                        tasks.create_task(self._drain_queue(key), name=f"notifying {key[0]} about {key[1]}")
                    self._has_unserved.clear()
                    await self._has_unserved.wait()
        finally:
            self._discard_all("the operator shut down before it was sent")

    async def flush(self, timeout: timedelta) -> None:
        """Return when the queues are empty, or after `timeout`: for a graceful shutdown."""
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._idle.wait()
        except TimeoutError:
            return

    async def _drain_queue(self, key: _QueueKey) -> None:
        """Send the messages of a queue in order, until it is empty."""
        items = self._queues[key]
        # The message stays in the queue while it is sent: `queued` counts it, and after a cancellation it is reported
        # as lost.
        while items:
            await self._deliver(items[0])
            items.popleft()
        del self._queues[key]
        if not self._queues:
            self._idle.set()

    async def _deliver(self, item: _QueuedMessage) -> None:
        retry = Retry(self._clock, self._random, _RETRY_BACKOFF)
        while True:
            error = await self._attempt(item)
            if error is None:
                self._report(item, DeliveryState.SENT)
                return
            # With jitter, so that messages that failed together, because a receiver was down, are not retried together.
            delay = retry.delay(error)
            retry_at = self._clock.now() + delay
            if isinstance(error, UndeliverableMessage) or retry_at > item.queued_at + self._max_age:
                self._report(item, DeliveryState.LOST, str(error))
                return
            self._report(item, DeliveryState.DELAYED, str(error), retry_at=retry_at)
            await self._clock.sleep(delay)

    async def _attempt(self, item: _QueuedMessage) -> HauloutError | None:
        """Send a message; return the error, or None."""
        # The wait for the lock is not part of the attempt's timeout. It does count for the age: behind a receiver
        # that takes a minute per message, a message may be outdated before its turn.
        async with self._send_locks[item.instance]:
            if self._clock.now() > item.queued_at + self._max_age:
                waited = duration.format(self._max_age)
                return UndeliverableMessage(f"it was queued for more than {waited}: {item.instance} is too slow")
            item.attempts += 1
            try:
                async with asyncio.timeout(_ATTEMPT_TIMEOUT.total_seconds()):
                    await item.notification.send(item.message, self._outside)
            except TimeoutError:
                return ExternalError(timeout_text(f"the receiver of {item.instance}", _ATTEMPT_TIMEOUT))
            except HauloutError as error:
                return error
            except Exception as error:  # noqa: BLE001 - a plugin may be third-party code: the boundary of its task
                return ExternalError(f"the plugin {item.notification.type} failed: {_error_place(error)}")
        return None

    def _report(
        self, item: _QueuedMessage, state: DeliveryState, problem: str = "", *, retry_at: datetime | None = None
    ) -> None:
        self._on_update(
            Delivery(
                instance=item.instance,
                type=item.notification.type,
                message=item.message,
                state=state,
                attempts=item.attempts,
                problem=problem,
                retry_at=retry_at,
            )
        )

    def _discard_all(self, problem: str) -> None:
        queues, self._queues = self._queues, {}
        self._unserved.clear()
        self._idle.set()
        for items in queues.values():
            for item in items:
                self._report(item, DeliveryState.LOST, problem)


def _error_place(error: Exception) -> str:
    """Return the type and location of an exception, but not its message, which may contain a secret."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"
