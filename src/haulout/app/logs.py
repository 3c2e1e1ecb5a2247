"""How the operator logs: one line for each thing that happened, for people or for machines.

As text a line ends with what it is about (`node=n1`), so that one node's story can be followed with grep. As JSON the
same are keys of their own.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import msgspec

_KNOWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def configure(*, as_json: bool, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Log to `stream`, by default stderr."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if as_json else _Text())
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _about(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in record.__dict__.items() if key not in _KNOWN}


def _at(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
    return f"{at.isoformat(timespec='milliseconds')}Z"


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        about = "".join(f" {key}={value}" for key, value in _about(record).items())
        line = f"{_at(record)} {record.levelname:<7} {record.getMessage()}{about}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_about(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()
