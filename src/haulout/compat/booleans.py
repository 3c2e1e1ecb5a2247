"""Boolean expressions over names: `a && !(b || c)`.

    expression = booleans.parse("window && (approved || urgent)")
    expression.names                                   # ("window", "approved", "urgent"), in the order of the text
    expression.evaluate({"window": True, "approved": False, "urgent": True})

A value may be None, which means unknown. The result is then unknown, too, unless it does not depend on that value: `a
&& b` is false if b is false, whatever a is.

`!` binds tightest, then `&&`, then `||`. A name is any run of characters without whitespace, `&`, `|`, `!`, `(` and
`)`, so hyphens and dots are allowed, and operators need no whitespace around them. `true`, `false` and `date` are
reserved, as in the expression language of the SAP maintenance-controller.

`parse_names` parses the simpler `a && b`, a sequence of names.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

# gval evaluates these to constants and a function, so a check of that name could not be used there.
RESERVED = frozenset({"true", "false", "date"})

_TOKEN = re.compile(r"\s*(?:(?P<operator>&&|\|\||[!()])|(?P<name>[^\s&|!()]+)|(?P<stray>[&|]))")
# Each pair of parentheses takes several frames of Python's stack.
_MAX_DEPTH = 50


class BooleanError(ValueError):
    """A text is not a valid expression. `position` is a character offset from 0."""

    def __init__(self, problem: str, position: int) -> None:
        self.problem = problem
        self.position = position
        super().__init__(f"{problem} at character {position + 1}")


@dataclass(frozen=True, slots=True)
class NameNode:
    """The value of a name in the mapping that `evaluate` gets."""

    name: str


@dataclass(frozen=True, slots=True)
class NotNode:
    """The negation of its operand; unknown if the operand is."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class AndNode:
    """True if all operands are true, false if any is false, and unknown otherwise."""

    operands: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class OrNode:
    """True if any operand is true, false if all are false, and unknown otherwise."""

    operands: tuple["Node", ...]


Node = NameNode | NotNode | AndNode | OrNode


@dataclass(frozen=True, slots=True)
class BooleanExpression:
    """An expression, its text and its names in order, including repetitions."""

    text: str
    root: Node
    names: tuple[str, ...]

    def __str__(self) -> str:
        return self.text

    def evaluate(self, values: Mapping[str, bool | None]) -> bool | None:
        """Return the result, or None if it is unknown. `values` has a value for each name."""
        return _value(self.root, values)


def parse(text: str) -> BooleanExpression:
    """Parse an expression. Raise `BooleanError` with the position of the problem."""
    parser = _Parser(text)
    root = parser.parse()
    return BooleanExpression(text, root, tuple(parser.names))


def parse_names(text: str) -> tuple[str, ...]:
    """Return the names in `a && b`; none for an empty text. Raise `BooleanError`."""
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
        case NameNode(name):
            return values[name]
        case NotNode(part):
            value = _value(part, values)
            return None if value is None else not value
        case AndNode(parts):
            return _combine([_value(part, values) for part in parts], dominant=False)
        case OrNode(parts):
            return _combine([_value(part, values) for part in parts], dominant=True)


def _combine(values: list[bool | None], *, dominant: bool) -> bool | None:
    # One false operand makes an && false and one true operand makes an || true, whatever the others are.
    if dominant in values:
        return dominant
    return None if None in values else not dominant


class _Token(NamedTuple):
    text: str  # empty at the end
    is_name: bool
    position: int


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while text[position:].strip():
        found = _TOKEN.match(text, position)
        if found is None:  # unreachable: each character is in one of the groups
            raise BooleanError("expected a name or an operator", position)
        kind = found.lastgroup or "name"
        if kind == "stray":
            raise BooleanError(f"expected {found[kind] * 2}, found a single {found[kind]}", found.start(kind))
        yield _Token(found[kind], kind == "name", found.start(kind))
        position = found.end()
    yield _Token("", is_name=False, position=len(text))


class _Parser:
    """A recursive descent parser: one method for each precedence, the loosest first."""

    def __init__(self, text: str) -> None:
        self.names: list[str] = []
        self._tokens = _tokens(text)
        self._next = next(self._tokens)
        self._depth = 0

    def parse(self) -> Node:
        node = self._or()
        if self._next.text:
            raise self._unexpected("&& or ||")
        return node

    def _or(self) -> Node:
        parts = [self._and()]
        while self._accept("||"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else OrNode(tuple(parts))

    def _and(self) -> Node:
        parts = [self._not()]
        while self._accept("&&"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else AndNode(tuple(parts))

    def _not(self) -> Node:
        is_negated = False
        while self._accept("!"):
            # A loop, not recursion: a thousand `!` in a row must not overflow the stack.
            is_negated = not is_negated
        node = self._grouped() if self._next.text == "(" else self._name()
        return NotNode(node) if is_negated else node

    def _grouped(self) -> Node:
        opened = self._advance()
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise BooleanError(f"expected at most {_MAX_DEPTH} parentheses inside each other", opened.position)
        node = self._or()
        if not self._accept(")"):
            raise self._unexpected(f"&&, || or the ) of the ( at character {opened.position + 1}")
        self._depth -= 1
        return node

    def _name(self) -> NameNode:
        if not self._next.is_name:
            raise self._unexpected("a name, ! or (")
        token = self._advance()
        if token.text in RESERVED:
            raise BooleanError(f"expected a name, found {token.text}, which is reserved", token.position)
        self.names.append(token.text)
        return NameNode(token.text)

    def _accept(self, operator: str) -> bool:
        if self._next.is_name or self._next.text != operator:
            return False
        self._advance()
        return True

    def _advance(self) -> _Token:
        token = self._next
        self._next = next(self._tokens)
        return token

    def _unexpected(self, expected: str) -> BooleanError:
        return BooleanError(f"expected {expected}, found {self._next.text or 'the end'}", self._next.position)
