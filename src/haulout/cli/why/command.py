"""`haulout why`: why a node is where it is, and what would have to change."""

import click

from haulout.cli import options
from haulout.cli.check.command import parse_variables

DEFAULT_FILE = "config/maintenance.yaml"  # where the operator looks


@click.command("why", short_help="Explain why the profiles of a node are where they are.")
@click.argument("node")
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help=f"The maintenance.yaml to judge by.  [default: {DEFAULT_FILE}, if it is here]",
)
@click.option("--config-map", metavar="NAMESPACE/NAME", help="A ConfigMap that has it, under the key maintenance.yaml.")
@click.option("--from", "url", metavar="URL", help="Ask the operator at URL (its port for metrics) instead.")
@click.option("--no-ask", is_flag=True, help="Do not ask Prometheus or whatever else checks ask outside the cluster.")
@click.option(
    "--env",
    "given",
    multiple=True,
    metavar="NAME=value",
    callback=parse_variables,
    help="A variable for ${NAME} in the file, beside those that are set here. Can be repeated.",
)
@options.output_option
@options.kubeconfig_options
@options.verbose_option
def why(*, node: str, output: str, **flags: object) -> None:
    """Explain each profile of NODE: its state, the ways on, each check with its reason, what would have to change.

    It looks at the cluster by itself and takes the same step as the operator, but does nothing of it. It needs no
    operator, and only the permission to see what the checks look at.

    \b
    Environment:
      HAULOUT_TOKEN  a token of Kubernetes, for an operator whose dashboard wants to know who asks

    \b
    Exit codes:
      0  explained
      1  the node is unknown, or the cluster or the operator does not answer
      2  the command line or the file makes no sense

    \b
    With -o json, fields are only ever added:
      node, at                        at: the moment of which this is true
      problem                         why nothing at all is done about the node
      profiles: [{name, configured, state, since, next, waitsFor, error,
                  transitions: [{target, expression, passed, chainPassed, veto, error,
                                 checks: [{name, type, passed, reason, error, wakesAt}],
                                 remedies: [[{name, passed}]]}]}]
                                      passed of a check is null if it cannot be told;
                                      each of the remedies would make the chain pass
      nextLook                        at the latest; null: only when something changes;
                                      missing if --from does not tell
      wakesOn                         what else it is looked at for
      asksEvery                       how often checks ask the outside; null: they do not
      notes                           what could not be seen
      announced: [{notice, kind, reason, phase, says, start, end}]
                                      if the configuration looks at notices; empty with --from
      ordered: [{maintenance, phase, reason, says}]
                                      NodeMaintenances of the node; empty with --from
      asked                           what its Machine of Cluster API waits for, in words; empty with --from
      held: [{by, since, says}]       what keeps it cordoned beside these: ESX, or
                                      Kubernikus/delete-node; empty with --from
      hold                            who keeps maintenance off it, in words; empty: nobody
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    from haulout.cli.node_lookup import strip_node_prefix
    from haulout.cli.terminal import terminal_marks
    from haulout.cli.why import why_text
    from haulout.cli.why.explanation import WhyOptions, explain_node

    explanation = explain_node(strip_node_prefix(node), WhyOptions(**flags))  # type: ignore[arg-type]  # click has checked them
    if output == "json":
        click.echo(why_text.to_json(explanation))
        return
    for line in why_text.text_lines(explanation, marks=terminal_marks()):
        click.echo(line)
