"""The grammar of CEL, the Common Expression Language: a text in, a tree out.

Operators are calls of functions with CEL's own names for them (`_+_`, `_&&_`, `_?_:_`); macros are `Fold`s. Every node
knows where it begins, so that a compiler can point at it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<text>[rRbB]{0,2}(?:\"{3}(?:\\.|[\s\S])*?\"{3}|'{3}(?:\\.|[\s\S])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
  | (?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
  | (?P<number>0x[0-9a-fA-F]+[uU]?|\d+[uU]?)
  | (?P<name>[A-Za-z_]\w*|`[^`\n]*`)
  | (?P<operator>&&|\|\||<=|>=|==|!=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|([\s\S]))")
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LITERALS = {"true": True, "false": False, "null": None}
_EXPECTING = (
    " expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, "
    "IDENTIFIER}"
)
_POWERS = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
}
_FOLDS = {
    **dict.fromkeys(("all", "exists", "exists_one", "existsOne", "filter"), (2,)),
    "map": (2, 3),
    "optMap": (2,),
    "optFlatMap": (2,),
}


class CelSyntaxError(ValueError):
    """An expression that is none; `at` is where it goes wrong."""

    def __init__(self, message: str, at: int) -> None:
        self.message, self.at = message, at
        super().__init__(message)


class Uint(int):
    """An unsigned number, which CEL keeps apart from an int."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that stands for itself."""

    at: int
    value: Any


@dataclass(frozen=True, slots=True)
class Name:
    """A variable."""

    at: int
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`; `optional` as in `.?`, `tests` as in `has(…)`."""

    at: int
    operand: "Expression"
    field: str
    optional: bool = False
    tests: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A function, or an operator; `target.function(…)` if there is a target."""

    at: int
    function: str
    arguments: tuple["Expression", ...]
    target: "Expression | None" = None


@dataclass(frozen=True, slots=True)
class Fold:
    """A macro that binds a variable: `target.all(variable, body)`; `map` may have a condition before the last body."""

    at: int
    macro: str
    target: "Expression"
    variable: str
    bodies: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """`[a, b]`."""

    at: int
    items: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class MapOf:
    """`{a: b}`."""

    at: int
    entries: tuple[tuple["Expression", "Expression"], ...]


Expression: TypeAlias = Literal | Name | Select | Call | Fold | ListOf | MapOf


class _Token(NamedTuple):
    sort: str
    text: str
    at: int


def parse(source: str) -> Expression:
    """Return the tree of an expression; raise `CelSyntaxError` if it is none."""
    parser = _Parser(_tokens(source))
    try:
        tree = parser.expression()
    except RecursionError:
        raise CelSyntaxError("expression recursion limit exceeded", 0) from None
    parser.expect("")
    return tree


def _tokens(source: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None:
            raise CelSyntaxError(f"Syntax error: token recognition error at: '{source[at]}'", at)
        if found.lastgroup != "space":
            tokens.append(_Token(str(found.lastgroup), found[0], at))
        at = found.end()
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
        return Call(condition.at, "_?_:_", (condition, first, self.expression()))

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
        if token.sort == "text" or token.text != text:
            return False
        self._next += 1
        return True

    def _unexpected(self, expecting: str = "") -> CelSyntaxError:
        token = self._peek()
        return CelSyntaxError(f"Syntax error: mismatched input '{token.text or '<EOF>'}'{expecting}", token.at)

    def _binary(self, power: int) -> Expression:
        left = self._unary()
        while (token := self._peek()).sort in ("operator", "name") and _POWERS.get(token.text, 0) >= power:
            self._take()
            right = self._binary(_POWERS[token.text] + 1)
            name = "@in" if token.text == "in" else f"_{token.text}_"
            left = Call(token.at, name, (left, right))
        return left

    def _unary(self) -> Expression:
        token = self._peek()
        if self._accept("!"):
            return Call(token.at, "!_", (self._unary(),))
        if self._accept("-"):
            operand = self._unary()
            if isinstance(operand, Literal) and type(operand.value) in (int, float):
                return Literal(token.at, -operand.value)
            return Call(token.at, "-_", (operand,))
        return self._member()

    def _member(self) -> Expression:
        tree = self._primary()
        while True:
            token = self._peek()
            if self._accept("."):
                tree = self._selection(tree, token.at)
            elif self._accept("["):
                name = "_[?_]" if self._accept("?") else "_[_]"
                tree = Call(token.at, name, (tree, self.expression()))
                self.expect("]")
            else:
                return tree

    def _selection(self, operand: Expression, at: int) -> Expression:
        optional = self._accept("?")
        token = self._take()
        if token.sort != "name":
            self._next -= 1
            raise self._unexpected()
        opens = self._peek().at
        if optional or not self._accept("("):
            return Select(at, operand, token.text.strip("`"), optional=optional)
        arguments = self._list(")", self.expression)
        if len(arguments) in _FOLDS.get(token.text, ()):
            variable, *bodies = arguments
            if not isinstance(variable, Name):
                raise CelSyntaxError("argument must be a simple name", variable.at)
            return Fold(opens, token.text, operand, variable.name, tuple(bodies))
        if token.text == "bind" and operand == Name(operand.at, "cel"):
            return _bound(arguments, opens)
        return Call(opens, token.text, tuple(arguments), operand)

    def _primary(self) -> Expression:
        token = self._take()
        match token.sort:
            case "number" | "float" | "text":
                return Literal(token.at, _literal(token))
            case "name" if token.text in _LITERALS:
                return Literal(token.at, _LITERALS[token.text])
            case "name":
                return self._name(token)
        match token.text:
            case "(":
                tree = self.expression()
                self.expect(")")
                return tree
            case "[":
                return ListOf(token.at, tuple(self._list("]", self.expression)))
            case "{":
                return MapOf(token.at, tuple(self._list("}", self._entry)))
        self._next -= 1
        raise self._unexpected(_EXPECTING)

    def _name(self, token: _Token) -> Expression:
        opens = self._peek().at
        if not self._accept("("):
            return Name(token.at, token.text)
        arguments = self._list(")", self.expression)
        if token.text != "has":
            return Call(opens, token.text, tuple(arguments))
        if len(arguments) != 1 or not isinstance(arguments[0], Select):
            raise CelSyntaxError("invalid argument to has() macro", token.at)
        tested = arguments[0]
        return Select(opens, tested.operand, tested.field, tested.optional, tests=True)

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


def _bound(arguments: list[Expression], at: int) -> Expression:
    match arguments:
        case [Name(name=variable), value, body]:
            return Fold(at, "bind", value, variable, (body,))
    raise CelSyntaxError("cel.bind() variable names must be simple identifiers", at)


def _literal(token: _Token) -> Any:
    if token.sort == "float":
        return float(token.text)
    if token.sort == "number":
        digits = token.text.rstrip("uU")
        value = int(digits, 16) if digits.startswith("0x") else int(digits)
        return Uint(value) if digits != token.text else value
    opening = re.match("[rRbB]*", token.text)
    prefix = opening[0].lower() if opening else ""
    body = token.text[len(prefix) :]
    marks = 3 if body[:3] in ('"""', "'''") else 1
    text = body[marks:-marks]
    if "r" not in prefix:
        text = _ESCAPE.sub(_unescaped, text)
    return text.encode() if "b" in prefix else text


def _unescaped(found: re.Match[str]) -> str:
    two, four, eight, octal, single = found.groups()
    if hexadecimal := two or four or eight:
        return chr(int(hexadecimal, 16))
    return chr(int(octal, 8)) if octal else _ESCAPED.get(single, single)
