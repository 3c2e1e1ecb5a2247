"""Settings of sources, as environment variables have them: each error names the variable and what was expected."""

from collections.abc import Mapping
from datetime import timedelta

from haulout.core import duration
from haulout.errors import ConfigError

ENVIRONMENT = "environment"  # what errors name as the place

_TRUE, _FALSE = ("1", "t", "true"), ("0", "f", "false", "")


def flag(variables: Mapping[str, str], *names: str, default: bool) -> bool:
    """Return what the first of these says that is set."""
    name = next((it for it in names if it in variables), None)
    if name is None:
        return default
    written = variables[name].strip().lower()
    if written not in (*_TRUE, *_FALSE):
        raise ConfigError(f"expected true or false, found {variables[name]!r:.60}", file=ENVIRONMENT, key=name)
    return written in _TRUE


def interval(variables: Mapping[str, str], name: str, *, default: timedelta, least: timedelta) -> timedelta:
    """Return how often something is done."""
    written = variables.get(name, "").strip()
    if not written:
        return default
    try:
        found = duration.parse(written)
    except duration.DurationError as error:
        raise ConfigError(str(error), file=ENVIRONMENT, key=name) from error
    if found < least:
        raise ConfigError(
            f"expected at least {duration.short(least)}, found {written!r:.60}", file=ENVIRONMENT, key=name
        )
    return found
