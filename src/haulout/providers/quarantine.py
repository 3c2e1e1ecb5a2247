"""Messages that cannot be read: counted, logged and shown, so that a source can continue with the next message.

    quarantine.add(where="partition 0, offset 7", why="expected JSON, found …", what=raw)

The same message is counted and logged only once, however often it arrives. Logging is limited per minute. The most
recent messages are kept for display for an hour.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from haulout.core.clock import Clock

log = logging.getLogger(__name__)

_MAX_SHOWN = 20
_MAX_REMEMBERED = 5000  # how many messages are recognized when they arrive again
_SHOWN_FOR = timedelta(hours=1)
_MAX_LOGGED_PER_MINUTE = 20
_MINUTE = 60.0
_MAX_EXCERPT = 300


@dataclass(frozen=True, slots=True)
class QuarantinedMessage:
    """A message that could not be read."""

    where: str
    why: str
    excerpt: str  # the beginning of the message
    quarantined_at: float  # on the monotonic clock


class Quarantine:
    """The quarantined messages of one source; `count` is the total since the process started."""

    def __init__(self, source: str, clock: Clock) -> None:
        self.count = 0
        self.on_quarantined: Callable[[QuarantinedMessage], object] | None = None  # called for each new message
        self._source = source
        self._clock = clock
        self._last: deque[QuarantinedMessage] = deque(maxlen=_MAX_SHOWN)
        self._known: dict[int, None] = {}  # hashes of known messages, the most recent last
        self._logged: deque[float] = deque(maxlen=_MAX_LOGGED_PER_MINUTE)  # monotonic times of the last log lines

    @property
    def last(self) -> Sequence[QuarantinedMessage]:
        """The most recent messages, the latest last."""
        return tuple(self._last)

    def add(self, *, where: str, why: str, what: object) -> None:
        """Add a message; a repeated one is neither counted nor logged."""
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
        # Removed and added again, so that the order is that of the last arrival, and the least recent one is
        # forgotten.
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
            return  # it is counted, and the latest is shown
        self._logged.append(message.quarantined_at)
        log.warning(
            "%s: skipped a message that cannot be read (%s): %s; it begins with %s",
            *(self._source, message.where, message.why, message.excerpt),
        )

    def problems(self) -> Sequence[str]:
        """Return one line about the messages of the last hour; empty if there are none."""
        shown_since = self._clock.monotonic() - _SHOWN_FOR.total_seconds()
        recent = [message for message in self._last if message.quarantined_at >= shown_since]
        if not recent:
            return ()
        latest = recent[-1]
        count_text = "1 message" if self.count == 1 else f"{self.count} messages"
        return (f"{self._source}: {count_text} could not be read, the latest at {latest.where}: {latest.why}",)


def excerpt_of(what: object) -> str:
    """Return the beginning of a message as one printable line."""
    text = what if isinstance(what, str) else repr(what)
    line = "".join(character if character.isprintable() else " " for character in text[:_MAX_EXCERPT])
    return f"{line}…" if len(text) > _MAX_EXCERPT else line
