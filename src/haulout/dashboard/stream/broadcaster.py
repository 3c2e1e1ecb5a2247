"""Broadcast changes to all subscribers: each event is encoded once, and all get the same bytes.

    with broadcaster.subscribe(since="18f2-7") as subscriber:
        while (message := await subscriber.next()) is not None:
            ...

A slow subscriber has a bounded backlog. If it is full, the subscriber gets `reset` (load everything again), and its
stream ends. A subscriber that reconnects with the id of its last event gets the later events if they are still in the
history, else `reset`.

Limits on open event streams: in total, and per client. An open stream needs memory and a file descriptor. Thousands of
streams are refused before metrics and probes of the same process suffer.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus

from haulout.core.clock import real_seconds
from haulout.dashboard.api.backend import HttpError
from haulout.dashboard.api.responses import encode
from haulout.dashboard.api.types import ApiType

HEARTBEAT_INTERVAL = timedelta(seconds=15)
_MAX_BACKLOG = 512 << 10  # bytes queued for a slow subscriber
_MAX_HISTORY = 2 << 20  # bytes of events for subscribers that reconnect
_RESET = b"event: reset\ndata: {}\n\n"
_HEARTBEAT_COMMENT = b": still here\n\n"

MAX_STREAMS = 500
MAX_STREAMS_PER_CLIENT = 20
_RETRY_AFTER = timedelta(seconds=10)


def encode_event(kind: str, value: ApiType, identity: str = "") -> bytes:
    """Return an event in the format of server-sent events."""
    id_line = f"id: {identity}\n" if identity else ""
    return b"%sevent: %s\ndata: %s\n\n" % (id_line.encode(), kind.encode(), encode(value))


@dataclass(slots=True, eq=False)
class Subscriber:
    """A subscriber of events; `node` is the node whose details it also gets."""

    node: str = ""
    backlog: int = _MAX_BACKLOG
    _queued: list[bytes] = field(default_factory=list)
    _size: int = 0
    _is_ended: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, message: bytes) -> None:
        """Queue a message; if the backlog is full, reset the subscriber."""
        if self._is_ended:
            return
        if self._queued and self._size + len(message) > self.backlog:
            self.reset()
            return
        self._queued.append(message)
        self._size += len(message)
        self._changed.set()

    def reset(self) -> None:
        """Send `reset`, which makes the client reload everything, and end the stream."""
        self._queued, self._size, self._is_ended = [_RESET], 0, True
        self._changed.set()

    async def next(self) -> bytes | None:
        """Return the next messages, or a heartbeat; None: the stream has ended."""
        if not self._queued and not self._is_ended:
            try:
                async with asyncio.timeout(real_seconds(HEARTBEAT_INTERVAL)):
                    await self._changed.wait()
            except TimeoutError:
                return _HEARTBEAT_COMMENT
        messages, self._queued, self._size = b"".join(self._queued), [], 0
        if not self._is_ended:
            self._changed.clear()
        return messages or None


class Broadcaster:
    """All subscribers. `start` begins a new epoch, which makes earlier event ids invalid."""

    def __init__(self, *, max_history: int = _MAX_HISTORY, backlog: int = _MAX_BACKLOG) -> None:
        self._subscribers: set[Subscriber] = set()
        self._max_history = max_history
        self._backlog = backlog
        self._epoch = ""
        self._sequence = 0
        self._history: deque[tuple[int, bytes]] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._subscribers)

    @property
    def revision(self) -> str:
        """The id of the last event."""
        return f"{self._epoch}-{self._sequence}"

    def start(self, epoch: str) -> None:
        """Begin a new epoch and reset all subscribers."""
        self._epoch, self._sequence, self._size = epoch, 0, 0
        self._history.clear()
        self.reset_all()

    def reset_all(self) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber.reset()

    def next_revision(self) -> str:
        """Return the id of the next event, for events that contain it."""
        return f"{self._epoch}-{self._sequence + 1}"

    def publish(self, kind: str, value: ApiType) -> None:
        self._sequence += 1
        message = encode_event(kind, value, self.revision)
        self._history.append((self._sequence, message))
        self._size += len(message)
        while self._size > self._max_history:
            self._size -= len(self._history.popleft()[1])
        for subscriber in tuple(self._subscribers):
            subscriber.send(message)

    def publish_detail(self, node: str, message: bytes) -> None:
        """Send a message to the subscribers of a node's details."""
        for subscriber in tuple(self._subscribers):
            if subscriber.node == node:
                subscriber.send(message)

    def subscribed_nodes(self) -> frozenset[str]:
        """Return the nodes whose details someone subscribes to."""
        return frozenset(subscriber.node for subscriber in self._subscribers if subscriber.node)

    @contextlib.contextmanager
    def subscribe(self, *initial: bytes, since: str = "", node: str = "") -> Iterator[Subscriber]:
        """Subscribe while the context lasts; the first messages are `initial` and the events after `since`."""
        subscriber = Subscriber(node=node, backlog=self._backlog)
        missed = self._events_since(since)
        for message in (*initial, *((_RESET,) if missed is None else missed)):
            subscriber.send(message)
        self._subscribers.add(subscriber)
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)

    def _events_since(self, since: str) -> list[bytes] | None:
        """Return the events after an id; None if they are no longer known."""
        epoch, _, number = since.rpartition("-")
        if not since:
            return []
        if epoch != self._epoch or not number.isascii() or not number.isdecimal() or int(number[:20]) > self._sequence:
            return None
        last_received = int(number)
        oldest = self._history[0][0] if self._history else self._sequence + 1
        return (
            None
            if last_received + 1 < oldest
            else [message for sequence, message in self._history if sequence > last_received]
        )


class TooManyStreams(HttpError):
    """The limit on open streams is reached."""

    def __init__(self, text: str) -> None:
        super().__init__(text, HTTPStatus.SERVICE_UNAVAILABLE, retry_after=_RETRY_AFTER)


class StreamLimiter:
    """Admits streams up to the limits."""

    def __init__(self, *, max_streams: int = MAX_STREAMS, max_per_client: int = MAX_STREAMS_PER_CLIENT) -> None:
        self._max_streams = max_streams
        self._max_per_client = max_per_client
        self._open: Counter[str] = Counter()

    @property
    def open_streams(self) -> int:
        return self._open.total()

    @contextlib.contextmanager
    def admit(self, address: str) -> Iterator[None]:
        """Count a stream while the context lasts; raise `TooManyStreams`."""
        if self.open_streams >= self._max_streams:
            raise TooManyStreams(f"{self._max_streams} event streams are open already: close some, or try again later")
        if self._open[address] >= self._max_per_client:
            raise TooManyStreams(f"{self._max_per_client} of your event streams are open already: close some tabs")
        self._open[address] += 1
        try:
            yield
        finally:
            self._open[address] -= 1
            self._open += Counter()  # drops entries that are zero
