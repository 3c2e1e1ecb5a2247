"""`haulout agent`: listens to the metadata service of one node."""

import click

from haulout.cli import options


@click.command("agent", short_help="Run on a node, and report maintenance that its cloud announces only on the node.")
@options.kubeconfig_options
@click.option(
    "--node", metavar="NAME", envvar="NODE_NAME", required=True, help="The name of the node. [env: NODE_NAME]"
)
@click.option(
    "--cloud",
    type=click.Choice(["auto", "aws", "azure", "gcp"]),
    default="auto",
    show_default=True,
    help="The cloud of the metadata service; auto: the one that answers.",
)
@click.option(
    "--health-port",
    type=click.IntRange(1, 65_535),
    metavar="N",
    help="Serve /healthz and /readyz on this port of 127.0.0.1. [default: not at all]",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65_535),
    metavar="N",
    envvar="HAULOUT_AGENT_METRICS_PORT",
    help="Serve /metrics on this port of the node. [env: HAULOUT_AGENT_METRICS_PORT] [default: not at all]",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Format of the log on stderr. [default: text on a terminal, json elsewhere]",
)
@options.verbose_option
def agent(
    *,
    kubeconfig: str | None,
    context: str | None,
    node: str,
    cloud: str,
    health_port: int | None,
    metrics_port: int | None,
    log_format: str | None,
) -> None:
    """Read the metadata service of this machine until Ctrl-C or SIGTERM, and write the notices of its node.

    Run it once on each node, as the DaemonSet that `haulout manifests --agent` prints. The agent only reports: the
    operator decides what to do about a notice. docs/reference/agent.md lists all settings.

    \b
    Exit codes:
      0  stopped by Ctrl-C or SIGTERM
      1  a permission is missing, or the agent cannot run
      2  the command line or a variable is invalid
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    import asyncio
    import logging
    import os
    import sys

    from haulout.app import logs
    from haulout.app.agent import AgentOptions, load_connection, run_agent
    from haulout.cli import asyncio_runner

    agent_options = AgentOptions(
        node=node,
        cloud="" if cloud == "auto" else cloud,
        kubeconfig=kubeconfig,
        context=context,
        health_port=health_port,
        metrics_port=metrics_port,
    )
    connection = load_connection(agent_options, os.environ)
    level = min(logging.getLogger().level or logging.INFO, logging.INFO)
    logs.configure(as_json=log_format == "json" or (log_format is None and not sys.stderr.isatty()), level=level)
    asyncio_runner.run(run_agent(agent_options, connection, os.environ), loop_factory=asyncio.new_event_loop)
