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

from haulout.web.api.answering import encoded
from haulout.web.api.pace import seconds_of_life
from haulout.web.api.shapes import Shape

HEARTBEAT = timedelta(seconds=15)
_BACKLOG = 512 << 10  # bytes that wait for somebody who reads slowly
_REMEMBERED = 2 << 20  # bytes of events that somebody who comes back can be told
_RESET = b"event: reset\ndata: {}\n\n"
_STILL_HERE = b": still here\n\n"


def event(kind: str, shape: Shape, identity: str = "") -> bytes:
    """Return an event as it is sent."""
    known = f"id: {identity}\n" if identity else ""
    return b"%sevent: %s\ndata: %s\n\n" % (known.encode(), kind.encode(), encoded(shape))


@dataclass(slots=True, eq=False)
class Looker:
    """Somebody who looks on; `node` is what they are told of in detail."""

    node: str = ""
    backlog: int = _BACKLOG
    _waiting: list[bytes] = field(default_factory=list)
    _size: int = 0
    _is_ended: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, told: bytes) -> None:
        """Have them told; who is too far behind is let go."""
        if self._is_ended:
            return
        if self._waiting and self._size + len(told) > self.backlog:
            self.let_go()
            return
        self._waiting.append(told)
        self._size += len(told)
        self._news.set()

    def let_go(self) -> None:
        """Tell them to ask anew, and nothing else."""
        self._waiting, self._size, self._is_ended = [_RESET], 0, True
        self._news.set()

    async def next(self) -> bytes | None:
        """Return what is to be sent next; None: that was all."""
        if not self._waiting and not self._is_ended:
            try:
                async with asyncio.timeout(seconds_of_life(HEARTBEAT)):
                    await self._news.wait()
            except TimeoutError:
                return _STILL_HERE
        told, self._waiting, self._size = b"".join(self._waiting), [], 0
        if not self._is_ended:
            self._news.clear()
        return told or None


class Hub:
    """All who look on. `begin` starts a story; events of another one are of no use any more."""

    def __init__(self, *, remembered: int = _REMEMBERED, backlog: int = _BACKLOG) -> None:
        self._lookers: set[Looker] = set()
        self._remembered = remembered
        self._backlog = backlog
        self._story = ""
        self._number = 0
        self._past: deque[tuple[int, bytes]] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._lookers)

    @property
    def revision(self) -> str:
        """The id of the last event."""
        return f"{self._story}-{self._number}"

    def begin(self, story: str) -> None:
        """Begin anew; whoever looks on is told to ask for everything."""
        self._story, self._number, self._size = story, 0, 0
        self._past.clear()
        self.end()

    def end(self) -> None:
        """Let all go."""
        for looker in tuple(self._lookers):
            looker.let_go()

    def next_revision(self) -> str:
        """Return the id of an event that is about to be told: some of them say it themselves."""
        return f"{self._story}-{self._number + 1}"

    def tell(self, kind: str, shape: Shape) -> None:
        """Tell everybody."""
        self._number += 1
        told = event(kind, shape, self.revision)
        self._past.append((self._number, told))
        self._size += len(told)
        while self._size > self._remembered:
            self._size -= len(self._past.popleft()[1])
        for looker in tuple(self._lookers):
            looker.tell(told)

    def tell_of(self, node: str, told: bytes) -> None:
        """Tell those who want to know of a node in detail."""
        for looker in tuple(self._lookers):
            if looker.node == node:
                looker.tell(told)

    def nodes(self) -> frozenset[str]:
        """Return the nodes that somebody wants to know of in detail."""
        return frozenset(it.node for it in self._lookers if it.node)

    @contextlib.contextmanager
    def looking(self, *first: bytes, since: str = "", node: str = "") -> Iterator[Looker]:
        """Let somebody look on while the context lasts; they are told `first`, and then what came after `since`."""
        looker = Looker(node=node, backlog=self._backlog)
        past = self._after(since)
        for told in (*first, *((_RESET,) if past is None else past)):
            looker.tell(told)
        self._lookers.add(looker)
        try:
            yield looker
        finally:
            self._lookers.discard(looker)

    def _after(self, since: str) -> list[bytes] | None:
        """Return what was told after an event; None if that is not known any more."""
        story, _, number = since.rpartition("-")
        if not since:
            return []
        if story != self._story or not number.isascii() or not number.isdecimal() or int(number[:20]) > self._number:
            return None
        seen = int(number)
        oldest = self._past[0][0] if self._past else self._number + 1
        return None if seen + 1 < oldest else [told for at, told in self._past if at > seen]
