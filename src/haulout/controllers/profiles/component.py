"""Profiles as a component of the operator. It never runs at the same time as the SAP maintenance-controller.

It leads with the lease of the SAP maintenance-controller only (`haulout.runtime.manager`). Without profiles in the
file, it waits for the first notice (`haulout.controllers.profiles.default_profile`), and takes no lease before.

A SAP maintenance-controller without `--enable-leader-election` holds no lease, and cannot be detected.
"""

import asyncio
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from haulout.api.leases import PROFILES_LEASE
from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.objects import Node, RawObject
from haulout.api.reasons import OperatorEventReason
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.controllers.profiles.controller import NAME, ProfilesController
from haulout.controllers.profiles.events import ProfileEvents
from haulout.controllers.profiles.external.query_cache import QueryCache
from haulout.controllers.profiles.machine.preferred_start import lead_time, preferred_start
from haulout.controllers.profiles.metrics import CONTROLLER, METRICS, ProfileMetrics
from haulout.controllers.profiles.missing_permissions import RECHECK_INTERVAL, MissingPermissions, profile_permissions
from haulout.controllers.profiles.plugin import ExternalClient, State
from haulout.controllers.profiles.status import as_json
from haulout.controllers.profiles.view.informers import ProfileInformers
from haulout.core.clock import Clock
from haulout.core.metrics import MetricVec
from haulout.core.text import format_count
from haulout.drain.metrics import PROFILE
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.rbac import Permission
from haulout.runtime.component import Component, Leader, Warn
from haulout.runtime.journal import Journal
from haulout.runtime.supervisor import Supervisor
from haulout.runtime.tasks import background, first_of, running

log = logging.getLogger(__name__)

_REPORTER = "maintenance"  # reporting controller of events, as in the SAP maintenance-controller


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
                _wait_for_notice(leader.informers.notices),
                _wait_for_unfinished_node(leader.nodes),
            )
        finally:
            self.is_idle = False

    async def lead(self, leader: Leader) -> None:
        await self.wait_until_needed(leader)
        # A recorder of its own: many events of pods must not delay those of nodes.
        events, pod_events = leader.events(_REPORTER), leader.events(_REPORTER)
        journal = Journal(NAME, events, metrics=leader.client.metrics)
        history = leader.history(self.history_backlog)
        informers: list[ProfileInformers] = []

        def make_informers(controller: ProfilesController) -> ProfileInformers:
            informers.append(ProfileInformers(controller, leader.client, external=self.outside))
            return informers[0]

        controller = ProfilesController(
            leader.client,
            events=ProfileEvents(journal, clock=leader.client.clock, pod_events=pod_events, metrics=self.counters),
            namespace=leader.namespace,
            informers=make_informers,
            nodes=leader.nodes,
            history=history,
            waiting_list=leader.waiting_list,
            drain_metrics=self.drain_metrics,
            handover=leader.handover,
        )
        self.controller, self.informers, self.answers = controller, informers[0], informers[0].queries
        self.missing_permissions = MissingPermissions(leader.client, leader.warn, namespace=leader.namespace)
        configuration = _apply_configuration(self.file, controller, informers[0], leader.warn, self.missing_permissions)
        try:
            async with running(events, pod_events, history), background(configuration):
                await controller.run()
        finally:
            self.controller = self.answers = self.informers = self.missing_permissions = None

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


async def _wait_for_notice(notices: Informer[MaintenanceNotice]) -> None:
    found = asyncio.Event()
    unsubscribe = notices.subscribe(lambda *_: found.set())
    try:
        await found.wait()
    finally:
        unsubscribe()


async def _wait_for_unfinished_node(nodes: Informer[Node]) -> None:
    """Return if the default profile has unfinished nodes: their notice may be deleted, and sets no event."""
    await nodes.wait_synced()
    if not any(map(default_profile.is_unfinished_on, nodes.all())):
        await asyncio.Event().wait()


async def _apply_configuration(
    file: ProfilesFile,
    controller: ProfilesController,
    informers: ProfileInformers,
    warn: Warn,
    missing_permissions: MissingPermissions,
) -> None:
    """Apply each configuration to the controller, without plugins that lack permissions; until cancelled."""
    last_configuration, reported_problem, has_unfinished_nodes, in_force = None, None, False, file.configuration
    with_default_profile = partial(
        default_profile.effective_configuration, recovery=default_profile.recovery_timeout(file.environ)
    )
    while True:
        is_new = file.configuration is not last_configuration
        if is_new:
            last_configuration = file.configuration
            # While it was in force, it may have started on a node that the informer does not show yet.
            has_unfinished_nodes = has_unfinished_nodes or not last_configuration.profiles
            in_force = with_default_profile(last_configuration, has_unfinished_nodes=has_unfinished_nodes)
        has_changed = await missing_permissions.refresh(in_force) if is_new or missing_permissions.missing else False
        if is_new and not has_unfinished_nodes and await controller.any_node(default_profile.is_unfinished_on):
            in_force, has_unfinished_nodes = with_default_profile(file.configuration, has_unfinished_nodes=True), True
            await missing_permissions.refresh(in_force)
        if is_new or has_changed:
            usable = missing_permissions.without_forbidden_plugins(in_force)
            await informers.prepare(usable)
            controller.use(usable)
        if is_new:
            log.info("profiles: %s", ", ".join(in_force.profiles))
        if file.problem is not reported_problem:
            reported_problem = file.problem
            if reported_problem is not None:
                note = f"{reported_problem}; the last good configuration stays in force"
                await warn(note, reason=OperatorEventReason.CONFIGURATION_REFUSED, action="LoadConfiguration")
        await file.wait_for_change(timeout=RECHECK_INTERVAL if missing_permissions.missing else None)
