"""Messages that make no sense: put aside, counted, and shown, so that the stream goes on and somebody can look.

    quarantine.put(where="partition 0, offset 7", why="expected JSON, found …", what=raw)

Each is logged once with what it said; the last few are kept for people to see, for as long as that is of use.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from haulout.core.clock import Clock

log = logging.getLogger(__name__)

_KEPT = 20
_SHOWN_FOR = timedelta(hours=1)
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One message."""

    where: str
    why: str
    what: str  # how it began
    since: float  # on the monotonic clock


class Quarantine:
    """What one source has put aside; `count` is all there ever were."""

    def __init__(self, source: str, clock: Clock) -> None:
        self.count = 0
        self.hears: Callable[[Quarantined], object] | None = None  # who wants to know of each
        self._source = source
        self._clock = clock
        self._last: deque[Quarantined] = deque(maxlen=_KEPT)

    @property
    def last(self) -> Sequence[Quarantined]:
        """The last few, the latest last."""
        return tuple(self._last)

    def put(self, *, where: str, why: str, what: object) -> None:
        """Put a message aside; the same one again is neither counted nor logged."""
        if any((it.where, it.why) == (where, why) for it in self._last):
            return
        self.count += 1
        began = shortened(what)
        put = Quarantined(where, why, began, self._clock.monotonic())
        self._last.append(put)
        log.warning(
            "%s: a message that makes no sense is put aside (%s): %s; it begins %s", self._source, where, why, began
        )
        if self.hears is not None:
            self.hears(put)

    def troubles(self) -> Sequence[str]:
        """Return a line about what was put aside lately."""
        shown_since = self._clock.monotonic() - _SHOWN_FOR.total_seconds()
        recent = [it for it in self._last if it.since >= shown_since]
        if not recent:
            return ()
        latest = recent[-1]
        many = "a message" if self.count == 1 else f"{self.count} messages"
        return (f"{self._source}: {many} put aside, the latest at {latest.where}: {latest.why}",)


def shortened(what: object) -> str:
    """Return how something begins, in one line."""
    text = what if isinstance(what, str) else repr(what)
    line = "".join(it if it.isprintable() else " " for it in text[:_LONGEST])
    return f"{line}…" if len(text) > _LONGEST else line
