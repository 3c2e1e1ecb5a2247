"""Workload clusters that request maintenance, and hubs with a budget for clusters, on an API server alone.

A Machine with the annotation `STARTED` stands for a cluster in which maintenance has started: what a real hub writes
there is in another cluster.
"""

from collections.abc import Iterable
from datetime import timedelta
from random import Random

from haulout.api import clusterapi
from haulout.api.clusterapi import ENABLED, MAINTENANCE, REQUESTED, TRUE, ClusterKey, Machine
from haulout.api.objects import RawObject
from haulout.controllers.clusterapi.cluster_budget import ClusterLimit, LimitedClusterBudget, parse_limit
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout_sandbox.apiserver import ApiServer, Kind, Write
from support.clusters.process import Program
from support.invariants.checker import Checker, Invariant, State, Violation, violation_of

NAMESPACE = "haulout"
VERSION = "v1beta2"
STARTED = "test.haulout.dev/begun"
MACHINES = clusterapi.machine_resource(VERSION)
_INTERVAL = timedelta(seconds=5)


def a_management_cluster(clock: Clock, *clusters: RawObject) -> ApiServer:
    """Return a management cluster with these Clusters, and an enabled Machine of each."""
    api = ApiServer(clock, namespaces=[NAMESPACE])
    serve_cluster_api_kinds(api)
    for cluster in clusters:
        api.put(cluster)
        api.put(a_machine(str(key_of(cluster))))
    return api


def serve_cluster_api_kinds(api: ApiServer) -> None:
    """Install the definitions of Cluster and Machine."""
    for plural, kind in (("clusters", "Cluster"), ("machines", "Machine")):
        api.add_kind(Kind(group=clusterapi.GROUP, version=VERSION, plural=plural, kind=kind, is_custom=True))


def a_cluster_object(key: str, **labels: str) -> RawObject:
    """Return a Cluster."""
    return _object("Cluster", key, labels)


def a_machine(key: str, name: str = "", **labels: str) -> RawObject:
    """Return an enabled Machine of a cluster, named like the cluster by default."""
    namespace, _, cluster = key.partition("/")
    made = _object("Machine", f"{namespace}/{name or cluster}", {ENABLED: TRUE, **labels})
    return made | {"spec": {"clusterName": cluster}}


def _object(kind: str, key: str, labels: dict[str, str]) -> RawObject:
    namespace, _, name = key.partition("/")
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": f"{clusterapi.GROUP}/{VERSION}", "kind": kind, "metadata": metadata}


def key_of(obj: RawObject) -> ClusterKey:
    """Return the key of a cluster."""
    return ClusterKey(obj["metadata"]["namespace"], obj["metadata"]["name"])


def parse_key(text: str) -> ClusterKey:
    """Return the cluster `namespace/name`."""
    namespace, _, name = text.partition("/")
    return ClusterKey(namespace, name)


def a_cluster_budget(api: ApiServer, clock: Clock, *limits: str, identity: str = "hub") -> LimitedClusterBudget:
    """Return the budget of one process."""
    client = Client(api.transport(identity), clock=clock, random=Random(identity))
    return LimitedClusterBudget(client, limits=parse_limits(limits), namespace=NAMESPACE)


def parse_limits(limits: Iterable[str]) -> tuple[ClusterLimit, ...]:
    """Return the parsed limits."""
    return tuple(map(parse_limit, limits))


def a_hub(*limits: str) -> Program:
    """Return a hub that only applies the budget for clusters."""

    async def program(client: Client) -> None:
        budget = LimitedClusterBudget(client, limits=parse_limits(limits), namespace=NAMESPACE)
        while True:
            for machine in (await client.list(MACHINES)).items:
                await _reconcile(client, budget, machine)
            await client.clock.sleep(_INTERVAL)

    return program


async def _reconcile(client: Client, budget: LimitedClusterBudget, machine: Machine) -> None:
    is_requested = machine.metadata.labels.get(MAINTENANCE) == REQUESTED
    has_started = STARTED in machine.metadata.annotations
    if is_requested and not has_started and not await budget.acquire(machine.cluster):
        await _annotate(client, machine, "")
    if not is_requested and has_started:
        await _annotate(client, machine, None)
    if not is_requested:
        await budget.release(machine.cluster)


async def _annotate(client: Client, machine: Machine, value: str | None) -> None:
    patch = merge_patch({"metadata": {"annotations": {STARTED: value}}})
    await client.patch(MACHINES, machine.name, patch, namespace=machine.namespace)


class ClustersWithinBudget(Invariant):
    """No more clusters are in maintenance at once."""

    def __init__(self, most: int) -> None:
        self.max_in_maintenance = most

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that matter."""
        return frozenset({"machines"})

    def new_checker(self) -> Checker:
        """Return a checker of one history."""
        return _Checker(self.max_in_maintenance)


class _Checker(Checker):
    def __init__(self, most: int) -> None:
        self._max_in_maintenance = most

    def check_write(self, write: Write, state: State) -> list[Violation]:
        started = [
            machine
            for machine, obj in state.by_key("machines").items()
            if STARTED in obj["metadata"].get("annotations", {})
        ]
        return [violation_of(write, f"{started} are in maintenance")] if len(started) > self._max_in_maintenance else []
