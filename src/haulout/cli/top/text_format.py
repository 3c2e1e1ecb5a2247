"""How states, times and the words of others are told in a terminal."""

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
    """Return for how long something has been so; empty if nobody knows."""
    return "" if since is None or since > now else format_elapsed(now - since)


def format_relative(instant: datetime | None, now: datetime) -> str:
    """Return how far away an instant is; empty if there is none."""
    if instant is None:
        return ""
    return f"in {format_elapsed(instant - now)}" if instant > now else f"{format_elapsed(now - instant)} ago"


def one_line(text: str) -> str:
    """Return what somebody wrote, in one line that cannot take over the terminal."""
    return printable(" ".join(text.split()))


def truncate(text: Text) -> Text:
    """Return a line that ends where the terminal does."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def wrap_lines(text: Text, width: int) -> list[Text]:
    """Return a text in as many lines as it takes, so that what it says to type can be copied as a whole."""
    return list(text.wrap(Console(width=width, file=StringIO()), width)) or [text]
