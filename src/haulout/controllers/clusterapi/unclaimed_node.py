"""Reconciles nodes without a Machine: it was deleted while no controller ran, and its requests are still on the node.

While a Cluster is being moved its Machines are in two management clusters, and the Cluster is paused in this one: then
nothing is written.
"""

from dataclasses import dataclass

from haulout.api.clusterapi import CLUSTER_NAME, ClusterKey
from haulout.api.objects import Node
from haulout.controllers.clusterapi.cluster_accessor import ClusterAccessor
from haulout.controllers.clusterapi.decision import decide_withdrawal, requests_on
from haulout.controllers.clusterapi.management import ManagementContext
from haulout.controllers.clusterapi.observation import Decision, NodeRequest
from haulout.runtime.reconciler import Reconciler


@dataclass(frozen=True, slots=True)
class NodeKey:
    """A node of a workload cluster."""

    cluster: ClusterKey
    node: str

    def __str__(self) -> str:
        return f"{self.node} of cluster {self.cluster}"


@dataclass(frozen=True, slots=True)
class UnclaimedNode:
    """A node with requests, and the uids of the Machines of its cluster, none of which has this node."""

    node: Node
    machines: frozenset[str]


class UnclaimedNodeReconciler(Reconciler[NodeKey, UnclaimedNode, Decision]):
    """Withdraws requests of Machines that do not exist."""

    def __init__(self, management: ManagementContext, accessor: ClusterAccessor) -> None:
        self._management = management
        self._accessor = accessor

    async def observe(self, key: NodeKey) -> UnclaimedNode | None:
        management, nodes, cluster = self._management, self._accessor.nodes, self._management.cluster(key.cluster)
        node = None if nodes is None or not self._accessor.is_connected else nodes.get(key.node)
        if node is None or cluster is None or cluster.is_paused or not requests_on(node):
            return None
        if management.machines_of_node(key.cluster, key.node):
            return None
        selector = f"{CLUSTER_NAME}={key.cluster.name}"
        machines = await management.client.list(management.resource, namespace=key.cluster.namespace, labels=selector)
        if any(machine.node == key.node for machine in machines.items):
            return None  # the cache is stale
        return UnclaimedNode(node, frozenset(machine.uid for machine in machines.items))

    def decide(self, observation: UnclaimedNode) -> Decision:
        def is_gone(request: NodeRequest | None) -> bool:
            return request is not None and request.machine not in observation.machines

        return decide_withdrawal(observation.node, is_gone=is_gone, is_claimed=False)

    async def act(self, observation: UnclaimedNode, decision: Decision) -> bool:
        if not decision.node:
            return False
        await self._accessor.patch_node(observation.node, decision.node.to_patch(observation.node))
        for event in decision.events:
            transition = event.transition(f"node {observation.node.name}", self._accessor.key)
            self._management.journal.record(transition)
            self._accessor.emit_event(observation.node, transition)
        return True

    async def refresh(self, key: NodeKey, error: Exception) -> bool:
        del error
        return await self._accessor.refresh_node(key.node)
