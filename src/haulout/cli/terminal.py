"""Terminal output: marks that the encoding supports, escaped text from other sources, and colours.

click removes colours if the output is no terminal.
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import click


class Marks(NamedTuple):
    """The marks before lines of a list."""

    yes: str
    no: str
    off: str
    unknown: str


ASCII_MARKS = Marks("ok", "NO", "--", "??")
UNICODE_MARKS = Marks("✓", "✗", "-", "?")


def terminal_marks() -> Marks:
    """Return the marks that standard output can encode."""
    encoding = sys.stdout.encoding if sys.stdout else None  # None: closed before the start
    chosen = UNICODE_MARKS if _can_show("".join(UNICODE_MARKS), encoding) else ASCII_MARKS
    return Marks(
        yes=click.style(chosen.yes, fg="green"),
        no=click.style(chosen.no, fg="red", bold=True),
        off=click.style(chosen.off, dim=True),
        unknown=click.style(chosen.unknown, fg="yellow"),
    )


def printable(text: str) -> str:
    """Return untrusted text with escapes for characters that move the cursor or break the line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def format_pairs(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return rows of two columns; ANSI colours, allowed in the left one only, have no width."""
    widths = [len(click.unstyle(left)) for left, _ in rows]
    return [
        f"{left}{' ' * (max(widths) - width)}  {printable(right)}"
        for (left, right), width in zip(rows, widths, strict=True)
    ]


def _can_show(text: str, encoding: str | None) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
