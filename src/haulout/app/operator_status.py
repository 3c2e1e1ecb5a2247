"""The status of an operator replica, for health probes, metrics and the dashboard.

There is one per process; it outlives leadership. All values are computed when they are read, from the components.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from haulout import __version__
from haulout.api.objects import RawObject
from haulout.app import replica
from haulout.app.history import HistoryComponent
from haulout.budget.metrics import WAITING
from haulout.controllers.machines.component import MachinesComponent
from haulout.controllers.notices.component import NoticesComponent
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.core.metrics import MetricVec
from haulout.drain.metrics import DrainMetrics
from haulout.httpserver.metrics import Collector
from haulout.kube import metrics
from haulout.kube.client import Client
from haulout.runtime.component import Component
from haulout.runtime.journal import TRANSITIONS
from haulout.runtime.manager import Manager

if TYPE_CHECKING:
    from haulout.dashboard.api.backend import Backend
    from haulout.dashboard.api.health import RecentWarnings
    from haulout.webhook.component import Webhook


@dataclass(slots=True)
class OperatorStatus:
    """The components of a replica, and whether it leads."""

    profiles: ProfilesComponent | None = None
    notices: NoticesComponent | None = None
    webhook: "Webhook | None" = None
    machines: MachinesComponent = field(default_factory=MachinesComponent)
    history: HistoryComponent = field(default_factory=HistoryComponent)
    components: tuple[Component, ...] = ()  # all of them
    manager: Manager | None = None  # while the operator runs
    source: "Backend | None" = None  # the dashboard backend, while leading
    started: datetime | None = None
    recent_warnings: "RecentWarnings | None" = None
    client: Client | None = None  # of the cluster
    drain_metrics: DrainMetrics = field(default_factory=DrainMetrics)
    is_served: asyncio.Event = field(default_factory=asyncio.Event)  # this replica serves HTTP
    viewer_count: Callable[[], int] = lambda: 0  # open event streams of the dashboard

    @property
    def is_leader(self) -> bool:
        return self.manager is not None and self.manager.is_leader

    def set_viewer_counter(self, count: Callable[[], int]) -> None:
        self.viewer_count = count
        self.is_served.set()

    def unready(self) -> Sequence[str]:
        """Return why this replica is not ready, one line each. That another replica leads is no reason."""
        return [reason for component in self.components for reason in component.unready()]

    def troubles(self) -> Sequence[str]:
        """Return problems that need attention but do not affect readiness."""
        # Components that cannot write the history report the same problem, such as a missing permission.
        return [*dict.fromkeys(problem for component in self.components for problem in component.problems())]

    def status_lines(self) -> Sequence[str]:
        """Return one line per component, `[+]` if it is healthy and `[-]` if not."""
        leader = f"[+] leader: {'this replica leads' if self.is_leader else 'another replica leads, or none does yet'}"
        return [leader, *(line for component in self.components for line in component.status_lines())]

    def infos(self) -> list[RawObject] | None:
        """Return the answer to `/api/v1/info`; None: ask the leader."""
        return [] if self.profiles is None else self.profiles.infos()

    def collect_metrics(self) -> Iterator[Collector]:
        """Yield the current values of all metrics."""
        yield replica.build_info(__version__)
        yield replica.leader_status(
            leader=self.is_leader, profiles=None if self.profiles is None else self.profiles.controller is not None
        )
        yield replica.gauge(replica.VIEWERS, self.viewer_count())
        if self.client is not None:
            now = self.client.clock.now()
            yield from metrics.collect_requests(self.client.request_metrics)
            self.client.metrics.counter(TRANSITIONS)  # exported from the start, although nothing is counted yet
            yield from self.client.metrics.collect(now=now)
            yield from self.drain_metrics.collect(now=now)
        for component in self.components:
            yield from component.collect_metrics()
        yield from self._waiting_for_budget()

    def _waiting_for_budget(self) -> Iterator[MetricVec]:
        counts = {component.initiator: component.waiting_for_budget() for component in self.components}
        waiting = MetricVec(WAITING)
        for initiator, count in counts.items():
            if count is not None:
                waiting.set(initiator, to=count)
        if self.is_leader:
            yield waiting
