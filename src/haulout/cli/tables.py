"""Tables for a terminal: columns as wide as their cells."""

from collections.abc import Iterator, Sequence

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
