"""The NodeMaintenance controller: its informers, its work queue, and the changes that enqueue a maintenance.

    controller = NodeMaintenanceController(client, journal=journal, nodes=nodes, maintenances=maintenances, …)
    await controller.run()                      # until cancelled; the caller runs both informers

`reconciler` reconciles one maintenance. Changes of NodeMaintenances, nodes, leases and drains trigger the next
reconcile, and so does the decision's `requeue_at`.
"""

from contextlib import ExitStack
from datetime import timedelta

from haulout.api.nodemaintenance import (
    NodeMaintenance,
    NodeMaintenanceConditionType,
    NodeMaintenancePhase,
)
from haulout.api.objects import Lease, Node
from haulout.budget.budget_check import WaitingList, may_free_slot
from haulout.budget.limits import Budget
from haulout.budget.metrics import LimitUsage, limit_usage
from haulout.budget.unavailable_nodes import (
    is_unavailable,
)
from haulout.controllers.nodemaintenance import node_lease
from haulout.controllers.nodemaintenance.informers import (
    NodeMaintenanceInformers,
    WorkloadInformers,
    has_relevant_change,
    maintenances_holding,
)
from haulout.controllers.nodemaintenance.reconciler import NodeMaintenanceReconciler, waiting_entry
from haulout.controllers.nodemaintenance.settings import NodeMaintenanceSettings
from haulout.core.backoff import Backoff
from haulout.drain.manager import DrainManager
from haulout.drain.metrics import InitiatorDrainMetrics
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.runtime.controller import Controller
from haulout.runtime.freezes import FreezeSource
from haulout.runtime.handover import Handover
from haulout.runtime.journal import Journal

# Retries also cover permissions granted meanwhile, for which there is no event.
_BACKOFF = Backoff(limit=timedelta(seconds=45))
_WORKERS = 64  # many, because a reconcile that stops a drain waits for its pending requests


class NodeMaintenanceController:
    """Reconciles all NodeMaintenances. Call `run` at most once."""

    def __init__(  # noqa: PLR0913 - dependencies, each passed by keyword
        self,
        client: Client,
        *,
        journal: Journal,
        settings: NodeMaintenanceSettings,
        nodes: Informer[Node],
        maintenances: Informer[NodeMaintenance],
        handover: Handover,
        waiting_list: WaitingList,
        drain_metrics: InitiatorDrainMetrics | None = None,
        freezes: FreezeSource,
    ) -> None:
        self.settings = settings
        self._freezes = freezes
        self.history = journal.history
        self._clock = client.clock
        self._waiting_list = waiting_list
        self._informers = NodeMaintenanceInformers(
            client, lease_namespace=self.settings.lease_namespace, nodes=nodes, maintenances=maintenances
        )
        self._drains = DrainManager(client, on_change=self._handle_drain, metrics=drain_metrics)
        self._workload_informers = WorkloadInformers(client, enqueue=self._enqueue)
        self._reconciler = NodeMaintenanceReconciler(
            client,
            settings=self.settings,
            informers=self._informers,
            drains=self._drains,
            workload_informers=self._workload_informers,
            journal=journal,
            waiting_list=self._waiting_list,
            freezes=self._freezes,
            before_drain=handover.before_drain,
            enqueue=self._enqueue,
            record_change=self._record_change,
        )
        self._controller = Controller(
            self._reconciler, client, name="NodeMaintenance", workers=_WORKERS, backoff=_BACKOFF, handover=handover
        )
        self._queue = self._controller.queue

    async def run(self) -> None:
        """Run until cancelled. Raise `LeadershipHandover` when another replica must take over."""
        background = (self._informers.leases.informer.run, self._drains.run, self._workload_informers.run)
        await self._controller.run(background=background, start=self._start)

    async def _start(self, subscriptions: ExitStack) -> None:
        subscriptions.callback(self._waiting_list.subscribe(self._enqueue_waiting))
        subscriptions.callback(self._freezes.subscribe(self._enqueue_all))
        await self._informers.wait_synced()
        self._subscribe(subscriptions)
        self._reconciler.start()

    def _enqueue(self, name: str) -> None:
        self._queue.add(name)

    def _record_change(self, name: str) -> None:
        self._controller.record_change(name)

    @property
    def maintenances(self) -> Informer[NodeMaintenance]:
        return self._informers.maintenances.informer

    def set_budget(self, budget: Budget) -> None:
        """Replace the budget and requeue all maintenances. Nodes that are already held stay held."""
        self._reconciler.budget = budget
        self._enqueue_all()

    def _enqueue_all(self) -> None:
        for maintenance in list(self._informers.maintenances.informer.all()):
            self._queue.add(maintenance.name)

    def budget_usage(self) -> tuple[LimitUsage, ...]:
        """Return how much of each limit of the budget is used, for metrics."""
        informers, now = self._informers, self._clock.now()
        return limit_usage(
            self._reconciler.budget, candidates=informers.possibly_unavailable(), sizes=informers.sizes, now=now
        )

    @property
    def node_count(self) -> int:
        return len(self._informers.nodes.informer)

    @property
    def unavailable_node_count(self) -> int:
        """The number of nodes that count as unavailable for budgets."""
        now = self._clock.now()
        return sum(is_unavailable(node, now) for node in self._informers.possibly_unavailable())

    @property
    def waiting_count(self) -> int:
        """The number of NodeMaintenances that wait for a budget slot."""
        return len(self._waiting_list.entries())

    # Event handlers

    def _subscribe(self, subscriptions: ExitStack) -> None:
        informers = self._informers  # shared ones outlast the controller
        subscriptions.callback(informers.maintenances.informer.subscribe(self._handle_maintenance))
        subscriptions.callback(informers.nodes.informer.subscribe(self._handle_node))
        subscriptions.callback(informers.leases.informer.subscribe(self._handle_lease))
        self.history.subscribe(self._enqueue_all)

    def _handle_maintenance(self, old: NodeMaintenance | None, new: NodeMaintenance | None) -> None:
        changed = new or old or NodeMaintenance()
        self._queue.add(changed.name)
        if old is None and new is not None and self._reconciler.budget and _may_wait_for_budget(new):
            self._waiting_list.add(waiting_entry(new))  # before any younger maintenance is reconciled
        if old is None or new is None or (old.is_being_deleted, old.node) != (new.is_being_deleted, new.node):
            for node in {maintenance.node: maintenance for maintenance in (old, new) if maintenance is not None}:
                for other in self._informers.maintenances_of(node):  # they may wait for this one
                    self._queue.add(other.name)

    def _handle_node(self, old: Node | None, new: Node | None) -> None:
        self._informers.note_node(old, new)
        if self._waiting_list.entries() and may_free_slot(self._reconciler.budget, old, new):
            self._enqueue_waiting()
        if not has_relevant_change(old, new):
            return
        for maintenance in self._informers.maintenances_of((new or old or Node()).name):
            self._queue.add(maintenance.name)
        for owner in () if new is None else maintenances_holding(new):
            self._queue.add(owner)  # if the owner was deleted, its reconcile reports the orphaned node

    def _enqueue_waiting(self) -> None:
        for order in self._waiting_list.entries():
            self._queue.add(order.name)

    def _handle_drain(self, name: str) -> None:
        """Requeue the maintenance of a drain that reports progress.

        While it is running, requeue when the status rate limiter permits the next write. Requeue at once if the phase
        changes.
        """
        maintenance = self._informers.maintenances.get(name)
        is_running = maintenance is not None and maintenance.status.phase == NodeMaintenancePhase.RUNNING
        if not is_running or self._drains.has_ended(name):
            self._queue.add(name)
        else:
            self._queue.add_at(name, self._clock.now() + self._reconciler.status_writer.delay(name))

    def _handle_lease(self, old: Lease | None, new: Lease | None) -> None:
        name = (new or old or Lease()).name
        for maintenance in list(self._informers.maintenances.informer.all()):
            if node_lease.lease_name(maintenance.node) == name:
                self._queue.add(maintenance.name)


def _may_wait_for_budget(maintenance: NodeMaintenance) -> bool:
    """Return whether a maintenance in the first list is new, or was waiting for a slot according to its status."""
    within_budget = maintenance.status.condition(NodeMaintenanceConditionType.WITHIN_BUDGET)
    is_waiting = within_budget is not None and within_budget.status == "False"
    return not maintenance.is_being_deleted and (is_waiting or not maintenance.status.phase)
