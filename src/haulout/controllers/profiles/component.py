"""Profiles as a component of the operator. It never runs at the same time as the SAP maintenance-controller.

It leads with the lease of the SAP maintenance-controller only (`haulout.runtime.manager`). Without profiles in the
file, it waits for the first notice (`haulout.controllers.profiles.default_profile`), and takes no lease before.

A SAP maintenance-controller without `--enable-leader-election` holds no lease, and cannot be detected.
"""

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from haulout.api.leases import PROFILES_LEASE
from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.objects import Node, RawObject
from haulout.api.reasons import OperatorEventReason
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.controllers.profiles.machine.preferred_start import lead_time, preferred_start
from haulout.controllers.profiles.metrics import CONTROLLER, METRICS, ProfileMetrics
from haulout.controllers.profiles.plugin import ExternalClient, State
from haulout.controllers.profiles.status import as_json
from haulout.core.clock import Clock
from haulout.core.metrics import MetricVec
from haulout.core.text import format_count
from haulout.drain.metrics import PROFILE
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.rbac import Permission
from haulout.runtime.component import Component, Leader
from haulout.runtime.supervisor import Supervisor
from haulout.runtime.tasks import first_of

if TYPE_CHECKING:
    from haulout.controllers.profiles.controller import ProfilesController
    from haulout.controllers.profiles.external.query_cache import QueryCache
    from haulout.controllers.profiles.missing_permissions import MissingPermissions
    from haulout.controllers.profiles.view.informers import ProfileInformers


class ProfilesComponent(Component):
    """Runs the profiles controller with the configuration in a file, and shows what it does.

    `outside` makes the requests to systems other than the API server.
    """

    title, failure_reason, action = "profiles", OperatorEventReason.PROFILES_FAILED, "RunProfiles"
    metrics = METRICS
    initiator = PROFILE
    lease = PROFILES_LEASE

    @classmethod
    def permissions(cls, settings: Any, *, namespace: str) -> tuple[Permission, ...]:
        """Return what a configuration needs; None: what most configurations need."""
        from haulout.controllers.profiles.missing_permissions import profile_permissions

        return profile_permissions(settings, namespace=namespace)

    def __init__(self, file: ProfilesFile, outside: ExternalClient) -> None:
        super().__init__()
        self.file = file
        self.outside = outside
        self.counters = ProfileMetrics()
        self.is_idle = False  # this replica leads, but there is nothing to do
        # While this replica leads:
        self.controller: ProfilesController | None = None
        self.answers: QueryCache | None = None  # of external queries
        self.informers: ProfileInformers | None = None
        self.missing_permissions: MissingPermissions | None = None
        self._file_supervisor = Supervisor("configuration file watch")

    async def serve(self, client: Client) -> None:
        await self._file_supervisor.run(self.file.run, client=client)

    async def wait_until_needed(self, leader: Leader) -> None:
        """Wait until there is something to do, by the file or by the default profile."""
        self.is_idle = True
        try:
            await first_of(
                self.file.wait_for_profiles(),
                leader.informers.notices.wait_for(lambda _: True),
                _wait_for_unfinished_node(leader.nodes),
            )
        finally:
            self.is_idle = False

    async def lead(self, leader: Leader) -> None:
        await self.wait_until_needed(leader)
        # Imported late with its dependencies: an operator without profiles needs none of it.
        from haulout.controllers.profiles.configured_controller import run_configured_controller

        await run_configured_controller(self, leader)

    def unready(self) -> Iterator[str]:
        if self.controller is not None and (reason := self.controller.unready_reason()):
            yield f"profiles are not reconciled: {reason}"

    def failures(self) -> Iterator[str]:
        yield from super().failures()
        if self._file_supervisor.problem:
            yield self._file_supervisor.problem

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.file.problem is not None:
            yield f"the last good configuration stays in force: {self.file.problem}"
        if self.controller is None:
            return
        if failed := sum(bool(item.problem) for item in self.controller.statuses.all()):
            yield f"{format_count(failed, 'node')} cannot be reconciled: /api/v1/info shows why"
        yield from self.controller.history.problems()

    def status_lines(self) -> Iterator[str]:
        file, problem, controller = self.file.path, self.file.problem, self.controller
        if problem is None:
            yield f"[+] configuration: {f'{file} is in force' if self.file.is_loaded else f'no {file} yet'}"
        else:
            yield f"[-] configuration: the last valid version of {file} is in force"
        if controller is None:
            idle_text = "no profile is configured and no maintenance is announced" if self.is_idle else ""
            owner_text = (
                idle_text or "no replica holds their lease yet, or a SAP maintenance-controller does"
                if self.leads
                else "the leader reconciles them"
            )
            yield f"[+] profiles: not reconciled by this replica; {owner_text}"
        elif reason := controller.unready_reason():
            yield f"[-] profiles: {reason}"
        else:
            yield f"[+] profiles: reconciled by this replica; nodes due: {controller.due_count}"

    def suitable_start(self, node: Node, notice: MaintenanceNotice, *, clock: Clock) -> datetime | None:
        """Return the start of an announced maintenance that the profiles' windows prefer; None: any, or not known."""
        if self.answers is None:
            return None
        profiles = self.file.configuration.profiles
        return preferred_start(node, notice, profiles, look_up=self.answers.cached_result, now=clock.now())

    def lead_time(self, node: Node, notice: MaintenanceNotice) -> timedelta | None:
        """Return how long before the maintenance the node is drained; None: as without a configuration."""
        return lead_time(node, notice, self.file.configuration.profiles)

    def is_handled(self, node: Node, notice: MaintenanceNotice) -> bool:
        """Return whether a profile drains the node for a maintenance; the default profile does so for all."""
        return not self.file.configuration.profiles or self.lead_time(node, notice) is not None

    def infos(self) -> list[RawObject] | None:
        """Return the answer to `/api/v1/info`; None while another process runs profiles."""
        if self.controller is None:
            return [] if self.is_idle else None
        return as_json(self.controller.statuses.all(), label_filter=self.file.configuration.label_filter)

    def waiting_for_budget(self) -> int:
        """Return how many nodes pass all checks of a profile and wait for a budget slot."""
        infos = () if self.controller is None else self.controller.statuses.all()
        return sum(
            any(transition.veto for report in node.reports for transition in report.transitions) for node in infos
        )

    def collect_metrics(self) -> Iterator[MetricVec]:
        """Yield the current values of all metrics."""
        metrics, controller = self.counters, self.controller
        for gauge in (metrics.nodes, metrics.depth, metrics.skipped):
            gauge.values.clear()
        metrics.configuration_is_valid.set(to=self.file.problem is None)
        if controller is not None:
            infos = list(controller.statuses.all())
            metrics.depth.set(CONTROLLER, CONTROLLER, to=controller.due_count)
            metrics.skipped.set(to=sum(bool(info.problem) for info in infos))
            for profile in controller.profiles:
                for state in State:
                    metrics.nodes.set(profile, state, to=0)
            for info in infos:
                for report in info.reports:
                    metrics.nodes.add(report.name, report.next)
        yield from metrics.all()


async def _wait_for_unfinished_node(nodes: Informer[Node]) -> None:
    """Return if the default profile has unfinished nodes: their notice may be deleted, and sets no event."""
    await nodes.wait_synced()
    if not any(map(default_profile.is_unfinished_on, nodes.all())):
        await asyncio.Event().wait()
