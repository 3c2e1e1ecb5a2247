"""Tables for a terminal: columns as wide as what is in them."""

from collections.abc import Iterator, Sequence

import click

_GAP = "   "
_SHORTEST_LAST = 20


def columns(rows: Sequence[Sequence[str]], *, width: int | None = None) -> Iterator[str]:
    """Yield aligned rows; colours take no room. With `width` the last column is cut so that lines are no wider."""
    widths = widths_of(rows)
    room = None if width is None else width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
    for row in rows:
        last = row[-1] if room is None else _cut(row[-1], max(room, _SHORTEST_LAST))
        yield aligned([*row[:-1], last], widths)


def widths_of(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return how wide each column is."""
    return [max(len(click.unstyle(cell)) for cell in column) for column in zip(*rows, strict=True)]


def aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    """Return one row in columns that are at least so wide."""
    cells = [cell + " " * (wide - len(click.unstyle(cell))) for cell, wide in zip(row, widths, strict=True)]
    return _GAP.join(cells).rstrip()


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"
