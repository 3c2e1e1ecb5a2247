"""`python -m controlplane`: runs the control plane of the tests by hand."""

import signal
import sys

import click

from controlplane import assets as programs
from controlplane import promtool as prometheus
from controlplane.control_plane import ControlPlane
from controlplane.server_process import ControlPlaneError


@click.group()
def main() -> None:
    """Find, build and run the control plane that the tests use."""


@main.command()
def assets() -> None:
    """Find or build the programs, and print the folder that has them."""
    found = _find_assets()
    if found.absent:
        click.echo(f"without {', '.join(found.absent)}: {found.build_error}", err=True)
    for folder in found.folders:
        click.echo(folder)


@main.command()
def promtool() -> None:
    """Find or build promtool, which tries the alerts, and print where it is."""
    try:
        click.echo(prometheus.find())
    except prometheus.PromtoolNotFound as problem:
        sys.exit(str(problem))


@main.command()
@click.option("--controllers", is_flag=True, help="Also run kube-controller-manager and kube-scheduler.")
def run(*, controllers: bool) -> None:
    """Run a control plane until Ctrl-C, and print the path of its kubeconfig."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ControlPlane(_find_assets()) as cluster:
            if controllers:
                cluster.start_controllers()
            click.echo(cluster.kubeconfig())
            signal.pause()
    except (programs.AssetsMissing, ControlPlaneError) as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt:
        click.echo("stopped", err=True)


def _find_assets() -> programs.Assets:
    try:
        return programs.find()
    except programs.AssetsMissing as problem:
        sys.exit(str(problem))


main(prog_name="python -m controlplane")
