"""Options for lease timings; the command receives them as one parameter, `leases`."""

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from haulout.core import duration

if TYPE_CHECKING:  # heavy: imported at use
    from haulout.kube.leaderelection_config import LeaderElectionConfig

OPTION_NAMES = ("lease_duration", "renew_deadline", "retry_period")


def lease_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command."""

    @functools.wraps(command)
    def with_lease_timing(*args: Any, **options: Any) -> Any:
        return command(*args, leases=_lease_timing(**{name: options.pop(name) for name in OPTION_NAMES}), **options)

    for add in reversed(_OPTIONS):
        with_lease_timing = add(with_lease_timing)
    return with_lease_timing


def _parse_duration(_ctx: click.Context, _: click.Parameter, text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return duration.parse(text)
    except ValueError as error:
        raise click.BadParameter(f"expected a duration such as 8s or 1500ms: {error}") from None


_OPTIONS = (
    click.option(
        "--lease-duration",
        metavar="DURATION",
        callback=_parse_duration,
        help="How long a standby waits after the last renewal before it takes over from a leader that crashed, in "
        "whole seconds. [default: 8s]",
    ),
    click.option(
        "--renew-deadline",
        metavar="DURATION",
        callback=_parse_duration,
        help="How long a leader that cannot renew its lease continues before it stops. Less than --lease-duration. "
        "[default: 6s]",
    ),
    click.option(
        "--retry-period",
        metavar="DURATION",
        callback=_parse_duration,
        help="How often a leader renews its lease. Less than --renew-deadline divided by 1.2. [default: 1.5s]",
    ),
)


def _lease_timing(**values: timedelta | None) -> "LeaderElectionConfig":
    from haulout.kube.leaderelection_config import LeaderElectionConfig

    try:
        return LeaderElectionConfig(**{name: value for name, value in values.items() if value is not None})
    except ValueError as error:
        raise click.UsageError(f"--lease-duration, --renew-deadline, --retry-period: {error}") from None
