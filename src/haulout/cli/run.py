"""`haulout run`: today a cluster to try things on, in this process; the operator joins it in the next releases."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haulout.cli import options
from haulout.sandbox import limits

if TYPE_CHECKING:  # heavy: the sandbox is imported when it is asked for
    from haulout.sandbox.site import Plan

_MOST_PORT = 65_535

Check = Callable[[click.Context, click.Parameter, Any], Any]


def _from(least: int, most: int, hint: str) -> Check:
    """Return a check for numbers that names both bounds, and why."""

    def check(_ctx: click.Context, _: click.Parameter, value: float | None) -> float | None:
        if value is not None and (math.isnan(value) or not least <= value <= most):
            raise click.BadParameter(f"expected {least} to {most}, found {value:g}: {hint}.")
        return value

    return check


@click.command("run", short_help="Run a cluster to try things on, in this process.")
@click.option(
    "--sandbox", is_flag=True, help="Start a cluster in this process. Without it there is nothing to run yet."
)
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
def run(  # noqa: PLR0913 - one for each option
    *,
    sandbox: bool,
    nodes: int | None,
    zones: int | None,
    pods_per_node: int | None,
    seed: int,
    speed: float,
    scenario: str,
    write_kubeconfig: Path | None,
    port: int,
) -> None:
    """Run a cluster to try things on, in this process, until Ctrl-C.

    It is a Kubernetes API server with nodes, a scheduler and controllers, all in memory: kubectl cannot tell it from a
    real one in daily use. It prints how to reach it. Nothing is left behind when it ends.

    There is no operator in it yet: Haulout's own work on nodes comes with the next releases.

    \b
    Exit codes:
      0  it ran and was told to end, by Ctrl-C or SIGTERM
      2  the command line or a file it names makes no sense
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    if not sandbox:
        raise click.UsageError(
            "there is no operator yet to run on a cluster of yours, it comes with the next releases; "
            "'haulout run --sandbox' starts a cluster to try things on"
        )
    from haulout.sandbox.scenarios.loading import load
    from haulout.sandbox.scenarios.plan import reshaped
    from haulout.sandbox.site import Plan

    loaded = load(scenario)
    shaped = reshaped(loaded.scenario, nodes=nodes, zones=zones, pods_per_node=pods_per_node)
    _run(Plan(loaded=loaded.of(shaped), seed=seed, speed=speed, port=port, kubeconfig=write_kubeconfig))


def _run(plan: "Plan") -> None:
    import asyncio
    import logging

    from haulout import app
    from haulout.cli import connect, sandbox_text
    from haulout.core.clock import RealClock
    from haulout.core.paced import PacedLoop
    from haulout.sandbox.kubeconfig import default_path

    # What the cluster's components have to say of faults is for those who ask with -v.
    logging.getLogger("haulout").addHandler(logging.NullHandler())
    logging.getLogger("aiohttp").addHandler(logging.NullHandler())
    began = RealClock().monotonic()

    async def main() -> None:
        try:
            await app.run_sandbox(
                plan,
                default_kubeconfig=default_path(os.environ),
                ready=lambda site: sandbox_text.show(site, plan, seconds=RealClock().monotonic() - began),
                tell=sandbox_text.tell,
            )
        except asyncio.CancelledError:  # Ctrl-C and SIGTERM are how it is told to end
            sandbox_text.say_goodbye()

    sandbox_text.say_hello(plan)
    connect.run(main(), loop_factory=PacedLoop)
