"""`haulout approve`: give a node the label or annotation that a check of one of its profiles waits for."""

from typing import Any

import click

from haulout.cli import options
from haulout.cli.options import KubectlCommand, dry_run_option


@click.command("approve", cls=KubectlCommand, short_help="Approve the maintenance of a node that waits for approval.")
@click.argument("node")
@click.option("--profile", metavar="NAME", default="", help="The profile to approve, if several wait.")
@click.option(
    "--check",
    metavar="NAME",
    default="",
    help="The check to approve; also in other transitions than the one into maintenance.",
)
@options.configuration_options
@options.variables_option
@dry_run_option
@options.kubeconfig_options
@options.verbose_option
def approve(*, node: str, profile: str, check: str, dry_run: str, **configuration_options: Any) -> None:
    """Approve the maintenance of NODE: set the label or annotation that its profile in maintenance-required waits for.

    The equivalent kubectl commands are printed. Checks that cannot be set, such as a time window, must still pass. If
    there is a choice, --check names the check. With --check you can also approve other transitions than the one into
    maintenance, such as the one from operational to maintenance-required.

    \b
    Exit codes:
      0  it is set, or was already
      1  no profile waits for approval, several do, or the node could not be changed
      2  the command line or the file is invalid
      130  interrupted
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    from haulout.cli.approve.node_approval import ApprovalRequest, approve_node
    from haulout.cli.connect import run
    from haulout.cli.node_lookup import strip_node_prefix
    from haulout.cli.why.explanation import WhyOptions

    choice = ApprovalRequest(node=strip_node_prefix(node), profile=profile, check=check)
    for line in run(
        approve_node(choice, WhyOptions(no_external_queries=True, **configuration_options), dry_run=dry_run)
    ):
        line.print()
