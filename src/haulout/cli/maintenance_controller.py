"""`haulout maintenance-controller`: the operator, for a Deployment that was made for the SAP maintenance-controller."""

import os

import click

from haulout.cli import zap
from haulout.cli.goflags import Flag, parse

_FLAGS = {
    "dashboard-auth": zap.DASHBOARD_AUTH,
    "dashboard-host": zap.DASHBOARD_HOST,
    "config": Flag("", "The configuration; Haulout's own flag. [default: ./config/maintenance.yaml]"),
    "health-addr": Flag(":8081", "Where /healthz and /readyz are served. Of the address only the port counts."),
    "kubeconfig": Flag("", "The kubeconfig, instead of $KUBECONFIG, the pod's own account or ~/.kube/config."),
    "kubecontext": Flag("", "The context in it, instead of $KUBECONTEXT or the current one."),
    "enable-leader-election": Flag(default=False, help="Taken and not needed: of several replicas one leads, always."),
    "enable-esx-maintenance": Flag(default=False, help="See to nodes on ESX hosts, by ./config/esx.yaml."),
    "enable-kubernikus-maintenance": Flag(
        default=False, help="Whether nodes of Kubernikus are seen to, as ./config/kubernikus.yaml says."
    ),
    "metrics-addr": Flag(":8080", "Where /metrics and /api/v1/info are served."),
    "metrics-timeout": Flag("65s", "How long these are served at the end, until /metrics was read once more."),
    "pprof-addr": Flag("", "Taken and of no effect: there is no Go profile of a Python process."),
    **zap.FLAGS,
}


@click.command(
    "maintenance-controller",
    short_help="Run the operator, with the flags of the SAP maintenance-controller.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,  # its -h would be found in -health-addr
    epilog=zap.told(_FLAGS),
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[FLAGS]")
@click.pass_context
def maintenance_controller(ctx: click.Context, args: tuple[str, ...]) -> None:
    """Run the operator until Ctrl-C or SIGTERM, as `haulout run` does.

    It reads ./config/maintenance.yaml and takes the flags of the SAP maintenance-controller, so that a Deployment of it
    changes only its image and its command. It does not start without a configuration.
    """
    if not zap.HELP.isdisjoint(args):
        click.echo(ctx.get_help())
        return
    from pathlib import Path

    from haulout.app import esx_settings, kubernikus_settings
    from haulout.app.configured import USUAL
    from haulout.cli.operate import Wishes, operate

    given = parse(args, _FLAGS)
    wishes = Wishes(
        namespace=None,
        webhook=None,
        health_port=zap.address("health-addr", given).port,
        metrics=zap.address("metrics-addr", given),
        access=zap.access(given),
        lingers=zap.time("metrics-timeout", given),
        guards_quorum=True,
    )
    operate(
        wishes,
        kubeconfig=str(given["kubeconfig"]) or None,
        context=str(given["kubecontext"]) or os.environ.get("KUBECONTEXT"),
        as_json=zap.is_json(given),
        config=Path(str(given["config"]) or USUAL),
        kubernikus=kubernikus_settings.USUAL if given["enable-kubernikus-maintenance"] else None,
        esx=esx_settings.USUAL if given["enable-esx-maintenance"] else None,
        level=zap.level(given),
    )
