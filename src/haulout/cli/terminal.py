"""What fits the terminal: signs that its encoding can show; colours, which click drops where they do not belong."""

import sys
from typing import NamedTuple

import click


class Marks(NamedTuple):
    """The sign before a line of a list."""

    yes: str
    no: str
    off: str
    unknown: str


PLAIN = Marks("ok", "NO", "--", "??")
PRETTY = Marks("✓", "✗", "-", "?")


def marks() -> Marks:
    """Return the signs that standard output can show."""
    chosen = PRETTY if _can_show("".join(PRETTY), sys.stdout.encoding) else PLAIN
    return Marks(
        yes=click.style(chosen.yes, fg="green"),
        no=click.style(chosen.no, fg="red", bold=True),
        off=click.style(chosen.off, dim=True),
        unknown=click.style(chosen.unknown, fg="yellow"),
    )


def _can_show(text: str, encoding: str | None) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
