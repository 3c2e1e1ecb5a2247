"""What command lines of controllers in Go have in common: the flags of their log, and how values are written."""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from haulout.cli.goflags import Flag
from haulout.core import duration
from haulout.errors import UsageError

if TYPE_CHECKING:  # heavy: what runs is imported when it is asked for
    from haulout.web.auth.settings import AccessSettings
    from haulout.web.listening import Address

HELP = frozenset({"-h", "--h", "-help", "--help"})
FLAGS = {
    "zap-devel": Flag(default=True, help="Whether the log is text; else it is JSON."),
    "zap-encoder": Flag("", "The form of the log: json or console."),
    "zap-log-level": Flag("", "How much is logged: debug, info, error, panic, or a number. [default: info]"),
    "zap-stacktrace-level": Flag("", "Taken and of no effect."),
    "zap-time-encoding": Flag("", "Taken and of no effect: times are ISO 8601."),
}
DASHBOARD_AUTH = Flag(
    "token", "Haulout's own flag: who may use the dashboard and the API: token, who shows one of Kubernetes; off, all."
)
DASHBOARD_HOST = Flag(
    "",
    "Haulout's own flag: with -dashboard-auth=off, a name by which the dashboard is reached, such as an Ingress has;"
    " * is any. May be given several times.",
    is_repeatable=True,
)
_LEVELS = {"debug": 10, "info": 20, "error": 40, "panic": 50}

Given = Mapping[str, str | bool]


def told(flags: Mapping[str, Flag]) -> str:
    """Return what `--help` says of flags."""
    lines = [f"  -{name}\n      {flag.help}" for name, flag in sorted(flags.items())]
    return "\n".join(["\b\nFlags, in the syntax of Go, with one dash or two:", *lines])


def address(flag: str, given: Given) -> "Address":
    """Return an address such as `:8080`."""
    from haulout.web.listening import Address

    try:
        return Address.parse(str(given[flag]))
    except UsageError as error:
        raise UsageError(f"-{flag}: {error}") from None


def access(given: Given) -> "AccessSettings":
    """Return who may use the dashboard."""
    from haulout.web.api.shapes import AuthMode
    from haulout.web.auth.settings import AccessSettings

    mode = str(given["dashboard-auth"])
    if mode not in (AuthMode.TOKEN, AuthMode.OFF):
        raise UsageError(f"-dashboard-auth: expected token or off, found {mode!r:.60}")
    return AccessSettings(mode=AuthMode(mode), hosts=tuple(str(given["dashboard-host"]).splitlines()))


def time(flag: str, given: Given) -> timedelta:
    """Return a duration."""
    try:
        return duration.parse(str(given[flag]))
    except ValueError as error:
        raise UsageError(f"-{flag}: expected a duration such as 65s: {error}") from None


def is_json(given: Given) -> bool:
    """Tell whether the log is to be JSON."""
    encoder = str(given["zap-encoder"])
    if encoder not in ("", "json", "console"):
        raise UsageError(f"-zap-encoder: expected json or console, found {encoder!r}")
    return encoder == "json" or (not encoder and not given["zap-devel"])


def level(given: Given) -> int:
    """Return how much is to be logged."""
    text = str(given["zap-log-level"])
    if not text:
        return _LEVELS["info"]
    if text in _LEVELS:
        return _LEVELS[text]
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return _LEVELS["debug"]
    raise UsageError(f"-zap-log-level: expected debug, info, error, panic or a number from 1, found {text!r}")
