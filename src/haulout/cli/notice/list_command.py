"""`haulout notice list`: what is announced."""

from typing import Any

import click

from haulout.cli import options

PHASES = ("Planned", "Due", "Active", "Completed", "Cancelled", "Missed")


@click.command("list", short_help="Show what is announced.")
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@click.option("-A", "--all", "everything", is_flag=True, help="Also what is over.")
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Only of this source. Can be repeated.")
@click.option(
    "--phase",
    "phases",
    multiple=True,
    metavar="PHASE",
    type=click.Choice(PHASES, case_sensitive=False),
    help="Only what is Planned, Due, Active, Completed, Cancelled or Missed. Can be repeated.",
)
@click.option("-w", "--watch", "is_watched", is_flag=True, help="Go on: a line for each change, until Ctrl-C.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "wide", "json", "yaml", "name"]),
    default="text",
    show_default=True,
    help="Format; wide says why, on which machine and the deadline, too.",
)
@options.kubeconfig_options
@options.verbose_option
@click.pass_context
def list_(
    ctx: click.Context,
    /,
    *,
    nodes: tuple[str, ...],
    is_watched: bool,
    output: str,
    kubeconfig: str | None,
    context: str | None,
    **filters: Any,
) -> None:
    """Show what is announced, for each NODE or for all: what, when, how it stands and when the node is drained.

    What begins first comes first. What is over is not shown without --all or --phase. ON TIME tells whether the node
    is expected to be empty when it begins. This only reads, and works without the operator.

    \b
    Exit codes:
      0  shown, or nothing is announced
      1  a node is unknown, notices are not installed, or you may not see them
      2  the command line makes no sense
      130  interrupted

    \b
    With -o json or yaml, fields are only ever added:
      notices: [{name, node, machine, kind, reason, description,
                 source, id, stage     who says so, and how far it is as they say
                 phase, why            how it stands now
                 start, end, deadline
                 drainAt               null: at once, not for this kind, or it is over
                 onTime                null: nobody knows
                 reschedulable, created, endedAt
                 seenByOperator        false: the operator does not know of it, or as it was
                 conditions, history}]
      notes                            what could not be read
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    if is_watched and output not in ("text", "wide"):
        raise click.UsageError("--watch shows lines, for -o text or wide")
    from haulout.cli.connect import connect, run
    from haulout.cli.node_lookup import strip_node_prefix
    from haulout.cli.notice import printer, query

    notice_query = query.NoticeQuery(nodes=tuple(dict.fromkeys(map(strip_node_prefix, nodes))), **filters)

    async def main() -> query.NoticeList:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            if is_watched:
                await printer.watch_and_print(session.client, notice_query, output=output)
            return await printer.print_notices(session.client, notice_query, output=output)

    ctx.exit(1 if run(main()).unknown_nodes else 0)
