"""The hub process: leader election, and the components that the leader runs.

The lease has the name of the runtime-extension-maintenance-controller's, so that the two never work at once in one
namespace. The hub may run outside of a pod: its lease is then in the namespace of the kubeconfig context, or in the
given one. Leader election can be turned off if the user guarantees that only one hub runs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from haulout.api.clusterapi import EXTENSION_LEASE
from haulout.api.resources import NODES
from haulout.app.hub_dashboard import HubDashboard
from haulout.app.hub_status import HubStatus
from haulout.app.operator_events import OperatorEvents
from haulout.app.replica import ReplicaSettings, serve_replica
from haulout.controllers.clusterapi.cluster_accessor import ClientFactory, network_client_factory
from haulout.controllers.clusterapi.component import ClusterApi, MachineDrainRules, Metal3
from haulout.controllers.clusterapi.controller import EVENT_REPORTER
from haulout.controllers.clusterapi.host_power import Metal3Settings
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.core.clock import Clock
from haulout.core.memory import memory_limit
from haulout.errors import LeadershipLost
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.leaderelection import LeaderElection
from haulout.kube.limits import WorkloadClusterMemory
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.runtime.component import Component, Leader, running

log = logging.getLogger(__name__)

_DEFAULT_MEMORY_LIMIT = 400 << 20  # outside of a container: the limit of the Deployment of `hub_manifests`


@dataclass(frozen=True, slots=True, kw_only=True)
class HubReplicaSettings(ReplicaSettings):
    """Settings of a hub replica; `cluster` is its management cluster."""

    elects_leader: bool = True  # False: work at once, without leader election
    hub: ClusterApiSettings = field(default_factory=ClusterApiSettings)


def hub_components(settings: HubReplicaSettings, status: HubStatus, connect: ClientFactory) -> tuple[Component, ...]:
    """Return what the leader runs."""
    hub = ClusterApi(settings.hub, connect=connect)
    metal3 = Metal3Settings(unguarded=settings.hub.metal3_unguarded)
    return (
        hub,
        MachineDrainRules(hub),
        *((Metal3(hub, metal3),) if settings.hub.metal3 else ()),
        HubDashboard(hub, status, cluster=settings.cluster),
    )


async def run_hub(
    client: Client,
    settings: HubReplicaSettings,
    *,
    connect: ClientFactory | None = None,
    status: HubStatus | None = None,
) -> None:
    """Serve HTTP on every replica and run for leader, until cancelled. `status` receives the state of the hub."""
    status = status or HubStatus()
    connect = connect or network_client_factory(
        clock=client.clock, random=client.random, memory=_memory_budget(settings.hub, client.clock)
    )
    status.client, status.components = client, hub_components(settings, status, connect)
    async with serve_replica(client, status, settings, lease=EXTENSION_LEASE):
        await _run_leader_election(client, settings, partial(_lead, settings=settings, status=status))


def _memory_budget(settings: ClusterApiSettings, clock: Clock) -> WorkloadClusterMemory:
    limit = settings.memory_limit or memory_limit() or _DEFAULT_MEMORY_LIMIT
    memory = WorkloadClusterMemory(limit, clock=clock)
    log.info("workload clusters get %s MiB for caches, of %s MiB of memory", memory.caches.limit >> 20, limit >> 20)
    return memory


async def _run_leader_election(
    client: Client, settings: HubReplicaSettings, lead: Callable[[Client], Awaitable[None]]
) -> None:
    if not settings.elects_leader:
        log.warning("leader election is off: make sure that no other hub runs for this cluster")
        await lead(client)
        return
    election = LeaderElection(
        client,
        name=EXTENSION_LEASE,
        namespace=settings.namespace,
        identity=settings.identity,
        config=settings.leases,
    )
    while True:
        try:
            await election.run(lead)
        except LeadershipLost as error:
            log.warning("%s; rejoining the leader election", error)


async def _lead(client: Client, *, settings: HubReplicaSettings, status: HubStatus) -> None:
    """Run the components, each with its own supervisor, until cancelled."""
    events = EventRecorder(client, instance=settings.identity, controller=EVENT_REPORTER)
    leader = Leader(
        client=client,
        identity=settings.identity,
        namespace=settings.namespace,
        nodes=Informer(client, ListWatch(NODES), transform=as_is),  # does not run: a hub needs no nodes of its cluster
        warn=OperatorEvents(client, events, settings.namespace).warn,
    )
    status.is_leader = True
    try:
        async with running(events), asyncio.TaskGroup() as group:
            for component in status.components:
                group.create_task(component.run(leader))
    finally:
        status.is_leader = False
