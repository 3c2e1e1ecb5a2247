"""CEL parser: from source text to a syntax tree.

Operators are calls of functions with CEL's internal names (`_+_`, `_&&_`, `_?_:_`). Macros that bind a variable are
`Macro` nodes; `has(…)` is a `Select` with `is_presence_test`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<text>[rR]?(?:\"{3}(?:\\.|[\s\S])*?\"{3}|'{3}(?:\\.|[\s\S])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
  | (?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
  | (?P<number>0x[0-9a-fA-F]+|\d+)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<operator>&&|\|\||<=|>=|==|!=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([\s\S]))")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_LITERALS = {"true": True, "false": False, "null": None}
_PRECEDENCE = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
}
_MACROS = {**dict.fromkeys(("all", "exists", "exists_one", "filter"), (2,)), "map": (2, 3)}  # numbers of arguments


class CelSyntaxError(ValueError):
    """The text is not a valid expression."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Name:
    """A variable or the name of a type."""

    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`; with `is_presence_test`, `has(operand.field)`."""

    operand: "Expression"
    field: str
    is_presence_test: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function, a method (its target is the first argument) or an operator."""

    function: str
    arguments: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Macro:
    """`target.all(variable, body)`; `map` may have a condition before its body."""

    name: str
    target: "Expression"
    variable: str
    bodies: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """`[a, b]`."""

    items: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class MapLiteral:
    """`{a: b}`."""

    entries: tuple[tuple["Expression", "Expression"], ...]


Expression: TypeAlias = Literal | Name | Select | Call | Macro | ListLiteral | MapLiteral


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def parse(source: str) -> Expression:
    """Return the syntax tree of an expression; raise `CelSyntaxError` if it is invalid."""
    parser = _Parser(_tokens(source))
    try:
        tree = parser.expression()
    except RecursionError:
        raise CelSyntaxError("the expression is nested too deeply") from None
    parser.expect("")
    return tree


def _tokens(source: str) -> list[_Token]:
    tokens, position = [], 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            raise CelSyntaxError(f"unexpected {source[position]!r} at position {position + 1}")
        if match.lastgroup != "space":
            tokens.append(_Token(str(match.lastgroup), match[0], position))
        position = match.end()
    return [*tokens, _Token("end", "", len(source))]


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def expression(self) -> Expression:
        condition = self._binary(1)
        if not self._accept("?"):
            return condition
        first = self._binary(1)
        self.expect(":")
        return Call("_?_:_", (condition, first, self.expression()))

    def expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._unexpected()

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def _accept(self, text: str) -> bool:
        token = self._peek()
        if token.kind == "text" or token.text != text:
            return False
        self._next += 1
        return True

    def _unexpected(self) -> CelSyntaxError:
        token = self._peek()
        found = f"{token.text!r} at position {token.position + 1}" if token.text else "end"
        return CelSyntaxError(f"unexpected {found}")

    def _binary(self, precedence: int) -> Expression:
        left = self._unary()
        while (token := self._peek()).kind in ("operator", "name") and _PRECEDENCE.get(token.text, 0) >= precedence:
            self._take()
            right = self._binary(_PRECEDENCE[token.text] + 1)
            left = Call("@in" if token.text == "in" else f"_{token.text}_", (left, right))
        return left

    def _unary(self) -> Expression:
        if self._accept("!"):
            return Call("!_", (self._unary(),))
        if self._accept("-"):
            return Call("-_", (self._unary(),))
        return self._member()

    def _member(self) -> Expression:
        tree = self._primary()
        while True:
            if self._accept("."):
                tree = self._selection(tree)
            elif self._accept("["):
                tree = Call("_[_]", (tree, self.expression()))
                self.expect("]")
            else:
                return tree

    def _selection(self, operand: Expression) -> Expression:
        if self._peek().kind != "name":
            raise self._unexpected()
        name = self._take().text
        if not self._accept("("):
            return Select(operand, name)
        arguments = self._list(")", self.expression)
        if len(arguments) not in _MACROS.get(name, ()):
            return Call(name, (operand, *arguments))
        variable, *bodies = arguments
        if not isinstance(variable, Name):
            raise CelSyntaxError(f"the first argument of {name}() must be a name")
        return Macro(name, operand, variable.name, tuple(bodies))

    def _primary(self) -> Expression:
        if self._accept("("):
            tree = self.expression()
            self.expect(")")
            return tree
        if self._accept("["):
            return ListLiteral(tuple(self._list("]", self.expression)))
        if self._accept("{"):
            return MapLiteral(tuple(self._list("}", self._entry)))
        token = self._peek()
        if token.kind not in ("number", "float", "text", "name"):
            raise self._unexpected()
        self._take()
        if token.kind != "name":
            return Literal(_literal_value(token))
        return Literal(_LITERALS[token.text]) if token.text in _LITERALS else self._name(token.text)

    def _name(self, name: str) -> Expression:
        if not self._accept("("):
            return Name(name)
        arguments = self._list(")", self.expression)
        if name != "has":
            return Call(name, tuple(arguments))
        if len(arguments) != 1 or not isinstance(arguments[0], Select):
            raise CelSyntaxError("the argument of has() must be a field, as in has(a.b)")
        return Select(arguments[0].operand, arguments[0].field, is_presence_test=True)

    def _entry(self) -> tuple[Expression, Expression]:
        key = self.expression()
        self.expect(":")
        return key, self.expression()

    def _list(self, end: str, item: Callable[[], Any]) -> list[Any]:
        items: list[Any] = []
        while not self._accept(end):
            if items:
                self.expect(",")
                if end != ")" and self._accept(end):
                    break
            items.append(item())
        return items


def _literal_value(token: _Token) -> Any:
    if token.kind == "float":
        return float(token.text)
    if token.kind == "number":
        return int(token.text, 16 if token.text.startswith("0x") else 10)
    is_raw = token.text[0] in "rR"
    body = token.text[is_raw:]
    quote_length = 3 if body[:3] in ('"""', "'''") else 1
    text = body[quote_length:-quote_length]
    return text if is_raw else _ESCAPE.sub(_unescape, text)


def _unescape(match: re.Match[str]) -> str:
    two, four, eight, single = match.groups()
    code = two or four or eight
    return chr(int(code, 16)) if code else _ESCAPES.get(single, single)
