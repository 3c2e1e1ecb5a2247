"""What fits the terminal: signs that its encoding can show, texts of others that cannot take it over, and colours.

click drops the colours where they do not belong.
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import click


class Marks(NamedTuple):
    """The sign before a line of a list."""

    yes: str
    no: str
    off: str
    unknown: str


ASCII_MARKS = Marks("ok", "NO", "--", "??")
UNICODE_MARKS = Marks("✓", "✗", "-", "?")


def terminal_marks() -> Marks:
    """Return the signs that standard output can show."""
    encoding = sys.stdout.encoding if sys.stdout else None  # None: it was closed before we began
    chosen = UNICODE_MARKS if _can_show("".join(UNICODE_MARKS), encoding) else ASCII_MARKS
    return Marks(
        yes=click.style(chosen.yes, fg="green"),
        no=click.style(chosen.no, fg="red", bold=True),
        off=click.style(chosen.off, dim=True),
        unknown=click.style(chosen.unknown, fg="yellow"),
    )


def printable(text: str) -> str:
    """Return `text`, which somebody else wrote, with escapes for what would move the cursor or break the line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def format_pairs(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return rows of two columns; colours, which only the left one may have, take no room."""
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
