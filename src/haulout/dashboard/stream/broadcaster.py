"""Tells all who look on what has changed: each thing is written once, and the same bytes go to everybody.

    async with hub.looking(since="18f2-7") as looker:
        while (told := await looker.next()) is not None: ...

Who reads slowly has a bounded backlog. When that is full they are told `reset`, which means to ask for everything anew,
and are let go. Who comes back and names the last event that they saw is told what came after it, as far as that is
still known; otherwise `reset`.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from haulout.core.realtime import real_seconds
from haulout.dashboard.api.responses import encode
from haulout.dashboard.api.types import ApiType

HEARTBEAT_INTERVAL = timedelta(seconds=15)
_MAX_BACKLOG = 512 << 10  # bytes that wait for somebody who reads slowly
_MAX_HISTORY = 2 << 20  # bytes of events that somebody who comes back can be told
_RESET = b"event: reset\ndata: {}\n\n"
_HEARTBEAT_COMMENT = b": still here\n\n"


def encode_event(kind: str, value: ApiType, identity: str = "") -> bytes:
    """Return an event as it is sent."""
    id_line = f"id: {identity}\n" if identity else ""
    return b"%sevent: %s\ndata: %s\n\n" % (id_line.encode(), kind.encode(), encode(value))


@dataclass(slots=True, eq=False)
class Subscriber:
    """Somebody who looks on; `node` is what they are told of in detail."""

    node: str = ""
    backlog: int = _MAX_BACKLOG
    _queued: list[bytes] = field(default_factory=list)
    _size: int = 0
    _is_ended: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, message: bytes) -> None:
        """Have them told; who is too far behind is let go."""
        if self._is_ended:
            return
        if self._queued and self._size + len(message) > self.backlog:
            self.reset()
            return
        self._queued.append(message)
        self._size += len(message)
        self._changed.set()

    def reset(self) -> None:
        """Tell them to ask anew, and nothing else."""
        self._queued, self._size, self._is_ended = [_RESET], 0, True
        self._changed.set()

    async def next(self) -> bytes | None:
        """Return what is to be sent next; None: that was all."""
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
    """All who look on. `start` starts a story; events of another one are of no use any more."""

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
        """Begin anew; whoever looks on is told to ask for everything."""
        self._epoch, self._sequence, self._size = epoch, 0, 0
        self._history.clear()
        self.reset_all()

    def reset_all(self) -> None:
        """Let all go."""
        for subscriber in tuple(self._subscribers):
            subscriber.reset()

    def next_revision(self) -> str:
        """Return the id of an event that is about to be told: some of them say it themselves."""
        return f"{self._epoch}-{self._sequence + 1}"

    def publish(self, kind: str, value: ApiType) -> None:
        """Tell everybody."""
        self._sequence += 1
        message = encode_event(kind, value, self.revision)
        self._history.append((self._sequence, message))
        self._size += len(message)
        while self._size > self._max_history:
            self._size -= len(self._history.popleft()[1])
        for subscriber in tuple(self._subscribers):
            subscriber.send(message)

    def publish_detail(self, node: str, message: bytes) -> None:
        """Tell those who want to know of a node in detail."""
        for subscriber in tuple(self._subscribers):
            if subscriber.node == node:
                subscriber.send(message)

    def subscribed_nodes(self) -> frozenset[str]:
        """Return the nodes that somebody wants to know of in detail."""
        return frozenset(subscriber.node for subscriber in self._subscribers if subscriber.node)

    @contextlib.contextmanager
    def subscribe(self, *initial: bytes, since: str = "", node: str = "") -> Iterator[Subscriber]:
        """Let somebody look on while the context lasts; they are told `initial`, and then what came after `since`."""
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
        """Return what was told after an event; None if that is not known any more."""
        epoch, _, number = since.rpartition("-")
        if not since:
            return []
        if epoch != self._epoch or not number.isascii() or not number.isdecimal() or int(number[:20]) > self._sequence:
            return None
        last_seen = int(number)
        oldest = self._history[0][0] if self._history else self._sequence + 1
        return (
            None if last_seen + 1 < oldest else [message for sequence, message in self._history if sequence > last_seen]
        )
