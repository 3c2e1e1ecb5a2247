"""`haulout runtime-extension-maintenance-controller`: the hub, for a Deployment that was made for that controller."""

import os
from collections.abc import Callable, Mapping
from typing import TypeVar

import click

from haulout.cli import zap
from haulout.cli.goflags import Flag, parse
from haulout.cli.hub_flags import cluster_budget, limit, memory_limit
from haulout.errors import UsageError

T = TypeVar("T")

_DURATION = "expected a duration such as 4h, or 0: "
_OLD_APPROVALS = ("wait", "clear", "honour")
_FLAGS = {
    "approval-timeout": Flag("0", "Haulout's own flag: hold a deletion no longer than this. [default: for ever]"),
    "cluster-budget": Flag(
        "",
        "Haulout's own flag: let at most so many clusters be in maintenance at once, such as 2 or env=prod:1. May be"
        " given several times, and all hold. [default: as many as ask for it]",
        is_repeatable=True,
    ),
    "dashboard-auth": zap.DASHBOARD_AUTH,
    "dashboard-host": zap.DASHBOARD_HOST,
    "enable-metal3-maintenance": Flag(default=False, help="Power off the BareMetalHosts of approved Machines."),
    "health-addr": Flag(":8081", "Haulout's own flag: where /healthz and /readyz are served."),
    "kubeconfig": Flag("", "The kubeconfig, instead of $KUBECONFIG, the pod's own account or ~/.kube/config."),
    "kubecontext": Flag("", "The context in it, instead of $KUBECONTEXT or the current one."),
    "leader-elect": Flag(default=True, help="Haulout's own flag: whether one of several leads."),
    "memory-limit": Flag(
        "0",
        "Haulout's own flag: how much memory the process may use, such as 400Mi; all workload clusters together get a"
        " part of it. [default: the memory limit of the container; 400Mi without one]",
    ),
    "metal3-unguarded": Flag(
        default=False,
        help="Haulout's own flag: power off whatever is approved, cordoned or not, as that controller does.",
    ),
    "metrics-addr": Flag(":8080", "Haulout's own flag: where /metrics is served."),
    "namespace": Flag("", "Haulout's own flag: where the lease is, instead of the pod's or the context's namespace."),
    "old-approvals": Flag(
        "wait",
        "Haulout's own flag: wait, clear, or honour an approval that was there before, as that controller does.",
    ),
    "unreachable-after": Flag(
        "0", "Haulout's own flag: hold deletions in a cluster that is away no longer than this. [default: for ever]"
    ),
    **zap.FLAGS,
}


@click.command(
    "runtime-extension-maintenance-controller",
    short_help="Run the hub, with the flags of the controller of that name.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,  # its -h would be found in -health-addr
    epilog=zap.told(_FLAGS),
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[FLAGS]")
@click.pass_context
def runtime_extension_maintenance_controller(ctx: click.Context, args: tuple[str, ...]) -> None:
    """Run the hub until Ctrl-C or SIGTERM, as `haulout run --mode management` does.

    It takes the flags of the runtime-extension-maintenance-controller, so that a Deployment of it changes only its
    image and its command. It also runs outside of a cluster.

    \b
    Exit codes:
      0  it ran and was told to end, by Ctrl-C or SIGTERM
      1  the cluster cannot be reached at the start, or does not accept the credentials
      2  the command line makes no sense
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    if not zap.HELP.isdisjoint(args):
        click.echo(ctx.get_help())
        return
    from haulout.cli.operate_hub import HubWishes, operate_hub
    from haulout.hub.settings import HubSettings, OldApprovals

    given = parse(args, _FLAGS)
    if given["old-approvals"] not in _OLD_APPROVALS:
        raise UsageError(f"-old-approvals: expected {', '.join(_OLD_APPROVALS)}, found {given['old-approvals']!r:.60}")
    wishes = HubWishes(
        hub=HubSettings(
            approval_timeout=_checked("approval-timeout", given, limit, expected=_DURATION),
            unreachable_after=_checked("unreachable-after", given, limit, expected=_DURATION),
            old_approvals=OldApprovals(str(given["old-approvals"])),
            metal3=bool(given["enable-metal3-maintenance"]),
            metal3_unguarded=bool(given["metal3-unguarded"]),
            cluster_budget=_checked("cluster-budget", given, lambda text: cluster_budget(tuple(text.splitlines()))),
            memory_limit=_checked("memory-limit", given, memory_limit),
        ),
        namespace=str(given["namespace"]) or None,
        health_port=zap.address("health-addr", given).port,
        metrics=zap.address("metrics-addr", given),
        access=zap.access(given),
        elects=bool(given["leader-elect"]),
    )
    operate_hub(
        wishes,
        kubeconfig=str(given["kubeconfig"]) or None,
        context=str(given["kubecontext"]) or os.environ.get("KUBECONTEXT"),
        as_json=zap.is_json(given),
        level=zap.level(given),
    )


def _checked(flag: str, given: Mapping[str, str | bool], read: Callable[[str], T], *, expected: str = "") -> T:
    try:
        return read(str(given[flag]))
    except ValueError as error:
        raise UsageError(f"-{flag}: {expected}{error}") from None
