"""Profiles: wiring of their controller, which never runs at the same time as the SAP maintenance-controller.

The operator holds two leases. The first, the Node Maintenance Operator's, makes it the leader. The leader then acquires
a second one with the name of the SAP maintenance-controller's, in the same namespace, and runs profiles only while it
holds both. So either of the two old operators may still run during a migration: it keeps its part of the work until it
is removed, and Haulout does the rest. Only the leader acquires the second lease, and always in this order, so that two
replicas cannot hold one each. A standby observes both, so that after a crash both expire at once.

Without profiles in the file, the controller waits for the first notice
(`haulout.controllers.profiles.default_profile`), and takes no lease before, unless there are `integrations` that the
SAP maintenance-controller would run as well.

A SAP maintenance-controller without `--enable-leader-election` holds no lease, and cannot be detected.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.objects import Node, RawObject
from haulout.app.leases import PROFILES_LEASE
from haulout.app.profiles_file import ProfilesFile
from haulout.budget.budget_check import WaitingList
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.machine.preferred_start import lead_time, preferred_start
from haulout.controllers.profiles.metrics import CONTROLLER, ProfileMetrics
from haulout.controllers.profiles.plugin import ExternalClient, State
from haulout.controllers.profiles.status import as_json
from haulout.core.clock import Clock
from haulout.core.metrics import MetricVec
from haulout.core.text import format_count
from haulout.drain.metrics import InitiatorDrainMetrics
from haulout.errors import LeadershipLost
from haulout.history.pending_entries import Backlog
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.leaderelection import LeaderElection
from haulout.runtime.supervisor import Supervisor, wait_for_handover

if TYPE_CHECKING:
    from haulout.app.permissions import MissingPermissions
    from haulout.controllers.profiles.controller import ProfilesController
    from haulout.controllers.profiles.external.query_cache import QueryCache
    from haulout.controllers.profiles.view.informers import ProfileInformers

log = logging.getLogger(__name__)

_ELECTION_RETRY = timedelta(seconds=1)


# Runs a feature of the SAP maintenance-controller beside profiles, until cancelled.
Integration = Callable[[Client], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class ProfilesComponent:
    """State that outlives leadership: configuration, external client, and the controller while this replica leads."""

    file: ProfilesFile
    outside: ExternalClient
    metrics: ProfileMetrics = field(default_factory=ProfileMetrics)
    controller: "ProfilesController | None" = None  # while this replica leads
    is_idle: bool = False  # this replica leads, but there is nothing to do
    answers: "QueryCache | None" = None  # of external queries, while this replica leads
    informers: "ProfileInformers | None" = None  # while this replica leads
    missing_permissions: "MissingPermissions | None" = None  # while this replica leads
    drain_metrics: InitiatorDrainMetrics | None = None  # drain counters
    history_backlog: Backlog = field(default_factory=Backlog)  # history entries that are not written yet
    on_record_created: Callable[[str], object] = lambda _: None  # called with a node's name when its record is created
    integrations: tuple[Integration, ...] = ()  # what else the SAP maintenance-controller does
    supervisor: Supervisor = field(default_factory=partial(Supervisor, "profiles"))
    file_supervisor: Supervisor = field(default_factory=partial(Supervisor, "configuration file watch"))
    notifications_supervisor: Supervisor = field(default_factory=partial(Supervisor, "object notifications"))

    def troubles(self) -> tuple[str, ...]:
        file_problem = self.file.problem
        config = () if file_problem is None else (f"the last good configuration stays in force: {file_problem}",)
        failed_nodes = (
            0 if self.controller is None else sum(bool(item.problem) for item in self.controller.statuses.all())
        )
        nodes = (
            (f"{format_count(failed_nodes, 'node')} cannot be reconciled: /api/v1/info shows why",)
            if failed_nodes
            else ()
        )
        return (
            *(
                item.problem
                for item in (self.supervisor, self.file_supervisor, self.notifications_supervisor)
                if item.problem
            ),
            *config,
            *nodes,
        )

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

    @property
    def waiting_nodes(self) -> int:
        """How many nodes pass all checks of a profile and wait for a budget slot."""
        infos = () if self.controller is None else self.controller.statuses.all()
        return sum(
            any(transition.veto for report in node.reports for transition in report.transitions) for node in infos
        )

    def collect_metrics(self) -> Iterator[MetricVec]:
        """Yield the current values of all metrics."""
        metrics, controller = self.metrics, self.controller
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


async def run_profiles(
    client: Client,
    profiles: ProfilesComponent,
    *,
    election: LeaderElection,
    own_node: str = "",
    nodes: Informer[Node] | None = None,
    waiting_list: WaitingList | None = None,
    first_notice: asyncio.Event | None = None,
) -> None:
    """Run the controller whenever no SAP maintenance-controller does, until cancelled.

    The caller runs the informer `nodes`; the NodeMaintenances in `waiting_list` have priority; `first_notice` is set
    once there is a notice. `election` is the one for the profiles' lease; it may have observed the lease for a while.
    Raise `LeadershipHandover` when a profile is about to drain `own_node`, on which this process runs.
    """
    wait_until_needed = partial(_wait_until_needed, profiles, nodes=nodes, first_notice=first_notice)
    if not profiles.integrations:
        await wait_until_needed()

    async def run_controller(client: Client) -> None:
        # Imported late with its dependencies: of use with profiles, or once there is a notice.
        from haulout.app.profiles_controller import run_profiles_controller

        await run_profiles_controller(
            client,
            profiles=profiles,
            namespace=election.namespace,
            own_node=own_node,
            identity=election.identity,
            nodes=nodes,
            waiting_list=waiting_list,
        )

    lead = partial(_lead, profiles=profiles, wait_until_needed=wait_until_needed, run_controller=run_controller)
    while True:
        if election.is_held_by_another():
            log_other_holder(election.leader)
        try:
            await election.run(lead, fence=client.fence)
        except LeadershipLost as error:
            log.warning("%s; this replica does not reconcile profiles", error)
        await client.clock.sleep(_ELECTION_RETRY)


async def _wait_until_needed(
    profiles: ProfilesComponent, *, nodes: Informer[Node] | None, first_notice: asyncio.Event | None
) -> None:
    """Wait until there is something to do, by the file or by the default profile."""
    is_needed = asyncio.Event()

    async def wait_for(condition: Awaitable[object]) -> None:
        await condition
        is_needed.set()

    conditions: list[Awaitable[object]] = [profiles.file.wait_for_profiles()]
    conditions += [] if first_notice is None else [first_notice.wait()]
    conditions += [] if nodes is None else [_wait_for_unfinished_node(nodes)]
    profiles.is_idle = True
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(wait_for(condition)) for condition in conditions]
            await is_needed.wait()
            for task in tasks:
                task.cancel()
    finally:
        profiles.is_idle = False


async def _wait_for_unfinished_node(nodes: Informer[Node]) -> None:
    """Return if the default profile has unfinished nodes: their notice may be deleted, and sets no event."""
    await nodes.wait_synced()
    if not any(map(default_profile.is_unfinished_on, nodes.all())):
        await asyncio.Event().wait()


async def _lead(
    client: Client,
    *,
    profiles: ProfilesComponent,
    wait_until_needed: Callable[[], Awaitable[None]],
    run_controller: Callable[[Client], Awaitable[None]],
) -> None:
    """Run the controller and the integrations; raise `LeadershipHandover`."""

    async def run_once_needed() -> None:
        await wait_until_needed()
        await run_controller(client)

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(wait_for_handover(coroutine))
            for coroutine in (run_once_needed(), *(integration(client) for integration in profiles.integrations))
        ]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
    raise done.pop().result()


def log_other_holder(holder: str) -> None:
    """Log that another process holds the lease for profiles."""
    log.warning("%s holds lease %s and reconciles profiles until it releases the lease", holder, PROFILES_LEASE)
