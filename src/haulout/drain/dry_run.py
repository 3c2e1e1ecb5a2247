"""The dry run of a drain: which pods would leave, what the API server would answer, and what would block.

Each eviction is sent as a dry run, which shows the answers of webhooks, RBAC and PodDisruptionBudgets for that pod
alone. What PodDisruptionBudgets allow for all pods together, on any number of nodes, is computed by
`haulout.drain.pdb_simulation`. Nothing is changed.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from haulout.api.objects import Node, Pod
from haulout.api.resources import PODS
from haulout.drain import blockers, pod_selection
from haulout.drain.blockers import Blocker
from haulout.drain.eviction_client import EvictionClient
from haulout.drain.lookups import LookupCache
from haulout.drain.machine_drain_rules import with_machine_drain_rules
from haulout.drain.pdb_simulation import POD_DISRUPTION_BUDGETS, PdbSimulations, simulate_evictions
from haulout.drain.pod_informers import node_field_selector
from haulout.drain.pod_selection import PodSelection
from haulout.drain.policy import DrainPolicy
from haulout.drain.state import TrackedDrain
from haulout.errors import KubeError
from haulout.kube.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDryRun:
    """What would happen to the pods of one node."""

    node: str
    leaving: tuple[str, ...]  # namespace/name
    refusals: tuple[str, ...]  # why the drain would not begin, in kubectl's words
    warning: str
    blockers: tuple[Blocker, ...]  # answers to the dry-run evictions


@dataclass(frozen=True, slots=True)
class DrainDryRun:
    """The result for nodes that are drained at the same time."""

    nodes: tuple[NodeDryRun, ...]
    pdbs: PdbSimulations


async def dry_run_drain(
    client: Client,
    nodes: Sequence[Node],
    policy: DrainPolicy,
    *,
    eviction_client: EvictionClient,
    asks_server: bool = True,
) -> DrainDryRun:
    """Dry-run the drain of nodes. Raise `KubeError` if the pods cannot be listed.

    Without `asks_server`, only select the pods: no eviction is tried, and no PodDisruptionBudget is read.
    """
    selections = [await _select_pods(client, node, with_machine_drain_rules(policy, node)) for node in nodes]
    nodes_with_selections = list(zip((node.name for node in nodes), selections, strict=True))
    if not asks_server:
        return DrainDryRun(
            tuple(_node_dry_run(node, entry, {}) for node, entry in nodes_with_selections), simulate_evictions((), ())
        )
    pods = [
        entry.pod
        for selection in selections
        if not selection.refused
        for entry in selection.pods_to_evict
        if entry.blocker is None
    ]
    blockers_by_uid = await _dry_run_evictions(pods, policy, eviction_client)
    # Deletions ignore PodDisruptionBudgets, so a simulation would mislead.
    pdbs = () if policy.disable_eviction or not pods else (await client.list(POD_DISRUPTION_BUDGETS)).items
    dry_runs = tuple(_node_dry_run(node, selection, blockers_by_uid) for node, selection in nodes_with_selections)
    return DrainDryRun(dry_runs, simulate_evictions(pods, pdbs))


def _node_dry_run(node: str, selection: PodSelection, blockers_by_uid: dict[str, Blocker]) -> NodeDryRun:
    return NodeDryRun(
        node=node,
        leaving=tuple(selected.pod.key for selected in selection.pods_to_evict),
        refusals=selection.delete_list.refusals,
        warning=selection.delete_list.warning,
        blockers=tuple(
            blocker
            for selected in selection.pods_to_evict
            if (blocker := selected.blocker or blockers_by_uid.get(selected.pod.uid)) is not None
        ),
    )


async def _select_pods(client: Client, node: Node, policy: DrainPolicy) -> PodSelection:
    pods = (await client.list(PODS, fields=node_field_selector(node.name))).items
    now = client.clock.now()
    state = TrackedDrain(started=now).observe(pods, now=now)
    lookups = LookupCache(client)
    while True:
        selection = pod_selection.select_pods(
            pods,
            state,
            policy,
            daemon_sets=lookups.daemon_sets,
            namespaces=lookups.namespaces,
            taints=node.spec.taints,
            now=now,
        )
        requests = lookups.due_requests(selection.lookups)
        if not requests:
            return selection
        async with asyncio.TaskGroup() as group:
            for request in requests:
                group.create_task(lookups.look_up(request))


async def _dry_run_evictions(
    pods: Sequence[Pod], policy: DrainPolicy, eviction_client: EvictionClient
) -> dict[str, Blocker]:
    """Return by pod UID the blocker of each dry-run eviction that was refused."""
    blockers_by_uid: dict[str, Blocker] = {}

    async def dry_run_eviction(pod: Pod) -> None:
        try:
            await eviction_client.dry_run(pod, grace=policy.grace_period, evicts=not policy.disable_eviction)
        except KubeError as error:
            blockers_by_uid[pod.uid] = blockers.refusal_blocker(pod, error)

    async with asyncio.TaskGroup() as group:
        for pod in pods:
            group.create_task(dry_run_eviction(pod))
    return blockers_by_uid
