"""Scalars as Go's go-ucfg reads them: conversion to the wanted type, and the text of a `${…}`.

| Wanted | Accepts |
| --- | --- |
| text | any scalar: true becomes `true`, 010 becomes `8`, 1.10 becomes `1.1` |
| boolean | booleans, and the texts 1 t T TRUE true True 0 f F FALSE false False |
| integer | integers, truncated floats, texts such as `5` or `0x1f` |
| number | numbers, texts such as `1.5` |
| duration | Go durations, such as 1h30m; a number means seconds, unless it comes from a `${…}` |

A value that does not fit raises a `ConversionError`, whose message is what was expected.

`parse_literal` reads the literal language of the text of a `${…}`: `5` is a number, `a,b` is a list. It is JSON with
fewer quotes, as in parse/parse.go of Elastic's go-ucfg: booleans, null, numbers, quoted texts, `[lists]` and
`{objects}`; commas at the top level make a list without brackets. Anything else is a text, without surrounding
whitespace.
"""

import math
from datetime import timedelta
from typing import Any

from haulout.compat import goliterals
from haulout.compat.ucfg.goyaml import Plain, format_scalar
from haulout.core import duration
from haulout.core.duration import DurationError

DURATION = "a duration such as 90s, 5m or 1h30m"

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_NANOSECONDS = 1_000_000_000

_TRUE_LITERALS = frozenset({"t", "T", "true", "TRUE", "True", "on", "ON"})
_FALSE_LITERALS = frozenset({"f", "F", "false", "FALSE", "False", "off", "OFF"})
_MAX_DEPTH = 50


class ConversionError(ValueError):
    """A value cannot be converted. The message is what was expected."""


def boolean(value: Plain) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _TRUE | _FALSE:
        return value in _TRUE
    raise ConversionError("true or false")


def integer(value: Plain) -> int:
    """Convert a value to a signed 64-bit integer."""
    number: int | None = None
    match value:
        case str(text):
            number = goliterals.parse_int(text)
        case float() if math.isfinite(value):
            number = int(value)
        case int() if not isinstance(value, bool):
            number = value
    if number is None or not goliterals.MIN_INT64 <= number <= goliterals.MAX_INT64:
        raise ConversionError("a whole number")
    return number


def number(value: Plain) -> float:
    found = goliterals.parse_float(value) if isinstance(value, str) else value
    if found is None or isinstance(found, bool | str):
        raise ConversionError("a number")
    return float(found)


def duration_of(value: Plain, *, dynamic: bool = False) -> timedelta:
    """Convert a value to a duration. A number means seconds, unless it comes from a `${…}` (`dynamic`)."""
    try:
        if isinstance(value, str) or dynamic:
            return duration.parse(format_scalar(value))
    except DurationError as error:
        raise ConversionError(f"{DURATION} ({error.problem})" if not dynamic else DURATION) from None
    if value is None or isinstance(value, bool | str) or not math.isfinite(value):
        raise ConversionError(DURATION)
    if not goliterals.MIN_INT64 <= value * _NANOSECONDS <= goliterals.MAX_INT64:
        raise ConversionError("a duration of at most about 292 years")
    return duration.from_nanoseconds(int(value * _NANOSECONDS))


class LiteralError(ValueError):
    """A text is not a valid literal."""


def parse_literal(text: str, *, objects: bool) -> Any:
    """Return the value of a literal. Without `objects`, braces are ordinary characters. Raise `LiteralError`."""
    reader = _Reader(text.strip(), objects=objects)
    values = [reader.value(",")]
    while reader.has_more():
        reader.expect(",")
        values.append(reader.value(","))
    return values[0] if len(values) == 1 else values


class _Reader:
    """Parses one value after the other from the rest of the text."""

    def __init__(self, text: str, *, objects: bool) -> None:
        self._rest = text
        self._objects = objects
        self._depth = 0

    def has_more(self) -> bool:
        """Return whether there is more than whitespace."""
        self._rest = self._rest.lstrip()
        return bool(self._rest)

    def expect(self, character: str) -> None:
        """Skip this character. Raise `LiteralError` if it is not next."""
        if not self._rest.startswith(character):
            raise LiteralError(f"expected {character}")
        self._rest = self._rest[1:]

    def value(self, stops: str) -> Any:
        """Parse a value. An unquoted value ends before any of the characters in `stops`."""
        if not self.has_more():
            return None
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise LiteralError(f"expected at most {_MAX_DEPTH} values inside each other")
        try:
            match self._rest[0]:
                case "[":
                    return self._list() or None
                case "{" if self._objects:
                    return self._object() or None
                case '"' | "'":
                    return self._quoted()
            return _primitive(self._bare(stops))
        finally:
            self._depth -= 1

    def _list(self) -> list[Any]:
        self.expect("[")
        values: list[Any] = []
        while not self._ends("]"):
            values.append(self.value(",]"))
            if self._closes("]"):
                break
        return values

    def _object(self) -> dict[str, Any]:
        self.expect("{")
        entries: dict[str, Any] = {}
        while not self._ends("}"):
            name = self._quoted() if self._rest[0] in {'"', "'"} else self._bare(":")
            self.has_more()
            self.expect(":")
            entries[name] = self.value(",}")
            if self._closes("}"):
                break
        return entries

    def _ends(self, bracket: str) -> bool:
        if not self.has_more():
            raise LiteralError(f"expected {bracket} at the end")
        if self._rest[0] != bracket:
            return False
        self.expect(bracket)
        return True

    def _closes(self, bracket: str) -> bool:
        self.has_more()
        if self._rest[:1] not in {",", bracket}:
            raise LiteralError(f"expected , or {bracket}")
        closes = self._rest[0] == bracket
        self._rest = self._rest[1:]
        return closes

    def _quoted(self) -> str:
        quote = self._rest[0]
        end = self._rest.find(quote, 1)
        while quote == '"' and end > 0 and self._rest[end - 1] == "\\":
            end = self._rest.find(quote, end + 1)
        if end < 0:
            raise LiteralError(f"expected a closing {quote}")
        quoted, self._rest = self._rest[: end + 1], self._rest[end + 1 :]
        if quote == "'":
            return quoted[1:-1]
        try:
            return goliterals.unquote(quoted)
        except ValueError as error:
            raise LiteralError(str(error)) from None

    def _bare(self, stops: str) -> str:
        end = min((at for at in map(self._rest.find, stops) if at >= 0), default=len(self._rest))
        if end == 0:
            raise LiteralError(f"expected a value before {self._rest[0]}")
        text, self._rest = self._rest[:end], self._rest[end:]
        return text.strip()


def _primitive(text: str) -> Any:
    if text == "null":
        return None
    if text in _TRUE_LITERALS or text in _FALSE_LITERALS:
        return text in _TRUE_LITERALS
    whole = goliterals.parse_int(text)
    if whole is not None:
        return whole
    number = goliterals.parse_float(text)
    return text if number is None else number
