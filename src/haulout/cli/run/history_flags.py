"""Options for the history of deleted nodes; the command receives them as one parameter, `retention`."""

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from haulout.cli import times

OPTION_NAMES = ("history_retention", "history_deleted_nodes")
_MAX_DELETED_NODES = 10_000
_MAX_RETENTION = timedelta(days=3650)


def retention_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command."""

    @functools.wraps(command)
    def with_retention_settings(*args: Any, **options: Any) -> Any:
        from haulout.history.retention import RetentionSettings

        values = {"keep_for": options.pop("history_retention"), "most": options.pop("history_deleted_nodes")}
        settings = RetentionSettings(**{name: value for name, value in values.items() if value is not None})
        return command(*args, retention=settings, **options)

    for add in reversed(_OPTIONS):
        with_retention_settings = add(with_retention_settings)
    return with_retention_settings


def _parse_retention(_ctx: click.Context, _: click.Parameter, text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        found = times.parse_span(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not timedelta() <= found <= _MAX_RETENTION:
        raise click.BadParameter(f"expected 0 to {_MAX_RETENTION.days}d, found {text!r}")
    return found


_OPTIONS = (
    click.option(
        "--history-retention",
        metavar="SPAN",
        callback=_parse_retention,
        help="How long the history of a node is kept after the node was deleted, such as 12h, 90d or 52w; 0 deletes it "
        "with the node. [default: 90d]",
    ),
    click.option(
        "--history-deleted-nodes",
        type=click.IntRange(0, _MAX_DELETED_NODES),
        metavar="N",
        help="The maximum number of deleted nodes whose history is kept; the oldest are removed first. [default: 1000]",
    ),
)
