"""`haulout maintenance-controller`: the operator with the flags of the SAP maintenance-controller."""

import os

import click

from haulout.app.components import settings_files
from haulout.cli import zap_flags
from haulout.compat.goflags import GoFlag, parse

_FLAGS = {
    "dashboard-auth": zap_flags.DASHBOARD_AUTH,
    "dashboard-host": zap_flags.DASHBOARD_HOST,
    "config": GoFlag("", "The configuration; Haulout's own flag. [default: ./config/maintenance.yaml]"),
    "health-addr": GoFlag(":8081", "The address of /healthz and /readyz. Only the port is used."),
    "kubeconfig": GoFlag("", "The kubeconfig, instead of $KUBECONFIG, the pod's service account or ~/.kube/config."),
    "kubecontext": GoFlag("", "The context in the kubeconfig, instead of $KUBECONTEXT or the current one."),
    "enable-leader-election": GoFlag(default=False, help="Accepted and ignored: leader election is always enabled."),
    **{file.go_flag: GoFlag(default=False, help=file.go_flag_help) for file in settings_files().values()},
    "metrics-addr": GoFlag(":8080", "The address of /metrics and /api/v1/info."),
    "metrics-timeout": GoFlag("65s", "How long they are served at shutdown, until /metrics was scraped once more."),
    "pprof-addr": GoFlag("", "Accepted and ignored: a Python process has no Go profile."),
    **zap_flags.LOG_FLAGS,
}


@click.command(
    "maintenance-controller",
    short_help="Run the operator, with the flags of the SAP maintenance-controller.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,  # its -h would match the beginning of -health-addr
    epilog=zap_flags.flags_help(_FLAGS),
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[FLAGS]")
@click.pass_context
def maintenance_controller(ctx: click.Context, args: tuple[str, ...]) -> None:
    """Run the operator until Ctrl-C or SIGTERM, as `haulout run` does.

    It reads ./config/maintenance.yaml and accepts the flags of the SAP maintenance-controller, so that its Deployment
    needs only another image and command. It does not start without a configuration.
    """
    if not zap_flags.HELP_FLAGS.isdisjoint(args):
        click.echo(ctx.get_help())
        return
    from pathlib import Path

    from haulout.cli.run.cluster_mode import OperatorOptions, run_operator_process
    from haulout.controllers.profiles.config.profiles_file import DEFAULT_PATH

    values = parse(args, _FLAGS)
    operator_options = OperatorOptions(
        namespace=None,
        webhook=None,
        health_port=zap_flags.parse_address("health-addr", values).port,
        metrics=zap_flags.parse_address("metrics-addr", values),
        access=zap_flags.access_settings(values),
        metrics_linger=zap_flags.parse_duration("metrics-timeout", values),
        guards_quorum=True,
    )
    run_operator_process(
        operator_options,
        kubeconfig=str(values["kubeconfig"]) or None,
        context=str(values["kubecontext"]) or os.environ.get("KUBECONTEXT"),
        as_json=zap_flags.is_json_log(values),
        config=Path(str(values["config"]) or DEFAULT_PATH),
        component_files={name: file.default_path for name, file in settings_files().items() if values[file.go_flag]},
        level=zap_flags.log_level(values),
    )
