"""Reads the text of an expression into steps that can be calculated."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from haulout.core import gonumbers, gotext
from haulout.core.calc import dates
from haulout.core.calc.values import OPERATORS, CalcError, is_zero, named, pattern, to_bits, to_number, to_truth

_VARIABLE = "value"
_MOST_DEPTH = 50
_MOST_LENGTH = 10_000
_MOST_TOKENS = 400  # steps call each other, so there must be an end
_TOKEN = re.compile(
    r"""(?:\s|//[^\n]*|/\*.*?\*/)*(?:
    (?P<number>(?:0[xXbBoO][0-9a-zA-Z_]*|(?:[0-9][0-9_]*)?\.?[0-9][0-9_]*\.?)(?:(?<=[0-9._])[eE][+-]?[0-9_]+)?)
    |(?P<name>[^\W\d]\w*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)
    |(?P<symbol>\*\*|\?\?|\|\||&&|==|!=|>=|<=|=~|!~|<<|>>|[-+*/%><^&|~!?:()\[\],.])
    |(?P<end>\Z))""",
    re.VERBOSE | re.DOTALL,
)

Step = Callable[[float], Any]  # from the value to a result


@dataclass(frozen=True, slots=True)
class Calculation:
    """An expression that can be calculated, and the names in it that have no value."""

    text: str
    step: Step = field(compare=False, repr=False)
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text

    def is_true(self, value: float) -> bool:
        """Return whether it holds for a value; raises `CalcError`."""
        result = self.step(float(value))
        truth = to_truth(result)
        if truth is None:
            raise CalcError(f"expected true, false or a number from {self.text!r}, found {named(result)}")
        return truth


def parse(text: str) -> Calculation:
    """Return the calculation that `text` describes; raises `CalcError`."""
    if len(text) > _MOST_LENGTH:
        raise CalcError(f"expected at most {_MOST_LENGTH} characters, found {len(text)}")
    parser = _Parser(text)
    step = parser.whole()
    return Calculation(text, step, tuple(dict.fromkeys(parser.unknown)))


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    for _ in range(_MOST_TOKENS):
        found = _TOKEN.match(text, position)
        if found is None or not _is_name(found["name"]):
            rest = text[position:].lstrip()
            at = len(text) - len(rest) + 1
            raise CalcError(f"expected a number, a name, a text or an operator at character {at}, found {rest[:20]}")
        kind = found.lastgroup or "end"
        yield _Token(kind, found[kind], found.start(kind))
        if kind == "end":
            return
        position = found.end()
    raise CalcError(f"expected at most {_MOST_TOKENS} numbers, names and operators, found more")


def _is_name(name: str | None) -> bool:
    # Only letters and digits, but not ², which `re` takes for one.
    return name is None or all(c == "_" or c.isalpha() or c.isdecimal() for c in name)


class _Parser:
    """Goes through the tokens once, from left to right."""

    def __init__(self, text: str) -> None:
        self.unknown: list[str] = []
        self._tokens = _tokens(text)
        self._next = next(self._tokens)
        self._depth = 0

    def whole(self) -> Step:
        step = self._expression()
        if self._next.kind != "end":
            raise self._unexpected("an operator or the end")
        return step

    def _expression(self) -> Step:
        step = self._operations(0)
        while self._skips("?"):
            step = self._choice(step)
        return step

    def _choice(self, condition: Step) -> Step:
        self._deeper()
        yes = self._expression()
        no: Step = lambda _: None  # noqa: E731 - as short as what it stands for
        if self._skips(":"):
            no = self._expression()
        elif self._next.kind != "end":
            raise self._unexpected(":")
        self._depth -= 1
        return lambda value: no(value) if is_zero(condition(value)) else yes(value)

    def _operations(self, least: int) -> Step:
        left = self._operand()
        while True:
            symbol = self._next.text
            operator = OPERATORS.get(symbol) if self._next.kind in {"symbol", "name"} else None
            if operator is None or operator.precedence < least:
                return left
            self._take()
            if symbol in {"=~", "!~"} and self._next.kind == "text":
                pattern(gotext_of(self._next))  # so that a broken one is told now
            left = _applied(symbol, left, self._operations(operator.precedence + 1))

    def _operand(self) -> Step:
        self._deeper()
        token = self._take()
        match token:
            case _Token("number"):
                step = _constant(_number(token))
            case _Token("text"):
                step = _constant(gotext_of(token))
            case _Token("name"):
                step = self._named(token)
            case _Token("symbol", "(" | "[" | "-" | "!" | "~"):
                step = self._grouped(token)
            case _:
                raise _unexpected(token, "a value")
        self._depth -= 1
        return step

    def _grouped(self, token: _Token) -> Step:
        if token.text == "(":
            step = self._expression()
            self._expect(")")
            return step
        if token.text == "[":
            return self._list()
        return _prefixed(token.text, self._operand())

    def _list(self) -> Step:
        items: list[Step] = []
        while not self._skips("]"):
            if not self._skips(","):
                items.append(self._expression())
        return lambda value: [item(value) for item in items]

    def _named(self, token: _Token) -> Step:
        if token.text in {"true", "false"}:
            return _constant(token.text == "true")
        if token.text == "date":
            return self._date()
        if self._next.text in {".", "(", "["}:
            raise self._unexpected("an operator")
        if token.text == _VARIABLE:
            return lambda value: value
        self.unknown.append(token.text)
        return _constant(None)

    def _date(self) -> Step:
        self._expect("(")
        argument = self._expression()
        self._expect(")")

        def step(value: float) -> Any:
            text = argument(value)
            if not isinstance(text, str):
                raise CalcError(f"expected a text in date(…), found {named(text)}")
            return dates.parse(text)

        return step

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise CalcError(f"expected at most {_MOST_DEPTH} parts inside each other")

    def _skips(self, symbol: str) -> bool:
        if self._next.kind != "symbol" or self._next.text != symbol:
            return False
        self._take()
        return True

    def _expect(self, symbol: str) -> None:
        if not self._skips(symbol):
            raise self._unexpected(symbol)

    def _take(self) -> _Token:
        token = self._next
        if token.kind != "end":
            self._next = next(self._tokens)
        return token

    def _unexpected(self, expected: str) -> CalcError:
        return _unexpected(self._next, expected)


def gotext_of(token: _Token) -> str:
    """Return the text that a quoted one stands for."""
    try:
        return gotext.unquote(token.text)
    except ValueError as error:
        raise CalcError(f"{error}, at character {token.position + 1}") from None


def _number(token: _Token) -> float:
    number = gonumbers.parse_float(token.text)
    if number is None:
        raise _unexpected(token, "a decimal number")
    return number


def _constant(constant: Any) -> Step:
    return lambda _: constant


def _prefixed(symbol: str, operand: Step) -> Step:
    def step(value: float) -> Any:
        found = operand(value)
        if symbol == "!":
            truth = to_truth(found)
            if truth is not None:
                return not truth
        else:
            number = to_number(found)
            if number is not None:
                return -number if symbol == "-" else float(~to_bits(number))
        raise CalcError(f"expected something that {symbol} is for, found {named(found)}")

    return step


def _applied(symbol: str, left: Step, right: Step) -> Step:
    operator = OPERATORS[symbol]

    def step(value: float) -> Any:
        found = left(value)
        decided = operator.decides(found)
        return operator.apply(symbol, found, right(value)) if decided is None else decided

    return step


def _unexpected(token: _Token, expected: str) -> CalcError:
    found = token.text or "the end"
    return CalcError(f"expected {expected} at character {token.position + 1}, found {found}")
