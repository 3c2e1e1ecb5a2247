"""How a picture of the fleet looks in a terminal. Pure: a picture and a choice in, what rich can print out.

What others wrote (names, reasons) is shown with escapes for what would move the cursor. Columns go when there is no
room for them; states are words as well as colours.
"""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from haulout.cli.topping.choice import Choice, shown
from haulout.cli.topping.detail import about
from haulout.cli.topping.picture import Picture
from haulout.cli.topping.words import STYLES, cut, lasting, safe, when, wrapped
from haulout.kinds.notice import Phase
from haulout.web.api.shapes import Level, NodeState, Notice, Tile

KEYS = "q quit  / search  s sort  f filter  arrows, Enter details  Esc back"
_LEVELS = {Level.INFO: "cyan", Level.WARNING: "yellow", Level.CRITICAL: "bold red"}
_NARROW, _WIDE = 70, 110
_AROUND = 2  # lines: the head of the table, and the keys
_FEWEST = 3  # nodes; rather than fewer, no notices are shown
_MOST_NOTICES = 5
_OVER = tuple(str(it) for it in Phase if it.is_over)


def screen(picture: Picture, choice: Choice, *, width: int, height: int | None = None) -> RenderableType:
    """Return all of it; no higher than `height`."""
    head = list(_head(picture, choice))
    if choice.detail:
        told = [part for line in about(picture, choice.detail) for part in wrapped(line, width)]
        return Group(*head, *told[: None if height is None else max(height - len(head) - 1, 1)], *_foot(choice, height))
    rows = shown(choice, picture.tiles.values())
    notices = list(_notices(picture))
    room = None if height is None else height - len(head) - _AROUND
    if room is not None and room - len(notices) < _FEWEST:
        notices = []
    room = None if room is None else max(room - len(notices), 1)
    return Group(*head, _table(rows, picture, choice, width=width, room=room), *notices, *_foot(choice, height))


def _head(picture: Picture, choice: Choice) -> Iterator[Text]:
    summary = picture.summary
    leader = summary.leader.identity or "nobody"
    yield cut(
        Text.assemble(
            ("Haulout ", "bold"),
            f"{safe(summary.cluster)}  " if summary.cluster else "",
            "leader ",
            (safe(leader), "" if summary.leader.identity else "bold red"),
            f"  {picture.now:%H:%M:%S} UTC",
        )
    )
    if picture.problem:
        yield cut(Text(f"not connected, this is what was known last: {safe(picture.problem)}", "bold red"))
    counts = picture.counts()
    line = Text(f"{len(picture.tiles)} nodes")
    for state in NodeState:
        if counts[state]:
            line.append(f"  {state} {counts[state]}", STYLES[state])
    yield cut(line)
    for budget in summary.budgets:
        is_full = budget.used >= budget.limit
        waits = f", {len(budget.waiting)} waiting" if budget.waiting else ""
        text = f"budget {safe(budget.name)}: {budget.used} of {budget.limit}{waits}"
        yield cut(Text(text, "bold yellow" if is_full else ""))
    for banner in summary.banners:
        yield cut(Text(f"{banner.level}: {safe(banner.text)}", _LEVELS[banner.level]))
    if choice.is_typing or choice.search or choice.state is not None:
        only = f"only: {choice.state}  " if choice.state else ""
        search = f"search: {safe(choice.search)}{'_' if choice.is_typing else ''}"
        yield cut(Text(only + (search if choice.is_typing or choice.search else "")))


def _table(rows: Sequence[Tile], picture: Picture, choice: Choice, *, width: int, room: int | None) -> RenderableType:
    if not rows:
        return Text("nothing goes on" if not (choice.search or choice.state) else "no such node", "dim")
    table = Table(box=None, pad_edge=False, expand=True, padding=(0, 1), header_style="bold underline")
    table.add_column("NODE", no_wrap=True, overflow="ellipsis", max_width=max(width // 3, 12))
    table.add_column("STATE", no_wrap=True)
    if width >= _NARROW:
        table.add_column("FOR", no_wrap=True, justify="right")
        table.add_column("DONE", no_wrap=True, justify="right")
    table.add_column("WHY", no_wrap=True, overflow="ellipsis", ratio=1)
    if width >= _WIDE:
        table.add_column("NEXT", no_wrap=True)
    first = 0 if room is None else max(min(choice.at - room // 2, len(rows) - room), 0)
    visible = rows[first:] if room is None else rows[first : first + room]
    for at, tile in enumerate(visible, first):
        cells: list[Text | str] = [Text(safe(tile.name)), Text(str(tile.state), STYLES[tile.state])]
        if width >= _NARROW:
            cells += [lasting(tile.since, picture.now), "" if tile.progress is None else f"{tile.progress}%"]
        cells.append(Text(safe(tile.why or tile.hold)))
        if width >= _WIDE:
            cells.append(when(tile.at, picture.now))
        table.add_row(*cells, style="reverse" if room is not None and at == choice.at else "")
    return table


def _notices(picture: Picture) -> Iterator[Text]:
    coming = [it for it in picture.notices.values() if it.phase not in _OVER]
    if not coming:
        return
    yield Text("")
    yield Text(f"Announced: {len(coming)}", "bold")
    first = sorted(coming, key=_start)[:_MOST_NOTICES]
    rows = [(it.phase, safe(it.node or it.name), safe(it.kind), when(it.start, picture.now)) for it in first]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for it, row in zip(first, rows, strict=True):
        late = Text("  will be late", "bold red") if it.is_on_time is False else Text("")
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield cut(Text("  " + "  ".join(padded)).append_text(late))
    if len(coming) > _MOST_NOTICES:
        yield Text(f"  and {len(coming) - _MOST_NOTICES} more: haulout notice list", "dim")


def _start(notice: Notice) -> tuple[bool, float, str]:
    return notice.start is None, notice.start.timestamp() if notice.start else 0, notice.name


def _foot(choice: Choice, height: int | None) -> Iterator[Text]:
    if height is not None:
        yield cut(Text(f"sorted by {choice.sort}   {KEYS}", "dim"))
