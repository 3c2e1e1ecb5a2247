"""`haulout notice list`: list notices."""

from typing import Any

import click

from haulout.cli import options

PHASES = ("Planned", "Due", "Active", "Completed", "Cancelled", "Missed")


@click.command("list", short_help="List notices of maintenance.")
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@click.option("-A", "--all", "everything", is_flag=True, help="Also notices that have ended.")
@click.option(
    "--source", "sources", multiple=True, metavar="NAME", help="Only notices of this source. Can be repeated."
)
@click.option(
    "--phase",
    "phases",
    multiple=True,
    metavar="PHASE",
    type=click.Choice(PHASES, case_sensitive=False),
    help="Only notices in phase Planned, Due, Active, Completed, Cancelled or Missed. Can be repeated.",
)
@click.option("-w", "--watch", "is_watched", is_flag=True, help="Keep watching: a line for each change, until Ctrl-C.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "wide", "json", "yaml", "name"]),
    default="text",
    show_default=True,
    help="Format; wide adds ID, deadline, machine and reason.",
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
    """List notices of each NODE or of all nodes: what is announced, when, its phase, and when the node is drained.

    The earliest start comes first. Past notices need --all or --phase. ON TIME is whether the node is expected to be
    empty at the start. The command only reads, and works without the operator.

    \b
    Exit codes:
      0  shown, or nothing is announced
      1  a node is unknown, notices are not installed, or you are not allowed to read them
      2  the command line is invalid
      130  interrupted

    \b
    With -o json or yaml, fields are only ever added:
      notices: [{name, node, machine, kind, reason, description,
                 source, id, stage     who announced it, and the stage that the source reports
                 phase, why            the current phase
                 start, end, deadline
                 drainAt               null: at once, not for this kind, or it is over
                 onTime                null: unknown
                 reschedulable, created, endedAt
                 observed              false: the operator has not processed the latest change
                 conditions, history}]
      notes                            what could not be read
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    if is_watched and output not in ("text", "wide"):
        raise click.UsageError("--watch requires -o text or wide")
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
