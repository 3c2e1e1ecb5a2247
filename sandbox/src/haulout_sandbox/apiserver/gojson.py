"""JSON as Go reads it, with Go's words for what is wrong.

The fast decoder reads nearly everything. What it refuses is read again here, because Go forgives some of it (bytes that
are no UTF-8, halves of surrogate pairs, numbers that no float holds) and because clients show Go's messages to people.
The states and words are those of `encoding/json/scanner.go`. Nothing here recurses: nesting is the sender's choice.

Objects nested deeper than `DEEPEST` are refused in the words in which Go refuses ten thousand levels. No real object
comes near it, and all that the sandbox does with an object it does by recursion.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from haulout_sandbox.apiserver import fields

DEEPEST = 150

_SPACES = b" \t\r\n"
_NUMBER = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LITERALS: dict[int, tuple[bytes, Any]] = {
    ord("t"): (b"true", True),
    ord("f"): (b"false", False),
    ord("n"): (b"null", None),
}
_ESCAPES = {b'"': '"', b"\\": "\\", b"/": "/", b"b": "\b", b"f": "\f", b"n": "\n", b"r": "\r", b"t": "\t"}
_MOST_DIGITS = 300
_END = "unexpected end of JSON input"


class Malformed(Exception):
    """It is no JSON; the message is Go's."""


def decode(body: bytes) -> Any:
    """Return the value in `body`."""
    try:
        decoded = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return _Reader(body).read()
    if body.count(b"{") + body.count(b"[") > DEEPEST:
        _check_depth(decoded)
    return decoded


def kind_of(value: Any) -> str:
    """Return what Go calls a value of this type."""
    kinds: tuple[tuple[type, str], ...] = ((bool, "bool"), (str, "string"), (list, "array"), (dict, "object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "number")


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        last = level[-1]
        level = [inner for outer in level for inner in _inside(outer)]
        if depth > DEEPEST:
            raise _unexpected(b"{" if isinstance(last, dict) else b"[", "exceeded max depth")


def _inside(value: Any) -> Iterator[Any]:
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (inner for inner in values if isinstance(inner, dict | list))


def _unexpected(character: bytes, where: str) -> Malformed:
    shown = {b"'": "\\'", b'"': '"'}.get(character) or fields.quoted(character.decode("latin-1"))[1:-1]
    return Malformed(f"invalid character '{shown}' {where}")


class _Reader:
    """Reads one document, from left to right."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0
        self._open: list[Any] = []  # objects and lists that have not ended
        self._keys: list[str] = []  # of each open object the key whose value is read; of a list its index

    def read(self) -> Any:
        """Return the value."""
        done = self._value()
        while self._open:
            if done is not _OPENED:
                self._put(done)
            done = self._next()
        self._skip()
        if self._at < len(self._body):
            raise _unexpected(self._here(), "after top-level value")
        return done

    def _next(self) -> Any:
        """Go on inside what is open: with the next value, or the end."""
        holder, character = self._open[-1], self._peek()
        is_list = isinstance(holder, list)
        if character == (b"]" if is_list else b"}"):
            self._at += 1
            self._keys.pop()
            return self._open.pop()
        if self._keys[-1]:
            if character != b",":
                raise _unexpected(character, "after array element" if is_list else "after object key:value pair")
            self._at += 1
        return self._item(holder)

    def _item(self, holder: Any) -> Any:
        if isinstance(holder, list):
            self._keys[-1] = f"[{len(holder)}]"
            return self._value()
        character = self._peek()
        if character != b'"':
            raise _unexpected(character, "looking for beginning of object key string")
        key = self._string()
        self._keys[-1] = f".{key}"
        character = self._peek()
        if character != b":":
            raise _unexpected(character, "after object key")
        self._at += 1
        return self._value()

    def _put(self, value: Any) -> None:
        holder = self._open[-1]
        if isinstance(holder, list):
            holder.append(value)
        else:
            holder[self._keys[-1][1:]] = value

    def _value(self) -> Any:
        character = self._peek()
        if character in (b"{", b"["):
            if len(self._open) == DEEPEST:
                raise _unexpected(character, "exceeded max depth")
            self._at += 1
            self._open.append({} if character == b"{" else [])
            self._keys.append("")
            return _OPENED
        if character == b'"':
            return self._string()
        if character == b"-" or character.isdigit():
            return self._number()
        if literal := _LITERALS.get(character[0]):
            return self._literal(*literal)
        raise _unexpected(character, "looking for beginning of value")

    def _literal(self, text: bytes, value: Any) -> Any:
        for wanted in text:
            if self._inside_word() != bytes([wanted]):
                raise _unexpected(self._inside_word(), f"in literal {text.decode()} (expecting '{chr(wanted)}')")
            self._at += 1
        return value

    def _number(self) -> Any:
        found = _NUMBER.match(self._body, self._at)
        if found is None:  # only a minus
            self._at += 1
            raise _unexpected(self._inside_word(), "in numeric literal")
        self._at = found.end()
        rest = self._body[self._at : self._at + 3]
        if rest.startswith(b".") and not (found[2] or found[3]):
            self._at += 1
            raise _unexpected(self._inside_word(), "after decimal point in numeric literal")
        if rest[:1] in (b"e", b"E") and not found[3]:
            self._at += 2 if rest[1:2] in (b"+", b"-") else 1
            raise _unexpected(self._inside_word(), "in exponent of numeric literal")
        text = found[0]
        return int(text) if text.lstrip(b"-").isdigit() and len(text) < _MOST_DIGITS else float(text)

    def _string(self) -> str:
        self._at += 1
        pieces: list[str] = []
        while (character := self._here()) != b'"':
            if character == b"\\":
                pieces.append(self._escape())
            elif character < b" ":
                raise _unexpected(character, "in string literal")
            else:
                pieces.append(self._plain())
        self._at += 1
        joined = "".join(pieces)
        return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _plain(self) -> str:
        begin = self._at
        while self._at < len(self._body) and self._body[self._at] >= ord(" ") and self._body[self._at] not in b'"\\':
            self._at += 1
        return self._body[begin : self._at].decode(errors="replace")

    def _escape(self) -> str:
        self._at += 1
        character = self._inside_word()
        self._at += 1
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character != b"u":
            raise _unexpected(character, "in string escape code")
        code = b""
        for _ in range(4):
            digit = self._inside_word()
            if digit not in b"0123456789abcdefABCDEF":
                raise _unexpected(digit, "in \\u hexadecimal character escape")
            code += digit
            self._at += 1
        return chr(int(code, 16))

    def _here(self) -> bytes:
        if self._at >= len(self._body):
            raise Malformed(_END)
        return self._body[self._at : self._at + 1]

    def _inside_word(self) -> bytes:
        return self._body[self._at : self._at + 1] or b" "  # Go reads the end as a space

    def _peek(self) -> bytes:
        self._skip()
        return self._here()

    def _skip(self) -> None:
        while self._at < len(self._body) and self._body[self._at] in _SPACES:
            self._at += 1


_OPENED: Any = object()  # the value has begun, its content follows
