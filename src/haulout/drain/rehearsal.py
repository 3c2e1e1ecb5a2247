"""A drain that is only tried out: what would leave, what would be said about it, and what would stand in the way.

Each pod is asked to leave as a dry run, which brings out what webhooks, permissions and budgets say of it alone; what
the budgets say of all together, on however many nodes, is counted here (`haulout.drain.budgets`). Nothing is changed.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from haulout.drain import blockers, sorting
from haulout.drain.answers import Answers
from haulout.drain.blockers import Blocker
from haulout.drain.budgets import BUDGETS, Tallies, tally
from haulout.drain.machine_rules import honoured
from haulout.drain.memory import Memory
from haulout.drain.pods import on_node
from haulout.drain.policy import Policy
from haulout.drain.requests import Lane
from haulout.drain.sorting import Sorted
from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.kube.objects import Node, Pod
from haulout.kube.resources import PODS


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRehearsal:
    """What would happen on one node."""

    node: str
    leaving: tuple[str, ...]  # pods, as namespace/name
    refusals: tuple[str, ...]  # why the drain would not begin, in kubectl's words
    warning: str
    blockers: tuple[Blocker, ...]  # what was said to the pods that were asked


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What would happen if these nodes were drained at once."""

    nodes: tuple[NodeRehearsal, ...]
    tallies: Tallies


async def rehearse(
    client: Client, nodes: Sequence[Node], policy: Policy, *, lane: Lane, asks: bool = True
) -> Rehearsal:
    """Try out the drain of nodes; raises `KubeError` if the server does not even tell what is there.

    Without `asks` it only looks which pods would leave: nobody is asked whether they may, and no budget is read.
    """
    found = [await _look(client, node, honoured(policy, node)) for node in nodes]
    both = list(zip((node.name for node in nodes), found, strict=True))
    if not asks:
        return Rehearsal(tuple(_rehearsal(node, it, {}) for node, it in both), tally((), ()))
    pods = [it.pod for each in found if not each.refused for it in each.travellers if it.blocker is None]
    said = await _ask_all(pods, policy, lane)
    budgets = () if policy.disable_eviction or not pods else (await client.list(BUDGETS)).items
    rehearsals = tuple(_rehearsal(node, each, said) for node, each in both)
    return Rehearsal(rehearsals, tally(pods, budgets))


def _rehearsal(node: str, found: Sorted, said: dict[str, Blocker]) -> NodeRehearsal:
    return NodeRehearsal(
        node=node,
        leaving=tuple(it.pod.key for it in found.travellers),
        refusals=found.selected.refusals,
        warning=found.selected.warning,
        blockers=tuple(
            blocker for it in found.travellers if (blocker := it.blocker or said.get(it.pod.uid)) is not None
        ),
    )


async def _look(client: Client, node: Node, policy: Policy) -> Sorted:
    pods = (await client.list(PODS, fields=on_node(node.name))).items
    now = client.clock.now()
    memory = Memory(started=now).seeing(pods, now=now)
    answers = Answers(client)
    while True:
        found = sorting.sort(
            pods,
            memory,
            policy,
            daemon_sets=answers.daemon_sets,
            namespaces=answers.namespaces,
            taints=node.spec.taints,
            now=now,
        )
        questions = answers.open(found.questions)
        if not questions:
            return found
        async with asyncio.TaskGroup() as group:
            for question in questions:
                group.create_task(answers.ask(question))


async def _ask_all(pods: Sequence[Pod], policy: Policy, lane: Lane) -> dict[str, Blocker]:
    """Return by uid what stands in the way of pods."""
    said: dict[str, Blocker] = {}

    async def ask(pod: Pod) -> None:
        try:
            await lane.try_out(pod, grace=policy.grace_period, evicts=not policy.disable_eviction)
        except KubeError as error:
            said[pod.uid] = blockers.refused(pod, error)

    async with asyncio.TaskGroup() as group:
        for pod in pods:
            group.create_task(ask(pod))
    return said
