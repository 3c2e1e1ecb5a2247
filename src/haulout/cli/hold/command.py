"""`haulout hold` and `haulout release`: a person keeps new maintenance off nodes, and lets it begin again."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from haulout.cli import options
from haulout.cli.cordon.command import change_nodes
from haulout.cli.kubectl_flags import KubectlCommand, dry_run_option, node_options

if TYPE_CHECKING:  # heavy: imported when it is needed
    from haulout.api.objects import Node
    from haulout.cli.cordon.node_changes import ChangeResult
    from haulout.kube.client import Client


@click.command("hold", cls=KubectlCommand, short_help="Keep new maintenance off nodes.")
@node_options
@click.option("--reason", metavar="TEXT", default="", help="Why, for whoever wonders.")
@click.option("--until", metavar="TIME", help="When it ends, such as 2026-12-01T03:00:00Z or +2d.")
@click.option("--for", "span", metavar="SPAN", help="How long it lasts, such as 4h or 2d.  [default: until released]")
@click.option("--by", metavar="NAME", help="In whose name.  [default: whom the server takes you for]")
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
    """Let no maintenance begin on nodes, for a while or until `haulout release`.

    Profiles stay where they are before in-maintenance, a NodeMaintenance waits before it cordons, no Machine is
    replaced. What has begun goes on. What a cloud announces comes nevertheless: its notice says that the node will not
    be empty. Another hold on a node is written over.

    \b
    Exit codes:
      0  all nodes are held
      1  a node is unknown, or could not be held
      2  the command line makes no sense
      130  interrupted
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    from haulout.cli.hold.node_hold import HoldRequest, hold_node

    if until is not None and span is not None:
        raise click.UsageError("--until and --for both say when it ends: give one")

    async def change(client: "Client", node: "Node") -> "ChangeResult":
        request = HoldRequest(reason=reason, by=by, until=_ends_at(until, span, now=client.clock.now()))
        return await hold_node(client, node, request, dry_run=dry_run)

    ctx.exit(change_nodes("hold", change, dry_run=dry_run, **where))


@click.command("release", cls=KubectlCommand, short_help="Let maintenance begin on nodes again.")
@node_options
@dry_run_option
@options.kubeconfig_options
@options.verbose_option
@click.pass_context
def release(ctx: click.Context, /, *, dry_run: str, **where: Any) -> None:
    """End holds of nodes, whoever set them: what waited for that begins at once.

    \b
    Exit codes:
      0  no node is held any more
      1  a node is unknown, or could not be released
      2  the command line makes no sense
      130  interrupted
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is

    async def change(client: "Client", node: "Node") -> "ChangeResult":
        from haulout.cli.hold.node_hold import release_node

        return await release_node(client, node, dry_run=dry_run)

    ctx.exit(change_nodes("release", change, dry_run=dry_run, **where))


def _ends_at(until: str | None, span: str | None, *, now: datetime) -> datetime | None:
    """Return when a hold ends; raises a usage error for what makes no sense, or is over."""
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
