"""What the checks of one node see of the cluster: the nodes, and what the surroundings know."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.objects import Lease, RawObject
from haulout.api.workloads import EvictedWorkload, WorkloadRecord
from haulout.controllers.profiles.plugin import ClusterView, ExternalQuery, ObservedNode, QueryResult, State
from haulout.controllers.profiles.view import workloads
from haulout.controllers.profiles.view.node_index import NodeIndex
from haulout.controllers.profiles.view.scheduling import NodeCapacity

if TYPE_CHECKING:  # it makes them
    from haulout.controllers.profiles.view.informers import ProfileInformers


class NodeView(ClusterView):
    """What is seen for one node, during one look at it."""

    def __init__(self, node: str, nodes: NodeIndex, informers: "ProfileInformers") -> None:
        self._node = node
        self._nodes = nodes
        self._informers = informers

    def nodes(self) -> Collection[ObservedNode]:
        """Return all nodes."""
        return self._nodes.all()

    def nodes_in(self, state: State) -> Collection[ObservedNode]:
        """Return the nodes whose state label says so; in maintenance are also those that are on their way."""
        return self._nodes.in_state(state)

    def nodes_with(self, label: str) -> Collection[ObservedNode]:
        """Return the nodes that have a label."""
        return self._nodes.with_label(label)

    def pods_on(self, node: str) -> Collection[RawObject]:
        """Return the pods on a node.

        `haulout.controllers.profiles.view.transform` tells which of their fields there are.
        """
        return [row.raw for row in self._informers.pods(node, for_node=self._node)]

    def lease(self, namespace: str, name: str) -> Lease | None:
        """Return a lease."""
        return self._informers.lease(namespace, name, for_node=self._node)

    def hypervisor(self, name: str) -> RawObject | None:
        """Return a hypervisor; there are none in a cluster that does not know of them."""
        row = self._informers.hypervisor(name, for_node=self._node)
        return None if row is None else row.raw

    def free_capacity(self, node: str) -> NodeCapacity | None:
        """Return what a node has left for pods, None if it is gone."""
        observed = self._nodes.get(node)
        return None if observed is None else self._informers.free_capacity(observed, for_node=self._node)

    def daemon_sets(self) -> Collection[RawObject]:
        """Return all DaemonSets."""
        return [row.raw for row in self._informers.daemon_sets(for_node=self._node)]

    def notices(self, node: str) -> Collection[MaintenanceNotice]:
        """Return what is announced for a node; nothing in a cluster that does not know of notices."""
        return self._informers.notices(node, for_node=self._node)

    def workloads_on(self, node: str) -> WorkloadRecord:
        """Return the workloads that have pods on a node, as they are now."""
        return workloads.workloads_of(self.pods_on(node), self._informers.workload_lookup(for_node=self._node))

    def evicted_from(self, node: str) -> Collection[EvictedWorkload]:
        """Return whose pods were evicted from a node."""
        find = self._informers.workload_lookup(for_node=self._node)
        return workloads.evicted_workloads(self._nodes.find(node), self.pods_on(node), find)

    def query_result(self, query: ExternalQuery) -> QueryResult | None:
        """Return the answer to a question; None: it was not asked yet, and is from now on."""
        return self._informers.queries.result(self._node, query)


class PassiveView(NodeView):
    """What is seen when no node is looked at: questions that nobody has asked are not asked."""

    def query_result(self, query: ExternalQuery) -> QueryResult | None:
        """Return the answer to a question, if somebody else has asked it."""
        return self._informers.queries.cached_result(query)
