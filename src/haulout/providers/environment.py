"""Parse settings of event sources from environment variables; errors name the variable and the expected value."""

from collections.abc import Mapping
from datetime import timedelta

from haulout.core import duration
from haulout.errors import ConfigError

ENVIRONMENT = "environment"  # the place that errors name

_TRUE, _FALSE = ("1", "t", "true"), ("0", "f", "false", "")


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
