"""Flags that controllers in Go have in common: zap's log flags, and the syntax of values."""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from haulout.compat.goflags import GoFlag
from haulout.core import duration
from haulout.errors import UsageError

if TYPE_CHECKING:  # heavy: imported at use
    from haulout.dashboard.auth.settings import AccessSettings
    from haulout.httpserver.listener import ListenAddress

HELP_FLAGS = frozenset({"-h", "--h", "-help", "--help"})
LOG_FLAGS = {
    "zap-devel": GoFlag(default=True, help="Whether the log is text; else it is JSON."),
    "zap-encoder": GoFlag("", "The format of the log: json or console."),
    "zap-log-level": GoFlag("", "The log level: debug, info, error, panic, or a number. [default: info]"),
    "zap-stacktrace-level": GoFlag("", "Accepted and ignored."),
    "zap-time-encoding": GoFlag("", "Accepted and ignored: times are ISO 8601."),
}
DASHBOARD_AUTH = GoFlag(
    "token",
    "Haulout's own flag: who may use the dashboard and the API: token, users with a token of Kubernetes; off, "
    "everybody.",
)
DASHBOARD_HOST = GoFlag(
    "",
    "Haulout's own flag: with -dashboard-auth=off, a host name of the dashboard, such as that of an Ingress;"
    " * is any. Can be repeated.",
    is_repeatable=True,
)
_LEVELS = {"debug": 10, "info": 20, "error": 40, "panic": 50}

FlagValues = Mapping[str, str | bool]


def flags_help(flags: Mapping[str, GoFlag]) -> str:
    """Return the text about flags in `--help`."""
    lines = [f"  -{name}\n      {flag.help}" for name, flag in sorted(flags.items())]
    return "\n".join(["\b\nFlags, in the syntax of Go, with one dash or two:", *lines])


def parse_address(flag: str, values: FlagValues) -> "ListenAddress":
    """Parse an address such as `:8080`."""
    from haulout.httpserver.listener import ListenAddress

    try:
        return ListenAddress.parse(str(values[flag]))
    except UsageError as error:
        raise UsageError(f"-{flag}: {error}") from None


def access_settings(values: FlagValues) -> "AccessSettings":
    from haulout.dashboard.api.types import AuthMode
    from haulout.dashboard.auth.settings import AccessSettings

    mode = str(values["dashboard-auth"])
    if mode not in (AuthMode.TOKEN, AuthMode.OFF):
        raise UsageError(f"-dashboard-auth: expected token or off, found {mode!r:.60}")
    return AccessSettings(mode=AuthMode(mode), hosts=tuple(str(values["dashboard-host"]).splitlines()))


def parse_duration(flag: str, values: FlagValues) -> timedelta:
    try:
        return duration.parse(str(values[flag]))
    except ValueError as error:
        raise UsageError(f"-{flag}: expected a duration such as 65s: {error}") from None


def is_json_log(values: FlagValues) -> bool:
    """Return whether the log format is JSON."""
    encoder = str(values["zap-encoder"])
    if encoder not in ("", "json", "console"):
        raise UsageError(f"-zap-encoder: expected json or console, found {encoder!r}")
    return encoder == "json" or (not encoder and not values["zap-devel"])


def log_level(values: FlagValues) -> int:
    """Return the log level as a number of `logging`."""
    text = str(values["zap-log-level"])
    if not text:
        return _LEVELS["info"]
    if text in _LEVELS:
        return _LEVELS[text]
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return _LEVELS["debug"]
    raise UsageError(f"-zap-log-level: expected debug, info, error, panic or a number from 1, found {text!r}")
