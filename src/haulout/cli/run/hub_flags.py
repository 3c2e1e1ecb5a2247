"""Options of `haulout run --mode management`; the command receives them as `hub` and `elects`."""

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from haulout.core import duration

if TYPE_CHECKING:  # heavy: imported at use
    from haulout.controllers.clusterapi.settings import ClusterApiSettings

_MIN_MEMORY = 64 << 20  # what a hub needs without any cluster

OPTION_NAMES = (
    "approval_timeout",
    "unreachable_after",
    "old_approvals",
    "enable_metal3_maintenance",
    "metal3_unguarded",
    "cluster_budget",
    "memory_limit",
    "no_leader_election",
)


def hub_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command; `elects` is whether the hub uses leader election."""

    @functools.wraps(command)
    def with_hub_settings(*args: Any, **options: Any) -> Any:
        elects = not options.pop("no_leader_election")
        return command(
            *args,
            hub=_hub_settings(**{name: options.pop(name) for name in OPTION_NAMES[:-1]}),
            elects=elects,
            **options,
        )

    for add in reversed(_OPTIONS):
        with_hub_settings = add(with_hub_settings)
    return with_hub_settings


def parse_time_limit(text: str) -> timedelta | None:
    """Parse a time limit; 0 means none. Raise `ValueError`."""
    span = duration.parse(text)
    if span < timedelta():
        raise ValueError(f"{text!r} is negative; 0 means no limit")
    return span or None


def _time_limit_option(_ctx: click.Context, _: click.Parameter, text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return parse_time_limit(text)
    except ValueError as error:
        raise click.BadParameter(f"expected a duration such as 4h, or 0: {error}") from None


def check_cluster_budget(limits: tuple[str, ...]) -> tuple[str, ...]:
    """Return the limits unchanged; raise `ValueError` if one is invalid."""
    from haulout.controllers.clusterapi.cluster_budget import parse_limit

    for text in limits:
        parse_limit(text)
    return limits


def parse_memory_limit(text: str) -> int | None:
    """Parse a limit in bytes; 0 means that of the container. Raise `ValueError`."""
    from haulout.core import quantity

    try:
        size = quantity.parse(text).value
    except ValueError:
        size = -1
    if size and size < _MIN_MEMORY:
        raise ValueError(f"expected at least 64Mi, such as 400Mi, or 0, found {text!r:.60}")
    return size or None


def _cluster_budget_option(_ctx: click.Context, _: click.Parameter, limits: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return check_cluster_budget(limits)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


def _memory_limit_option(_ctx: click.Context, _: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_memory_limit(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


_OPTIONS = (
    click.option(
        "--approval-timeout",
        metavar="DURATION",
        callback=_time_limit_option,
        help="The maximum time to hold the deletion of a Machine that is not approved. [default: no limit]",
    ),
    click.option(
        "--unreachable-after",
        metavar="DURATION",
        callback=_time_limit_option,
        help="The maximum time to hold the deletion of Machines whose cluster cannot be reached. [default: no limit]",
    ),
    click.option(
        "--old-approvals",
        type=click.Choice(["wait", "clear", "honour"]),
        default="wait",
        show_default=True,
        help="How to treat an approval that was on a node before the request. wait: it does not count until it "
        "is removed and set again. clear: the hub removes it. honour: it counts, as for the "
        "runtime-extension-maintenance-controller.",
    ),
    click.option(
        "--enable-metal3-maintenance",
        is_flag=True,
        help="Power off the BareMetalHosts of Machines whose maintenance is approved.",
    ),
    click.option(
        "--metal3-unguarded",
        is_flag=True,
        help="With --enable-metal3-maintenance: also for Machines that are not enabled or are being deleted, and whose "
        "nodes are not cordoned, as the runtime-extension-maintenance-controller does.",
    ),
    click.option(
        "--cluster-budget",
        metavar="[LABELS:]NUMBER",
        multiple=True,
        callback=_cluster_budget_option,
        help="The maximum number of clusters in maintenance at once, such as 2, or of clusters with certain labels, "
        "such as env=prod:1. Can be repeated; all limits apply. [default: no limit]",
    ),
    click.option(
        "--memory-limit",
        metavar="QUANTITY",
        callback=_memory_limit_option,
        help="The memory limit of the process, such as 400Mi. All workload clusters share a part of it. "
        "[default: the memory limit of the container; 400Mi without one]",
    ),
    click.option(
        "--no-leader-election",
        is_flag=True,
        help="Start without a lease: only if no other hub runs for this management cluster.",
    ),
)


def _hub_settings(
    *,
    approval_timeout: timedelta | None,
    unreachable_after: timedelta | None,
    old_approvals: str,
    enable_metal3_maintenance: bool,
    metal3_unguarded: bool,
    cluster_budget: tuple[str, ...],
    memory_limit: int | None,
) -> "ClusterApiSettings":
    from haulout.controllers.clusterapi.settings import ClusterApiSettings, OldApprovals

    return ClusterApiSettings(
        approval_timeout=approval_timeout,
        unreachable_after=unreachable_after,
        old_approvals=OldApprovals(old_approvals),
        metal3=enable_metal3_maintenance,
        metal3_unguarded=metal3_unguarded,
        cluster_budget=cluster_budget,
        memory_limit=memory_limit,
    )
