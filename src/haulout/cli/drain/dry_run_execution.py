"""`haulout drain --dry-run`: show what a drain would do, and whether it would finish.

With `client`, only reads are sent. With `server`, each pod gets an eviction with dry run, and PodDisruptionBudgets are
simulated over all pods of all nodes together: each eviction alone would be allowed too often.
"""

from collections.abc import Iterator, Sequence

import click

from haulout.api.objects import Node
from haulout.cli.cordon import node_changes
from haulout.cli.drain import json_output
from haulout.cli.output_lines import OutputLine
from haulout.drain.blockers import BlockerKind
from haulout.drain.dry_run import DrainDryRun, NodeDryRun, dry_run_drain
from haulout.drain.eviction_client import EvictionClient
from haulout.drain.pdb_simulation import PdbOutcome, PdbSimulations
from haulout.drain.pod_filters import aggregate_errors
from haulout.drain.policy import DrainPolicy
from haulout.kube.client import Client

_NOT_EVICTED = (
    BlockerKind.COMPLETION,
    BlockerKind.RULE,
)  # a drain rule excludes these pods, or may do so


async def run(client: Client, nodes: Sequence[Node], policy: DrainPolicy, *, dry_run: str, as_json: bool) -> bool:
    """Simulate a drain and print the result; return whether all nodes would be drained."""
    for node in nodes:
        result = await node_changes.cordon_node(client, node, dry_run=dry_run)
        for line in node_changes.result_lines(result, verb="cordon", dry_run=dry_run):
            line.print_unless_result() if as_json else line.print()
    outcome = await dry_run_drain(
        client, nodes, policy, eviction_client=EvictionClient(client), asks_server=dry_run == "server"
    )
    undrainable = [node_dry_run for node_dry_run in outcome.nodes if is_undrainable(node_dry_run, outcome.pdbs)]
    if as_json:
        click.echo(json_output.dry_run_report(outcome, undrainable, dry_run=dry_run))
    else:
        for line in dry_run_lines(
            outcome,
            undrainable,
            suffix=node_changes.DRY_RUN_SUFFIXES[dry_run],
            uses_eviction=not policy.disable_eviction,
        ):
            line.print()
    return not undrainable


def is_undrainable(node: NodeDryRun, simulations: PdbSimulations) -> bool:
    """Return whether the drain of a node would not begin, or not finish by itself."""
    never_evictable = {pod for item in simulations.pdbs if item.outcome is PdbOutcome.NEVER for pod in item.charged}
    with_several_budgets = {pod for pod, _ in simulations.pods_with_several_pdbs}
    denied = [item for item in node.blockers if not item.is_progress and item.kind is not BlockerKind.DISRUPTION_BUDGET]
    return bool(node.refusals or denied or (never_evictable | with_several_budgets) & set(node.leaving))


def dry_run_lines(
    outcome: DrainDryRun, undrainable: Sequence[NodeDryRun], *, suffix: str, uses_eviction: bool
) -> Iterator[OutputLine]:
    """Yield what a drain would do, in kubectl's words, and what would block it."""
    problems: dict[str, str] = {}
    for node in outcome.nodes:
        if node.refusals:
            problems[node.node] = aggregate_errors(node.refusals)
        else:
            yield from _node_lines(node, suffix=suffix, uses_eviction=uses_eviction)
        if node in undrainable:
            problem = problems.setdefault(node.node, "some of its pods would not be evicted")
            yield OutputLine(
                f'error: unable to drain node "{node.node}" due to error: {problem}, continuing command...'
            )
        else:
            yield OutputLine(f"node/{node.node} drained{suffix}", is_result=True)
    yield from _budget_lines(outcome.pdbs)
    if undrainable:
        yield OutputLine("There are pending nodes to be drained:")
        yield from (OutputLine(f" {node.node}") for node in undrainable)
        yield from (OutputLine(problem) for problem in dict.fromkeys(problems.values()))


def _node_lines(node: NodeDryRun, *, suffix: str, uses_eviction: bool) -> Iterator[OutputLine]:
    if node.warning:
        yield OutputLine(f"Warning: {node.warning}")
    not_evicted = {pod_blocker.pod for pod_blocker in node.blockers if pod_blocker.kind in _NOT_EVICTED}
    for pod in node.leaving:
        if pod not in not_evicted:
            yield OutputLine(f"{'evicting' if uses_eviction else 'deleting'} pod {pod}{suffix}", is_result=True)
    for blocker in node.blockers:
        namespace, _, name = blocker.pod.partition("/")
        why = blocker.reason + (f"; {blocker.remedy}" if blocker.remedy else "")
        if blocker.kind in _NOT_EVICTED:
            yield OutputLine(f"waiting for pod {blocker.pod}: {why}")
        else:
            yield OutputLine(f'error when evicting pods/"{name}" -n "{namespace}": {why}')


def _budget_lines(simulations: PdbSimulations) -> Iterator[OutputLine]:
    """Yield the PodDisruptionBudgets that do not allow to evict all pods at once."""
    for budget in simulations.pdbs:
        if budget.outcome is not PdbOutcome.AT_ONCE:
            yield OutputLine(f"{budget}: {', '.join(budget.charged)}")
    for pod, budgets in simulations.pods_with_several_pdbs:
        yield OutputLine(
            f"pod {pod} matches {len(budgets)} PodDisruptionBudgets, so Kubernetes refuses its eviction: "
            f"{', '.join(budgets)}"
        )
