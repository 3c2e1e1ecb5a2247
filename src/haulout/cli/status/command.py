"""`haulout status`: which nodes are out of service, by whom, their progress, and what they wait for."""

import click

from haulout.cli import options


@click.command("status", short_help="Show which nodes are out of service, by whom and why.")
@click.argument("node", required=False)
@click.option("-A", "--all", "everything", is_flag=True, help="Also nodes that are in service.")
@options.output_option
@options.kubeconfig_options
@options.verbose_option
def status(*, node: str | None, everything: bool, output: str, kubeconfig: str | None, context: str | None) -> None:
    """Show the state of nodes: cordon owners, progress of maintenance, what blocks it, and when it continues.

    With NODE the output has all details. The command only reads, and works without the operator. Objects that you may
    not read are named.

    \b
    Exit codes:
      0  shown
      1  the node is unknown, or you are not allowed to read nodes
      2  the command line is invalid

    \b
    With -o json, fields are only ever added:
      nodes: [{node, exists, state, ready, cordoned,
               cordonedBefore      null without a cordon annotation
               cordonOwners: [{owner, since, presence}]     Present, Gone or Unknown
               maintenances: [{name, reason, phase, progress, created, deleted,
                               lastError, pendingPods, nextReconcile, blockers}]
               lease: {holder, until}     until is null if it expired
               pods                only with NODE
               notices             what is announced for it and happens within a day,
                                   with the fields of `haulout notice list`
               hold: {by, reason, until, problem, expired,
                      freeze}      the MaintenanceFreeze; empty: the annotation     null: no hold
               problem}]           with the cordon annotation, if there is one
      notes                        what could not be read
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    from haulout.cli.connect import connect, run
    from haulout.cli.node_lookup import strip_node_prefix
    from haulout.cli.output import printable
    from haulout.cli.status import node_status, status_text

    async def read() -> node_status.StatusReport:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            return await node_status.read_status(session.client, None if node is None else strip_node_prefix(node))

    report = run(read())
    if output == "json":
        click.echo(status_text.to_json(report, include_all=everything or node is not None))
        return
    lines = (
        status_text.table(report, include_all=everything)
        if node is None
        else status_text.detail_lines(report.nodes[0], report.now)
    )
    for line in lines:
        click.echo(line)
    for note in report.notes:
        click.echo(printable(note), err=True)
