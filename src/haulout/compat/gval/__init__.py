"""The expressions of `prometheusInstant.expr`: `value > 0.5 && value < 10`.

    calculation = calc.parse("value * 100 >= 95")
    calculation.is_true(0.97)                # True

This is the part of Go's `gval` that is of use with one number: arithmetic (`+ - * / % **`), comparison, logic with
`&& || !`, `a ? b : c`, `a ?? b`, `in [1, 2]`, matching of regular expressions (`=~ !~`), bits (`& | ^ ~ << >>`), texts,
lists and `date("2024-05-01")`. Whatever gval answers is answered here; it converts freely between numbers, texts and
truth values, and so does this. All binary operators go from left to right, `**` too, and a sign binds tighter.

A name other than `value` has no value, which is false; `unknown` lists such names, since they are hardly meant.
"""

from haulout.compat.gval.parser import GvalExpression, parse
from haulout.compat.gval.values import GvalError

__all__ = ["GvalError", "GvalExpression", "parse"]
