"""`haulout runtime-extension-maintenance-controller`: the hub with the flags of that controller."""

import os
from collections.abc import Callable, Mapping
from typing import TypeVar

import click

from haulout.cli import zap_flags
from haulout.cli.run.hub_flags import check_cluster_budget, parse_memory_limit, parse_time_limit
from haulout.compat.goflags import GoFlag, parse
from haulout.errors import UsageError

T = TypeVar("T")

_DURATION = "expected a duration such as 4h, or 0: "
_OLD_APPROVALS = ("wait", "clear", "honour")
_FLAGS = {
    "approval-timeout": GoFlag("0", "Haulout's own flag: the maximum time to hold a deletion. [default: no limit]"),
    "cluster-budget": GoFlag(
        "",
        "Haulout's own flag: the maximum number of clusters in maintenance at once, such as 2 or env=prod:1. Can be"
        " repeated; all limits apply. [default: no limit]",
        is_repeatable=True,
    ),
    "dashboard-auth": zap_flags.DASHBOARD_AUTH,
    "dashboard-host": zap_flags.DASHBOARD_HOST,
    "enable-metal3-maintenance": GoFlag(default=False, help="Power off the BareMetalHosts of approved Machines."),
    "health-addr": GoFlag(":8081", "Haulout's own flag: the address of /healthz and /readyz."),
    "kubeconfig": GoFlag("", "The kubeconfig, instead of $KUBECONFIG, the pod's service account or ~/.kube/config."),
    "kubecontext": GoFlag("", "The context in the kubeconfig, instead of $KUBECONTEXT or the current one."),
    "leader-elect": GoFlag(default=True, help="Haulout's own flag: whether to use leader election."),
    "memory-limit": GoFlag(
        "0",
        "Haulout's own flag: the memory limit of the process, such as 400Mi; all workload clusters share a"
        " part of it. [default: the memory limit of the container; 400Mi without one]",
    ),
    "metal3-unguarded": GoFlag(
        default=False,
        help="Haulout's own flag: power off all approved hosts, cordoned or not, as that controller does.",
    ),
    "metrics-addr": GoFlag(":8080", "Haulout's own flag: the address of /metrics."),
    "namespace": GoFlag(
        "", "Haulout's own flag: the namespace of the lease, instead of the pod's or the context's namespace."
    ),
    "old-approvals": GoFlag(
        "wait",
        "Haulout's own flag: how to treat an approval from before the request: wait, clear, or honour, as that "
        "controller does.",
    ),
    "unreachable-after": GoFlag(
        "0", "Haulout's own flag: the maximum time to hold deletions in an unreachable cluster. [default: no limit]"
    ),
    **zap_flags.LOG_FLAGS,
}


@click.command(
    "runtime-extension-maintenance-controller",
    short_help="Run the hub, with the flags of the controller of that name.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,  # its -h would match the beginning of -health-addr
    epilog=zap_flags.flags_help(_FLAGS),
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[FLAGS]")
@click.pass_context
def runtime_extension_maintenance_controller(ctx: click.Context, args: tuple[str, ...]) -> None:
    """Run the hub until Ctrl-C or SIGTERM, as `haulout run --mode management` does.

    It accepts the flags of the runtime-extension-maintenance-controller, so that its Deployment needs only another
    image and command. It also runs outside of a cluster.

    \b
    Exit codes:
      0  stopped by Ctrl-C or SIGTERM
      1  the cluster cannot be reached at the start, or does not accept the credentials
      2  the command line is invalid
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    if not zap_flags.HELP_FLAGS.isdisjoint(args):
        click.echo(ctx.get_help())
        return
    from haulout.cli.run.management_mode import HubOptions, run_hub_process
    from haulout.controllers.clusterapi.settings import ClusterApiSettings, OldApprovals

    values = parse(args, _FLAGS)
    if values["old-approvals"] not in _OLD_APPROVALS:
        raise UsageError(f"-old-approvals: expected {', '.join(_OLD_APPROVALS)}, found {values['old-approvals']!r:.60}")
    hub_options = HubOptions(
        hub=ClusterApiSettings(
            approval_timeout=_parse_flag("approval-timeout", values, parse_time_limit, expected=_DURATION),
            unreachable_after=_parse_flag("unreachable-after", values, parse_time_limit, expected=_DURATION),
            old_approvals=OldApprovals(str(values["old-approvals"])),
            metal3=bool(values["enable-metal3-maintenance"]),
            metal3_unguarded=bool(values["metal3-unguarded"]),
            cluster_budget=_parse_flag(
                "cluster-budget", values, lambda text: check_cluster_budget(tuple(text.splitlines()))
            ),
            memory_limit=_parse_flag("memory-limit", values, parse_memory_limit),
        ),
        namespace=str(values["namespace"]) or None,
        health_port=zap_flags.parse_address("health-addr", values).port,
        metrics=zap_flags.parse_address("metrics-addr", values),
        access=zap_flags.access_settings(values),
        elects=bool(values["leader-elect"]),
    )
    run_hub_process(
        hub_options,
        kubeconfig=str(values["kubeconfig"]) or None,
        context=str(values["kubecontext"]) or os.environ.get("KUBECONTEXT"),
        as_json=zap_flags.is_json_log(values),
        level=zap_flags.log_level(values),
    )


def _parse_flag(flag: str, values: Mapping[str, str | bool], read: Callable[[str], T], *, expected: str = "") -> T:
    try:
        return read(str(values[flag]))
    except ValueError as error:
        raise UsageError(f"-{flag}: {expected}{error}") from None
