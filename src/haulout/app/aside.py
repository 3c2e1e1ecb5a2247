"""Tells people by events of messages that made no sense: each kind of them once an hour, and few kinds.

The log has each of them, metrics have how many there are. A stream full of garbage must not become a namespace full of
events.
"""

import asyncio
import re
from datetime import timedelta

from haulout.app.announcing import Announcer
from haulout.core.clock import Clock
from haulout.notices.sources.quarantine import Quarantine, Quarantined

_AGAIN_AFTER = timedelta(hours=1)
_MOST_KINDS = 5  # of one source, in that time


class Aside:
    """Hears what one source puts aside."""

    def __init__(self, source: str, *, announcer: Announcer, clock: Clock) -> None:
        self._source = source
        self._announcer = announcer
        self._clock = clock
        self._told: dict[str, float] = {}  # by kind: when
        self._to_tell: asyncio.Queue[str] = asyncio.Queue()

    async def run(self, quarantine: Quarantine) -> None:
        """Tell it, until cancelled."""
        quarantine.hears = self._hear
        while True:
            note = await self._to_tell.get()
            await self._announcer.warn(note, reason="NoticeUnreadable", action="ListenToCloud")

    def _hear(self, put: Quarantined) -> None:
        now = self._clock.monotonic()
        self._told = {kind: at for kind, at in self._told.items() if now - at < _AGAIN_AFTER.total_seconds()}
        kind = _kind(put.why)
        if kind in self._told or len(self._told) >= _MOST_KINDS:
            return
        self._told[kind] = now
        self._to_tell.put_nowait(
            f"{self._source}: a message makes no sense, at {put.where}: {put.why}; it is put aside"
        )


def _kind(why: str) -> str:
    """Return what was expected; what was found instead is different each time."""
    return re.sub(r"\d+", "#", why.partition(", found")[0])
