"""`haulout why`: explain the state of a node's profiles, and what would change it."""

import click

from haulout.cli import options


@click.command("why", short_help="Explain the state of the profiles of a node.")
@click.argument("node")
@options.configuration_options
@click.option("--from", "url", metavar="URL", help="Query the operator at URL (its metrics port) instead.")
@click.option(
    "--no-external-queries", is_flag=True, help="Do not query Prometheus or other services outside the cluster."
)
@options.variables_option
@options.output_option
@options.kubeconfig_options
@options.verbose_option
def why(*, node: str, output: str, **flags: object) -> None:
    """Explain each profile of NODE: its state, transitions, each check with its reason, what would have to change.

    The command evaluates profiles like the operator, but changes nothing. It works without the operator, and needs only
    permission to read what the checks read.

    \b
    Environment:
      HAULOUT_TOKEN  a token of Kubernetes, for an operator whose dashboard requires authentication

    \b
    Exit codes:
      0  explained
      1  the node is unknown, or the cluster or the operator does not answer
      2  the command line or the file is invalid

    \b
    With -o json, fields are only ever added:
      node, time                      time: of the evaluation
      problem                         why nothing at all is done about the node
      profiles: [{name, configured, state, since, next, waitingFor, error,
                  transitions: [{target, expression, passed, chainPassed, veto, error,
                                 checks: [{name, type, passed, reason, error, changesAt}],
                                 remedies: [[{name, passed}]]}]}]
                                      passed of a check is null if it is unknown;
                                      each of the remedies would make the chain pass
      nextReconcile                   at the latest; null: only when something changes;
                                      missing if unknown with --from
      requeueOn                       what else triggers an evaluation
      queryInterval                   how often checks query external services; null: never
      notes                           what could not be read
      notices: [{notice, kind, reason, phase, message, start, end}]
                                      if the configuration checks notices; empty with --from
      maintenances: [{maintenance, phase, reason, message}]
                                      NodeMaintenances of the node; empty with --from
      machineRequests                 what its Machine of Cluster API waits for, as text; empty with --from
      cordonOwners: [{owner, since, message}]
                                      what else keeps it cordoned: owners without an
                                      object; empty with --from
      hold                            the hold or freeze of the node, as text; empty: none
      releaseCommand                  the command that ends it
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    from haulout.cli.node_lookup import strip_node_prefix
    from haulout.cli.output import terminal_marks
    from haulout.cli.why import why_text
    from haulout.cli.why.explanation import WhyOptions, explain_node

    explanation = explain_node(strip_node_prefix(node), WhyOptions(**flags))  # type: ignore[arg-type]  # click has checked them
    if output == "json":
        click.echo(why_text.to_json(explanation))
        return
    for line in why_text.text_lines(explanation, marks=terminal_marks()):
        click.echo(line)
