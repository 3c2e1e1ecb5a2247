"""`${NAME}` in values: from the top level of the same file, or from the environment.

| Form | Result |
| --- | --- |
| `${NAME}` | the value of NAME; an error if it has none |
| `${NAME:text}` | the value of NAME, or `text` if it has none |
| `${NAME:+text}` | `text` if NAME has a value, otherwise nothing |
| `${NAME:?text}` | the value of NAME; an error with this message if it has none |
| `$$`, `$}` | `$`, `}` |

Forms can be nested. NAME is first a key at the top level of the file, then an environment variable; an empty variable
counts as missing. The syntax of the whole file is checked, but a name is resolved only when its value is read: unused
values cause no errors.

The resulting text is parsed as a small language (`scalars`): `60` becomes a number, `a,b` a list. If that fails, the
text is used as it is; Go rejects such a file, so no existing file relies on it. The result is not searched for `${…}`
again, and is never shown, because it may be a secret.
"""

import operator
from collections.abc import Callable
from collections.abc import Mapping as Environ
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypeVar

from haulout.compat.ucfg import goyaml, scalars
from haulout.compat.ucfg.goyaml import Entry, Mapping, Scalar, Sequence, Value
from haulout.errors import ConfigError

T = TypeVar("T")

_MAX_DEPTH = 50
_MAX_TEXT = 1 << 20


@dataclass(frozen=True, slots=True)
class Lookup:
    """One `${…}`: a name, an operation on its value (`:`, `:+`, `:?` or none) and the operand `other`."""

    name: "Pieces"
    operation: str = ""
    other: "Pieces" = ()


Pieces = tuple[str | Lookup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicValue(Value):
    """A value that is known only after its names are resolved."""

    pieces: Pieces
    written: str

    @property
    def name(self) -> str | None:
        """Return NAME if the value is exactly `${NAME}`."""
        match self.pieces:
            case (Lookup(name=(str(name),), operation=""),):
                return name
        return None


@dataclass(frozen=True, slots=True)
class ResolvedValue:
    """A resolved value. `text` is the text of a `${…}` before it was parsed as a literal."""

    value: Value
    text: str | None = None


class InterpolationSyntaxError(ValueError):
    """A `${…}` has invalid syntax. It is reported even if its value is never read."""


class UnresolvedVariable(ValueError):
    """A name has no value, or refers to itself. Reported only when its value is read."""


def parse(text: str) -> Pieces:
    """Return the pieces of a text. Raise `InterpolationSyntaxError`."""
    frames = [_Frame()]
    position = 0
    while position < len(text):
        position = _step(frames, text, position)
    if len(frames) > 1:
        raise InterpolationSyntaxError("expected a } for each ${, found fewer; write $$ for a literal $")
    return tuple(frames[0].left)


def prepare(root: Value, *, file: str) -> tuple[Value, list[ConfigError]]:
    """Return `root` with each text that contains `${…}` replaced by a `DynamicValue`, and the syntax errors."""
    preparing = _Preparer(file)
    return preparing.value(root, ""), preparing.errors


class Resolver:
    """Resolves names in the file and in the environment, when a value is read."""

    def __init__(self, root: Value | None, environ: Environ[str, str]) -> None:
        self.used: set[str] = set()  # top-level keys that were used
        self._top = root.entries if isinstance(root, Mapping) else {}
        self._environ = environ
        self._active: set[str] = set()
        self._texts: dict[str, str] = {}

    def resolve(self, value: Value) -> ResolvedValue:
        """Return the value with its names resolved. Raise `UnresolvedVariable` if one has no value."""
        if not isinstance(value, DynamicValue):
            return ResolvedValue(value)
        if value.name is not None and self._is_at_top(value.name):
            return self._enter(value.name, lambda entry: self.resolve(entry.value))
        if value.name is not None:
            text, objects = self._variable(value.name), False
        else:
            text, objects = self._text(value.pieces), True
        try:
            literal = scalars.parse_literal(text, objects=objects)
        except scalars.LiteralError:
            literal = text.strip()
        if literal is None and not text.strip():
            literal = text
        return ResolvedValue(_as_value(literal, value), text.strip() or text)

    def _text(self, pieces: Pieces) -> str:
        text = "".join(piece if isinstance(piece, str) else self._look_up(piece) for piece in pieces)
        if len(text) > _MAX_TEXT:
            raise UnresolvedVariable(f"expected at most {_MAX_TEXT} characters, found more")
        return text

    def _look_up(self, lookup: Lookup) -> str:
        if lookup.operation == ":+":
            return self._text(lookup.other) if self._has(lookup.name) else ""
        try:
            found = self._value_of(self._text(lookup.name))
        except UnresolvedVariable:
            if not lookup.operation:
                raise
            found = ""
        if found or not lookup.operation:
            return found
        if lookup.operation == ":?":
            raise UnresolvedVariable(self._text(lookup.other) or "expected a value, found none")
        return self._text(lookup.other)

    def _has(self, name: Pieces) -> bool:
        try:
            text = self._text(name)
        except UnresolvedVariable:
            return False
        return bool(text) and (text in self._top or bool(self._environ.get(text)))

    def _value_of(self, name: str) -> str:
        if not self._is_at_top(name):
            return self._variable(name)
        if name not in self._texts:
            self._texts[name] = self._enter(name, lambda entry: _as_text(self.resolve(entry.value), name))
        return self._texts[name]

    def _is_at_top(self, name: str) -> bool:
        # A key that refers to itself is looked up in the environment, as in Go.
        return name in self._top and not (name in self._active and self._environ.get(name))

    def _enter(self, name: str, get: Callable[[Entry], T]) -> T:
        if name in self._active:
            raise UnresolvedVariable(f"expected a value, found that {name} refers to itself")
        self.used.add(name)
        self._active.add(name)
        try:
            return get(self._top[name])
        finally:
            self._active.remove(name)

    def _variable(self, name: str) -> str:
        found = self._environ.get(name)
        if found:
            return found
        raise UnresolvedVariable(
            f"expected a value for {name}, found none: the file has no such key at its top, and the environment "
            f"variable is not set or empty; to set a default: ${{{name}:text}}"
        )


class _Frame:
    """The parsed part of a text, or of the current `${…}`."""

    def __init__(self) -> None:
        self.left: list[str | Lookup] = []
        self.right: list[str | Lookup] = []
        self.operation = ""

    def add(self, piece: str | Lookup) -> None:
        pieces = self.right if self.operation else self.left
        if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
            pieces[-1] += piece
        else:
            pieces.append(piece)


def _step(frames: list[_Frame], text: str, position: int) -> int:
    """Parse the next element, and return the position after it."""
    two = text[position : position + 2]
    frame = frames[-1]
    if two == "${":
        frames.append(_Frame())
        if len(frames) > _MAX_DEPTH:
            raise InterpolationSyntaxError(f"expected at most {_MAX_DEPTH} ${{…}} inside each other")
    elif two in {"$$", "$}"}:
        frame.add(two[1])
    elif len(frames) > 1 and two[0] == "}":
        _close(frames)
        return position + 1
    elif len(frames) > 1 and two[0] == ":":
        operation = two if two in {":+", ":?"} else ":"
        if frame.operation:
            frame.add(operation)
        else:
            frame.operation = operation
        return position + len(operation)
    else:
        frame.add(two[0])
        return position + 1
    return position + len(two)


def _close(frames: list[_Frame]) -> None:
    frame = frames.pop()
    if not frame.left:
        raise InterpolationSyntaxError("expected a name between ${ and }, found none; write $$ for a literal $")
    frames[-1].add(Lookup(tuple(frame.left), frame.operation, tuple(frame.right)))


@dataclass(slots=True)
class _Preparer:
    """Replaces the texts with `${…}` in a file. The value of several aliases is processed once."""

    file: str
    errors: list[ConfigError] = field(default_factory=list)
    done: dict[int, Value] = field(default_factory=dict)

    def value(self, value: Value, key: str) -> Value:
        if id(value) not in self.done:
            self.done[id(value)] = self._value(value, key)
        return self.done[id(value)]

    def _value(self, value: Value, key: str) -> Value:
        match value:
            case Sequence(items=items):
                return replace(value, items=tuple(self.value(each, f"{key}[{at}]") for at, each in enumerate(items)))
            case Mapping(entries=entries):
                return replace(value, entries={name: self._entry(entry, key) for name, entry in entries.items()})
            case Scalar(value=str(text)) if "$" in text:
                return self._text(value, text, key)
        return value

    def _entry(self, entry: Entry, key: str) -> Entry:
        return replace(entry, value=self.value(entry.value, goyaml.path(key, entry.name)))

    def _text(self, value: Scalar, text: str, key: str) -> Value:
        try:
            pieces = parse(text)
        except InterpolationSyntaxError as error:
            self.errors.append(ConfigError(str(error), file=self.file, line=value.line, key=key or None))
            return value
        if any(isinstance(piece, Lookup) for piece in pieces):
            return DynamicValue(line=value.line, column=value.column, pieces=pieces, written=goyaml.shorten(text))
        plain = reduce(operator.add, (piece for piece in pieces if isinstance(piece, str)), "")
        return replace(value, value=plain, written=plain)


def _as_value(literal: Any, at: DynamicValue) -> Value:
    match literal:
        case list():
            return Sequence(line=at.line, column=at.column, items=tuple(_as_value(each, at) for each in literal))
        case dict():
            entries = {
                name: Entry(name=name, line=at.line, column=at.column, value=_as_value(each, at))
                for name, each in literal.items()
            }
            return Mapping(line=at.line, column=at.column, entries=entries)
    return Scalar(line=at.line, column=at.column, value=literal, written=at.written)


def _as_text(settled: ResolvedValue, name: str) -> str:
    if isinstance(settled.value, Scalar):
        return goyaml.format_scalar(settled.value.value)
    if settled.text is not None:
        return settled.text
    found = "a list" if isinstance(settled.value, Sequence) else "a mapping"
    raise UnresolvedVariable(f"expected {name} to be a single value, found {found} at the top of this file")
