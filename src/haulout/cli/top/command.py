"""`haulout top`: the fleet in the terminal."""

import click

from haulout.cli import options


@click.command("top", short_help="Watch the state of all nodes, with reasons.")
@click.option(
    "--from",
    "url",
    metavar="URL",
    help="Query the operator at URL (its metrics port), instead of its pod in the cluster.",
)
@click.option(
    "--once", is_flag=True, help="Print the state once and exit; the default if the output is not a terminal."
)
@options.output_option
@options.cluster_options
@options.verbose_option
def top(*, url: str | None, once: bool, output: str, **cluster: str | None) -> None:
    """Watch nodes: state, since when, why, progress, and what happens next.

    It shows the data of the dashboard, from the operator: through the API server of the cluster, which requires
    permission for pods/proxy, or from a URL. It changes nothing. For a hub it prints the clusters, once.

    \b
    Keys:
      q            quit
      arrows, j k  go up and down; Enter shows all about a node, Esc goes back
      /            search in names, zones, pools, profiles and reasons
      f            only nodes in one state, then in the next
      s            sort by state, name, since when, or what comes next

    \b
    Environment:
      HAULOUT_TOKEN  a token of Kubernetes, for an operator whose dashboard requires authentication

    \b
    Exit codes:
      0  shown
      1  the operator, or the cluster, does not answer
      2  the command line is invalid

    \b
    With -o json it prints the state once, in the format of /api/v2; fields are only ever added:
      summary, nodes (those that are not idle), notices; of a hub: summary, clusters
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    from haulout.cli.connect import run
    from haulout.cli.top.execution import TopOptions, run_top

    run(run_top(TopOptions(url=url, is_once=once, as_json=output == "json", **cluster)))
