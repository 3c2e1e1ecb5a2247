"""The expressions of `prometheusInstant.expr`: `value > 0.5 && value < 10`.

    expression = gval.parse("value * 100 >= 95")
    expression.is_true(0.97)                # True

This is the part of Go's `gval` that is useful for a single number: arithmetic (`+ - * / % **`), comparison, logic with
`&& || !`, `a ? b : c`, `a ?? b`, `in [1, 2]`, regular expressions (`=~ !~`), bit operations (`& | ^ ~ << >>`), texts,
lists and `date("2024-05-01")`. Results are those of gval, including its implicit conversions between numbers, texts and
booleans. All binary operators are left-associative, including `**`, and a sign binds tighter.

A name other than `value` has no value, which is false. `unknown_names` lists such names, which are probably mistakes.
"""

from haulout.compat.gval.parser import GvalExpression, parse
from haulout.compat.gval.values import GvalError

__all__ = ["GvalError", "GvalExpression", "parse"]
