"""The view of the cluster for the checks of one node, backed by informers."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.objects import Lease, RawObject
from haulout.api.workloads import EvictedWorkload, WorkloadRecord
from haulout.controllers.profiles.plugin import ClusterView, ExternalQuery, ObservedNode, QueryResult, State
from haulout.controllers.profiles.view import workloads
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
        return workloads.workloads_of(self.pods_on(node), self._informers.workload_lookup(for_node=self._node))

    def evicted_from(self, node: str) -> Collection[EvictedWorkload]:
        """Return the workloads whose pods were evicted from a node."""
        find = self._informers.workload_lookup(for_node=self._node)
        return workloads.evicted_workloads(self._nodes.find(node), self.pods_on(node), find)

    def query_result(self, query: ExternalQuery) -> QueryResult | None:
        """Return the cached result of a query; None: no result yet, the query is sent from now on."""
        return self._informers.queries.result(self._node, query)


class PassiveView(NodeView):
    """The view for previews: it registers no external queries."""

    def query_result(self, query: ExternalQuery) -> QueryResult | None:
        """Return the result of a query that another node has registered; None if there is none."""
        return self._informers.queries.cached_result(query)
