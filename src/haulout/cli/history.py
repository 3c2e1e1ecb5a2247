"""`haulout history`: what happened to nodes, who or what did it, and why."""

import click

from haulout.cli import options


@click.command("history", short_help="Show what happened to a node, when, by whom and why.")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@click.option(
    "--since", "span", metavar="SPAN", help="Only what happened within this time, such as 90m, 12h, 7d or 2w."
)
@click.option("-n", "--last", "most", type=click.IntRange(1), metavar="N", help="Only the last N entries of each node.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "wide", "json", "yaml"]),
    default="text",
    show_default=True,
    help="Format; wide says who ordered it, and cuts nothing off.",
)
@options.reach
@options.verbose
@click.pass_context
def history(
    ctx: click.Context,
    *,
    nodes: tuple[str, ...],
    span: str | None,
    most: int | None,
    output: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Show what happened to each NODE: transitions of its profiles, its maintenances and drains; the newest last.

    The operator keeps about the last hundred entries, in a MaintenanceRecord for each node. AFTER is how long it had
    been in the state that it left; ? says that a clock was set back between. Entries are in the order in which they
    were written down. One about "history" with the result Gap stands for entries that are missing. This only reads, and
    works without the operator.

    \b
    Exit codes:
      0  shown, or nothing has happened yet
      1  a node is unknown, no history is kept in this cluster, or you may not read it
      2  the command line makes no sense

    \b
    With -o json or yaml, fields are only ever added, and empty ones are left out:
      nodes: [{node, exists,
               older              how many entries have given way to these
               entries: [{time, what, by, from, to, since, why, result,
                          instance, number, reconstructed, missing,
                          drain: {seconds, pods, blockedBy, blockedSeconds}}]}]
      notes                       what is not as one would think
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    from haulout.cli import node_history, node_history_text
    from haulout.cli.connect import connect, run
    from haulout.cli.nodes import bare
    from haulout.cli.terminal import printable

    wanted = node_history.Wanted(tuple(dict.fromkeys(map(bare, nodes))), node_history.span_of(span), most)

    async def look() -> node_history.Found:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            return await node_history.look(session.client, wanted)

    found = run(look())
    match output:
        case "json":
            click.echo(node_history_text.as_json(found))
        case "yaml":
            click.echo(node_history_text.as_yaml(found), nl=False)
        case _:
            width = None if output == "wide" else node_history_text.terminal_width()
            for line in node_history_text.as_text(found, is_wide=output == "wide", width=width):
                click.echo(line)
    if output in ("text", "wide"):
        for note in found.notes:
            click.echo(printable(note), err=True)
    for problem in found.unknown:
        click.echo(f"haulout: {printable(problem)}", err=True)
    if found.unknown:
        ctx.exit(1)
