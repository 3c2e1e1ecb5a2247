"""Go number literals: `42`, `0x2A`, `0b101`, `0o17`, `017`, `1_000`, `1.5e3`, `0x1p-2`.

A literal has no type of its own: `1e3` is accepted as an integer, and `1` as a float. So a literal keeps both values,
and its notation determines its default type.
"""

import re
from dataclasses import dataclass

from haulout.compat.gotemplate.errors import Problem

MAX_INT = 2**63 - 1
MIN_INT = -(2**63)
MAX_UINT = 2**64 - 1
_MAX_CHARACTERS = 400  # of a useful number; Python is slow with longer ones
_OCTAL = re.compile(r"[+-]?0_?[0-7](?:_?[0-7])*")
_DECIMAL_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL_FLOAT = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_GOOD_UNDERSCORES = re.compile(r"(?:[^_]|(?<=[0-9a-fA-FxX])_(?=[0-9a-fA-F]))*")


@dataclass(frozen=True, slots=True)
class Literal:
    """The possible values of a number literal."""

    integer: int | None
    floating: float
    is_floating: bool  # its default type


def parse_literal(text: str) -> Literal:
    """Parse a number literal. Raise `Problem` if Go would not accept it."""
    if text.endswith("i") and not text.lower().startswith("0x"):
        raise Problem(f"expected a real number, found {text}: imaginary numbers are not supported")
    if len(text) > _MAX_CHARACTERS:
        raise Problem("expected a number, found one that is too long")
    integer = _parse_integer(text)
    if integer is not None:
        if not MIN_INT <= integer <= MAX_UINT:
            raise Problem(f"expected a number of at most 64 bits, found {text}")
        return Literal(integer, float(integer), _looks_floating(text))
    floating = _parse_floating(text)
    if floating is None or not any(mark in text for mark in ".eEpP"):
        raise Problem(f"expected a number, found {text}")
    return Literal(_as_integer(floating), floating, _looks_floating(text))


def _parse_integer(text: str) -> int | None:
    if _OCTAL.fullmatch(text):
        return int(text, 8)
    try:
        return int(text, 0)
    except ValueError:
        return None


def _parse_floating(text: str) -> float | None:
    if not _GOOD_UNDERSCORES.fullmatch(text):
        return None
    digits = text.replace("_", "")
    try:
        if _HEXADECIMAL_FLOAT.fullmatch(digits):
            return float.fromhex(digits)
        value = float(digits) if _DECIMAL_FLOAT.fullmatch(digits) else None
    except OverflowError:
        return None
    return None if value in (float("inf"), float("-inf")) else value


def _as_integer(floating: float) -> int | None:
    return int(floating) if floating.is_integer() and MIN_INT <= floating <= MAX_UINT else None


def _looks_floating(text: str) -> bool:
    is_hexadecimal = text[:2] in {"0x", "0X"} and not any(mark in text for mark in "pP")
    return not is_hexadecimal and any(mark in text for mark in ".eEpP")
