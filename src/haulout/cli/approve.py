"""`haulout approve`: give a node the label or annotation that a check of one of its profiles waits for."""

from typing import Any

import click

from haulout.cli import options
from haulout.cli.check import variables
from haulout.cli.kubectl_flags import KubectlCommand, dry_run
from haulout.cli.why import DEFAULT_FILE


@click.command("approve", cls=KubectlCommand, short_help="Let a node into the maintenance that waits for approval.")
@click.argument("node")
@click.option("--profile", metavar="NAME", default="", help="Of which profile, if several wait.")
@click.option("--check", metavar="NAME", default="", help="Which check; also of other ways than into maintenance.")
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help=f"The maintenance.yaml to judge by.  [default: {DEFAULT_FILE}, if it is here]",
)
@click.option("--config-map", metavar="NAMESPACE/NAME", help="A ConfigMap that has it, under the key maintenance.yaml.")
@click.option(
    "--env",
    "given",
    multiple=True,
    metavar="NAME=value",
    callback=variables,
    help="A variable for ${NAME} in the file, beside those that are set here. Can be repeated.",
)
@dry_run
@options.reach
@options.verbose
def approve(*, node: str, profile: str, check: str, dry_run: str, **wishes: Any) -> None:
    """Set on NODE what a profile in maintenance-required waits for: the label or annotation that its checks look for.

    What is set is printed, as kubectl would be told. Checks that nobody can set, such as a time window, are still
    waited for. If there is a choice, --check names one of them. With --check also other ways are opened than the one
    into maintenance, as from operational to maintenance-required.

    \b
    Exit codes:
      0  it is set, or was already
      1  nothing waits for it, it is not clear for which, or the node could not be changed
      2  the command line or the file makes no sense
      130  interrupted
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    from haulout.cli.approving import Choice, approve_node
    from haulout.cli.connect import run
    from haulout.cli.looking import Wishes
    from haulout.cli.nodes import bare

    choice = Choice(node=bare(node), profile=profile, check=check)
    for line in run(approve_node(choice, Wishes(no_ask=True, **wishes), dry_run=dry_run)):
        line.print()
