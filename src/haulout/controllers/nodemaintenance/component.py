"""NodeMaintenances as a component of the operator. It always runs."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from haulout.api import nodemaintenance
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.reasons import OperatorEventReason
from haulout.budget.limits import Budget
from haulout.budget.metrics import BudgetMetrics
from haulout.controllers.nodemaintenance.controller import NodeMaintenanceController
from haulout.controllers.nodemaintenance.permissions import permissions
from haulout.controllers.nodemaintenance.settings import NodeMaintenanceSettings
from haulout.core.metrics import MetricVec, gauge
from haulout.drain.metrics import NODE_MAINTENANCE
from haulout.kube.rbac import Permission
from haulout.runtime.component import Component, CustomResource, Leader

if TYPE_CHECKING:
    from haulout.history.interface import History

_REPORTER = "NodeMaintenance"  # reporting controller of Events, as in the Node Maintenance Operator, and in metrics

NODES_TOTAL = gauge("haulout_nodes", "How many nodes there are.", details="only on the leader")
UNAVAILABLE = gauge(
    "haulout_nodes_unavailable",
    "How many nodes are in maintenance, entering it, or down.",
    details="as budgets count them; only on the leader",
)

SubscribeBudget = Callable[[Callable[[Budget], object]], Callable[[], None]]
"""Calls a function now and after each change of the budget, and returns a function that unsubscribes."""


def _no_budget(_: Callable[[Budget], object]) -> Callable[[], None]:
    return lambda: None


class NodeMaintenancesComponent(Component):
    """Runs the controller of NodeMaintenances, and shows what it does."""

    title, failure_reason, action = (
        "NodeMaintenances",
        OperatorEventReason.NODE_MAINTENANCES_FAILED,
        "RunNodeMaintenances",
    )
    metrics = (NODES_TOTAL, UNAVAILABLE)
    initiator = NODE_MAINTENANCE
    custom_resource = CustomResource(
        NODE_MAINTENANCES, "maintenance that a user requests", nodemaintenance.custom_resource_definition
    )

    @classmethod
    def permissions(cls, settings: Any, *, namespace: str) -> tuple[Permission, ...]:
        del namespace
        return permissions(lease_namespace=(settings or NodeMaintenanceSettings()).lease_namespace)

    def __init__(
        self, settings: NodeMaintenanceSettings | None = None, *, subscribe_budget: SubscribeBudget = _no_budget
    ) -> None:
        super().__init__()
        self.settings = settings or NodeMaintenanceSettings()
        self.controller: NodeMaintenanceController | None = None  # while this replica leads
        self._subscribe_budget = subscribe_budget

    async def lead(self, leader: Leader) -> None:
        async with leader.journal(_REPORTER, self.history_backlog) as journal:
            controller = NodeMaintenanceController(
                leader.client,
                journal=journal,
                settings=self.settings,
                nodes=leader.nodes,
                maintenances=leader.informers.maintenances,
                handover=leader.handover,
                waiting_list=leader.waiting_list,
                drain_metrics=self.drain_metrics,
                freezes=leader.freezes,
            )
            unsubscribe = self._subscribe_budget(controller.set_budget)
            self.controller = controller
            try:
                await controller.run()
            finally:
                self.controller = None
                unsubscribe()

    @property
    def history(self) -> "History | None":
        return None if self.controller is None else self.controller.history

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.controller is not None:
            yield from self.controller.history.problems()

    def waiting_for_budget(self) -> int | None:
        return None if self.controller is None else self.controller.waiting_count

    def collect_metrics(self) -> Iterator[MetricVec]:
        if self.controller is None:
            return
        nodes, unavailable = MetricVec(NODES_TOTAL), MetricVec(UNAVAILABLE)
        nodes.set(to=self.controller.node_count)
        unavailable.set(to=self.controller.unavailable_node_count)
        yield from (nodes, unavailable)
        yield from BudgetMetrics(self.controller.budget_usage()).collect()
