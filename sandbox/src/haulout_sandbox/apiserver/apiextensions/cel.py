"""The part of CEL that the CustomResourceDefinitions of Haulout and Cluster API use in `x-kubernetes-validations`.

    evaluate = compile_rule("!has(self.end) || self.start <= self.end")
    evaluate({"self": {"start": 1}})        # True

It has names, fields, `has`, literals, comparisons, `&&`, `||` and `!`. A rule with anything else, such as a function or
a macro, is not evaluated: `compile_rule` returns None, and every object passes. The real server evaluates it.

A rule is rewritten to the syntax of Python for `ast.parse`, and its tree is compiled to nested functions. No code of
the rule is executed.
"""

import ast
import keyword
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

Evaluate = Callable[[Mapping[str, Any]], Any]

_KEYWORD_PREFIX = "keyword_"  # of fields whose names are keywords of Python, such as `self.from`
_KEYWORD_FIELDS = {f".{name}": f".{_KEYWORD_PREFIX}{name}" for name in keyword.kwlist}
_OPERATOR = re.compile(rf""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|&&|\|\||!(?!=)|\.(?:{"|".join(keyword.kwlist)})\b""")
# `~` and not `not`: in CEL, `!` binds tighter than `==` does.
_PYTHON_OPERATORS = {"&&": " and ", "||": " or ", "!": "~", **_KEYWORD_FIELDS}
_CONSTANTS = {"true": True, "false": False, "null": None}
_VARIABLES = ("self", "oldSelf")
_ORDERINGS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class CelError(Exception):
    """The evaluation failed."""


class _UnsupportedSyntaxError(Exception):
    """The rule has a part that is not evaluated here."""


@lru_cache(maxsize=1024)
def compile_rule(source: str) -> Evaluate | None:
    """Return the function that evaluates a rule, or None if the rule has an unsupported part."""
    rewritten = _OPERATOR.sub(lambda match: _PYTHON_OPERATORS.get(match[0], match[0]), source)
    try:
        return _compile(ast.parse(f"({rewritten}\n)", mode="eval").body)
    except (_UnsupportedSyntaxError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _compile(tree: ast.expr) -> Evaluate:
    match tree:
        case ast.Constant() | ast.Name():
            return _operand(tree)
        case ast.Attribute(value=operand, attr=field):
            return _selection(_compile(operand), field.removeprefix(_KEYWORD_PREFIX))
        case ast.Call(func=ast.Name(id="has"), args=[ast.Attribute(value=operand, attr=field)], keywords=[]):
            return _presence(_compile(operand), field.removeprefix(_KEYWORD_PREFIX))
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            negated = _compile(operand)
            return lambda scope: not _require_boolean(negated(scope))
        case ast.BoolOp(op=logical_operator, values=operands):
            return _logic([_compile(item) for item in operands], settled_by=isinstance(logical_operator, ast.Or))
        case ast.Compare(left=left, ops=[comparison], comparators=[right]):
            return _comparison(comparison, _compile(left), _compile(right))
    raise _UnsupportedSyntaxError


def _operand(tree: ast.Constant | ast.Name) -> Evaluate:
    match tree:
        case ast.Constant(value=int() | float() | str() as value):
            return lambda _: value
        case ast.Name(id=name) if name in _CONSTANTS:
            return lambda _: _CONSTANTS[name]
        case ast.Name(id=name) if name in _VARIABLES:
            return lambda scope: scope[name]
    raise _UnsupportedSyntaxError


def _selection(operand: Evaluate, field: str) -> Evaluate:
    def evaluate(scope: Mapping[str, Any]) -> Any:
        value = operand(scope)
        if not isinstance(value, dict) or field not in value:
            raise CelError(f"no such key: {field}")
        return value[field]

    return evaluate


def _presence(operand: Evaluate, field: str) -> Evaluate:
    def evaluate(scope: Mapping[str, Any]) -> bool:
        value = operand(scope)
        return isinstance(value, dict) and field in value

    return evaluate


def _logic(operands: list[Evaluate], *, settled_by: bool) -> Evaluate:
    """Return `||` or `&&`. As in CEL, an error counts only if no other operand settles the result."""

    def evaluate(scope: Mapping[str, Any]) -> bool:
        first_error: CelError | None = None
        for operand in operands:
            try:
                if _require_boolean(operand(scope)) is settled_by:
                    return settled_by
            except CelError as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return not settled_by

    return evaluate


def _comparison(comparison: ast.cmpop, left: Evaluate, right: Evaluate) -> Evaluate:
    match comparison:
        case ast.Eq():
            return lambda scope: _is_equal(left(scope), right(scope))
        case ast.NotEq():
            return lambda scope: not _is_equal(left(scope), right(scope))
    if type(comparison) not in _ORDERINGS:
        raise _UnsupportedSyntaxError
    compare = _ORDERINGS[type(comparison)]

    def evaluate(scope: Mapping[str, Any]) -> bool:
        try:
            return bool(compare(left(scope), right(scope)))
        except TypeError:
            raise CelError("no such overload") from None

    return evaluate


def _is_equal(one: Any, other: Any) -> bool:
    """Compare as CEL does: a boolean equals no number."""
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _require_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError("no such overload")
    return value
