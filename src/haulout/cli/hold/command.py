"""`haulout hold` and `haulout release`: keep new maintenance off nodes, and allow it again."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from haulout.cli import options
from haulout.cli.cordon.command import change_nodes
from haulout.cli.options import KubectlCommand, dry_run_option, node_options

if TYPE_CHECKING:  # heavy: imported at use
    from haulout.api.objects import Node
    from haulout.cli.cordon.node_changes import ChangeResult
    from haulout.kube.client import Client


@click.command("hold", cls=KubectlCommand, short_help="Keep maintenance from starting on nodes.")
@node_options
@click.option("--reason", metavar="TEXT", default="", help="The reason, shown to other users.")
@click.option("--until", metavar="TIME", help="The end of the hold, such as 2026-12-01T03:00:00Z or +2d.")
@click.option(
    "--for", "span", metavar="SPAN", help="The duration of the hold, such as 4h or 2d.  [default: until released]"
)
@click.option("--by", metavar="NAME", help="The user who holds the nodes.  [default: your user name in the cluster]")
@dry_run_option
@options.kubeconfig_options
@options.verbose_option
@click.pass_context
def hold(
    ctx: click.Context,
    /,
    *,
    reason: str,
    until: str | None,
    span: str | None,
    by: str | None,
    dry_run: str,
    **where: Any,
) -> None:
    """Keep maintenance from starting on nodes, for a time or until `haulout release`.

    Profiles do not enter in-maintenance, a NodeMaintenance waits before it cordons, and no Machine is replaced.
    Maintenance in progress continues. The cloud's own maintenance is not stopped: its notice says that the node will
    not be empty. An existing hold on a node is overwritten.

    \b
    Exit codes:
      0  all nodes are held
      1  a node is unknown, or could not be held
      2  the command line is invalid
      130  interrupted
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    from haulout.cli.hold.node_hold import HoldRequest, hold_node

    if until is not None and span is not None:
        raise click.UsageError("--until and --for exclude each other: give one")

    async def change(client: "Client", node: "Node") -> "ChangeResult":
        request = HoldRequest(reason=reason, by=by, until=_ends_at(until, span, now=client.clock.now()))
        return await hold_node(client, node, request, dry_run=dry_run)

    ctx.exit(change_nodes("hold", change, dry_run=dry_run, **where))


@click.command("release", cls=KubectlCommand, short_help="Let maintenance start on nodes again.")
@node_options
@dry_run_option
@options.kubeconfig_options
@options.verbose_option
@click.pass_context
def release(ctx: click.Context, /, *, dry_run: str, **where: Any) -> None:
    """Remove the holds of nodes, regardless of who set them: maintenance that waited begins at once.

    \b
    Exit codes:
      0  no node is held any more
      1  a node is unknown, or could not be released
      2  the command line is invalid
      130  interrupted
    """  # noqa: D301 - click does not rewrap a paragraph after \b

    async def change(client: "Client", node: "Node") -> "ChangeResult":
        from haulout.cli.hold.node_hold import release_node

        return await release_node(client, node, dry_run=dry_run)

    ctx.exit(change_nodes("release", change, dry_run=dry_run, **where))


def _ends_at(until: str | None, span: str | None, *, now: datetime) -> datetime | None:
    """Return when a hold ends; raise a usage error if the input is invalid or in the past."""
    from haulout.cli import times

    flag = "--until" if until is not None else "--for"
    try:
        if until is not None:
            ends = times.parse_instant(until, now=now)
        elif span is not None:
            ends = now.replace(microsecond=0) + times.parse_span(span)
        else:
            return None
    except (ValueError, OverflowError) as error:
        raise click.UsageError(f"{flag}: {error}") from None
    if ends <= now:
        raise click.UsageError(f"{flag}: {times.format_timestamp(ends)} UTC is not in the future")
    return ends
