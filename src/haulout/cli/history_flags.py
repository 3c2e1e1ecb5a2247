"""Options about the history of deleted nodes; the command gets them as one, `retention`."""

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from haulout.cli import times

NAMES = ("history_retention", "history_deleted_nodes")
_MOST = 10_000
_LONGEST = timedelta(days=3650)


def history(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them."""

    @functools.wraps(command)
    def folded(*args: Any, **given: Any) -> Any:
        from haulout.history.retention import RetentionSettings

        typed = {"keep_for": given.pop("history_retention"), "most": given.pop("history_deleted_nodes")}
        settings = RetentionSettings(**{name: it for name, it in typed.items() if it is not None})
        return command(*args, retention=settings, **given)

    for add in reversed(_OPTIONS):
        folded = add(folded)
    return folded


def _span(_ctx: click.Context, _: click.Parameter, text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        found = times.span(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not timedelta() <= found <= _LONGEST:
        raise click.BadParameter(f"expected 0 to {_LONGEST.days}d, found {text!r}")
    return found


_OPTIONS = (
    click.option(
        "--history-retention",
        metavar="SPAN",
        callback=_span,
        help="How long the history of a node is kept after the node was deleted, such as 12h, 90d or 52w; 0 deletes it "
        "with the node. [default: 90d]",
    ),
    click.option(
        "--history-deleted-nodes",
        type=click.IntRange(0, _MOST),
        metavar="N",
        help="Of how many deleted nodes the history is kept at most; those that were deleted first go first. "
        "[default: 1000]",
    ),
)
