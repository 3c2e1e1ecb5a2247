"""The last warnings and errors of this process, for the health page: bounded, and without secrets.

    with warnings.capture():
        …
    warnings.to_api(redact)  # the newest first

Repeated messages are one entry with a count, even if numbers in them differ, such as an attempt or a time.
"""

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from haulout.core.clock import Clock
from haulout.core.redaction import redact_known_patterns
from haulout.dashboard.api.types import Level, LoggedWarning

MAX_ENTRIES = 50
_MAX_TEXT_LENGTH = 2_000  # characters
_LOGGER = "haulout"
_NUMBER = re.compile(r"\d+")

Key = tuple[str, int, str]


@dataclass(slots=True)
class _LogEntry:
    at: datetime
    level: Level
    text: str
    count: int = 1


class RecentWarnings(logging.Handler):
    """A logging handler that keeps the last warnings."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._entries: OrderedDict[Key, _LogEntry] = OrderedDict()

    @contextmanager
    def capture(self, logger: str = _LOGGER) -> Iterator[None]:
        """Handle records of a logger while the context lasts."""
        target = logging.getLogger(logger)
        target.addHandler(self)
        try:
            yield
        finally:
            target.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning or an error."""
        try:
            text = _text(record)
        except Exception:  # noqa: BLE001 - as logging does for a message that does not match its arguments
            self.handleError(record)
            return
        level = Level.CRITICAL if record.levelno >= logging.ERROR else Level.WARNING
        key = record.name, record.levelno, _NUMBER.sub("#", text)
        before = self._entries.pop(key, None)
        count = 1 if before is None else before.count + 1
        self._entries[key] = _LogEntry(self._clock.now(), level, text, count)
        if len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)

    def to_api(self, redact: Callable[[str], str] = redact_known_patterns) -> tuple[LoggedWarning, ...]:
        """Return the entries, the newest first; `redact` removes secrets."""
        with self.lock or _no_lock():  # other threads may log
            entries = [*self._entries.values()]
        return tuple(
            LoggedWarning(
                time=entry.at, level=entry.level, message=redact_known_patterns(redact(entry.text)), count=entry.count
            )
            for entry in reversed(entries)
        )


def _text(record: logging.LogRecord) -> str:
    text = record.getMessage()
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    if error is not None and str(error) not in text:
        text = f"{text}: {type(error).__name__}: {error}"
    line = " ".join(text[: 4 * _MAX_TEXT_LENGTH].split())
    return line if len(line) <= _MAX_TEXT_LENGTH else f"{line[:_MAX_TEXT_LENGTH]}…"


@contextmanager
def _no_lock() -> Iterator[None]:
    yield
