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

_MAX_SHOWN = 20
_MAX_REMEMBERED = 5000  # so many messages are told apart from new ones
_SHOWN_FOR = timedelta(hours=1)
_MAX_LOGGED_PER_MINUTE = 20  # at most so many in a minute
_MINUTE = 60.0
_MAX_EXCERPT = 300


@dataclass(frozen=True, slots=True)
class QuarantinedMessage:
    """One message."""

    where: str
    why: str
    excerpt: str  # how it began
    quarantined_at: float  # on the monotonic clock


class Quarantine:
    """What one source has put aside; `count` is all there ever were."""

    def __init__(self, source: str, clock: Clock) -> None:
        self.count = 0
        self.on_quarantined: Callable[[QuarantinedMessage], object] | None = None  # who wants to know of each
        self._source = source
        self._clock = clock
        self._last: deque[QuarantinedMessage] = deque(maxlen=_MAX_SHOWN)
        self._known: dict[int, None] = {}  # hashes, the one that came last behind
        self._logged: deque[float] = deque(maxlen=_MAX_LOGGED_PER_MINUTE)  # when, on the monotonic clock

    @property
    def last(self) -> Sequence[QuarantinedMessage]:
        """The last few, the latest last."""
        return tuple(self._last)

    def add(self, *, where: str, why: str, what: object) -> None:
        """Put a message aside; the same one again is neither counted nor logged."""
        if self._is_known(hash((where, why))):
            self._show_again(where, why)
            return
        self.count += 1
        excerpt = excerpt_of(what)
        message = QuarantinedMessage(where, why, excerpt, self._clock.monotonic())
        self._last.append(message)
        self._log(message)
        if self.on_quarantined is not None:
            self.on_quarantined(message)

    def _is_known(self, key: int) -> bool:
        is_known = key in self._known
        self._known.pop(key, None)
        self._known[key] = None
        if len(self._known) > _MAX_REMEMBERED:
            del self._known[next(iter(self._known))]
        return is_known

    def _show_again(self, where: str, why: str) -> None:
        now = self._clock.monotonic()
        same = [
            replace(message, quarantined_at=now)
            for message in self._last
            if (message.where, message.why) == (where, why)
        ]
        others = [message for message in self._last if (message.where, message.why) != (where, why)]
        self._last = deque((*others, *same), maxlen=_MAX_SHOWN)

    def _log(self, message: QuarantinedMessage) -> None:
        if len(self._logged) == _MAX_LOGGED_PER_MINUTE and message.quarantined_at - self._logged[0] < _MINUTE:
            return  # they are counted, and the latest is shown
        self._logged.append(message.quarantined_at)
        log.warning(
            "%s: a message that makes no sense is put aside (%s): %s; it begins %s",
            *(self._source, message.where, message.why, message.excerpt),
        )

    def problems(self) -> Sequence[str]:
        """Return a line about what was put aside lately."""
        shown_since = self._clock.monotonic() - _SHOWN_FOR.total_seconds()
        recent = [message for message in self._last if message.quarantined_at >= shown_since]
        if not recent:
            return ()
        latest = recent[-1]
        count_text = "a message" if self.count == 1 else f"{self.count} messages"
        return (f"{self._source}: {count_text} put aside, the latest at {latest.where}: {latest.why}",)


def excerpt_of(what: object) -> str:
    """Return how something begins, in one line."""
    text = what if isinstance(what, str) else repr(what)
    line = "".join(character if character.isprintable() else " " for character in text[:_MAX_EXCERPT])
    return f"{line}…" if len(text) > _MAX_EXCERPT else line
