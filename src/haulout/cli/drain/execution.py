"""`haulout drain` without dry run: check permissions, drain, report progress and the result.

`haulout drain --dry-run`: show what a drain would do, and whether it would finish. With `client`, only reads are sent.
With `server`, each pod gets an eviction with dry run, and PodDisruptionBudgets are simulated over all pods of all nodes
together: each eviction alone would be allowed too often.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

import click

from haulout.api.objects import Node
from haulout.cli import output
from haulout.cli.cordon import node_changes
from haulout.cli.drain import json_output
from haulout.cli.drain.drain_runner import DrainRunner, NodeDrain, NodeDrainState, ProgressReporter, is_success
from haulout.cli.drain.plain_progress import PlainReporter, summary_lines
from haulout.cli.output import OutputLine, format_pairs, printable
from haulout.core.text import format_pod_count
from haulout.drain.blockers import BlockerKind
from haulout.drain.dry_run import DrainDryRun, NodeDryRun, dry_run_drain
from haulout.drain.eviction_client import EvictionClient
from haulout.drain.pdb_simulation import PdbOutcome, PdbSimulations
from haulout.drain.pod_filters import aggregate_errors
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import PodProgress
from haulout.errors import KubeError
from haulout.kube import rbac
from haulout.kube.client import Client
from haulout.kube.rbac import Permission

_NAMED = 5

_NOT_EVICTED = (
    BlockerKind.COMPLETION,
    BlockerKind.RULE,
)  # a drain rule excludes these pods, or may do so


def interruption_summary(node_drains: Sequence[NodeDrain], *, resume_command: str, undo_command: str) -> list[str]:
    """Return the lines about an interrupted drain. Both commands are without names of nodes."""
    lines = ["Stopped: no further pods are evicted. State of the nodes:"]
    lines += [
        f"  {line}" for line in format_pairs([(f"node/{record.node}", node_state(record)) for record in node_drains])
    ]
    if not all(record.result is NodeDrainState.DRAINED for record in node_drains):
        lines.append(f"To resume: {resume_command}")
    newly_cordoned = [record.node for record in node_drains if record.is_cordoned and not record.was_cordoned]
    if newly_cordoned:
        lines.append(f"To undo:   {undo_command} {' '.join(newly_cordoned)}")
    cordoned_before = [record.node for record in node_drains if record.was_cordoned]
    if cordoned_before:
        before = (
            "was cordoned before, and stays cordoned"
            if len(cordoned_before) == 1
            else "were cordoned before, and stay cordoned"
        )
        lines.append(f"           {', '.join(cordoned_before)} {before}")
    if any(record.terminating_pods for record in node_drains):
        lines.append("Terminating pods are deleted anyway; this cannot be undone.")
    return lines


def node_state(node_drain: NodeDrain) -> str:
    """Return the state of a node in words."""
    cordoned = _cordoned(node_drain)
    match node_drain.result:
        case NodeDrainState.DRAINED:
            return f"{cordoned}, drained"
        case NodeDrainState.QUEUED:
            return f"{cordoned}, no pod was evicted"
        case NodeDrainState.DRAINING | NodeDrainState.INTERRUPTED if node_drain.progress is not None:
            return f"{cordoned}, partly drained: {_progress_summary(node_drain)}"
        case NodeDrainState.FAILED if not node_drain.is_cordoned:
            return node_drain.problem
    return f"{cordoned}, not drained: {node_drain.problem or 'its pods were not listed yet'}"


def _cordoned(node_drain: NodeDrain) -> str:
    if not node_drain.is_cordoned:
        return "not cordoned"
    return "cordoned as before" if node_drain.was_cordoned else "cordoned"


def _progress_summary(node_drain: NodeDrain) -> str:
    gone = 0 if node_drain.progress is None else node_drain.progress.gone
    parts = [f"{format_pod_count(gone)} gone"]
    if node_drain.terminating_pods:
        parts.append(
            f"{format_pod_count(len(node_drain.terminating_pods))} "
            f"terminating ({_pod_names(node_drain.terminating_pods)})"
        )
    if node_drain.running_pods:
        parts.append(
            f"{format_pod_count(len(node_drain.running_pods))} still running ({_pod_names(node_drain.running_pods)})"
        )
    return ", ".join(parts)


def _pod_names(pods: Sequence[PodProgress]) -> str:
    more = f" and {len(pods) - _NAMED} more" if len(pods) > _NAMED else ""
    return ", ".join(row.pod for row in pods[:_NAMED]) + more


# A drain cannot progress without these. Permissions per pod are reported when a pod is refused.
_REQUIRED_PERMISSIONS = (
    Permission(("patch",), "", "nodes", None, "cordon nodes"),
    Permission(("list", "watch"), "", "pods", None, "watch pods leave"),
)


async def run(
    client: Client,
    nodes: Sequence[Node],
    policy: DrainPolicy,
    *,
    max_parallel: int,
    plain: bool,
    as_json: bool,
    cluster: Mapping[str, str | None],
) -> bool:
    """Drain nodes; return whether all are drained."""
    await _check_permissions(client)
    node_drains: list[NodeDrain] = []
    reporter = _make_reporter(node_drains, policy, client, plain=plain, as_json=as_json)
    runner = DrainRunner(client, nodes, policy, parallel=max_parallel, reporter=reporter)
    node_drains += runner.node_drains
    try:
        await runner.run()
    except asyncio.CancelledError:
        undo_command = output.command_line("uncordon", options=cluster)
        for line in interruption_summary(
            node_drains, resume_command=output.repeat_command(), undo_command=undo_command
        ):
            click.echo(printable(line), err=True)
        _print_outcome(node_drains, as_json=as_json, interrupted=True)
        raise
    _print_outcome(node_drains, as_json=as_json, interrupted=False)
    return is_success(node_drains)


def _print_outcome(node_drains: list[NodeDrain], *, as_json: bool, interrupted: bool) -> None:
    if not interrupted:
        for line in summary_lines(node_drains):
            line.print()
    if as_json:
        click.echo(json_output.drain_report(node_drains, interrupted=interrupted))


def _make_reporter(
    node_drains: list[NodeDrain], policy: DrainPolicy, client: Client, *, plain: bool, as_json: bool
) -> ProgressReporter:
    """Return a live reporter for a terminal, else a plain one."""
    if not plain and _is_terminal(sys.stderr if as_json else sys.stdout):
        from rich.console import Console

        from haulout.cli.drain.live_progress import LiveReporter

        console = Console(stderr=as_json, highlight=False, no_color=True if os.environ.get("NO_COLOR") else None)
        return LiveReporter(lambda: node_drains, console=console, clock=client.clock)
    print_line = OutputLine.print_unless_result if as_json else OutputLine.print
    return PlainReporter(policy, clock=client.clock, print_line=print_line)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


async def _check_permissions(client: Client) -> None:
    """Raise `KubeError` if required permissions are missing, before anything changes."""
    missing = await rbac.denied_permissions(client, _REQUIRED_PERMISSIONS)
    if missing:
        verbs = ", ".join(f"{refusal.verb} {refusal.permission}" for refusal in missing)
        reason = next((f": {denied.reason}" for denied in missing if denied.reason), "")
        advice = "`haulout cluster-info --grant` prints what would allow it"
        raise KubeError(f"you are not allowed to {verbs}{reason}; nothing was changed; {advice}")


async def run_dry_run(
    client: Client, nodes: Sequence[Node], policy: DrainPolicy, *, dry_run: str, as_json: bool
) -> bool:
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
