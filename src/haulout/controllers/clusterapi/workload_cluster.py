"""One workload cluster: its connection, the controllers of its Machines and nodes, and its status.

A failing cluster does not affect others: clusters share only the client of the management cluster.
"""

import logging

from haulout.api.clusterapi import ClusterKey, Machine
from haulout.api.objects import Node
from haulout.controllers.clusterapi.cluster_accessor import ClusterAccessor
from haulout.controllers.clusterapi.cluster_slot import ClusterSlot
from haulout.controllers.clusterapi.decision import requests_on
from haulout.controllers.clusterapi.machine_reconciler import MachineReconciler
from haulout.controllers.clusterapi.management import ManagementContext
from haulout.controllers.clusterapi.observation import Decision, Observation
from haulout.controllers.clusterapi.status import ConnectionState, WorkloadClusterStatus
from haulout.controllers.clusterapi.unclaimed_node import NodeKey, UnclaimedNode, UnclaimedNodeReconciler
from haulout.runtime.controller import Controller
from haulout.runtime.supervisor import Supervisor

log = logging.getLogger(__name__)

_WORKERS = 4


class WorkloadCluster:
    """Reconciles the Machines of one cluster. `run` may be called again after a failure."""

    def __init__(self, key: ClusterKey, management: ManagementContext) -> None:
        self.key = key
        self.supervisor = Supervisor(f"cluster {key}")
        self._management = management
        self._logged_connection_state = ConnectionState.CONNECTING
        client = management.client
        self.slot = ClusterSlot(key, management.cluster_budget, client.clock, on_idle=management.on_idle)
        self.accessor = ClusterAccessor(
            client,
            key,
            connect=management.connect,
            instance=management.instance,
            reporter=management.reporter,
            on_change=self._on_connection_change,
            on_node_change=self._on_node_change,
        )
        self._machines = MachineReconciler(key, management, self.accessor, self.slot, on_change=self._on_change)
        # The queues of all clusters have the same name in metrics: there may be hundreds of clusters.
        self._controller: Controller[str, Observation, Decision] = Controller(
            self._machines, client, name="Machine", workers=_WORKERS
        )
        self._unclaimed_nodes: Controller[NodeKey, UnclaimedNode, Decision] = Controller(
            UnclaimedNodeReconciler(management, self.accessor), client, name="Node without a Machine", workers=1
        )

    async def run(self) -> None:
        await self._controller.run(background=(self.accessor.run, self._unclaimed_nodes.run))

    def add(self, machine: Machine, *, must_settle: bool) -> None:
        """Queue a Machine; with `must_settle` it is not forgotten before it was reconciled."""
        if must_settle:
            self._machines.unsettled.add(machine.key)
        self._controller.queue.add(machine.key)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do for Machines that are not managed any more."""
        return not self._machines.unsettled

    def enqueue_waiting(self) -> None:
        """Reconcile the Machines that wait for the budget across clusters."""
        for key in self.slot.retry_now():
            self._controller.queue.add(key)

    def status(self, machines: list[Machine]) -> WorkloadClusterStatus:
        """Return the status of the cluster with these Machines."""
        health, nodes, cluster = self.accessor.health, self.accessor.nodes, self._management.cluster(self.key)
        cache_health = None if nodes is None else nodes.informer.health()
        problem = health.problem if health.failing_since is not None else ""
        return WorkloadClusterStatus(
            key=self.key,
            connection_state=health.connection_state,
            reason=problem and ((cache_health and cache_health.problem) or problem),
            since=health.since,
            last_response_at=health.last_response_at,
            server=self.accessor.server,
            version=self.accessor.version,
            machines=len(machines),
            enabled=sum(machine.is_enabled for machine in machines),
            nodes=0 if nodes is None else len(nodes.informer),
            is_being_deleted=cluster is not None and cluster.is_being_deleted,
            requests=tuple(request for _, statuses in sorted(self._machines.statuses.items()) for request in statuses),
            waiting_reason=self.slot.waiting_reason,
        )

    # Event handlers

    def enqueue_all(self) -> None:
        """Reconcile all Machines of the cluster, after a change that affects each of them."""
        for key in {*self._management.machines_of_cluster(self.key), *self._machines.known}:
            self._controller.queue.add(key)

    def _on_change(self) -> None:
        self._management.on_status_change(self.key)

    def _on_connection_change(self) -> None:
        health = self.accessor.health
        if health.connection_state is not self._logged_connection_state:
            self._logged_connection_state = health.connection_state
            if health.connection_state.is_unavailable:
                verb = "read" if health.connection_state is ConnectionState.UNREADABLE else "reached"
                log.warning("cluster %s cannot be %s: %s", self.key, verb, health.problem)
            else:
                log.info("cluster %s is reached at %s", self.key, self.accessor.server)
        self.enqueue_all()
        self._on_change()

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and old.spec != new.spec:
            self._on_change()  # subscribers may wait for the node to be cordoned
        if old is not None and new is not None and _relevant_state(old) == _relevant_state(new):
            return
        node = new or old
        if node is None:
            return
        machines = self._management.machines_of_node(self.key, node.name)
        for key in machines:
            self._controller.queue.add(key)
        if new is not None and not machines and requests_on(new):
            self._unclaimed_nodes.queue.add(NodeKey(self.key, new.name))


def _relevant_state(node: Node) -> object:
    return node.uid, node.metadata.labels, node.metadata.annotations
