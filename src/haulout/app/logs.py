"""Log format of the operator: one line per record, as text or JSON.

A text line ends with its fields (`node=n1`), so that grep can follow one node. In JSON the fields are keys of their
own.

Names, reasons and errors come from objects that any user may write. Control characters, line separators and
bidirectional marks are therefore escaped: no value can look like a second record, or control a terminal. In text, the
lines of a traceback are indented, and every line without indentation begins a record.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import msgspec

_BIDIRECTIONAL = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))  # they reorder displayed text
_UNSAFE = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *_BIDIRECTIONAL)
_ESCAPES = {it: f"\\u{it:04x}" for it in _UNSAFE} | {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
_INDENT = "    "

_RECORD_ATTRIBUTES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def configure(*, as_json: bool, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Configure logging to `stream`, by default stderr."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter() if as_json else _TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _extra_fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in record.__dict__.items() if key not in _RECORD_ATTRIBUTES}


def _timestamp(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
    return f"{at.isoformat(timespec='milliseconds')}Z"


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={value}" for key, value in _extra_fields(record).items())
        line = f"{_timestamp(record)} {record.levelname:<7} {record.getMessage()}{fields}".translate(_ESCAPES)
        if not record.exc_info:
            return line
        return "\n".join((line, *map(_indent, self.formatException(record.exc_info).split("\n"))))


def _indent(line: str) -> str:
    return f"{_INDENT}{line.translate(_ESCAPES)}"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # JSON itself escapes only characters below the space.
        return msgspec.json.encode(line, enc_hook=str).decode().translate(_ESCAPES)
