"""`haulout cordon` and `haulout uncordon`: like kubectl's, but aware of cordon owners."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from haulout.cli import options
from haulout.cli.options import KubectlCommand, OptionalBoolOption, check_node_options, dry_run_option, node_options

if TYPE_CHECKING:  # heavy: imported at use
    from haulout.api.objects import Node
    from haulout.cli.cordon.node_changes import ChangeResult
    from haulout.kube.client import Client

NodeChange = Callable[["Client", "Node"], Awaitable["ChangeResult"]]


@click.command("cordon", cls=KubectlCommand, short_help="Mark nodes as unschedulable.")
@node_options
@dry_run_option
@options.kubeconfig_options
@options.verbose_option
@click.pass_context
def cordon(ctx: click.Context, /, *, dry_run: str, **where: Any) -> None:
    """Mark nodes as unschedulable, as kubectl cordon does: no new pods are scheduled, running pods stay.

    A node in maintenance by a NodeMaintenance is cordoned already. If you cordon it as well, it stays cordoned after
    the maintenance.

    \b
    Exit codes:
      0  all nodes are cordoned
      1  a node is unknown, or could not be cordoned
      2  the command line is invalid
      130  interrupted
    """  # noqa: D301 - click does not rewrap a paragraph after \b

    async def change(client: "Client", node: "Node") -> "ChangeResult":
        from haulout.cli.cordon.node_changes import cordon_node

        return await cordon_node(client, node, dry_run=dry_run)

    ctx.exit(change_nodes("cordon", change, dry_run=dry_run, **where))


@click.command("uncordon", cls=KubectlCommand, short_help="Mark nodes as schedulable.")
@node_options
@click.option(
    "--force", cls=OptionalBoolOption, help="Also uncordon nodes that have cordon owners, and remove the owners."
)
@dry_run_option
@options.kubeconfig_options
@options.verbose_option
@click.pass_context
def uncordon(ctx: click.Context, /, *, force: bool | None, dry_run: str, **where: Any) -> None:
    """Mark nodes as schedulable, as kubectl uncordon does.

    A node in maintenance by a NodeMaintenance is not uncordoned: the output names the owner and how to end the
    maintenance. --force uncordons it nevertheless. Leftovers of deleted owners are removed: cordon, taints and labels.

    \b
    Exit codes:
      0  all nodes are schedulable
      1  a node is unknown, is held, or could not be uncordoned
      2  the command line is invalid
      130  interrupted
    """  # noqa: D301 - click does not rewrap a paragraph after \b

    async def change(client: "Client", node: "Node") -> "ChangeResult":
        from haulout.cli.cordon.node_changes import uncordon_node

        return await uncordon_node(client, node, force=bool(force), dry_run=dry_run)

    ctx.exit(change_nodes("uncordon", change, dry_run=dry_run, **where))


def change_nodes(
    verb: str,
    change: NodeChange,
    *,
    dry_run: str,
    nodes: tuple[str, ...],
    selector: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Change the selected nodes one after the other; return the exit code."""
    check_node_options(nodes, selector)
    from haulout.cli.connect import connect, run
    from haulout.cli.cordon.node_changes import result_lines
    from haulout.cli.node_lookup import find_nodes

    async def main() -> bool:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            found = await find_nodes(session.client, nodes, selector)
            all_well = True
            for node in found:
                done = await change(session.client, node)
                for line in result_lines(done, verb=verb, dry_run=dry_run):
                    line.print()
                all_well &= done.verb is not None
            return all_well

    return 0 if run(main()) else 1
