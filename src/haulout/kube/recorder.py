"""The event recorder: creates Kubernetes Events, which `kubectl describe` shows.

`event` only queues an Event and returns; `run` sends in the background. Events are for people and nothing depends on
them, so the recorder must never stop, delay or fail the work that it reports. The queue is bounded and drops the oldest
Event first (the newest describe the current state). Each write is attempted a few times. `dropped` counts what is lost.

While Events are recorded continuously, the recorder sends only some per second, because each Event is one more write
for a busy API server. After a short pause, or when many Events wait, it sends all of them.

A repeated Event within six minutes raises the count of the first one: a series, as client-go's recorder makes them.
Unlike in client-go, Events with different notes are different Events: a note cannot be changed later, so the second
would be lost. Counts are written every few seconds, and by `flush`.

An Event with `dedup_key` has a name derived from its content. If a process is killed, its successor records the Event
under the same name, and the server rejects the duplicate.

Kubernetes' pkg/apis/core/validation/events.go defines what the server accepts; texts are truncated to fit.
"""

import asyncio
import hashlib
import heapq
import itertools
import logging
import math
import re
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from haulout.api import annotations
from haulout.api.objects import Base, Object
from haulout.api.resources import EVENTS, Resource
from haulout.core.backoff import Backoff
from haulout.core.retry import Retry
from haulout.core.timestamps import micro_time
from haulout.errors import AlreadyExists, ApiError, KubeError, NotFound, ServerFailure, TooManyRequests
from haulout.kube import metrics
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch

logger = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]

# finishTime of client-go (tools/events/event_broadcaster.go): a repetition after this is a new Event.
SERIES_GAP = timedelta(minutes=6)
SERIES_PAUSE = timedelta(seconds=10)  # between two writes of one series

_MAX_ATTEMPTS = 6
_BACKOFF = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=15), jitter=0.25)
_LOG_INTERVAL = timedelta(minutes=10)  # until the same problem is logged again
_SEND_INTERVAL = 0.05  # seconds between two Events while more are recorded continuously
_BURST = 10  # Events sent at once before the interval applies
_QUIET_PERIOD = 0.1  # seconds without a new Event, after which all queued Events are sent
_MIN_WAIT = 0.001  # seconds; a shorter wait may round to zero and loop
# The limits of pkg/apis/core/validation/events.go. A longer text is rejected, and the Event with it.
_NOTE_BYTES = 1024
_FIELD_BYTES = 128
_NAME_LENGTH = 253
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class ObjectReference(Base, frozen=True):
    """The object of an Event. It has no resourceVersion, so that a series continues when the object changes."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


def object_reference(resource: Resource[Any], obj: Object) -> ObjectReference:
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=obj.name,
        namespace=obj.namespace,
        uid=obj.uid,
    )


@dataclass(slots=True)
class _Series:
    """An Event, how often it occurred, and how much of that the server knows."""

    name: str
    namespace: str
    body: dict[str, Any]
    count: int
    last_time: datetime
    last_monotonic: float  # `last_time` on the monotonic clock
    sent: int = 0  # the count that the server has; 0: the Event is not created yet
    not_before: float = 0.0  # the earliest instant of the next write, on the monotonic clock
    is_queued: bool = False


class EventRecorder:
    """Records Events for one controller. The owner runs `run`.

    `capacity` bounds both the queued Events and the remembered series. `dropped` counts the writes that were given up.
    `is_throttled` limits the rate while many Events are recorded.
    """

    def __init__(
        self,
        client: Client,
        *,
        instance: str,
        controller: str = annotations.OPERATOR_REPORTER,
        capacity: int = 1000,
        is_throttled: bool = True,
    ) -> None:
        self.dropped = 0
        self._client = client
        self._clock = client.clock
        self._source = {"reportingController": controller, "reportingInstance": _truncate(instance, _FIELD_BYTES)}
        self._capacity = capacity
        self._is_throttled = is_throttled
        self._series: OrderedDict[object, _Series] = OrderedDict()  # ordered by last occurrence, the latest last
        self._queue: list[tuple[float, int, _Series]] = []  # a heap, ordered by due time
        self._sequence = itertools.count()
        self._queue_changed = asyncio.Event()
        self._sending = asyncio.Lock()
        self._recorded_at = -math.inf
        self._next_at = -math.inf  # when one more Event may be sent at the limited rate
        self._logged_at: dict[type[Exception], float] = {}

    def event(
        self,
        regarding: ObjectReference,
        *,
        reason: str,
        note: str,
        action: str,
        type: EventType = "Normal",  # noqa: A002 - the name of the field in the API
        related: ObjectReference | None = None,
        dedup_key: str = "",
    ) -> None:
        """Queue an Event: why (`reason`), what was done (`action`) and a sentence about it (`note`).

        With `dedup_key`, the server keeps one Event for the same content and `dedup_key`, whichever process records it
        and however often.
        """
        content = {
            "type": type,
            "reason": _truncate(reason, _FIELD_BYTES),
            "action": _truncate(action, _FIELD_BYTES),
            "note": _truncate(note, _NOTE_BYTES),
        }
        key = (regarding, related, *content.values(), dedup_key)
        now, monotonic_now = self._clock.now(), self._clock.monotonic()
        series = self._series.get(key)
        if series and monotonic_now - series.last_monotonic <= SERIES_GAP.total_seconds():
            # The server has it already, and its count means nothing: each process that continues the work records it
            # again.
            if dedup_key:
                return
            series.count += 1
            series.last_time, series.last_monotonic = now, monotonic_now
        else:
            # Random, because Events of one object at the same instant need different names. client-go takes the
            # nanoseconds.
            number = self._digest(key) if dedup_key else self._client.random.getrandbits(64)
            body = self._event_body(regarding, related, now, number=number) | content
            series = _Series(body["metadata"]["name"], body["metadata"]["namespace"], body, 1, now, monotonic_now)
        self._recorded_at = monotonic_now
        self._remember(key, series)
        self._enqueue(series)

    async def run(self) -> None:
        while True:
            await self._wait_until_due()
            await self._throttle()
            async with self._sending:
                # Look again: `flush` may have sent the Event while this task waited.
                if self._seconds_until_due() <= 0:
                    await self._send_first()

    async def flush(self, within: timedelta) -> None:
        """Send all queued Events, including counts that are not due yet. Give up after `within`.

        For the shutdown of a process.
        """
        try:
            # Not asyncio.timeout: in Python 3.11 it does not raise TimeoutError in a task that is being cancelled, and
            # `flush` is called in such a task.
            await asyncio.wait_for(self._send_all(), within.total_seconds())
        except TimeoutError:
            unsent = len(self._queue) + self._sending.locked()
            logger.warning("stopped sending events after %s: %d were not sent", within, unsent)

    # The queue

    def _digest(self, key: object) -> int:
        """Return a 64-bit number that every process computes for this Event."""
        content = msgspec.json.encode([self._source["reportingController"], key])
        return int.from_bytes(hashlib.sha256(content).digest()[:8])

    def _event_body(
        self, regarding: ObjectReference, related: ObjectReference | None, now: datetime, *, number: int
    ) -> dict[str, Any]:
        metadata = {
            "name": _event_name(regarding, number),
            "namespace": regarding.namespace or "default",
        }
        event = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": metadata,
            "eventTime": micro_time(now),
            "regarding": msgspec.to_builtins(regarding),
            **self._source,
        }
        return event | ({"related": msgspec.to_builtins(related)} if related else {})

    def _remember(self, key: object, series: _Series) -> None:
        self._series[key] = series
        self._series.move_to_end(key)
        if len(self._series) > self._capacity:
            self._series.popitem(last=False)

    def _enqueue(self, series: _Series) -> None:
        if series.is_queued:
            return
        # The oldest goes: the newest Events describe the current state.
        if len(self._queue) >= self._capacity:
            self._pop_first()
            self._count_dropped()
        series.is_queued = True
        due = max(self._clock.monotonic(), series.not_before)
        heapq.heappush(self._queue, (due, next(self._sequence), series))
        self._queue_changed.set()

    def _count_dropped(self) -> None:
        self.dropped += 1
        self._client.metrics.dropped.add(metrics.DROPPED_EVENTS)

    def _pop_first(self) -> _Series:
        series = heapq.heappop(self._queue)[-1]
        series.is_queued = False
        return series

    def _seconds_until_due(self) -> float:
        """Return the seconds until the first Event is due; infinity if the queue is empty."""
        return self._queue[0][0] - self._clock.monotonic() if self._queue else math.inf

    async def _wait_until_due(self) -> None:
        while (wait := self._seconds_until_due()) > 0:
            self._queue_changed.clear()
            try:
                async with asyncio.timeout(wait if self._queue else None):
                    await self._queue_changed.wait()
            except TimeoutError:
                return

    async def _throttle(self) -> None:
        """Wait for a pause in recording, for a bounded time, and not at all if many Events wait."""
        while self._is_throttled and len(self._queue) <= self._capacity // 2:
            due = min(self._next_at - _BURST * _SEND_INTERVAL, self._recorded_at + _QUIET_PERIOD)
            if (wait := due - self._clock.monotonic()) < _MIN_WAIT:
                break
            await self._clock.sleep(timedelta(seconds=wait))
        now = self._clock.monotonic()
        self._next_at = min(max(self._next_at, now), now + _BURST * _SEND_INTERVAL) + _SEND_INTERVAL

    # Sending

    async def _send_all(self) -> None:
        async with self._sending:
            while self._queue:
                await self._send_first()

    async def _send_first(self) -> None:
        series = self._pop_first()
        try:
            await self._send(series)
        # A shutdown cancels `run`, and `flush` must still find this Event in the queue.
        except asyncio.CancelledError:
            self._enqueue(series)
            raise
        finally:
            series.not_before = self._clock.monotonic() + SERIES_PAUSE.total_seconds()

    async def _send(self, series: _Series) -> None:
        try:
            await self._write_with_retries(series)
        except Exception as error:  # noqa: BLE001 - no Event is worth a failure, whatever is wrong
            self._give_up(error)

    async def _write_with_retries(self, series: _Series) -> None:
        # Without the Retry-After: the other Events wait behind this one.
        retry = Retry(
            self._clock, self._client.random, _BACKOFF, max_attempts=_MAX_ATTEMPTS, max_retry_after=timedelta()
        )
        while True:
            try:
                return await self._write(series)
            except Exception as error:
                if not _is_retriable(error):
                    raise
                await retry.wait(error)

    async def _write(self, series: _Series) -> None:
        count, body = series.count, dict(series.body)
        if count > 1:
            body["series"] = {"count": count, "lastObservedTime": micro_time(series.last_time)}
        if not series.sent:
            await self._create(series, body)
        elif count > series.sent:
            try:
                await self._update(series, body)
            except NotFound:  # Events expire on the server
                await self._create(series, body)
        series.sent = count

    async def _create(self, series: _Series, body: dict[str, Any]) -> None:
        try:
            await self._client.create(EVENTS, body, namespace=series.namespace)
        # an earlier attempt took effect, maybe with a smaller count; or another process created it
        except AlreadyExists:
            if "series" in body:
                await self._update(series, body)

    async def _update(self, series: _Series, body: dict[str, Any]) -> None:
        change = merge_patch({"series": body["series"]})
        await self._client.patch(EVENTS, series.name, change, namespace=series.namespace)

    def _give_up(self, error: Exception) -> None:
        self._count_dropped()
        now = self._clock.monotonic()
        last = self._logged_at.get(type(error), -math.inf)
        # By type of error: one log line for each cause, not for each of a thousand Events.
        if now - last < _LOG_INTERVAL.total_seconds() or _is_namespace_terminating(error):
            return
        self._logged_at[type(error)] = now
        logger.warning("events are dropped, %d so far: %s", self.dropped, error)


def _is_retriable(error: Exception) -> bool:
    """Return whether a retry may help: the server fails, throttles or is unreachable."""
    if isinstance(error, ApiError):
        return isinstance(error, ServerFailure | TooManyRequests)
    return isinstance(error, KubeError)


def _is_namespace_terminating(error: Exception) -> bool:
    """Return whether the Event's namespace is being deleted or does not exist. Such a loss is not logged."""
    if isinstance(error, ApiError) and any(cause.reason == "NamespaceTerminating" for cause in error.causes):
        return True
    return isinstance(error, NotFound)


def _event_name(regarding: ObjectReference, number: int) -> str:
    """Return a name with this number, prefixed with the object's name where that is valid."""
    suffix = f".{number:016x}"
    name = regarding.name[: _NAME_LENGTH - len(suffix)].rstrip("-.")
    return (name if _DNS_SUBDOMAIN.fullmatch(name) else "event") + suffix


def _truncate(text: str, limit: int) -> str:
    """Truncate `text` to `limit` bytes of UTF-8, with an ellipsis."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= limit:
        return encoded.decode()
    ellipsis = "…"
    return encoded[: limit - len(ellipsis.encode())].decode(errors="ignore") + ellipsis
