"""A snapshot of the cluster for checks that run without informers, as in `haulout why`.

    snapshot = await take_snapshot(client, configuration)
    snapshot.get("n1"), snapshot.notes

It lists once what the configuration needs. Resources that the caller may not list become notes: a check that reads them
may return another result than in the operator.
"""

import asyncio
from collections.abc import Awaitable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.api.objects import Lease, Node, Page, RawObject
from haulout.api.resources import LEASES, NODES, PODS, Resource
from haulout.api.workloads import WORKLOAD_KINDS, EvictedWorkload, ScaledWorkload, WorkloadRecord, WorkloadReference
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.executor import HYPERVISORS
from haulout.controllers.profiles.machine import data_annotation
from haulout.controllers.profiles.plugin import (
    ClusterView,
    ExternalClient,
    ExternalQuery,
    Need,
    ObservedNode,
    QueryResult,
    State,
)
from haulout.controllers.profiles.view import node_view, scheduling
from haulout.controllers.profiles.view.node_index import NodeIndex
from haulout.controllers.profiles.view.scheduling import NodeCapacity
from haulout.errors import Forbidden, HauloutError, NotFound
from haulout.kube.client import Client

T = TypeVar("T")

_DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True, model=RawObject)
_RESOURCES: dict[Need, tuple[Resource[Any], ...]] = {
    Need.PODS: (PODS.with_model(RawObject),),
    Need.FREE_CAPACITY: (PODS.with_model(RawObject),),
    Need.LEASES: (LEASES,),
    Need.HYPERVISORS: (HYPERVISORS,),
    Need.DAEMON_SETS: (_DAEMON_SETS,),
    Need.NOTICES: (MAINTENANCE_NOTICES,),
    Need.WORKLOADS: (PODS.with_model(RawObject), *WORKLOAD_KINDS.values()),
}


@dataclass(slots=True)
class Snapshot(ClusterView):
    """The listed objects, with the external queries that checks register and their results."""

    nodes_by_name: NodeIndex
    raw: dict[str, RawObject]  # nodes as listed
    objects: dict[str, tuple[Any, ...]]  # by resource name
    notes: list[str] = field(default_factory=list)
    query_results: dict[ExternalQuery, QueryResult] = field(default_factory=dict)
    queries: dict[ExternalQuery, None] = field(default_factory=dict)  # a set in insertion order
    _pods: dict[str, list[RawObject]] | None = None

    def get(self, name: str) -> ObservedNode | None:
        return self.nodes_by_name.get(name)

    async def run_queries(self, external: ExternalClient, client: Client) -> bool:
        """Send the queries that checks have registered and that have no result yet; return whether there were any."""
        open_queries = [open_query for open_query in self.queries if open_query not in self.query_results]
        if not open_queries:
            return False
        async with asyncio.TaskGroup() as group:
            tasks = {open_query: group.create_task(_fetch(open_query, external, client)) for open_query in open_queries}
        self.query_results |= {query: task.result() for query, task in tasks.items()}
        return True

    # Called by plugins

    def nodes(self) -> Collection[ObservedNode]:
        return self.nodes_by_name.all()

    def nodes_in(self, state: State) -> Collection[ObservedNode]:
        """Return the nodes whose state label is `state`; for in-maintenance also those on their way into it."""
        return self.nodes_by_name.in_state(state)

    def nodes_with(self, label: str) -> Collection[ObservedNode]:
        return self.nodes_by_name.with_label(label)

    def pods_on(self, node: str) -> Collection[RawObject]:
        if self._pods is None:
            self._pods = {}
            for pod in self.objects.get(str(PODS), ()):
                self._pods.setdefault(pod.get("spec", {}).get("nodeName", ""), []).append(pod)
        return self._pods.get(node, ())

    def lease(self, namespace: str, name: str) -> Lease | None:
        found = self.objects.get(str(LEASES), ())
        return next((lease for lease in found if (lease.namespace, lease.name) == (namespace, name)), None)

    def hypervisor(self, name: str) -> RawObject | None:
        return next(
            (
                hypervisor
                for hypervisor in self.objects.get(str(HYPERVISORS), ())
                if hypervisor["metadata"]["name"] == name
            ),
            None,
        )

    def free_capacity(self, node: str) -> NodeCapacity | None:
        """Return the free capacity of a node, None if the node does not exist."""
        observed = self.nodes_by_name.get(node)
        if observed is None:
            return None
        allocatable = self.raw[node].get("status", {}).get("allocatable", {})
        return scheduling.capacity_of(observed.node, allocatable, self.pods_on(node))

    def daemon_sets(self) -> Collection[RawObject]:
        return self.objects.get(str(_DAEMON_SETS), ())

    def notices(self, node: str) -> Collection[MaintenanceNotice]:
        return [notice for notice in self.objects.get(str(MAINTENANCE_NOTICES), ()) if notice.node == node]

    def workloads_on(self, node: str) -> WorkloadRecord:
        return node_view.workloads_of(self.pods_on(node), self._workload)

    def evicted_from(self, node: str) -> Collection[EvictedWorkload]:
        """Return the workloads whose pods were evicted from a node, according to the record in its annotation."""
        return node_view.evicted_workloads(self.nodes_by_name.find(node), self.pods_on(node), self._workload)

    def _workload(self, reference: WorkloadReference) -> ScaledWorkload | None:
        found: tuple[ScaledWorkload, ...] = self.objects.get(str(WORKLOAD_KINDS[reference.kind]), ())
        return next((scaled for scaled in found if scaled.key == reference.key), None)

    def query_result(self, query: ExternalQuery) -> QueryResult | None:
        """Return the result of a query; None: it was not sent yet."""
        # Checks are pure and cannot wait. They register what they need; `run_queries` sends it, and the checks run
        # again.
        self.queries[query] = None
        return self.query_results.get(query)


async def take_snapshot(client: Client, configuration: Configuration) -> Snapshot:
    """List all nodes and what the configuration needs. Raise `KubeError` if nodes cannot be listed."""
    needed = {str(resource): resource for need in configuration.needs for resource in _RESOURCES.get(need, ())}
    notes: list[str] = []
    try:
        async with asyncio.TaskGroup() as group:
            nodes = group.create_task(client.list(NODES.with_model(RawObject)))
            others = {
                name: group.create_task(_list_or_note(client.list(resource), name, notes))
                for name, resource in sorted(needed.items())
            }
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    objects = {name: task.result() for name, task in others.items()}
    return snapshot_of(nodes.result().items, objects, notes=sorted(notes))


def snapshot_of(
    nodes: Iterable[RawObject], objects: dict[str, tuple[Any, ...]], *, notes: Iterable[str] = ()
) -> Snapshot:
    """Return a snapshot of these nodes and objects."""
    raw = {node["metadata"]["name"]: node for node in nodes}
    # The index of the controller is used, fed as by a watch: both see nodes and states in the same way.
    found = NodeIndex(data_annotation.statuses_of, on_change=_ignore)
    for node in raw.values():
        found.on_watch_event(None, msgspec.convert(node, Node, strict=False))
    return Snapshot(found, raw, objects, list(notes))


def _ignore(*_: object) -> None:
    """Ignore a change of a node: a snapshot has no subscribers."""


async def _list_or_note(listing: Awaitable[Page[T]], kind: str, notes: list[str]) -> tuple[T, ...]:
    try:
        return (await listing).items
    except NotFound:
        return ()  # the cluster does not have this resource
    except Forbidden as error:
        notes.append(
            f"{kind}: you are not allowed to read them ({error.message}); checks that need them may be wrong here"
        )
        return ()


async def _fetch(query: ExternalQuery, external: ExternalClient, client: Client) -> QueryResult:
    asked_at = client.clock.now()
    try:
        return QueryResult(asked_at, await query.fetch(external))
    except HauloutError as error:
        return QueryResult(asked_at, problem=f"{error} (queried from here, not from where the operator runs)")
