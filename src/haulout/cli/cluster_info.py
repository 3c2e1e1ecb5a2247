"""`haulout cluster-info`: whether this cluster can be reached, as whom, and whether the operator could work in it."""

import click

from haulout.cli import options, program


@click.command("cluster-info", short_help="Show a cluster, who you are there, and what is missing.")
@options.cluster
@options.output
@click.option(
    "--grant",
    is_flag=True,
    help="Print only the RBAC manifest that would grant what is missing, for `kubectl apply -f -`.",
)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help="The maintenance.yaml that the operator is to run. [default: what is usual]",
)
@options.verbose
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
    """Show which cluster this is, who you are in it, and which of the permissions that the operator needs you have.

    \b
    Exit codes:
      0  everything that is needed is there; with --grant: the manifest was printed
      1  something needed is missing, or the cluster cannot be reached
      2  the command line or the kubeconfig makes no sense
      130  interrupted

    \b
    With -o json, fields are only ever added:
      server, context, source, namespace    where
      namespaceExists                       null if you may not see it
      version, platform                     of the server, null if it does not say
      user: {username, groups}              null if the server does not say
      permissions: [{purpose, group, resource, namespace, verbs, missing}]
      features: [{kind, group, version, what, state}]
                                            state: on, off or unknown
      unavailable                           API groups whose server does not answer
      ready                                 true if nothing is missing
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    if grant and output != "text":
        raise click.UsageError("--grant prints YAML, so --output does not go with it")
    from haulout.cli import report
    from haulout.cli.configuring import configuration
    from haulout.cli.connect import connect, run
    from haulout.cli.terminal import marks

    wanted = None if file is None else configuration(file, {})

    async def look() -> report.Findings:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            return await report.gather(session, namespace=namespace, configuration=wanted)

    findings = run(look())
    if grant:
        click.echo(report.grant(findings), nl=False)
        return
    if output == "json":
        click.echo(report.as_json(findings))
    else:
        typed = {"--kubeconfig": kubeconfig, "--context": context, "--namespace": namespace, "--config": file}
        click.echo(report.as_text(findings, marks=marks(), grant_command=_grant_command(typed)))
    ctx.exit(0 if findings.ready else 1)


def _grant_command(typed: dict[str, str | None]) -> str:
    return program.command("cluster-info", options=typed) + " --grant | kubectl --context ADMIN apply -f -"
