"""Parse settings of event sources from environment variables; errors name the variable and the expected value."""

import re
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import urlsplit

from haulout.core import duration
from haulout.errors import ConfigError

ENVIRONMENT = "environment"  # the place that errors name

# What Go's strconv.ParseBool accepts, in any case; an empty variable is false.
_TRUE, _FALSE = ("1", "t", "true"), ("0", "f", "false", "")

_HOST = re.compile(r"[-.:\w\[\]]+")


def bool_variable(variables: Mapping[str, str], *names: str, default: bool) -> bool:
    """Return the value of the first variable that is set, or `default`."""
    name = next((candidate for candidate in names if candidate in variables), None)
    if name is None:
        return default
    value = variables[name].strip().lower()
    if value not in (*_TRUE, *_FALSE):
        raise ConfigError(f"expected true or false, found {variables[name]!r:.60}", file=ENVIRONMENT, key=name)
    return value in _TRUE


def duration_variable(variables: Mapping[str, str], name: str, *, default: timedelta, minimum: timedelta) -> timedelta:
    """Return a duration, or `default` if the variable is empty; raise `ConfigError` below `minimum`."""
    value = variables.get(name, "").strip()
    if not value:
        return default
    try:
        found = duration.parse(value)
    except duration.DurationError as error:
        raise ConfigError(str(error), file=ENVIRONMENT, key=name) from error
    if found < minimum:
        raise ConfigError(
            f"expected at least {duration.format_short(minimum)}, found {value!r:.60}", file=ENVIRONMENT, key=name
        )
    return found


def parse_endpoint(text: str, *, key: str, where: str = "environment") -> str:
    """Return the URL, with https:// if it has no scheme; empty if `text` is. Raise `ConfigError` if it is invalid."""
    value = text.strip()
    if not value:
        return ""
    url = value if "://" in value else f"https://{value}"
    if not _is_url(url):
        raise ConfigError(f"expected an address such as https://host, found {value[:80]!r}", file=where, key=key)
    return url.rstrip("/")


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(
            parts.hostname and parts.port != 0 and _HOST.fullmatch(parts.netloc)
        )
    except ValueError:  # an unclosed bracket, or a port that is no number
        return False
