"""Boolean expressions over names: `a && !(b || c)`.

    expression = booleans.parse("window && (approved || urgent)")
    expression.names                                   # ("window", "approved", "urgent"), in the order of the text
    expression.evaluate({"window": True, "approved": False, "urgent": True})

A value may also be None: it cannot be told. Then the whole cannot be told either, unless it does not matter:
`a && b` is false if b is, whatever a may be.

`!` binds tightest, then `&&`, then `||`. A name is any run of characters without blanks, `&`, `|`, `!`, `(` and `)`, so
hyphens and dots are fine, and operators need no blanks around them. `true`, `false` and `date` are reserved, as in the
expression language that these texts come from.

`sequence` reads the simpler `a && b`, which has names in an order and nothing else.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

RESERVED = frozenset({"true", "false", "date"})

_TOKEN = re.compile(r"\s*(?:(?P<operator>&&|\|\||[!()])|(?P<name>[^\s&|!()]+)|(?P<stray>[&|]))")
_MOST_DEPTH = 50


class BooleanError(ValueError):
    """A text that is no such expression; `position` counts its characters from 0."""

    def __init__(self, problem: str, position: int) -> None:
        self.problem = problem
        self.position = position
        super().__init__(f"{problem} at character {position + 1}")


@dataclass(frozen=True, slots=True)
class Name:
    """The value of a name."""

    name: str


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    part: "Node"


@dataclass(frozen=True, slots=True)
class All:
    """Whether all parts are true."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Some:
    """Whether one part is true."""

    parts: tuple["Node", ...]


Node = Name | Not | All | Some


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression, its text and the names in it: each as often as it is mentioned."""

    text: str
    root: Node
    names: tuple[str, ...]

    def __str__(self) -> str:
        return self.text

    def evaluate(self, values: Mapping[str, bool | None]) -> bool | None:
        """Return whether it is true, or None if that cannot be told; `values` has each of its names."""
        return _value(self.root, values)


def parse(text: str) -> Expression:
    """Return the expression that `text` is; raises `BooleanError`."""
    parser = _Parser(text)
    root = parser.whole()
    return Expression(text, root, tuple(parser.names))


def sequence(text: str) -> tuple[str, ...]:
    """Return the names in `a && b`, none for an empty text; raises `BooleanError`."""
    if not text:
        return ()
    names = []
    position = 0
    for part in text.split("&&"):
        if not part.strip():
            raise BooleanError("expected a name, found none", position)
        names.append(part.strip())
        position += len(part) + len("&&")
    return tuple(names)


def _value(node: Node, values: Mapping[str, bool | None]) -> bool | None:
    match node:
        case Name(name):
            return values[name]
        case Not(part):
            value = _value(part, values)
            return None if value is None else not value
        case All(parts):
            return _decided([_value(part, values) for part in parts], by=False)
        case Some(parts):
            return _decided([_value(part, values) for part in parts], by=True)


def _decided(found: list[bool | None], *, by: bool) -> bool | None:
    # One false part makes an && false and one true part makes an || true, whatever the others are.
    if by in found:
        return by
    return None if None in found else not by


class _Token(NamedTuple):
    text: str  # empty: the end
    is_name: bool
    position: int


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while text[position:].strip():
        found = _TOKEN.match(text, position)
        if found is None:  # cannot be: each character is in one of the groups
            raise BooleanError("expected a name or an operator", position)
        kind = found.lastgroup or "name"
        if kind == "stray":
            raise BooleanError(f"expected {found[kind] * 2}, found a single {found[kind]}", found.start(kind))
        yield _Token(found[kind], kind == "name", found.start(kind))
        position = found.end()
    yield _Token("", is_name=False, position=len(text))


class _Parser:
    """Goes through the tokens once, from left to right."""

    def __init__(self, text: str) -> None:
        self.names: list[str] = []
        self._tokens = _tokens(text)
        self._next = next(self._tokens)
        self._depth = 0

    def whole(self) -> Node:
        """Read all of it."""
        node = self._some()
        if self._next.text:
            raise self._unexpected("&& or ||")
        return node

    def _some(self) -> Node:
        parts = [self._all()]
        while self._skips("||"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _all(self) -> Node:
        parts = [self._one()]
        while self._skips("&&"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _one(self) -> Node:
        opposite = False
        while self._skips("!"):
            opposite = not opposite
        node = self._grouped() if self._next.text == "(" else self._name()
        return Not(node) if opposite else node

    def _grouped(self) -> Node:
        opened = self._take()
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise BooleanError(f"expected at most {_MOST_DEPTH} parentheses inside each other", opened.position)
        node = self._some()
        if not self._skips(")"):
            raise self._unexpected(f"&&, || or the ) of the ( at character {opened.position + 1}")
        self._depth -= 1
        return node

    def _name(self) -> Name:
        if not self._next.is_name:
            raise self._unexpected("a name, ! or (")
        token = self._take()
        if token.text in RESERVED:
            raise BooleanError(f"expected a name, found {token.text}, which is reserved", token.position)
        self.names.append(token.text)
        return Name(token.text)

    def _skips(self, operator: str) -> bool:
        if self._next.is_name or self._next.text != operator:
            return False
        self._take()
        return True

    def _take(self) -> _Token:
        token = self._next
        self._next = next(self._tokens)
        return token

    def _unexpected(self, expected: str) -> BooleanError:
        return BooleanError(f"expected {expected}, found {self._next.text or 'the end'}", self._next.position)
