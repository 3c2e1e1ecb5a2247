"""Maintenance notices as a component of the operator.

It runs only while the MaintenanceNotice CRD is installed. Event sources of clouds are components of their own
(`haulout.providers.component`). Without a source the controller is still of use: users and other tools write notices,
too.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from haulout.api import maintenancenotice
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.api.reasons import OperatorEventReason
from haulout.controllers.notices.controller import MaintenanceNoticeController
from haulout.controllers.notices.lease_advice import lease_advice
from haulout.controllers.notices.metrics import METRICS, NoticeMetrics
from haulout.controllers.notices.permissions import permissions
from haulout.controllers.notices.profile_policy import ProfilePolicy
from haulout.core.metrics import Histogram, MetricVec
from haulout.core.text import format_count
from haulout.kube.leaderelection_config import LeaderElectionConfig
from haulout.kube.rbac import Permission
from haulout.providers.component import EventSourceComponent
from haulout.providers.event_source import EarlyStartSource, EventSource, ReschedulableSource
from haulout.runtime.component import Component, CustomResource, Leader
from haulout.runtime.tasks import running

log = logging.getLogger(__name__)


class NoticesComponent(Component):
    """Runs the controller of notices, and shows what it does. The manager runs `sources` beside it."""

    title, failure_reason, action = "notices", OperatorEventReason.NOTICES_FAILED, "RunNotices"
    metrics = METRICS
    custom_resource = CustomResource(
        MAINTENANCE_NOTICES, "maintenance that clouds and users announce", maintenancenotice.definition
    )

    @classmethod
    def permissions(cls, settings: Any, *, namespace: str) -> tuple[Permission, ...]:
        del settings, namespace
        return permissions()

    def __init__(self, sources: Sequence[EventSourceComponent] = ()) -> None:
        super().__init__()
        self.sources = sources
        self.profile_policy = ProfilePolicy()
        self.timings = LeaderElectionConfig()  # of this replica's leases
        self.counters = NoticeMetrics()
        self.controller: MaintenanceNoticeController | None = None  # while this replica leads
        self._logged_advice: set[str] = set()  # about lease timings
        for source in sources:
            source.on_source_stopped = self.counters.finish_source

    async def lead(self, leader: Leader) -> None:
        events, notices = leader.events(), leader.informers.notices
        async with running(events):
            self.controller = MaintenanceNoticeController(
                leader.client,
                events=events,
                nodes=leader.nodes,
                notices=notices,
                reschedulable_source_of=self.mover,
                early_start_source_of=self.starter,
                profile_policy=self.profile_policy,
                on_status_written=self.counters.count_review,
                freezes=leader.freezes,
            )
            self.log_lease_advice(*(source.source_name for source in self.sources))
            unsubscribe = notices.subscribe(self._on_notice)
            try:
                await self.controller.run()
            finally:
                self.controller = None
                unsubscribe()

    def _on_notice(self, before: MaintenanceNotice | None, after: MaintenanceNotice | None) -> None:
        if before is None and after is not None:
            self.log_lease_advice(after.spec.source)

    def source(self, name: str) -> EventSource | None:
        """Return the running source with this name, if any."""
        return next((item.source for item in self.sources if item.source_name == name), None)

    def mover(self, name: str) -> ReschedulableSource | None:
        """Return the running source with this name if its cloud can reschedule maintenance."""
        source = self.source(name)
        return source if isinstance(source, ReschedulableSource) else None

    def starter(self, name: str) -> EarlyStartSource | None:
        """Return the running source with this name if its cloud can start maintenance early."""
        source = self.source(name)
        return source if isinstance(source, EarlyStartSource) else None

    def problems(self) -> Iterator[str]:
        obstacle, is_bad = self._read_problem()
        yield from super().problems()
        if is_bad and not self.supervisor.problem:
            yield f"MaintenanceNotices are not reconciled: {obstacle}"
        yield from self._unreadable_notices()
        yield from self._lease_advice()

    def log_lease_advice(self, *sources: str) -> None:
        """Log, once, that leases should be shorter for notices of these sources, if so."""
        advice = lease_advice(self.timings, sources)
        if advice and advice not in self._logged_advice:
            self._logged_advice.add(advice)
            log.warning("%s", advice)

    def status_lines(self) -> Iterator[str]:
        """Yield one line per component, `[+]` if it is healthy and `[-]` if not."""
        obstacle, is_bad = self._read_problem()
        if self.controller is None:
            problem = self.supervisor.problem
            yield (
                f"[-] notices: {problem}" if problem else "[+] notices: reconciled by the leader, not by this replica"
            )
        elif obstacle:
            yield f"[{'-' if is_bad else '+'}] notices: {obstacle}"
        else:
            yield f"[+] notices: this replica reconciles {format_count(len(self.controller.notices), 'notice')}"

    def collect_metrics(self) -> Iterator[MetricVec | Histogram]:
        """Yield the current values of all metrics."""
        notices = () if self.controller is None else self.controller.notices.all()
        sources = self.sources if self.leads else ()
        running_sources = [item.source for item in sources if item.source is not None]
        self.counters.update(notices, running=running_sources, up={item.source_name: item.is_up for item in sources})
        yield from self.counters.all()

    def _lease_advice(self) -> Iterator[str]:
        """Yield advice about lease timings, for the configured sources and those of existing notices."""
        notices = () if self.controller is None else self.controller.notices.all()
        configured = [item.source_name for item in self.sources] if self.leads else []
        sources = {*configured, *(item.spec.source for item in notices)}
        if advice := lease_advice(self.timings, sources):
            yield advice

    def _unreadable_notices(self) -> Iterator[str]:
        misfits = {} if self.controller is None else self.controller.notices.undecodable
        for name, problem in misfits.items():
            more = "" if len(misfits) == 1 else f" (and {len(misfits) - 1} more)"
            yield f"MaintenanceNotice {name} is ignored because it cannot be decoded{more}: {problem}"
            return

    def _read_problem(self) -> tuple[str, bool]:
        """Return why notices cannot be read, and whether that is a problem.

        A missing CRD is a problem only if there are sources.
        """
        if self.controller is None:
            return "", False
        health = self.controller.notices.health()
        if health.is_missing:
            missing = f"{MAINTENANCE_NOTICES.kind} is not installed; `haulout manifests --crds-only` prints it"
            return missing, bool(self.sources)
        if health.problem:
            return health.problem, True
        return "" if health.has_synced else "the initial list is not complete", False
