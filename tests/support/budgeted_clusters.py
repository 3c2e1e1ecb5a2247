"""Clusters of a management cluster that want maintenance, and hubs that let them by a budget, on an API server alone.

A Machine whose `BEGUN` is there stands for a cluster of which a node was touched: what a real hub writes there is in
another cluster.
"""

from collections.abc import Iterable
from datetime import timedelta
from random import Random

from haulout.core.clock import Clock
from haulout.hub.admission import Budget
from haulout.hub.cluster_limits import ClusterLimit, read_limit
from haulout.kinds import clusterapi
from haulout.kinds.clusterapi import ENABLED, MAINTENANCE, REQUESTED, TRUE, ClusterKey, Machine
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout_sandbox.apiserver import ApiServer, Kind, Write
from support.invariants.checking import Invariant, Judge, State, Violation, blame
from support.processes import Program

HOME = "haulout"
VERSION = "v1beta2"
BEGUN = "test.haulout.dev/begun"
MACHINES = clusterapi.machines(VERSION)
_EVERY = timedelta(seconds=5)


def a_management_cluster(clock: Clock, *clusters: RawObject) -> ApiServer:
    """Return a management cluster with these Clusters, and an enabled Machine of each."""
    api = ApiServer(clock, namespaces=[HOME])
    know(api)
    for it in clusters:
        api.put(it)
        api.put(a_machine(str(key_of(it))))
    return api


def know(api: ApiServer) -> None:
    """Have Clusters and Machines served."""
    for plural, kind in (("clusters", "Cluster"), ("machines", "Machine")):
        api.know(Kind(group=clusterapi.GROUP, version=VERSION, plural=plural, kind=kind, custom=True))


def a_cluster_object(key: str, **labels: str) -> RawObject:
    """Return a Cluster."""
    return _made("Cluster", key, labels)


def a_machine(key: str, name: str = "", **labels: str) -> RawObject:
    """Return an enabled Machine of a cluster, called like it unless it has a name."""
    namespace, _, cluster = key.partition("/")
    made = _made("Machine", f"{namespace}/{name or cluster}", {ENABLED: TRUE, **labels})
    return made | {"spec": {"clusterName": cluster}}


def _made(kind: str, key: str, labels: dict[str, str]) -> RawObject:
    namespace, _, name = key.partition("/")
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": f"{clusterapi.GROUP}/{VERSION}", "kind": kind, "metadata": metadata}


def key_of(obj: RawObject) -> ClusterKey:
    """Return which cluster it is."""
    return ClusterKey(obj["metadata"]["namespace"], obj["metadata"]["name"])


def key(text: str) -> ClusterKey:
    """Return the cluster `namespace/name`."""
    namespace, _, name = text.partition("/")
    return ClusterKey(namespace, name)


def a_budget(api: ApiServer, clock: Clock, *limits: str, who: str = "hub") -> Budget:
    """Return the budget of one process."""
    client = Client(api.transport(who), clock=clock, random=Random(who))
    return Budget(client, limits=read_all(limits), namespace=HOME)


def read_all(limits: Iterable[str]) -> tuple[ClusterLimit, ...]:
    """Return what was typed."""
    return tuple(map(read_limit, limits))


def a_hub(*limits: str) -> Program:
    """Return a hub that lets clusters begin by a budget, and does nothing else."""

    async def program(client: Client) -> None:
        budget = Budget(client, limits=read_all(limits), namespace=HOME)
        while True:
            for machine in (await client.list(MACHINES)).items:
                await _see_to(client, budget, machine)
            await client.clock.sleep(_EVERY)

    return program


async def _see_to(client: Client, budget: Budget, machine: Machine) -> None:
    is_asked = machine.metadata.labels.get(MAINTENANCE) == REQUESTED
    has_begun = BEGUN in machine.metadata.annotations
    if is_asked and not has_begun and not await budget.admit(machine.cluster):
        await _annotate(client, machine, "")
    if not is_asked and has_begun:
        await _annotate(client, machine, None)
    if not is_asked:
        await budget.release(machine.cluster)


async def _annotate(client: Client, machine: Machine, value: str | None) -> None:
    patch = merge_patch({"metadata": {"annotations": {BEGUN: value}}})
    await client.patch(MACHINES, machine.name, patch, namespace=machine.namespace)


class ClustersWithinBudget(Invariant):
    """No more clusters are in maintenance at once."""

    def __init__(self, most: int) -> None:
        self.most = most

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that matter."""
        return frozenset({"machines"})

    def begin(self) -> Judge:
        """Return a judge of one history."""
        return _Judge(self.most)


class _Judge(Judge):
    def __init__(self, most: int) -> None:
        self._most = most

    def see(self, write: Write, state: State) -> list[Violation]:
        begun = [it for it, obj in state.all("machines").items() if BEGUN in obj["metadata"].get("annotations", {})]
        return [blame(write, f"{begun} are in maintenance")] if len(begun) > self._most else []
