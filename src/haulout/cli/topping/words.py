"""How states, times and the words of others are told in a terminal."""

from datetime import datetime
from io import StringIO

from rich.console import Console
from rich.text import Text

from haulout.cli.holders import elapsed
from haulout.cli.terminal import printable
from haulout.web.api.shapes import NodeState

STYLES = {
    NodeState.IDLE: "dim",
    NodeState.PLANNED: "cyan",
    NodeState.DRAINING: "yellow",
    NodeState.BLOCKED: "bold red",
    NodeState.IN_MAINTENANCE: "magenta",
    NodeState.RECOVERING: "blue",
}


def lasting(since: datetime | None, now: datetime) -> str:
    """Return for how long something has been so; empty if nobody knows."""
    return "" if since is None or since > now else elapsed(now - since)


def when(at: datetime | None, now: datetime) -> str:
    """Return how far away an instant is; empty if there is none."""
    if at is None:
        return ""
    return f"in {elapsed(at - now)}" if at > now else f"{elapsed(now - at)} ago"


def safe(text: str) -> str:
    """Return what somebody wrote, in one line that cannot take over the terminal."""
    return printable(" ".join(text.split()))


def cut(text: Text) -> Text:
    """Return a line that ends where the terminal does."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def wrapped(text: Text, width: int) -> list[Text]:
    """Return a text in as many lines as it takes, so that what it says to type can be copied as a whole."""
    return list(text.wrap(Console(width=width, file=StringIO()), width)) or [text]
