"""The status of an operator replica, for health probes, metrics and the dashboard.

There is one per process; it outlives leadership. All values are computed when they are read.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from haulout import __version__
from haulout.api.objects import Node, RawObject
from haulout.app import replica
from haulout.app.notices import NoticesComponent
from haulout.app.profiles import ProfilesComponent
from haulout.budget.metrics import WAITING, BudgetMetrics
from haulout.controllers.machines.component import MachinesComponent
from haulout.controllers.nodemaintenance.controller import NodeMaintenanceController
from haulout.core.metrics import MetricVec
from haulout.drain.metrics import NODE_MAINTENANCE, PROFILE, DrainMetrics
from haulout.history.pending_entries import Backlog
from haulout.history.retention import Retention
from haulout.httpserver.metrics import Collector
from haulout.kube import metrics
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.runtime.component import Component
from haulout.runtime.journal import TRANSITIONS
from haulout.runtime.supervisor import Supervisor

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
    is_leader: bool = False
    machines: MachinesComponent = field(default_factory=MachinesComponent)
    components: tuple[Component, ...] = ()  # that are configured
    source: "Backend | None" = None  # the dashboard backend, while leading
    dashboard_supervisor: Supervisor = field(default_factory=partial(Supervisor, "the dashboard"))
    started: datetime | None = None
    recent_warnings: "RecentWarnings | None" = None
    maintenance_controller: NodeMaintenanceController | None = None  # while leading
    nodes: Informer[Node] | None = None  # while leading
    retention: Retention | None = None  # while leading
    client: Client | None = None  # of the cluster
    drain_metrics: DrainMetrics = field(default_factory=DrainMetrics)
    history_backlog: Backlog = field(default_factory=Backlog)  # history entries that are not written yet
    is_served: asyncio.Event = field(default_factory=asyncio.Event)  # this replica serves HTTP
    viewer_count: Callable[[], int] = lambda: 0  # open event streams of the dashboard

    @contextlib.contextmanager
    def hold_leader_state(
        self, orders: NodeMaintenanceController, nodes: Informer[Node], retention: Retention
    ) -> Iterator[None]:
        """Expose the leader's controllers while the context lasts."""
        self.maintenance_controller, self.nodes, self.retention = orders, nodes, retention
        try:
            yield
        finally:
            self.maintenance_controller = self.nodes = self.retention = None

    def on_record_created(self, node: str) -> None:
        """Enqueue a node whose MaintenanceRecord was created: the node may be deleted already."""
        if self.retention is not None:
            self.retention.enqueue(node)

    def set_viewer_counter(self, count: Callable[[], int]) -> None:
        self.viewer_count = count
        self.is_served.set()

    def unready(self) -> Sequence[str]:
        """Return why this replica is not ready, one line each. That another replica leads is no reason."""
        reasons = [*(() if self.webhook is None else self.webhook.not_ready_reasons())]
        reasons += [reason for component in self.components for reason in component.unready()]
        controller = None if self.profiles is None else self.profiles.controller
        if controller is not None and (reason := controller.unready_reason()):
            reasons.append(f"profiles are not reconciled: {reason}")
        return reasons

    def troubles(self) -> Sequence[str]:
        """Return problems that need attention but do not affect readiness."""
        found = [*(() if self.webhook is None else self.webhook.warnings())]
        if self.profiles is not None:
            found += self.profiles.troubles()
        if self.notices is not None:
            found += self.notices.troubles()
        found += [problem for component in self.components for problem in component.problems()]
        found += [
            *self.machines.problems(),
            *((self.dashboard_supervisor.problem,) if self.dashboard_supervisor.problem else ()),
        ]
        # Controllers that cannot write the history report the same problem, such as a missing permission.
        return [*dict.fromkeys((*found, *self.history_problems()))]

    def history_problems(self) -> Iterator[str]:
        """Yield why the history of nodes cannot be written."""
        profiles = None if self.profiles is None else self.profiles.controller
        for controller in (self.maintenance_controller, profiles):
            if controller is not None:
                yield from controller.history.problems()
        if self.retention is not None:
            yield from self.retention.problems()

    def status_lines(self) -> Sequence[str]:
        """Return one line per component, `[+]` if it is healthy and `[-]` if not."""
        return tuple(self._status_lines())

    def _status_lines(self) -> Iterator[str]:
        yield f"[+] leader: {'this replica leads' if self.is_leader else 'another replica leads, or none does yet'}"
        if self.webhook is not None:
            problems = self.webhook.not_ready_reasons()
            yield f"[-] webhook: {problems[0]}" if problems else "[+] webhook: listening"
        if self.profiles is not None:
            yield from self._profile_lines(self.profiles)
        if self.notices is not None:
            yield from self.notices.status_lines()
        yield from self.machines.status_lines()
        for component in self.components:
            yield from component.status_lines()

    def _profile_lines(self, profiles: ProfilesComponent) -> Iterator[str]:
        file, problem = profiles.file.path, profiles.file.problem
        if problem is None:
            yield f"[+] configuration: {f'{file} is in force' if profiles.file.is_loaded else f'no {file} yet'}"
        else:
            yield f"[-] configuration: the last valid version of {file} is in force"
        controller = profiles.controller
        if controller is None:
            idle_text = "no profile is configured and no maintenance is announced" if profiles.is_idle else ""
            owner_text = (
                idle_text or "no replica holds their lease yet, or a SAP maintenance-controller does"
                if self.is_leader
                else "the leader reconciles them"
            )
            yield f"[+] profiles: not reconciled by this replica; {owner_text}"
        elif reason := controller.unready_reason():
            yield f"[-] profiles: {reason}"
        else:
            yield f"[+] profiles: reconciled by this replica; nodes due: {controller.due_count}"

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
        if self.webhook is not None:
            yield self.webhook.validator.reviews
        if self.client is not None:
            now = self.client.clock.now()
            yield from metrics.collect_requests(self.client.request_metrics)
            self.client.metrics.counter(TRANSITIONS)  # exported from the start, although nothing is counted yet
            yield from self.client.metrics.collect(now=now)
            yield from self.drain_metrics.collect(now=now)
        yield from self._fleet_metrics()
        if self.profiles is not None:
            yield from self.profiles.collect_metrics()
        if self.notices is not None:
            yield from self.notices.collect_metrics()
        yield from self.machines.collect_metrics()
        for component in self.components:
            yield from component.collect_metrics()

    def _fleet_metrics(self) -> Iterator[Collector]:
        if self.maintenance_controller is None or self.nodes is None:
            return
        yield replica.gauge(replica.NODES, len(self.nodes))
        yield replica.gauge(replica.OUT_OF_SERVICE, self.maintenance_controller.unavailable_node_count)
        yield from BudgetMetrics(self.maintenance_controller.budget_usage()).collect()
        waiting = MetricVec(WAITING)
        waiting.set(NODE_MAINTENANCE, to=self.maintenance_controller.waiting_count)
        waiting.set(PROFILE, to=0 if self.profiles is None else self.profiles.waiting_nodes)
        yield waiting
