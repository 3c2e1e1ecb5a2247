"""Options about the leases that one of several replicas leads under; the command gets them as one, `leases`."""

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from haulout.core import duration

if TYPE_CHECKING:  # imported when it is needed
    from haulout.kube.lease_timing import LeaseTiming

NAMES = ("lease_duration", "renew_deadline", "retry_period")


def leases(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them."""

    @functools.wraps(command)
    def folded(*args: Any, **given: Any) -> Any:
        return command(*args, leases=_timing(**{name: given.pop(name) for name in NAMES}), **given)

    for add in reversed(_OPTIONS):
        folded = add(folded)
    return folded


def _duration(_ctx: click.Context, _: click.Parameter, text: str | None) -> timedelta | None:
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
        callback=_duration,
        help="How long a standby waits after the last renewal before it takes over from a leader that crashed, in "
        "whole seconds. [default: 8s]",
    ),
    click.option(
        "--renew-deadline",
        metavar="DURATION",
        callback=_duration,
        help="How long a leader that cannot renew its lease goes on before it stops. Less than --lease-duration. "
        "[default: 6s]",
    ),
    click.option(
        "--retry-period",
        metavar="DURATION",
        callback=_duration,
        help="How often a leader renews its lease. Less than --renew-deadline divided by 1.2. [default: 1.5s]",
    ),
)


def _timing(**given: timedelta | None) -> "LeaseTiming":
    from haulout.kube.lease_timing import LeaseTiming

    try:
        return LeaseTiming(**{name: it for name, it in given.items() if it is not None})
    except ValueError as error:
        raise click.UsageError(f"--lease-duration, --renew-deadline, --retry-period: {error}") from None
