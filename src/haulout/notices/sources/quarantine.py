"""Messages that make no sense: put aside, counted, and shown, so that the stream goes on and somebody can look.

    quarantine.put(where="partition 0, offset 7", why="expected JSON, found …", what=raw)

Each is counted and logged once with what it said, also if it comes again and again; of many in a minute only some are
logged. The last few are kept for people to see, for as long as that is of use.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from haulout.core.clock import Clock

log = logging.getLogger(__name__)

_KEPT = 20
_REMEMBERED = 5000  # so many messages are told apart from new ones
_SHOWN_FOR = timedelta(hours=1)
_LOGGED = 20  # at most so many in a minute
_MINUTE = 60.0
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
        self._known: dict[int, None] = {}  # hashes, the one that came last behind
        self._logged: deque[float] = deque(maxlen=_LOGGED)  # when, on the monotonic clock

    @property
    def last(self) -> Sequence[Quarantined]:
        """The last few, the latest last."""
        return tuple(self._last)

    def put(self, *, where: str, why: str, what: object) -> None:
        """Put a message aside; the same one again is neither counted nor logged."""
        if self._is_known(hash((where, why))):
            self._show_again(where, why)
            return
        self.count += 1
        began = shortened(what)
        put = Quarantined(where, why, began, self._clock.monotonic())
        self._last.append(put)
        self._log(put)
        if self.hears is not None:
            self.hears(put)

    def _is_known(self, key: int) -> bool:
        is_known = key in self._known
        self._known.pop(key, None)
        self._known[key] = None
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return is_known

    def _show_again(self, where: str, why: str) -> None:
        now = self._clock.monotonic()
        same = [replace(it, since=now) for it in self._last if (it.where, it.why) == (where, why)]
        others = [it for it in self._last if (it.where, it.why) != (where, why)]
        self._last = deque((*others, *same), maxlen=_KEPT)

    def _log(self, put: Quarantined) -> None:
        if len(self._logged) == _LOGGED and put.since - self._logged[0] < _MINUTE:
            return  # they are counted, and the latest is shown
        self._logged.append(put.since)
        log.warning(
            "%s: a message that makes no sense is put aside (%s): %s; it begins %s",
            *(self._source, put.where, put.why, put.what),
        )

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
