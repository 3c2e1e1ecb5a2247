"""The status of an operator replica."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from haulout.app.history import HistoryComponent
from haulout.app.replica import ReplicaStatus
from haulout.budget.metrics import WAITING
from haulout.controllers.machines.component import MachinesComponent
from haulout.controllers.notices.component import NoticesComponent
from haulout.core.metrics import MetricVec
from haulout.drain.metrics import DrainMetrics
from haulout.httpserver.metrics import Collector

if TYPE_CHECKING:
    from haulout.webhook.component import Webhook


@dataclass(slots=True, kw_only=True)
class OperatorStatus(ReplicaStatus):
    """The components of an operator by name, for those that need another one."""

    notices: NoticesComponent | None = None
    webhook: "Webhook | None" = None
    machines: MachinesComponent = field(default_factory=MachinesComponent)
    history: HistoryComponent = field(default_factory=HistoryComponent)
    drain_metrics: DrainMetrics = field(default_factory=DrainMetrics)

    def collect_metrics(self) -> Iterator[Collector]:
        """Yield the current values of all metrics."""
        yield from ReplicaStatus.collect_metrics(self)
        if self.client is not None:
            yield from self.drain_metrics.collect(now=self.client.clock.now())
        if self.is_leader:
            yield self._waiting_for_budget()

    def _waiting_for_budget(self) -> MetricVec:
        waiting = MetricVec(WAITING)
        for component in self.components:
            if (count := component.waiting_for_budget()) is not None:
                waiting.set(component.initiator, to=count)
        return waiting
