"""Number literals, as Go writes them: `42`, `0x2A`, `0b101`, `0o17`, `017`, `1_000`, `1.5e3`, `0x1p-2`.

A literal has no type of its own: `1e3` passes where a whole number is wanted, and `1` where a fraction is. So it keeps
both values, and what it is when nothing is wanted follows from how it is written.
"""

import re
from dataclasses import dataclass

from haulout.core.templates.source import Problem

MAX_INT = 2**63 - 1
MIN_INT = -(2**63)
MAX_UINT = 2**64 - 1
_MOST_CHARACTERS = 400  # of a number that means something; Python is slow with longer ones
_OCTAL = re.compile(r"[+-]?0_?[0-7](?:_?[0-7])*")
_DECIMAL_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL_FLOAT = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_GOOD_UNDERSCORES = re.compile(r"(?:[^_]|(?<=[0-9a-fA-FxX])_(?=[0-9a-fA-F]))*")


@dataclass(frozen=True, slots=True)
class Literal:
    """What a number literal can stand for."""

    whole: int | None
    fraction: float
    is_fraction: bool  # when nothing is wanted


def literal(text: str) -> Literal:
    """Return what a number literal stands for; raises a `Problem`."""
    if text.endswith("i") and not text.lower().startswith("0x"):
        raise Problem(f"expected a real number, found {text}: imaginary numbers are of no use here")
    if len(text) > _MOST_CHARACTERS:
        raise Problem("expected a number, found one that is too long")
    whole = _whole(text)
    if whole is not None:
        if not MIN_INT <= whole <= MAX_UINT:
            raise Problem(f"expected a number of at most 64 bits, found {text}")
        return Literal(whole, float(whole), _looks_fractional(text))
    fraction = _fraction(text)
    if fraction is None or not any(mark in text for mark in ".eEpP"):
        raise Problem(f"expected a number, found {text}")
    return Literal(_as_whole(fraction), fraction, _looks_fractional(text))


def _whole(text: str) -> int | None:
    if _OCTAL.fullmatch(text):
        return int(text, 8)
    try:
        return int(text, 0)
    except ValueError:
        return None


def _fraction(text: str) -> float | None:
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


def _as_whole(fraction: float) -> int | None:
    return int(fraction) if fraction.is_integer() and MIN_INT <= fraction <= MAX_UINT else None


def _looks_fractional(text: str) -> bool:
    is_hexadecimal = text[:2] in {"0x", "0X"} and not any(mark in text for mark in "pP")
    return not is_hexadecimal and any(mark in text for mark in ".eEpP")
