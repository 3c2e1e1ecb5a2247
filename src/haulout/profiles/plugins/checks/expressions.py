"""Whether an expression holds for a value: `value < 0.8`, `value > 1 && value <= 10`.

Comparisons of `value` with numbers, joined by `&&` and, which binds weaker, `||`.
"""

import operator
import re

_TERM = r"(value|[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
_COMPARISON = re.compile(rf"\s*{_TERM}\s*(==|!=|<=|>=|<|>)\s*{_TERM}\s*")
_OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


def holds(text: str, value: float) -> bool:
    """Tell whether the expression holds; ValueError says why that cannot be told."""
    sides = [[_compared(part, value) for part in side.split("&&")] for side in text.split("||")]
    return any(map(all, sides))


def problem(text: str) -> str | None:
    """Say what is wrong with an expression, or None."""
    try:
        holds(text, 0.0)
    except ValueError as error:
        return str(error)
    return None


def _compared(text: str, value: float) -> bool:
    match = _COMPARISON.fullmatch(text)
    if match is None:
        raise ValueError(f"found {text.strip()!r}, expected a comparison such as value < 0.8")
    left, sign, right = match.groups()
    return bool(_OPERATORS[sign](_number(left, value), _number(right, value)))


def _number(term: str, value: float) -> float:
    return value if term == "value" else float(term)
