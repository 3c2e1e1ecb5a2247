"""`haulout top`: the fleet in the terminal."""

import click

from haulout.cli import options


@click.command("top", short_help="Watch the fleet: what goes on with which node, and why.")
@click.option(
    "--from",
    "url",
    metavar="URL",
    help="Ask the operator at URL (its port for metrics), instead of looking for its pod in the cluster.",
)
@click.option("--once", is_flag=True, help="Print one picture and end; so it does where the output is no terminal.")
@options.output_option
@options.cluster_options
@options.verbose_option
def top(*, url: str | None, once: bool, output: str, **cluster: str | None) -> None:
    """Watch what goes on with nodes: state, since when, why, how far, and when something happens next.

    It reads what the dashboard shows, from the operator: through the API server of the cluster, which takes the
    permission to use pods/proxy there, or at a URL. It changes nothing. Of a hub it prints the clusters, once.

    \b
    Keys:
      q            quit
      arrows, j k  go up and down; Enter shows all about a node, Esc goes back
      /            search in names, zones, pools, profiles and reasons
      f            only nodes in one state, then in the next
      s            sort by state, name, since when, or what comes next

    \b
    Environment:
      HAULOUT_TOKEN  a token of Kubernetes, for an operator whose dashboard wants to know who asks

    \b
    Exit codes:
      0  shown
      1  the operator, or the cluster, does not answer
      2  the command line makes no sense

    \b
    With -o json it prints one picture, by the shapes of /api/v2; fields are only ever added:
      summary, nodes (those that are not idle), notices; of a hub: summary, clusters
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    from haulout.cli.connect import run
    from haulout.cli.top.execution import TopOptions, run_top

    run(run_top(TopOptions(url=url, is_once=once, as_json=output == "json", **cluster)))
