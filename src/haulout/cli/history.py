"""`haulout history`: what happened to nodes, who or what did it, and why."""

from typing import TYPE_CHECKING

import click

from haulout.cli import options

if TYPE_CHECKING:  # heavy: imported when it is needed
    from collections.abc import Iterator

    from haulout.cli.node_history import Found, Wanted


@click.command("history", short_help="Show what happened to nodes, when, by whom and why.")
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("--all", "is_all", is_flag=True, help="All nodes, those that were deleted among them, in one table.")
@click.option("-l", "--selector", metavar="SELECTOR", help="The nodes with these labels, as in -l pool=a,zone!=b.")
@click.option(
    "--since",
    metavar="WHEN",
    help="Only what happened since then: 90m, 12h, 7d or 2w ago, or a time such as 2026-12-01T03:00:00Z.",
)
@click.option("--until", metavar="WHEN", help="Only what happened before then; the same.")
@click.option("-n", "--last", "most", type=click.IntRange(1), metavar="N", help="Only the last N entries of each node.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "wide", "json", "yaml", "csv"]),
    default="text",
    show_default=True,
    help="Format; wide says who ordered it, and cuts nothing off.",
)
@options.reach
@options.verbose
@click.pass_context
def history(  # noqa: PLR0913 - what can be typed
    ctx: click.Context,
    *,
    nodes: tuple[str, ...],
    is_all: bool,
    selector: str | None,
    since: str | None,
    until: str | None,
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

    With --all, or with -l, it is one table about many nodes, by time, the newest last. The history of a node that was
    deleted is kept for a time, and shown with --all or by its name.

    \b
    Exit codes:
      0  shown, or nothing has happened yet
      1  a node is unknown, no history is kept in this cluster, or you may not read it
      2  the command line makes no sense

    \b
    With -o json or yaml, fields are only ever added, and empty ones are left out:
      nodes: [{node, exists,
               deleted            when the node was deleted, if it was
               older              how many entries have given way to these
               entries: [{time, what, by, from, to, since, why, result,
                          instance, number, reconstructed, missing,
                          drain: {seconds, pods, blockedBy, blockedSeconds}}]}]
      notes                       what is not as one would think

    With -o csv there is a line for each entry, node by node, as RFC 4180 has it. Columns are only ever added, at the
    end. A cell that a spreadsheet would take for a formula has an apostrophe in front.
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    from haulout.cli import node_history
    from haulout.cli.nodes import bare
    from haulout.cli.terminal import printable

    _check_choice(nodes, is_all=is_all, selector=selector)
    wanted = node_history.Wanted(
        nodes=tuple(dict.fromkeys(map(bare, nodes))),
        since=node_history.when_of("--since", since),
        until=node_history.when_of("--until", until),
        most=most,
        selector=selector or "",
    )
    reach = {"kubeconfig": kubeconfig, "context": context}
    if output == "csv":
        found = _write_csv(wanted, **reach)
    else:
        found = _look(wanted, **reach)
        for line in _lines(found, output, is_fleet=not wanted.nodes):
            click.echo(line)
    if output in ("text", "wide"):
        for note in found.notes:
            click.echo(printable(note), err=True)
    for problem in found.unknown:
        click.echo(f"haulout: {printable(problem)}", err=True)
    if found.unknown:
        ctx.exit(1)


def _lines(found: "Found", output: str, *, is_fleet: bool) -> "Iterator[str | bytes]":
    from haulout.cli import node_history_text as text

    if output == "json":
        yield text.as_json(found)
        return
    if output == "yaml":
        yield text.as_yaml(found).removesuffix("\n")
        return
    is_wide = output == "wide"
    width = None if is_wide else text.terminal_width()
    if is_fleet:
        yield from text.as_table(found.nodes, is_wide=is_wide, width=width)
    else:
        yield from text.as_text(found, is_wide=is_wide, width=width)


def _check_choice(nodes: tuple[str, ...], *, is_all: bool, selector: str | None) -> None:
    if nodes and (is_all or selector is not None):
        raise click.UsageError("name nodes, or choose them by --all or -l; not both")
    if not nodes and not is_all and selector is None:
        raise click.UsageError("expected a NODE, -l SELECTOR or --all")
    if selector is not None:
        from haulout.cli.nodes import checked

        checked(selector)


def _look(wanted: "Wanted", *, kubeconfig: str | None, context: str | None) -> "Found":
    from haulout.cli import node_history
    from haulout.cli.connect import connect, run

    async def look() -> node_history.Found:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            if wanted.nodes:
                return await node_history.look(session.client, wanted)
            found = [it async for it in node_history.look_at_all(session.client, wanted)]
            return node_history.of_all(found, now=session.client.clock.now())

    return run(look())


def _write_csv(wanted: "Wanted", *, kubeconfig: str | None, context: str | None) -> "Found":
    """Write each node as soon as it is read; return what else is to be said."""
    from haulout.cli import node_history
    from haulout.cli.connect import connect, run
    from haulout.history import export

    def write(history: node_history.NodeHistory) -> None:
        for entry in history.entries:
            click.echo(export.row(history.node, entry, deleted=history.deleted), nl=False)

    async def look() -> node_history.Found:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            found = node_history.Found(nodes=(), now=session.client.clock.now())
            if wanted.nodes:
                found = await node_history.look(session.client, wanted)
            click.echo(export.HEADER, nl=False)
            for history in found.nodes:
                write(history)
            if not wanted.nodes:
                async for history in node_history.look_at_all(session.client, wanted):
                    write(history)
            return found

    return run(look())
