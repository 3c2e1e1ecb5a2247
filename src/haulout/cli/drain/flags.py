"""Build a drain policy from flags and a file; flags take precedence.

Flags that kubectl has mean the same as there.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import click

from haulout.core import duration
from haulout.drain import policy_parser
from haulout.drain.pod_filters import PodFilters
from haulout.drain.policy import DrainOrder, DrainPolicy
from haulout.errors import UsageError
from haulout.kube import selectors
from haulout.kube.selectors import EVERYTHING, Selector

T = TypeVar("T")

ORDERS = ("priority", "storage-last", "daemonsets-last")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainFlags:
    """The flags; None if not given."""

    policy: str | None = None
    force: bool | None = None
    ignore_daemonsets: bool | None = None
    delete_emptydir_data: bool | None = None
    disable_eviction: bool | None = None
    grace_period: int | None = None
    timeout: str | None = None
    pod_selector: str | None = None
    skip_wait_for_delete_timeout: int | None = None
    order: str | None = None


def build_policy(flags: DrainFlags) -> DrainPolicy:
    """Return the policy of the flags and the file."""
    policy = DrainPolicy() if flags.policy is None else _load_policy(flags.policy)
    file_filters = policy.filters
    filters = PodFilters(
        force=_given_or(flags.force, file_filters.force),
        ignore_daemonsets=_given_or(flags.ignore_daemonsets, file_filters.ignore_daemonsets),
        delete_emptydir_data=_given_or(flags.delete_emptydir_data, file_filters.delete_emptydir_data),
        skip_wait_for_delete=_given_or(_seconds(flags.skip_wait_for_delete_timeout), file_filters.skip_wait_for_delete),
    )
    merged = replace(
        policy,
        filters=filters,
        grace_period=policy.grace_period if flags.grace_period is None else _grace_period(flags.grace_period),
        timeout=policy.timeout if flags.timeout is None else _timeout(flags.timeout),
        disable_eviction=_given_or(flags.disable_eviction, policy.disable_eviction),
        pod_selector=_given_or(_selector(flags.pod_selector), policy.pod_selector),
        order=_given_or(_order(flags.order), policy.order),
    )
    if flags.policy is not None:
        _check_policy(merged, flags)
    return merged


def _check_policy(policy: DrainPolicy, flags: DrainFlags) -> None:
    """Refuse flags that contradict the file although each is valid alone."""
    for key, problem in policy.problems():
        if key == "gracePeriod" and flags.grace_period == 0:
            continue  # allowed as an explicit flag, as in kubectl
        raise click.UsageError(f"the flags conflict with the policy {flags.policy}: {key}: {problem}")


def _load_policy(file: str) -> DrainPolicy:
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the policy {file}: {error.strerror}") from None
    return policy_parser.load_policy(data, file=file)


def _given_or(given: T | None, default: T) -> T:
    return default if given is None else given


def _seconds(number: int | None) -> timedelta | None:
    return None if number is None else timedelta(seconds=max(number, 0))


def _grace_period(seconds: int) -> timedelta | None:
    """Return the grace period; None, the pod's own, if it is negative."""
    return timedelta(seconds=seconds) if seconds >= 0 else None


def _timeout(text: str) -> timedelta | None:
    """Return the timeout; None, no limit, if it is zero."""
    try:
        span = duration.parse(text)
    except duration.DurationError as error:
        raise click.UsageError(f"--timeout: {error}") from None
    if span < timedelta():
        raise click.UsageError(f"--timeout: expected a duration such as 90s or 1h30m, found {text!r}")
    return span or None


def _selector(text: str | None) -> Selector | None:
    if text is None:
        return None
    try:
        return selectors.parse(text) if text.strip() else EVERYTHING
    except selectors.SelectorError as error:
        raise click.UsageError(
            f"--pod-selector=<pod_selector> must be a valid label selector: {error.problem}"
        ) from None


def _order(text: str | None) -> DrainOrder | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in ORDERS:
            raise click.UsageError(f"--order: expected some of {', '.join(ORDERS)}, with commas, found {word!r}")
    return DrainOrder(
        by_priority="priority" in words,
        storage_last="storage-last" in words,
        daemon_sets_last="daemonsets-last" in words,
    )
