"""The last warnings and errors of this process, as people see them on the health page: bounded, and without secrets.

    with troubles.listening():
        …
    troubles.told(hide)             # the newest first

What is logged again and again is one line that counts, also if only a number in it changes: an attempt, a time.
"""

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from haulout.core.clock import Clock
from haulout.core.redaction import redact_recognizable
from haulout.web.api.shapes import Level, Trouble

KEPT = 50
_LONGEST = 2_000  # characters
_OURS = "haulout"
_NUMBER = re.compile(r"\d+")

Key = tuple[str, int, str]


@dataclass(slots=True)
class _Noted:
    at: datetime
    level: Level
    text: str
    count: int = 1


class Troubles(logging.Handler):
    """Keeps the last of them."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._kept: OrderedDict[Key, _Noted] = OrderedDict()

    @contextmanager
    def listening(self, logger: str = _OURS) -> Iterator[None]:
        """Hear what is logged while the context lasts."""
        heard = logging.getLogger(logger)
        heard.addHandler(self)
        try:
            yield
        finally:
            heard.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Note a warning or an error."""
        try:
            text = _text(record)
        except Exception:  # noqa: BLE001 - what logging does with a message whose parts do not fit it
            self.handleError(record)
            return
        level = Level.CRITICAL if record.levelno >= logging.ERROR else Level.WARNING
        key = record.name, record.levelno, _NUMBER.sub("#", text)
        before = self._kept.pop(key, None)
        count = 1 if before is None else before.count + 1
        self._kept[key] = _Noted(self._clock.now(), level, text, count)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def told(self, hide: Callable[[str], str] = redact_recognizable) -> tuple[Trouble, ...]:
        """Return them, the newest first; `hide` strikes out what nobody may see."""
        with self.lock or _nothing():  # others may log in threads
            noted = [*self._kept.values()]
        return tuple(
            Trouble(time=it.at, level=it.level, text=redact_recognizable(hide(it.text)), count=it.count)
            for it in reversed(noted)
        )


def _text(record: logging.LogRecord) -> str:
    text = record.getMessage()
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    if error is not None and str(error) not in text:
        text = f"{text}: {type(error).__name__}: {error}"
    line = " ".join(text[: 4 * _LONGEST].split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


@contextmanager
def _nothing() -> Iterator[None]:
    yield
