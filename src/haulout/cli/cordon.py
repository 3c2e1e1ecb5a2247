"""`haulout cordon` and `haulout uncordon`: as kubectl's, and they know who else holds a node."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from haulout.cli import options
from haulout.cli.kubectl_flags import KubectlCommand, Switch, check_choice, chosen_nodes, dry_run

if TYPE_CHECKING:  # heavy: imported when it is needed
    from haulout.cli.cordoning import Done
    from haulout.kube.client import Client
    from haulout.kube.objects import Node

Change = Callable[["Client", "Node"], Awaitable["Done"]]


@click.command("cordon", cls=KubectlCommand, short_help="Keep new pods off nodes.")
@chosen_nodes
@dry_run
@options.reach
@options.verbose
@click.pass_context
def cordon(ctx: click.Context, /, *, dry_run: str, **where: Any) -> None:
    """Mark nodes as unschedulable, as kubectl cordon does: no new pods come, those that are there stay.

    A node that a NodeMaintenance holds is cordoned already. Cordoned by you as well, it stays so when that ends.

    \b
    Exit codes:
      0  all nodes are cordoned
      1  a node is unknown, or could not be cordoned
      2  the command line makes no sense
      130  interrupted
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is

    async def change(client: "Client", node: "Node") -> "Done":
        from haulout.cli.cordoning import cordon_node

        return await cordon_node(client, node, dry_run=dry_run)

    ctx.exit(change_all("cordon", change, dry_run=dry_run, **where))


@click.command("uncordon", cls=KubectlCommand, short_help="Let new pods onto nodes again.")
@chosen_nodes
@click.option("--force", cls=Switch, help="Uncordon nodes that somebody holds, and take off what holds them.")
@dry_run
@options.reach
@options.verbose
@click.pass_context
def uncordon(ctx: click.Context, /, *, force: bool | None, dry_run: str, **where: Any) -> None:
    """Mark nodes as schedulable, as kubectl uncordon does.

    A node that a NodeMaintenance holds is not uncordoned: you are told who holds it and how to end that, and --force
    does it nevertheless. What was left on a node by one that is no more is cleared away: cordon, taints and labels.

    \b
    Exit codes:
      0  all nodes are schedulable
      1  a node is unknown, is held, or could not be uncordoned
      2  the command line makes no sense
      130  interrupted
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is

    async def change(client: "Client", node: "Node") -> "Done":
        from haulout.cli.cordoning import uncordon_node

        return await uncordon_node(client, node, force=bool(force), dry_run=dry_run)

    ctx.exit(change_all("uncordon", change, dry_run=dry_run, **where))


def change_all(
    verb: str,
    change: Change,
    *,
    dry_run: str,
    nodes: tuple[str, ...],
    selector: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Change the nodes that were meant, one after the other; return the exit code."""
    check_choice(nodes, selector)
    from haulout.cli.connect import connect, run
    from haulout.cli.cordoning import told
    from haulout.cli.nodes import find

    async def main() -> bool:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            found = await find(session.client, nodes, selector)
            all_well = True
            for node in found:
                done = await change(session.client, node)
                for line in told(done, wanted=verb, dry_run=dry_run):
                    line.print()
                all_well &= done.verb is not None
            return all_well

    return 0 if run(main()) else 1
