"""`haulout drain`: like kubectl's, but for many nodes at once, and with the reasons of each wait."""

from typing import Any

import click

from haulout.cli import options
from haulout.cli.options import KubectlCommand, OptionalBoolOption, check_node_options, dry_run_option, node_options

MAX_PARALLEL = 50


@click.command("drain", cls=KubectlCommand, short_help="Cordon nodes, and evict their pods.")
@node_options
@click.option("--force", cls=OptionalBoolOption, help="Also evict pods that no controller recreates elsewhere.")
@click.option("--ignore-daemonsets", cls=OptionalBoolOption, help="Ignore the pods of DaemonSets.")
@click.option(
    "--delete-emptydir-data", cls=OptionalBoolOption, help="Also evict pods with emptyDir volumes, whose data is lost."
)
@click.option(
    "--grace-period", type=int, metavar="SECONDS", help="Grace period of each pod, instead of its own; -1 uses its own."
)
@click.option(
    "--timeout", metavar="DURATION", help="Give up on a node after this time, such as 90s or 1h30m; 0s means no limit."
)
@click.option("--pod-selector", metavar="SELECTOR", help="Only the pods with these labels.")
@click.option(
    "--disable-eviction",
    cls=OptionalBoolOption,
    help="Delete pods instead of evicting them, regardless of PodDisruptionBudgets. Dangerous.",
)
@click.option(
    "--skip-wait-for-delete-timeout",
    type=int,
    metavar="SECONDS",
    help="Do not wait for pods whose deletion timestamp is older than this; 0 waits for all pods.",
)
@click.option(
    "--chunk-size",
    type=int,
    metavar="N",
    help="Accepted for compatibility with kubectl; lists are always read in pages.",
)
@click.option(
    "--parallel",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"How many nodes to drain at once, at most {MAX_PARALLEL}; the default is all.",
)
@click.option(
    "--order",
    metavar="ORDER",
    help="Which pods leave last, with commas: priority (the most important pods), storage-last (pods with volumes "
    "that move "
    "along), daemonsets-last (pods of DaemonSets, if a taint of the node keeps them from coming back).",
)
@click.option("--policy", metavar="FILE", help="A drain policy in YAML; flags override it.")
@click.option("--plain", is_flag=True, help="Print lines instead of a live view, also on a terminal.")
@dry_run_option
@options.output_option
@options.kubeconfig_options
@options.verbose_option
@click.pass_context
def drain(ctx: click.Context, /, **flags: Any) -> None:
    """Cordon nodes, then evict their pods and wait until they are deleted; several nodes at once.

    Flags and output are those of kubectl drain. Evictions that a PodDisruptionBudget or a webhook refuses are retried
    until they succeed: --timeout sets a limit. Nothing is forced unless you ask for it.

    On a terminal a live view shows the progress of each node, what blocks it, since when, and what you can do.
    Elsewhere, and with --plain, the output is kubectl's. With -o json one document is printed at the end, and nothing
    else on standard output.

    Ctrl-C stops: no further pod is evicted, and the output says what is left, how to continue and how to undo it.
    Ctrl-C again ends at once.

    --dry-run=server asks the server about each pod, and sums up what PodDisruptionBudgets allow over all nodes.

    \b
    Exit codes:
      0  all nodes are drained (dry run: would be)
      1  a node was not drained, is unknown, or something was refused
      2  the command line or the policy is invalid
      130  interrupted; 143  terminated
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    check_node_options(flags["nodes"], flags["selector"])
    ctx.exit(_run(**flags))


def _run(  # noqa: PLR0913 - one per option that is not part of the policy
    *,
    nodes: tuple[str, ...],
    selector: str | None,
    parallel: int | None,
    plain: bool,
    dry_run: str,
    output: str,
    kubeconfig: str | None,
    context: str | None,
    chunk_size: int | None,
    **flags: Any,
) -> int:
    del chunk_size
    from haulout.cli.connect import connect, run
    from haulout.cli.drain.flags import DrainFlags, build_policy
    from haulout.cli.node_lookup import find_nodes

    policy = build_policy(DrainFlags(**flags))
    as_json = output == "json"

    async def main() -> bool:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            found = await find_nodes(session.client, nodes, selector)
            if dry_run != "none":
                from haulout.cli.drain.execution import run_dry_run

                return await run_dry_run(session.client, found, policy, dry_run=dry_run, as_json=as_json)
            from haulout.cli.drain import execution

            at_once = parallel or min(max(len(found), 1), MAX_PARALLEL)
            cluster = {"--kubeconfig": kubeconfig, "--context": context}
            return await execution.run(
                session.client, found, policy, max_parallel=at_once, plain=plain, as_json=as_json, cluster=cluster
            )

    return 0 if run(main()) else 1
