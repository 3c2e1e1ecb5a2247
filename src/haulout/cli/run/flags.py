"""Flags of `haulout run` for access to the dashboard, the timing of leases, and the history of deleted nodes.

The command receives each group as one parameter: `access`, `leases` and `retention`.
"""

import functools
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haulout.cli import times
from haulout.core import duration

if TYPE_CHECKING:  # heavy: imported at use
    from haulout.dashboard.auth.settings import AccessSettings
    from haulout.kube.leaderelection_config import LeaderElectionConfig

DASHBOARD_OPTION_NAMES = (
    "dashboard_auth",
    "dashboard_host",
    "dashboard_proxy_user_header",
    "dashboard_proxy_groups_header",
    "dashboard_proxy_from",
    "dashboard_proxy_secret_file",
    "dashboard_proxy_prefix",
)
_HOST = re.compile(r"\*|[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")

LEASE_OPTION_NAMES = ("lease_duration", "renew_deadline", "retry_period")

HISTORY_OPTION_NAMES = ("history_retention", "history_deleted_nodes")
_MAX_DELETED_NODES = 10_000
_MAX_RETENTION = timedelta(days=3650)


def dashboard_options(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def with_access_settings(*args: Any, **options: Any) -> Any:
        dashboard_values = {name: options.pop(name) for name in DASHBOARD_OPTION_NAMES}
        dashboard_values["dashboard_auth"] = dashboard_values["dashboard_auth"] or (
            "off" if options["sandbox"] else "token"
        )
        return command(*args, access=_access_settings(**dashboard_values), **options)

    for add in reversed(_DASHBOARD_OPTIONS):
        with_access_settings = add(with_access_settings)
    return with_access_settings


def _check_header(_ctx: click.Context, _: click.Parameter, name: str | None) -> str | None:
    if name is not None and not _HEADER.fullmatch(name):
        raise click.BadParameter(f"expected the name of a header, found {name!r:.60}.")
    return name


def _parse_hosts(_ctx: click.Context, _: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name.strip() for value in given for name in value.split(","))
    for name in names:
        if not _HOST.fullmatch(name):
            raise click.BadParameter(f"expected a host name without a port, or *, found {name!r:.60}.")
    return names


_DASHBOARD_OPTIONS = (
    click.option(
        "--dashboard-auth",
        type=click.Choice(["off", "token", "proxy"]),
        help="Who may use the dashboard and its API. off: everybody may read, nobody may act. token: users with a "
        "token "
        "of Kubernetes. proxy: users that a proxy authenticates. The API server decides what they may do. "
        "[default: token; off with --sandbox]",
    ),
    click.option(
        "--dashboard-host",
        metavar="NAME",
        multiple=True,
        callback=_parse_hosts,
        help="With --dashboard-auth=off: a host name of the dashboard, such as that of an Ingress; * is any. Can "
        "be repeated, or have commas. IP addresses, localhost and names of Services are always accepted.",
    ),
    click.option(
        "--dashboard-proxy-user-header",
        metavar="NAME",
        callback=_check_header,
        help="The header with the user name, set by the proxy. [default: X-Forwarded-User]",
    ),
    click.option(
        "--dashboard-proxy-groups-header",
        metavar="NAME",
        callback=_check_header,
        help="The header with the groups of the user, separated by commas. [default: X-Forwarded-Groups]",
    ),
    click.option(
        "--dashboard-proxy-from",
        metavar="NETWORK",
        multiple=True,
        help="Addresses of trusted proxies, such as 10.1.2.0/24. Can be repeated. [default: this machine: a sidecar]",
    ),
    click.option(
        "--dashboard-proxy-secret-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Trust a proxy from any address if it sends the content of this file as X-Haulout-Proxy-Secret.",
    ),
    click.option(
        "--dashboard-proxy-prefix",
        metavar="TEXT",
        help="The prefix of the names of users and groups, such as oidc:, as in the API server.",
    ),
)


def _access_settings(
    *,
    dashboard_auth: str,
    dashboard_host: tuple[str, ...],
    dashboard_proxy_user_header: str | None,
    dashboard_proxy_groups_header: str | None,
    dashboard_proxy_from: tuple[str, ...],
    dashboard_proxy_secret_file: Path | None,
    dashboard_proxy_prefix: str | None,
) -> "AccessSettings":
    from haulout.dashboard.api.types import AuthMode
    from haulout.dashboard.auth.settings import LOOPBACK, AccessSettings, ProxySettings, parse_network, read_secret

    headers = dashboard_proxy_user_header, dashboard_proxy_groups_header, dashboard_proxy_prefix
    mode = AuthMode(dashboard_auth)
    if mode is not AuthMode.PROXY and (dashboard_proxy_from or dashboard_proxy_secret_file or any(headers)):
        raise click.UsageError("--dashboard-proxy-…: only with --dashboard-auth=proxy")
    if dashboard_proxy_from and dashboard_proxy_secret_file is not None:
        raise click.UsageError(
            "--dashboard-proxy-from: not with --dashboard-proxy-secret-file, which identifies the proxy at any address"
        )
    networks = tuple(map(parse_network, dashboard_proxy_from)) or LOOPBACK
    if dashboard_proxy_secret_file is not None:
        read_secret(dashboard_proxy_secret_file)
    defaults = ProxySettings()
    proxy = ProxySettings(
        user_header=dashboard_proxy_user_header or defaults.user_header,
        groups_header=dashboard_proxy_groups_header or defaults.groups_header,
        networks=networks,
        secret_file=dashboard_proxy_secret_file,
        prefix=dashboard_proxy_prefix or "",
    )
    return AccessSettings(mode=mode, proxy=proxy, hosts=dashboard_host)


def lease_options(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def with_lease_timing(*args: Any, **options: Any) -> Any:
        return command(
            *args, leases=_lease_timing(**{name: options.pop(name) for name in LEASE_OPTION_NAMES}), **options
        )

    for add in reversed(_LEASE_OPTIONS):
        with_lease_timing = add(with_lease_timing)
    return with_lease_timing


def _parse_duration(_ctx: click.Context, _: click.Parameter, text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return duration.parse(text)
    except ValueError as error:
        raise click.BadParameter(f"expected a duration such as 8s or 1500ms: {error}") from None


_LEASE_OPTIONS = (
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


def retention_options(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def with_retention_settings(*args: Any, **options: Any) -> Any:
        from haulout.history.retention import RetentionSettings

        values = {"keep_for": options.pop("history_retention"), "most": options.pop("history_deleted_nodes")}
        settings = RetentionSettings(**{name: value for name, value in values.items() if value is not None})
        return command(*args, retention=settings, **options)

    for add in reversed(_HISTORY_OPTIONS):
        with_retention_settings = add(with_retention_settings)
    return with_retention_settings


def _parse_retention(_ctx: click.Context, _: click.Parameter, text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        found = times.parse_span(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not timedelta() <= found <= _MAX_RETENTION:
        raise click.BadParameter(f"expected 0 to {_MAX_RETENTION.days}d, found {text!r}")
    return found


_HISTORY_OPTIONS = (
    click.option(
        "--history-retention",
        metavar="SPAN",
        callback=_parse_retention,
        help="How long the history of a node is kept after the node was deleted, such as 12h, 90d or 52w; 0 deletes it "
        "with the node. [default: 90d]",
    ),
    click.option(
        "--history-deleted-nodes",
        type=click.IntRange(0, _MAX_DELETED_NODES),
        metavar="N",
        help="The maximum number of deleted nodes whose history is kept; the oldest are removed first. [default: 1000]",
    ),
)
