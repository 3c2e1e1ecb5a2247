"""The view of the cluster for the checks of one node, backed by informers.

It also derives the workloads of the pods on a node, and keeps which nodes subscribe to which workloads. The state of
the workloads before a drain is in an annotation of the node (`haulout.api.workloads`), written together with the
cordon, so that the next leader compares with the same state.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from haulout.api import workloads
from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.objects import Lease, Node, RawObject
from haulout.api.workloads import (
    ControlledPod,
    EvictedWorkload,
    FindWorkload,
    ScaledWorkload,
    WorkloadRecord,
    WorkloadReference,
)
from haulout.controllers.profiles.plugin import ClusterView, ExternalQuery, ObservedNode, QueryResult, State
from haulout.controllers.profiles.view import topics
from haulout.controllers.profiles.view.node_index import NodeIndex
from haulout.controllers.profiles.view.scheduling import NodeCapacity

if TYPE_CHECKING:  # it creates the views
    from haulout.controllers.profiles.view.informers import ProfileInformers


class NodeView(ClusterView):
    """The view for one reconcile of one node."""

    def __init__(self, node: str, nodes: NodeIndex, informers: "ProfileInformers") -> None:
        self._node = node
        self._nodes = nodes
        self._informers = informers

    def nodes(self) -> Collection[ObservedNode]:
        return self._nodes.all()

    def nodes_in(self, state: State) -> Collection[ObservedNode]:
        """Return the nodes whose state label is `state`; for in-maintenance also those on their way into it."""
        return self._nodes.in_state(state)

    def nodes_with(self, label: str) -> Collection[ObservedNode]:
        return self._nodes.with_label(label)

    def pods_on(self, node: str) -> Collection[RawObject]:
        """Return the pods on a node.

        `haulout.controllers.profiles.view.transform` lists the fields that are kept.
        """
        return [row.raw for row in self._informers.pods(node, for_node=self._node)]

    def lease(self, namespace: str, name: str) -> Lease | None:
        return self._informers.lease(namespace, name, for_node=self._node)

    def hypervisor(self, name: str) -> RawObject | None:
        """Return a hypervisor; None in a cluster without the resource."""
        row = self._informers.hypervisor(name, for_node=self._node)
        return None if row is None else row.raw

    def free_capacity(self, node: str) -> NodeCapacity | None:
        """Return the free capacity of a node, None if the node does not exist."""
        observed = self._nodes.get(node)
        return None if observed is None else self._informers.free_capacity(observed, for_node=self._node)

    def daemon_sets(self) -> Collection[RawObject]:
        return [row.raw for row in self._informers.daemon_sets(for_node=self._node)]

    def notices(self, node: str) -> Collection[MaintenanceNotice]:
        """Return the maintenance notices for a node; none in a cluster without the resource."""
        return self._informers.notices(node, for_node=self._node)

    def workloads_on(self, node: str) -> WorkloadRecord:
        return workloads_of(self.pods_on(node), self._informers.workload_lookup(for_node=self._node))

    def evicted_from(self, node: str) -> Collection[EvictedWorkload]:
        """Return the workloads whose pods were evicted from a node."""
        find = self._informers.workload_lookup(for_node=self._node)
        return evicted_workloads(self._nodes.find(node), self.pods_on(node), find)

    def query_result(self, query: ExternalQuery) -> QueryResult | None:
        """Return the cached result of a query; None: no result yet, the query is sent from now on."""
        return self._informers.queries.result(self._node, query)


class PassiveView(NodeView):
    """The view for previews: it registers no external queries."""

    def query_result(self, query: ExternalQuery) -> QueryResult | None:
        """Return the result of a query that another node has registered; None if there is none."""
        return self._informers.queries.cached_result(query)


class WorkloadSubscriptions:
    """Maps workloads to the nodes that subscribe to them. `publish` is called with the topics of changes."""

    def __init__(self, publish: Callable[[frozenset[str]], object]) -> None:
        self._publish = publish
        self._workloads: dict[str, tuple[WorkloadReference, ...]] = {}  # by node
        self._nodes: dict[WorkloadReference, dict[str, None]] = {}

    def subscribe(self, node: str, record: WorkloadRecord | None) -> None:
        """Replace the subscriptions of a node by the workloads in a record; None: none."""
        wanted = () if record is None else tuple(workload.reference for workload in record.workloads)
        known = self._workloads.get(node, ())
        if wanted == known:
            return
        for reference in known:
            self._nodes[reference].pop(node, None)
            if not self._nodes[reference]:
                del self._nodes[reference]
        for reference in wanted:
            self._nodes.setdefault(reference, {})[node] = None
        if wanted:
            self._workloads[node] = wanted
        else:
            self._workloads.pop(node, None)

    def on_workload(self, old: ScaledWorkload | None, new: ScaledWorkload | None, *, kind: str) -> None:
        """Publish the topics of the nodes that subscribe to a changed workload."""
        workload = new or old
        if workload is None or (
            old is not None and new is not None and (old.spec, old.status) == (new.spec, new.status)
        ):
            return
        nodes = self._nodes.get(WorkloadReference(kind, workload.key), {})
        if nodes:
            self._publish(frozenset(map(topics.evicted, nodes)))

    def clear(self) -> None:
        self._workloads.clear()
        self._nodes.clear()


def workloads_of(pods: Iterable[RawObject], find: FindWorkload) -> WorkloadRecord:
    """Return a record of the workloads that the pods on a node belong to."""
    return workloads.record_workloads(map(_controlled, pods), find)


def evicted_workloads(node: Node | None, pods: Iterable[RawObject], find: FindWorkload) -> Collection[EvictedWorkload]:
    """Return the workloads that lost a pod on a node since it was cordoned; `pods` are those on the node now.

    Raise `InvalidWorkloadRecord` if the annotation cannot be decoded.
    """
    before = None if node is None else workloads.decode_annotation(node)
    if before is None:
        return ()
    present = [str(pod["metadata"].get("uid", "")) for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return tuple(workloads.evicted_workloads(before, present=present, find=find))


def _controlled(pod: RawObject) -> ControlledPod:
    metadata: Mapping[str, object] = pod["metadata"]
    return ControlledPod(str(metadata.get("uid", "")), _controller(pod))


def _controller(pod: RawObject) -> WorkloadReference | None:
    metadata = pod["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return WorkloadReference(owner["kind"], f"{metadata['namespace']}/{owner['name']}")
    return None
