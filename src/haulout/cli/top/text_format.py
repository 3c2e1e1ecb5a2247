"""Styles of states, times and untrusted text in a terminal."""

from datetime import datetime
from io import StringIO

from rich.console import Console
from rich.text import Text

from haulout.cli.cordon_owners import format_elapsed
from haulout.cli.terminal import printable
from haulout.dashboard.api.types import NodeState

STATE_STYLES = {
    NodeState.IDLE: "dim",
    NodeState.PLANNED: "cyan",
    NodeState.DRAINING: "yellow",
    NodeState.BLOCKED: "bold red",
    NodeState.IN_MAINTENANCE: "magenta",
    NodeState.RECOVERING: "blue",
}


def format_age(since: datetime | None, now: datetime) -> str:
    """Return the time since an instant; empty if unknown."""
    return "" if since is None or since > now else format_elapsed(now - since)


def format_relative(instant: datetime | None, now: datetime) -> str:
    """Return the distance of an instant; empty if there is none."""
    if instant is None:
        return ""
    return f"in {format_elapsed(instant - now)}" if instant > now else f"{format_elapsed(now - instant)} ago"


def one_line(text: str) -> str:
    """Return untrusted text in one line, with control characters escaped."""
    return printable(" ".join(text.split()))


def truncate(text: Text) -> Text:
    """Return a line that is cut at the edge of the terminal."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def wrap_lines(text: Text, width: int) -> list[Text]:
    """Wrap a text to the width, so that commands in it can be copied completely."""
    return list(text.wrap(Console(width=width, file=StringIO()), width)) or [text]
