"""`haulout history`: what happened to nodes, when, by whom and why."""

from typing import TYPE_CHECKING

import click

from haulout.cli import options

if TYPE_CHECKING:  # heavy: imported at use
    from collections.abc import Iterator

    from haulout.cli.history.node_history import HistoryQuery, HistoryResult


@click.command("history", short_help="Show what happened to nodes, when, by whom and why.")
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@click.option("--all", "is_all", is_flag=True, help="All nodes, including deleted ones, in one table.")
@click.option("-l", "--selector", metavar="SELECTOR", help="The nodes with these labels, as in -l pool=a,zone!=b.")
@click.option(
    "--since",
    metavar="WHEN",
    help="Only entries since this time: 90m, 12h, 7d or 2w ago, or a time such as 2026-12-01T03:00:00Z.",
)
@click.option("--until", metavar="WHEN", help="Only entries before this time, in the same format.")
@click.option("-n", "--last", "most", type=click.IntRange(1), metavar="N", help="Only the last N entries of each node.")
@options.format_option(
    "text", "wide", "json", "yaml", "csv", text="Format; wide adds who ordered it, and does not truncate."
)
@options.kubeconfig_options
@options.verbose_option
@click.pass_context
def history(  # noqa: PLR0913 - one per option
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
    """Show what happened to each NODE: transitions of its profiles, maintenances and drains; the newest last.

    The operator keeps about the last hundred entries of each node in a MaintenanceRecord. DURATION is how long the
    node was in the previous state; ? means that a clock was set back in between. Entries are in the order in which they
    were written. An entry about "history" with the result Gap stands for missing entries. The command only reads, and
    works without the operator.

    With --all or -l the output is one table of many nodes, by time, the newest last. The history of a deleted node is
    kept for a time, and shown with --all or by its name.

    \b
    Exit codes:
      0  shown, or nothing has happened yet
      1  a node is unknown, no history is kept in this cluster, or you may not read it
      2  the command line is invalid

    \b
    With -o json or yaml, fields are only ever added, and empty ones are left out:
      nodes: [{node, exists,
               deleted            when the node was deleted, if it was
               older              how many older entries were dropped
               entries: [{time, object, requestedBy, from, to, since, reason, result,
                          instance, number, reconstructed, missing,
                          drain: {seconds, pods, blockedBy, blockedSeconds}}]}]
      notes                       warnings about the result

    With -o csv there is a line for each entry, node by node, as in RFC 4180. Columns are only ever added, at the end. A
    cell that a spreadsheet would take for a formula begins with an apostrophe.
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    from haulout.cli.history import node_history
    from haulout.cli.node_lookup import strip_node_prefix
    from haulout.cli.output import printable

    _check_choice(nodes, is_all=is_all, selector=selector)
    query = node_history.HistoryQuery(
        nodes=tuple(dict.fromkeys(map(strip_node_prefix, nodes))),
        since=node_history.parse_time_bound("--since", since),
        until=node_history.parse_time_bound("--until", until),
        limit=most,
        selector=selector or "",
    )
    cluster = {"kubeconfig": kubeconfig, "context": context}
    if output == "csv":
        found = _write_csv(query, **cluster)
    else:
        found = _read_histories(query, **cluster)
        for line in _output_lines(found, output, is_table=not query.nodes):
            click.echo(line)
    if output in ("text", "wide"):
        for note in found.notes:
            click.echo(printable(note), err=True)
    for problem in found.unknown_nodes:
        click.echo(f"haulout: {printable(problem)}", err=True)
    if found.unknown_nodes:
        ctx.exit(1)


def _output_lines(found: "HistoryResult", output: str, *, is_table: bool) -> "Iterator[str | bytes]":
    from haulout.cli.history import history_text as text

    if output == "json":
        yield text.to_json(found)
        return
    if output == "yaml":
        yield text.to_yaml(found).removesuffix("\n")
        return
    is_wide = output == "wide"
    width = None if is_wide else text.terminal_width()
    if is_table:
        yield from text.table_lines(found.nodes, is_wide=is_wide, width=width)
    else:
        yield from text.text_lines(found, is_wide=is_wide, width=width)


def _check_choice(nodes: tuple[str, ...], *, is_all: bool, selector: str | None) -> None:
    if nodes and (is_all or selector is not None):
        raise click.UsageError("node names cannot be combined with --all or -l")
    if not nodes and not is_all and selector is None:
        raise click.UsageError("expected node names, -l SELECTOR or --all")
    if selector is not None:
        from haulout.cli.node_lookup import check_selector

        check_selector(selector)


def _read_histories(query: "HistoryQuery", *, kubeconfig: str | None, context: str | None) -> "HistoryResult":
    from haulout.cli.connect import connect, run
    from haulout.cli.history import node_history

    async def read() -> node_history.HistoryResult:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            if query.nodes:
                return await node_history.read_histories(session.client, query)
            found = [node_entries async for node_entries in node_history.read_all_histories(session.client, query)]
            return node_history.to_result(found, now=session.client.clock.now())

    return run(read())


def _write_csv(query: "HistoryQuery", *, kubeconfig: str | None, context: str | None) -> "HistoryResult":
    """Write each node as soon as it is read; return the rest of the result."""
    from haulout.cli.connect import connect, run
    from haulout.cli.history import node_history
    from haulout.history import csv_export

    def write(history: node_history.NodeHistory) -> None:
        for entry in history.entries:
            click.echo(csv_export.row(history.node, entry, deleted=history.deleted), nl=False)

    async def read_and_write() -> node_history.HistoryResult:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            found = node_history.HistoryResult(nodes=(), now=session.client.clock.now())
            if query.nodes:
                found = await node_history.read_histories(session.client, query)
            click.echo(csv_export.HEADER, nl=False)
            for history in found.nodes:
                write(history)
            if not query.nodes:
                async for history in node_history.read_all_histories(session.client, query):
                    write(history)
            return found

    return run(read_and_write())
