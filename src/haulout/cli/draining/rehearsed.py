"""`haulout drain --dry-run`: what would be done, and whether it would come to an end.

With `client` nobody is asked but what is there. With `server` each pod is asked for as a dry run, and what disruption
budgets say of all pods on all nodes together is counted: asked for each pod alone, a server says yes too often.
"""

from collections.abc import Iterator, Sequence

import click

from haulout.cli import cordoning
from haulout.cli.draining import document
from haulout.cli.lines import Line
from haulout.drain.blockers import Kind
from haulout.drain.budgets import Pass, Tallies
from haulout.drain.policy import Policy
from haulout.drain.rehearsal import NodeRehearsal, Rehearsal, rehearse
from haulout.drain.requests import Lane
from haulout.drain.selection import aggregate
from haulout.kube.client import Client
from haulout.kube.objects import Node

_UNASKED = (Kind.COMPLETION, Kind.RULE)  # a rule says that nobody asks these pods to leave, or might say so


async def run(client: Client, nodes: Sequence[Node], policy: Policy, *, dry_run: str, as_json: bool) -> bool:
    """Try it out and tell; return whether all nodes would be drained."""
    for node in nodes:
        done = await cordoning.cordon_node(client, node, dry_run=dry_run)
        for line in cordoning.told(done, wanted="cordon", dry_run=dry_run):
            line.print_unless_result() if as_json else line.print()
    rehearsal = await rehearse(client, nodes, policy, lane=Lane(client), asks=dry_run == "server")
    stuck = [it for it in rehearsal.nodes if is_stuck(it, rehearsal.tallies)]
    if as_json:
        click.echo(document.rehearsal_report(rehearsal, stuck, dry_run=dry_run))
    else:
        for line in told(rehearsal, stuck, suffix=cordoning.SUFFIXES[dry_run], evicts=not policy.disable_eviction):
            line.print()
    return not stuck


def is_stuck(node: NodeRehearsal, tallies: Tallies) -> bool:
    """Tell whether the drain of a node would not begin, or not end by itself."""
    never = {pod for it in tallies.budgets if it.way is Pass.NEVER for pod in it.charged}
    several = {pod for pod, _ in tallies.several}
    denied = [it for it in node.blockers if not it.is_progress and it.kind is not Kind.BUDGET]
    return bool(node.refusals or denied or (never | several) & set(node.leaving))


def told(rehearsal: Rehearsal, stuck: Sequence[NodeRehearsal], *, suffix: str, evicts: bool) -> Iterator[Line]:
    """Yield what would be done, in kubectl's words, and what would stand in the way."""
    problems: dict[str, str] = {}
    for node in rehearsal.nodes:
        if node.refusals:
            problems[node.node] = aggregate(node.refusals)
        else:
            yield from _would_leave(node, suffix=suffix, evicts=evicts)
        if node in stuck:
            problem = problems.setdefault(node.node, "some of its pods would not leave")
            yield Line(f'error: unable to drain node "{node.node}" due to error: {problem}, continuing command...')
        else:
            yield Line(f"node/{node.node} drained{suffix}", is_result=True)
    yield from _budgets(rehearsal.tallies)
    if stuck:
        yield Line("There are pending nodes to be drained:")
        yield from (Line(f" {node.node}") for node in stuck)
        yield from (Line(problem) for problem in dict.fromkeys(problems.values()))


def _would_leave(node: NodeRehearsal, *, suffix: str, evicts: bool) -> Iterator[Line]:
    if node.warning:
        yield Line(f"Warning: {node.warning}")
    unasked = {it.pod for it in node.blockers if it.kind in _UNASKED}
    for pod in node.leaving:
        if pod not in unasked:
            yield Line(f"{'evicting' if evicts else 'deleting'} pod {pod}{suffix}", is_result=True)
    for blocker in node.blockers:
        namespace, _, name = blocker.pod.partition("/")
        why = blocker.reason + (f"; {blocker.advice}" if blocker.advice else "")
        if blocker.kind in _UNASKED:
            yield Line(f"waiting for pod {blocker.pod}: {why}")
        else:
            yield Line(f'error when evicting pods/"{name}" -n "{namespace}": {why}')


def _budgets(tallies: Tallies) -> Iterator[Line]:
    """Yield what budgets say of all pods together, unless they let all go at once."""
    for it in tallies.budgets:
        if it.way is not Pass.AT_ONCE:
            yield Line(f"{it}: {', '.join(it.charged)}")
    for pod, budgets in tallies.several:
        yield Line(
            f"pod {pod} is under {len(budgets)} budgets, and Kubernetes evicts no such pod: {', '.join(budgets)}"
        )
