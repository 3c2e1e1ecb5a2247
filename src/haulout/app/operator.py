"""The operator process: leader election, and the wiring of everything that the leader runs.

All replicas serve the webhook; one leads. The lease has the name of the Node Maintenance Operator's, so that an old
operator in the same namespace and a new one never work at once.

The leader also runs, each if configured or installed: profiles (`haulout.app.profiles`), notices
(`haulout.app.notices`), Machines (`haulout.controllers.machines`), and the registered components
(`haulout.app.components`), some of them under the lease of profiles. Each has a supervisor: one that fails restarts
alone, and all else continues.

A leader whose own node is about to be drained, by any controller, hands over leadership first: otherwise it would evict
itself in the middle of its work. Its successor must run on another node, and continues. If no other replica takes over,
the leader continues itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.objects import Node
from haulout.api.openshift import MACHINE_OF_NODE
from haulout.api.reasons import OperatorEventReason
from haulout.app.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.app.notices import NoticesComponent, run_notices
from haulout.app.notifications import run_notifications
from haulout.app.operator_events import OperatorEvents
from haulout.app.operator_status import OperatorStatus
from haulout.app.profiles import ProfilesComponent, log_other_holder, run_profiles
from haulout.app.replica import ReplicaSettings, serve_replica
from haulout.budget.budget_check import WaitingList
from haulout.budget.limits import NO_BUDGET
from haulout.controllers.machines.component import MachinesComponent
from haulout.controllers.nodemaintenance import node_lease
from haulout.controllers.nodemaintenance.controller import NodeMaintenanceController
from haulout.controllers.nodemaintenance.informers import node_cache
from haulout.controllers.nodemaintenance.settings import NodeMaintenanceSettings
from haulout.controllers.notices.profile_policy import ProfilePolicy
from haulout.core.clock import Clock
from haulout.drain.metrics import NODE_MAINTENANCE, PROFILE
from haulout.errors import KubeError, LeadershipHandover, LeadershipLost
from haulout.history.retention import Retention, RetentionSettings
from haulout.history.writer import HistoryWriter
from haulout.httpserver.listener import ListenAddress
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.leaderelection import LeaderElection
from haulout.kube.recorder import EventRecorder
from haulout.runtime.component import Component, Leader
from haulout.runtime.handover import Handover
from haulout.runtime.supervisor import wait_for_handover
from haulout.webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from haulout.webhook.component import Webhook

log = logging.getLogger(__name__)

_REPORTER = "NodeMaintenance"  # reporting controller of events, as in the Node Maintenance Operator
_FLUSH_TIMEOUT = timedelta(seconds=2)
_SUCCESSOR_TIMEOUT = timedelta(seconds=15)
_SUCCESSOR_POLL_INTERVAL = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings(ReplicaSettings):
    """Settings of an operator replica, from its flags and environment variables."""

    node: str = ""  # on which this process runs; empty: not on a node of the cluster
    lease_namespace: str = node_lease.NAMESPACE
    guard_quorum: bool = True  # protect the etcd quorum on clusters that are not OpenShift
    webhook: WebhookSettings | None = None  # None: this process serves no webhook
    retention: RetentionSettings = field(default_factory=RetentionSettings)  # for the history of deleted nodes
    secure_metrics_address: ListenAddress | None = (
        None  # metrics over HTTPS with the webhook's certificate; None: not served
    )


async def run_operator(
    client: Client,
    settings: OperatorSettings,
    *,
    profiles: ProfilesComponent | None = None,
    notices: NoticesComponent | None = None,
    machines: MachinesComponent | None = None,
    components: Sequence[Component] = (),
    status: OperatorStatus | None = None,
) -> None:
    """Serve HTTP on every replica and run for leader, until cancelled. `status` receives the state of the operator.

    Without `notices` the operator has no event sources, but still handles notices that users and other tools write.
    """
    webhook = None if settings.webhook is None else _make_webhook(client, settings.webhook)
    status, notices = status or OperatorStatus(), notices or NoticesComponent()
    status.profiles, status.notices, status.webhook = profiles, notices, webhook
    notices.leases = settings.leases
    status.machines, status.client = machines or status.machines, client
    status.components = tuple(components) or status.components
    for component in status.components:
        component.use_drain_metrics(status.drain_metrics)
    if profiles is not None:
        profiles.on_record_created = status.on_record_created
        profiles.drain_metrics = status.drain_metrics.for_initiator(PROFILE)
    async with AsyncExitStack() as stack:
        # Outside the TaskGroup, which would wrap errors of a port; and so that probes are answered until all else
        # ended.
        await stack.enter_async_context(serve_replica(client, status, settings))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        if webhook is not None:
            group.create_task(webhook.run())
            if settings.secure_metrics_address is not None:
                from haulout.app.http_endpoints import serve_secure_metrics

                group.create_task(
                    serve_secure_metrics(
                        client, status, webhook.serving_certificate, address=settings.secure_metrics_address
                    )
                )
        if profiles is not None:
            group.create_task(profiles.file_supervisor.run(profiles.file.run, client=client))
        await run_leader_election(client, settings, profiles=profiles, notices=notices, status=status)


def _make_webhook(client: Client, settings: WebhookSettings) -> "Webhook":
    from haulout.webhook.component import Webhook  # not every replica serves it

    return Webhook(client, settings)


async def run_leader_election(
    client: Client,
    settings: OperatorSettings,
    *,
    profiles: ProfilesComponent | None = None,
    notices: NoticesComponent | None = None,
    status: OperatorStatus | None = None,
) -> None:
    """Run for leader and, as the leader, run all controllers; until cancelled."""
    status, notices = status or OperatorStatus(), notices or NoticesComponent()
    own_node = settings.node
    # They outlive a term: what an election observed of its lease counts in the next term.
    elect = partial(
        LeaderElection, client, namespace=settings.namespace, identity=settings.identity, config=settings.leases
    )
    election = elect(name=LEADER_LEASE)

    def warn_if_leading(holder: str) -> None:
        if status.is_leader and holder != settings.identity:
            log_other_holder(holder)

    profiles_election = None if profiles is None else elect(name=PROFILES_LEASE, on_new_leader=warn_if_leading)
    while True:
        try:
            lead = partial(
                _lead,
                settings=settings,
                own_node=own_node,
                profiles=profiles,
                notices=notices,
                status=status,
                profiles_election=profiles_election,
            )
            await election.run(partial(_mark_leading, status, lead), next_election=profiles_election)
        except LeadershipLost as error:
            log.warning("%s; rejoining the leader election", error)
        except LeadershipHandover as error:
            log.info("%s: handing over leadership", error)
            # Without a successor, the next term must not hand over again: the drain would never begin.
            own_node = settings.node if await _has_successor(client, settings) else ""


async def _mark_leading(status: OperatorStatus, lead: Callable[[Client], Awaitable[None]], client: Client) -> None:
    status.is_leader = True
    try:
        await lead(client)
    finally:
        status.is_leader = False


async def _lead(
    client: Client,
    *,
    settings: OperatorSettings,
    own_node: str,
    profiles: ProfilesComponent | None,
    notices: NoticesComponent,
    status: OperatorStatus,
    profiles_election: LeaderElection | None,
) -> None:
    events = EventRecorder(client, instance=settings.identity, controller=_REPORTER)
    notice_events = EventRecorder(client, instance=settings.identity)
    operator_events = OperatorEvents(client, events, settings.namespace)
    maintenance_settings = NodeMaintenanceSettings(
        lease_namespace=settings.lease_namespace,
        own_node=own_node,
        guard_quorum=settings.guard_quorum,
        namespace=settings.namespace,
    )
    nodes = node_cache(client)  # one informer for all controllers: nodes take most of the memory
    retention = Retention(client, nodes, is_off=lambda: history.is_off, settings=settings.retention)
    history = HistoryWriter(
        client, status.history_backlog, warn=operator_events.warn_of_history, on_created=retention.enqueue
    )
    history.subscribe(retention.relist)
    waiting_list = WaitingList()
    drain_metrics = status.drain_metrics.for_initiator(NODE_MAINTENANCE)
    controller = NodeMaintenanceController(
        client,
        events=events,
        settings=maintenance_settings,
        nodes=nodes,
        history=history,
        waiting_list=waiting_list,
        drain_metrics=drain_metrics,
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(status.hold_leader_state(controller, nodes, retention))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        # They end last, so that what the controllers record while they stop is still written.
        background_coroutines = events.run(), notice_events.run(), history.run(), nodes.run(), retention.run()
        background = [group.create_task(item) for item in background_coroutines]
        notices_run = run_notices(
            client,
            notices,
            events=notice_events,
            nodes=nodes,
            operator_events=operator_events,
            handling=ProfilePolicy() if profiles is None else _notice_handling(profiles, status.machines, client.clock),
        )
        identity = settings.identity
        leader = Leader(
            client=client,
            identity=identity,
            namespace=settings.namespace,
            nodes=nodes,
            warn=operator_events.warn,
            handover=Handover(own_node),
            on_record_created=status.on_record_created,
        )
        machines_run = status.machines.run(leader)
        dashboard = _run_dashboard(
            client, status, controller, settings=settings, nodes=nodes, waiting_list=waiting_list, history=history
        )
        background.append(group.create_task(dashboard))
        tasks = [group.create_task(wait_for_handover(item)) for item in (controller.run(), notices_run, machines_run)]
        beside_profiles = [item for item in status.components if profiles is not None and item.replaces_smc]
        own = [item for item in status.components if item not in beside_profiles]
        tasks += [group.create_task(wait_for_handover(item.run(leader))) for item in own]
        if profiles is not None:
            profiles.integrations = tuple(partial(_run_component, item, leader) for item in beside_profiles)
        if profiles is not None and profiles_election is not None:
            stack.callback(profiles.file.subscribe(lambda item: controller.set_budget(item.budget)))
            notifications_run = run_notifications(
                client,
                profiles,
                events=events,
                maintenances=controller.maintenances,
                notices=notices,
                operator_events=operator_events,
            )
            tasks.append(group.create_task(wait_for_handover(notifications_run)))
            profiles_run = _run_profiles(
                client,
                profiles,
                profiles_election,
                own_node=own_node,
                operator_events=operator_events,
                nodes=nodes,
                waiting_list=waiting_list,
                first_notice=notices.first_notice,
            )
            tasks.append(group.create_task(wait_for_handover(profiles_run)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await asyncio.gather(*(item.flush(_FLUSH_TIMEOUT) for item in (history, events, notice_events)))
            for item in background:
                item.cancel()
    raise done.pop().result()


async def _run_dashboard(
    client: Client,
    status: OperatorStatus,
    controller: NodeMaintenanceController,
    *,
    settings: OperatorSettings,
    nodes: Informer[Node],
    waiting_list: WaitingList,
    history: HistoryWriter,
) -> None:
    """Run the backend of the dashboard once this replica serves it, until cancelled."""
    await status.is_served.wait()
    # Imported late with their dependencies: a replica without --metrics-port needs none of it.
    from haulout.app.dashboard import run_dashboard
    from haulout.dashboard.api.nodes.informers import Informers

    profiles, notices = status.profiles, status.notices
    informers = Informers(
        clock=client.clock,
        nodes=nodes,
        maintenances=controller.maintenances,
        waiting_list=waiting_list,
        profiles=lambda: None if profiles is None else profiles.controller,
        notices=lambda: None if notices is None else notices.controller,
        budget=lambda: NO_BUDGET if profiles is None else profiles.file.configuration.budget,
    )
    await run_dashboard(
        client,
        status,
        informers,
        namespace=settings.namespace,
        identity=settings.identity,
        cluster=settings.cluster,
        history=history,
    )


async def _run_component(component: Component, leader: Leader, client: Client) -> None:
    """Run a component with the client of another lease."""
    await component.run(replace(leader, client=client))


def _notice_handling(profiles: ProfilesComponent, machines: MachinesComponent, clock: Clock) -> ProfilePolicy:
    """Return how notices are handled: by profiles, and by replacing Machines."""

    def is_handled(node: Node, notice: MaintenanceNotice) -> bool:
        is_replaced = machines.controller is not None and MACHINE_OF_NODE in node.metadata.annotations
        return is_replaced or profiles.is_handled(node, notice)

    calendar = partial(profiles.suitable_start, clock=clock)
    return ProfilePolicy(calendar=calendar, lead_time_of=profiles.lead_time, is_handled=is_handled)


async def _run_profiles(
    client: Client,
    profiles: ProfilesComponent,
    election: LeaderElection,
    *,
    own_node: str,
    operator_events: OperatorEvents,
    nodes: Informer[Node],
    waiting_list: WaitingList,
    first_notice: asyncio.Event,
) -> None:
    async def work() -> None:
        await run_profiles(
            client,
            profiles,
            election=election,
            own_node=own_node,
            nodes=nodes,
            waiting_list=waiting_list,
            first_notice=first_notice,
        )

    async def report(note: str) -> None:
        await operator_events.warn(note, reason=OperatorEventReason.PROFILES_FAILED, action="RunProfiles")

    await profiles.supervisor.run(work, client=client, report=report)


async def _has_successor(client: Client, settings: OperatorSettings) -> bool:
    """Wait up to _SUCCESSOR_TIMEOUT for another leader; return whether there is one."""
    clock = client.clock
    until = clock.monotonic() + _SUCCESSOR_TIMEOUT.total_seconds()
    while clock.monotonic() < until:
        try:
            lease = await leases.find(client, LEADER_LEASE, namespace=settings.namespace)
        except KubeError:
            lease = None
        if lease is not None and lease.spec.holder_identity not in (None, "", settings.identity):
            return True
        await clock.sleep(_SUCCESSOR_POLL_INTERVAL)
    log.info("no other replica leads: this replica continues although its node is being drained")
    return False
