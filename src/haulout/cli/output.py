"""Output of commands: tables, JSON and YAML, text that is safe on a terminal, and command lines to run next.

Results go to standard output, all else to standard error. Texts of other sources are escaped. click removes colours if
the output is no terminal.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import click

_GAP = "   "
_MIN_LAST_WIDTH = 20


def format_table(rows: Sequence[Sequence[str]], *, width: int | None = None) -> Iterator[str]:
    """Yield aligned rows; ANSI colours have no width. With `width` the last column is cut so that lines fit."""
    widths = column_widths(rows)
    last_width = None if width is None else width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
    for row in rows:
        last = row[-1] if last_width is None else _truncate(row[-1], max(last_width, _MIN_LAST_WIDTH))
        yield format_row([*row[:-1], last], widths)


def column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(click.unstyle(cell)) for cell in column) for column in zip(*rows, strict=True)]


def format_row(row: Sequence[str], widths: Sequence[int]) -> str:
    """Return one row, with columns of at least these widths."""
    cells = [cell + " " * (wide - len(click.unstyle(cell))) for cell, wide in zip(row, widths, strict=True)]
    return _GAP.join(cells).rstrip()


def _truncate(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def to_json(document: object) -> bytes:
    """Return a document as indented JSON."""
    import msgspec  # not needed for --help

    return msgspec.json.format(msgspec.json.encode(document))


def to_yaml(document: object) -> str:
    import msgspec
    import yaml

    return yaml.safe_dump(msgspec.to_builtins(document), sort_keys=False, allow_unicode=True, width=120)


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


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line of output."""

    text: str
    is_result: bool = False

    def print(self) -> None:
        click.echo(printable(self.text), err=not self.is_result)

    def print_unless_result(self) -> None:
        """Print to standard error, or not at all: for when standard output is for a program."""
        if not self.is_result:
            self.print()


def executable() -> list[str]:
    """Return how to call this program again: by its name if it is on PATH, else as it was called."""
    import shutil
    from pathlib import Path

    name = sys.argv[0]
    if Path(name).name == "__main__.py":
        return [sys.executable, "-m", "haulout"]
    return [name] if Path(name).name == "haulout" and not shutil.which("haulout") else ["haulout"]


def command_line(*arguments: str, options: Mapping[str, str | None] | None = None) -> str:
    """Return a command line of this program, with the options that have a value."""
    import shlex

    option_words = [word for name, value in (options or {}).items() if value for word in (name, value)]
    return shlex.join([*executable(), *arguments, *option_words])


def repeat_command() -> str:
    """Return the command line of this process."""
    import shlex

    return shlex.join([*executable(), *sys.argv[1:]])
