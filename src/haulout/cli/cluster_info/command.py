"""`haulout cluster-info`: show the cluster, the user, and whether the operator could run there."""

import click

from haulout.cli import options
from haulout.cli.output import command_line


@click.command("cluster-info", short_help="Show the cluster, your user in it, and the permissions that are missing.")
@options.cluster_options
@options.output_option
@click.option(
    "--grant",
    is_flag=True,
    help="Print only the RBAC manifest that would grant what is missing, for `kubectl apply -f -`.",
)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help="The maintenance.yaml that the operator will run. [default: the permissions of a usual configuration]",
)
@options.verbose_option
@click.pass_context
def cluster_info(
    ctx: click.Context,
    *,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    output: str,
    grant: bool,
    file: str | None,
) -> None:
    """Show the cluster, your user in it, and which of the permissions that the operator needs you have.

    \b
    Exit codes:
      0  nothing is missing; with --grant: the manifest was printed
      1  a permission or resource is missing, or the cluster cannot be reached
      2  the command line or the kubeconfig is invalid
      130  interrupted

    \b
    With -o json, fields are only ever added:
      server, context, source, namespace    where
      namespaceExists                       null if you may not see it
      version, platform                     of the server, null if it does not say
      user: {username, groups}              null if the server does not say
      permissions: [{purpose, group, resource, namespace, verbs, missing}]
      features: [{kind, group, version, description, state}]
                                            state: on, off or unknown
      unavailable                           API groups whose server does not answer
      ready                                 true if nothing is missing
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    if grant and output != "text":
        raise click.UsageError("--grant prints YAML, so it cannot be combined with --output")
    from haulout.cli.cluster_info import report
    from haulout.cli.configuration_files import load_configuration
    from haulout.cli.connect import connect, run
    from haulout.cli.output import terminal_marks

    configured = None if file is None else load_configuration(file, {})

    async def collect_findings() -> report.ClusterFindings:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            return await report.collect_report(session, namespace=namespace, configuration=configured)

    findings = run(collect_findings())
    if grant:
        click.echo(report.grant_manifest(findings), nl=False)
        return
    if output == "json":
        click.echo(report.to_json(findings))
    else:
        typed = {"--kubeconfig": kubeconfig, "--context": context, "--namespace": namespace, "--config": file}
        click.echo(report.to_text(findings, marks=terminal_marks(), grant_command=_grant_command(typed)))
    ctx.exit(0 if findings.ready else 1)


def _grant_command(typed: dict[str, str | None]) -> str:
    return command_line("cluster-info", options=typed) + " --grant | kubectl --context ADMIN apply -f -"
