"""The operator process: which components it runs.

All replicas serve the webhook; one leads (`haulout.runtime.manager`). The lease has the name of the Node Maintenance
Operator's, so that an old operator in the same namespace and a new one never work at once.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from haulout.api.leases import LEADER_LEASE
from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.objects import Node
from haulout.api.openshift import MACHINE_OF_NODE
from haulout.app.dashboard import DashboardComponent
from haulout.app.history import HistoryComponent
from haulout.app.notifications import NotificationsComponent
from haulout.app.operator_status import OperatorStatus
from haulout.app.replica import ReplicaSettings, serve_replica
from haulout.budget.limits import Budget
from haulout.controllers.freeze.component import MaintenanceFreezes
from haulout.controllers.machines.component import MachinesComponent
from haulout.controllers.nodemaintenance import node_lease
from haulout.controllers.nodemaintenance.component import NodeMaintenancesComponent
from haulout.controllers.nodemaintenance.informers import maintenance_informer, node_cache
from haulout.controllers.nodemaintenance.settings import NodeMaintenanceSettings
from haulout.controllers.notices.component import NoticesComponent
from haulout.controllers.notices.controller import notice_informer
from haulout.controllers.notices.profile_policy import ProfilePolicy
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.core.clock import Clock
from haulout.history.retention import RetentionSettings
from haulout.httpserver.listener import ListenAddress
from haulout.kube.client import Client
from haulout.runtime.component import Component, SharedInformers
from haulout.runtime.freezes import FreezeLister
from haulout.runtime.manager import Manager, ManagerSettings
from haulout.webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from haulout.webhook.component import Webhook

_REPORTER = "NodeMaintenance"  # reporting controller of Events, as in the Node Maintenance Operator


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

    `components` are further ones. Without `notices` the operator has no event sources, but still handles notices that
    users and other tools write.
    """
    status = status or OperatorStatus()
    status.client, status.profiles, status.notices = client, profiles, notices or NoticesComponent()
    status.machines, status.history = machines or status.machines, HistoryComponent(settings.retention)
    status.webhook = None if settings.webhook is None else _make_webhook(client, settings.webhook)
    status.components = tuple(_components(status, settings, clock=client.clock, others=components or status.components))
    for component in status.components:
        component.use_drain_metrics(status.drain_metrics)
    status.manager = Manager(
        client,
        status.components,
        settings=ManagerSettings(
            namespace=settings.namespace,
            identity=settings.identity,
            lease=LEADER_LEASE,
            reporter=_REPORTER,
            node=settings.node,
            timings=settings.leases,
        ),
        share=shared_informers,
        on_record_created=status.history.on_record_created,
    )
    async with AsyncExitStack() as stack:
        # Outside the TaskGroup, which would wrap errors of a port; and so that probes are answered until all else
        # ended.
        await stack.enter_async_context(serve_replica(client, status, settings))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        if status.webhook is not None and settings.secure_metrics_address is not None:
            from haulout.app.http_endpoints import serve_secure_metrics

            certificate = status.webhook.serving_certificate
            group.create_task(
                serve_secure_metrics(client, status, certificate, address=settings.secure_metrics_address)
            )
        await status.manager.run()


def _components(
    status: OperatorStatus, settings: OperatorSettings, *, clock: Clock, others: Sequence[Component]
) -> Iterator[Component]:
    """Yield all components, in the order of their status lines."""
    profiles, notices, machines = status.profiles, status.notices, status.machines
    if status.webhook is not None:
        yield status.webhook
    if profiles is not None:
        yield profiles
        yield NotificationsComponent(profiles)
    if notices is not None:
        notices.timings = settings.leases
        if profiles is not None:
            notices.profile_policy = _profile_policy(profiles, machines, clock)
        yield notices
        yield from notices.sources
    yield NodeMaintenancesComponent(
        NodeMaintenanceSettings(
            lease_namespace=settings.lease_namespace, guard_quorum=settings.guard_quorum, namespace=settings.namespace
        ),
        **({} if profiles is None else {"subscribe_budget": partial(_subscribe_budget, profiles)}),
    )
    yield machines
    yield MaintenanceFreezes()
    yield from others
    yield DashboardComponent(status, cluster=settings.cluster)
    yield status.history


def _make_webhook(client: Client, settings: WebhookSettings) -> "Webhook":
    from haulout.webhook.component import Webhook  # not every replica serves it

    return Webhook(client, settings)


def shared_informers(client: Client) -> SharedInformers:
    """Return the informers of one term of leadership."""
    return SharedInformers(
        node_cache(client), maintenance_informer(client), notice_informer(client), FreezeLister(client)
    )


def _subscribe_budget(profiles: ProfilesComponent, callback: Callable[[Budget], object]) -> Callable[[], None]:
    return profiles.file.subscribe(lambda configuration: callback(configuration.budget))


def _profile_policy(profiles: ProfilesComponent, machines: MachinesComponent, clock: Clock) -> ProfilePolicy:
    """Return how notices are handled: by profiles, and by replacing Machines."""

    def is_handled(node: Node, notice: MaintenanceNotice) -> bool:
        is_replaced = machines.controller is not None and MACHINE_OF_NODE in node.metadata.annotations
        return is_replaced or profiles.is_handled(node, notice)

    calendar = partial(profiles.suitable_start, clock=clock)
    return ProfilePolicy(calendar=calendar, lead_time_of=profiles.lead_time, is_handled=is_handled)
