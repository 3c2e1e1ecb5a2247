"""Parses an expression into functions that evaluate it."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from haulout.compat import goliterals
from haulout.compat.gval import values
from haulout.compat.gval.values import (
    OPERATORS,
    GvalError,
    compile_pattern,
    describe,
    is_zero,
    to_bits,
    to_bool,
    to_number,
)

_VARIABLE = "value"
_MAX_DEPTH = 50
_MAX_LENGTH = 10_000
_MAX_TOKENS = 400  # evaluation is recursive, so the length is limited
_TOKEN = re.compile(
    r"""(?:\s|//[^\n]*|/\*.*?\*/)*(?:
    (?P<number>(?:0[xXbBoO][0-9a-zA-Z_]*|(?:[0-9][0-9_]*)?\.?[0-9][0-9_]*\.?)(?:(?<=[0-9._])[eE][+-]?[0-9_]+)?)
    |(?P<name>[^\W\d]\w*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)
    |(?P<symbol>\*\*|\?\?|\|\||&&|==|!=|>=|<=|=~|!~|<<|>>|[-+*/%><^&|~!?:()\[\],.])
    |(?P<end>\Z))""",
    re.VERBOSE | re.DOTALL,
)

Evaluator = Callable[[float], Any]  # from the value to a result


@dataclass(frozen=True, slots=True)
class GvalExpression:
    """An expression that can be evaluated, and the names in it that have no value."""

    text: str
    evaluate: Evaluator = field(compare=False, repr=False)
    unknown_names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text

    def is_true(self, value: float) -> bool:
        """Return whether the expression is true for a value. Raise `GvalError`."""
        result = self.evaluate(float(value))
        boolean = to_bool(result)
        if boolean is None:
            raise GvalError(f"expected true, false or a number from {self.text!r}, found {describe(result)}")
        return boolean


def parse(text: str) -> GvalExpression:
    """Parse an expression, including its regular expressions. Raise `GvalError` with the position."""
    if len(text) > _MAX_LENGTH:
        raise GvalError(f"expected at most {_MAX_LENGTH} characters, found {len(text)}")
    parser = _Parser(text)
    step = parser.parse()
    return GvalExpression(text, step, tuple(dict.fromkeys(parser.unknown_names)))


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    for _ in range(_MAX_TOKENS):
        found = _TOKEN.match(text, position)
        if found is None or not _is_name(found["name"]):
            rest = text[position:].lstrip()
            at = len(text) - len(rest) + 1
            raise GvalError(f"expected a number, a name, a text or an operator at character {at}, found {rest[:20]}")
        kind = found.lastgroup or "end"
        yield _Token(kind, found[kind], found.start(kind))
        if kind == "end":
            return
        position = found.end()
    raise GvalError(f"expected at most {_MAX_TOKENS} numbers, names and operators, found more")


def _is_name(name: str | None) -> bool:
    # Only letters and decimal digits, but not ², which `re` accepts.
    return name is None or all(c == "_" or c.isalpha() or c.isdecimal() for c in name)


class _Parser:
    """A precedence climbing parser. `_binary` consumes operators of at least the given precedence."""

    def __init__(self, text: str) -> None:
        self.unknown_names: list[str] = []
        self._tokens = _tokens(text)
        self._next = next(self._tokens)
        self._depth = 0

    def parse(self) -> Evaluator:
        step = self._expression()
        if self._next.kind != "end":
            raise self._unexpected("an operator or the end")
        return step

    def _expression(self) -> Evaluator:
        step = self._binary(0)
        while self._accept("?"):
            step = self._ternary(step)
        return step

    def _ternary(self, condition: Evaluator) -> Evaluator:
        self._descend()
        if_true = self._expression()
        if_false: Evaluator = lambda _: None  # noqa: E731 - a named function would be longer
        if self._accept(":"):
            if_false = self._expression()
        elif self._next.kind != "end":
            raise self._unexpected(":")
        self._depth -= 1
        return lambda value: if_false(value) if is_zero(condition(value)) else if_true(value)

    def _binary(self, min_precedence: int) -> Evaluator:
        left = self._operand()
        while True:
            symbol = self._next.text
            operator = OPERATORS.get(symbol) if self._next.kind in {"symbol", "name"} else None
            if operator is None or operator.precedence < min_precedence:
                return left
            self._advance()
            if symbol in {"=~", "!~"} and self._next.kind == "text":
                compile_pattern(unquote_token(self._next))  # reports an invalid pattern when the expression is parsed
            left = _binary_operation(symbol, left, self._binary(operator.precedence + 1))

    def _operand(self) -> Evaluator:
        self._descend()
        token = self._advance()
        match token:
            case _Token("number"):
                step = _constant(_number(token))
            case _Token("text"):
                step = _constant(unquote_token(token))
            case _Token("name"):
                step = self._name(token)
            case _Token("symbol", "(" | "[" | "-" | "!" | "~"):
                step = self._grouped(token)
            case _:
                raise _unexpected(token, "a value")
        self._depth -= 1
        return step

    def _grouped(self, token: _Token) -> Evaluator:
        if token.text == "(":
            step = self._expression()
            self._expect(")")
            return step
        if token.text == "[":
            return self._list()
        return _unary_operation(token.text, self._operand())

    def _list(self) -> Evaluator:
        items: list[Evaluator] = []
        while not self._accept("]"):
            if not self._accept(","):
                items.append(self._expression())
        return lambda value: [item(value) for item in items]

    def _name(self, token: _Token) -> Evaluator:
        if token.text in {"true", "false"}:
            return _constant(token.text == "true")
        if token.text == "date":
            return self._date()
        if self._next.text in {".", "(", "["}:
            raise self._unexpected("an operator")
        if token.text == _VARIABLE:
            return lambda value: value
        # gval evaluates a missing parameter to nil. An error here would reject files that it accepts.
        self.unknown_names.append(token.text)
        return _constant(None)

    def _date(self) -> Evaluator:
        self._expect("(")
        argument = self._expression()
        self._expect(")")

        def step(value: float) -> Any:
            text = argument(value)
            if not isinstance(text, str):
                raise GvalError(f"expected a text in date(…), found {describe(text)}")
            return values.parse_date(text)

        return step

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise GvalError(f"expected at most {_MAX_DEPTH} parts inside each other")

    def _accept(self, symbol: str) -> bool:
        if self._next.kind != "symbol" or self._next.text != symbol:
            return False
        self._advance()
        return True

    def _expect(self, symbol: str) -> None:
        if not self._accept(symbol):
            raise self._unexpected(symbol)

    def _advance(self) -> _Token:
        token = self._next
        if token.kind != "end":
            self._next = next(self._tokens)
        return token

    def _unexpected(self, expected: str) -> GvalError:
        return _unexpected(self._next, expected)


def unquote_token(token: _Token) -> str:
    """Return the text of a quoted token. Raise `GvalError`."""
    try:
        return goliterals.unquote(token.text)
    except ValueError as error:
        raise GvalError(f"{error}, at character {token.position + 1}") from None


def _number(token: _Token) -> float:
    number = goliterals.parse_float(token.text)
    if number is None:
        raise _unexpected(token, "a decimal number")
    return number


def _constant(constant: Any) -> Evaluator:
    return lambda _: constant


def _unary_operation(symbol: str, operand: Evaluator) -> Evaluator:
    def step(value: float) -> Any:
        found = operand(value)
        if symbol == "!":
            boolean = to_bool(found)
            if boolean is not None:
                return not boolean
        else:
            number = to_number(found)
            if number is not None:
                return -number if symbol == "-" else float(~to_bits(number))
        raise GvalError(f"expected operands for {symbol}, found {describe(found)}")

    return step


def _binary_operation(symbol: str, left: Evaluator, right: Evaluator) -> Evaluator:
    operator = OPERATORS[symbol]

    def step(value: float) -> Any:
        found = left(value)
        result = operator.short_circuit(found)
        return operator.apply(symbol, found, right(value)) if result is None else result

    return step


def _unexpected(token: _Token, expected: str) -> GvalError:
    found = token.text or "the end"
    return GvalError(f"expected {expected} at character {token.position + 1}, found {found}")
