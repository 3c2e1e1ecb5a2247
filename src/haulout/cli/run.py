"""`haulout run`: the operator on a cluster; or a cluster to try it on, with the operator in it, in this process."""

import math
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haulout.cli import options
from haulout.sandbox import limits

if TYPE_CHECKING:  # heavy: what runs is imported when it is asked for
    from haulout.sandbox.site import Plan

_MOST_PORT = 65_535
_SANDBOX_ONLY = (
    "no_operator",
    "nodes",
    "zones",
    "pods_per_node",
    "seed",
    "speed",
    "scenario",
    "write_kubeconfig",
    "port",
)
_CLUSTER_ONLY = (
    "kubeconfig",
    "context",
    "namespace",
    "log_format",
    "webhook",
    "health_port",
    "no_quorum_check",
)

Check = Callable[[click.Context, click.Parameter, Any], Any]


def _from(least: int, most: int, hint: str) -> Check:
    """Return a check for numbers that names both bounds, and why."""

    def check(_ctx: click.Context, _: click.Parameter, value: float | None) -> float | None:
        if value is not None and (math.isnan(value) or not least <= value <= most):
            raise click.BadParameter(f"expected {least} to {most}, found {value:g}: {hint}.")
        return value

    return check


@click.command("run", short_help="Run the operator, or with --sandbox a cluster to try it on.")
@options.cluster
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Of the operator's log on stderr. [default: text on a terminal, json elsewhere]",
)
@click.option(
    "--webhook",
    metavar="CERTIFICATE",
    help="Serve the admission webhook, with a certificate from: auto, self, folder:PATH or secret:NAME; or off. "
    "[default: auto in a pod, off elsewhere]",
)
@click.option(
    "--health-port",
    type=int,
    metavar="N",
    callback=_from(1, _MOST_PORT, "/healthz and /readyz are served there"),
    help="Serve /healthz and /readyz on this port. [default: 8081 in a pod, not at all elsewhere]",
)
@click.option(
    "--metrics-port",
    type=int,
    metavar="N",
    callback=_from(1, _MOST_PORT, "/metrics and /api/v1/info are served there"),
    help="Serve /metrics and /api/v1/info on this port. [default: 8080 in a pod, not at all elsewhere; with --sandbox "
    "and profiles any that is free]",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration of maintenance profiles. [default: config/maintenance.yaml, if it is there]",
)
@click.option("--no-quorum-check", is_flag=True, help="Take nodes though etcd would lose its quorum; not on OpenShift.")
@click.option("--sandbox", is_flag=True, help="Start a cluster in this process, with the operator in it.")
@click.option("--no-operator", is_flag=True, help="With --sandbox: only the cluster.")
@click.option(
    "--nodes",
    type=int,
    metavar="N",
    callback=_from(1, limits.NODES, "each node costs time and memory; --scenario big has 1,000"),
    help="How many nodes, instead of what the scenario says.",
)
@click.option(
    "--zones",
    type=int,
    metavar="N",
    callback=_from(1, limits.ZONES, "they are named by letters"),
    help="In how many zones.",
)
@click.option(
    "--pods-per-node",
    type=int,
    metavar="N",
    callback=_from(1, limits.PODS_PER_NODE, "a node has room for 110"),
    help="About how many pods on each node.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Decides all that is left to chance.")
@click.option(
    "--speed",
    type=float,
    default=1.0,
    metavar="FACTOR",
    callback=_from(1, limits.SPEED, "1 is life, 60 makes a minute of a second"),
    help="How many times faster than life the cluster's clock runs. [default: 1]",
)
@click.option(
    "--scenario",
    default="default",
    show_default=True,
    metavar="NAME|FILE",
    help="What there is and what happens: default, rolling, trouble, big, or a YAML file.",
)
@click.option(
    "--write-kubeconfig",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write the kubeconfig, instead of ~/.cache/haulout/sandbox.kubeconfig. It is removed at the end.",
)
@click.option(
    "--port",
    type=int,
    default=0,
    metavar="N",
    callback=_from(0, _MOST_PORT, "0 is any that is free"),
    help="Port of the API server on this machine, instead of any that is free.",
)
@options.verbose
@click.pass_context
def run(  # noqa: PLR0913 - one for each option
    ctx: click.Context,
    *,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    log_format: str | None,
    webhook: str | None,
    health_port: int | None,
    metrics_port: int | None,
    config: Path | None,
    no_quorum_check: bool,
    sandbox: bool,
    no_operator: bool,
    nodes: int | None,
    zones: int | None,
    pods_per_node: int | None,
    seed: int,
    speed: float,
    scenario: str,
    write_kubeconfig: Path | None,
    port: int,
) -> None:
    """Run the operator until Ctrl-C or SIGTERM.

    It works on the cluster that --kubeconfig and --context name or, in a pod, on the pod's own. Any number may run: one
    leads, the others wait. NodeMaintenances are seen to where their CustomResourceDefinition is installed, and profiles
    where there is a configuration: that of the SAP maintenance-controller, as it is. Edits take effect by themselves.

    With --sandbox it brings the cluster along: an API server with nodes, a scheduler and controllers, all in memory.
    kubectl cannot tell it from a real one in daily use. It prints how to reach it, and leaves nothing behind.

    \b
    Environment:
      NODE_NAME        the node that this process runs on: before it is drained, another leads
      LEASE_NAMESPACE  where the leases of nodes are, instead of medik8s-leases
      KUBECONTEXT      the context, if --context names none

    \b
    Exit codes:
      0  it ran and was told to end, by Ctrl-C or SIGTERM
      1  the cluster cannot be reached at the start, or does not accept the credentials
      2  the command line or a file it names makes no sense
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    if not sandbox:
        _refuse(ctx, _SANDBOX_ONLY, "only with --sandbox")
        from haulout.cli.operate import Wishes, operate
        from haulout.web.listening import Address

        wishes = Wishes(
            namespace=namespace,
            webhook=webhook,
            health_port=health_port,
            metrics=None if metrics_port is None else Address(metrics_port),
            guards_quorum=not no_quorum_check,
        )
        as_json = log_format == "json" or (log_format is None and not sys.stderr.isatty())
        context = context or os.environ.get("KUBECONTEXT")
        operate(wishes, kubeconfig=kubeconfig, context=context, as_json=as_json, config=config)
        return
    _refuse(ctx, _CLUSTER_ONLY, "not with --sandbox, which brings its own cluster")
    if no_operator:
        _refuse(ctx, ("config",), "not with --no-operator, as nobody would read it")
        _refuse(ctx, ("metrics_port",), "not with --no-operator, as nobody would answer there")
    from haulout.sandbox.scenarios.loading import load
    from haulout.sandbox.scenarios.plan import reshaped
    from haulout.sandbox.site import Plan

    loaded = load(scenario)
    shaped = reshaped(loaded.scenario, nodes=nodes, zones=zones, pods_per_node=pods_per_node)
    plan = Plan(loaded=loaded.of(shaped), seed=seed, speed=speed, port=port, kubeconfig=write_kubeconfig)
    _run(plan, with_operator=not no_operator, config=config, metrics_port=metrics_port)


def _refuse(ctx: click.Context, names: tuple[str, ...], why: str) -> None:
    """Refuse options that do not go with the others; nothing that a person typed is silently ignored."""
    for parameter in ctx.command.params:
        given = ctx.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if given and parameter.name in names:
            raise click.UsageError(f"{parameter.opts[-1]}: {why}")


def _run(plan: "Plan", *, with_operator: bool, config: Path | None, metrics_port: int | None) -> None:
    import asyncio
    import logging

    from haulout.app.sandbox import LOCAL, run_sandbox
    from haulout.cli import connect, sandbox_text
    from haulout.cli.operate import configured, with_profiles
    from haulout.core.clock import RealClock
    from haulout.core.paced import PacedLoop
    from haulout.sandbox.kubeconfig import default_path
    from haulout.web.listening import Address

    # What the cluster's components have to say of faults is for those who ask with -v.
    logging.getLogger("haulout").addHandler(logging.NullHandler())
    logging.getLogger("aiohttp").addHandler(logging.NullHandler())
    began = RealClock().monotonic()
    configuration = configured(config) if with_operator else None
    port = 0 if metrics_port is None and configuration is not None else metrics_port

    async def main() -> None:
        try:
            await run_sandbox(
                plan,
                default_kubeconfig=default_path(os.environ),
                ready=lambda site, api: sandbox_text.show(
                    site, plan, seconds=RealClock().monotonic() - began, with_operator=with_operator, api=api
                ),
                tell=sandbox_text.tell,
                with_operator=with_operator,
                with_profiles=partial(with_profiles, configuration),
                metrics=None if port is None else Address(port, LOCAL),
            )
        except asyncio.CancelledError:  # Ctrl-C and SIGTERM are how it is told to end
            sandbox_text.say_goodbye()

    sandbox_text.say_hello(plan)
    connect.run(main(), loop_factory=PacedLoop)
