"""The hub process: leader election, and the components that the leader runs.

The lease has the name of the runtime-extension-maintenance-controller's, so that the two never work at once in one
namespace. The hub may run outside of a pod: its lease is then in the namespace of the kubeconfig context, or in the
given one. Leader election can be turned off if the user guarantees that only one hub runs.
"""

import logging
from dataclasses import dataclass, field

from haulout.api.clusterapi import EXTENSION_LEASE
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.resources import NODES
from haulout.app.hub_dashboard import HubDashboard
from haulout.app.replica import ReplicaSettings, ReplicaStatus, serve_replica
from haulout.controllers.clusterapi.cluster_accessor import ClientFactory, network_client_factory
from haulout.controllers.clusterapi.component import ClusterApi, MachineDrainRules, Metal3
from haulout.controllers.clusterapi.controller import EVENT_REPORTER
from haulout.controllers.clusterapi.host_power import Metal3Settings
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.core.clock import Clock
from haulout.core.memory import memory_limit
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.limits import WorkloadClusterMemory
from haulout.kube.reflector import ListWatch
from haulout.runtime.component import Component, SharedInformers
from haulout.runtime.freezes import FreezeLister
from haulout.runtime.manager import Manager, ManagerSettings

log = logging.getLogger(__name__)

_DEFAULT_MEMORY_LIMIT = 400 << 20  # outside of a container: the limit of the Deployment of `hub_manifests`


@dataclass(frozen=True, slots=True, kw_only=True)
class HubReplicaSettings(ReplicaSettings):
    """Settings of a hub replica; `cluster` is its management cluster."""

    elects_leader: bool = True  # False: work at once, without leader election
    hub: ClusterApiSettings = field(default_factory=ClusterApiSettings)


def hub_components(
    settings: HubReplicaSettings, status: ReplicaStatus, connect: ClientFactory
) -> tuple[Component, ...]:
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
    status: ReplicaStatus | None = None,
) -> None:
    """Serve HTTP on every replica and run for leader, until cancelled. `status` receives the state of the hub."""
    status = status or ReplicaStatus()
    connect = connect or network_client_factory(
        clock=client.clock, random=client.random, memory=_memory_budget(settings.hub, client.clock)
    )
    status.client, status.components = client, hub_components(settings, status, connect)
    if not settings.elects_leader:
        log.warning("leader election is off: make sure that no other hub runs for this cluster")
    status.manager = Manager(
        client,
        status.components,
        settings=ManagerSettings(
            namespace=settings.namespace,
            identity=settings.identity,
            lease=EXTENSION_LEASE,
            elects_leader=settings.elects_leader,
            reporter=EVENT_REPORTER,
            timings=settings.leases,
        ),
        share=_unused_informers,
    )
    async with serve_replica(client, status, settings, lease=EXTENSION_LEASE):
        await status.manager.run()


def _memory_budget(settings: ClusterApiSettings, clock: Clock) -> WorkloadClusterMemory:
    limit = settings.memory_limit or memory_limit() or _DEFAULT_MEMORY_LIMIT
    memory = WorkloadClusterMemory(limit, clock=clock)
    log.info("workload clusters get %s MiB for caches, of %s MiB of memory", memory.caches.limit >> 20, limit >> 20)
    return memory


def _unused_informers(client: Client) -> SharedInformers:
    """Return informers of which only the freezes run: a hub reads no nodes of its cluster."""
    return SharedInformers(
        Informer(client, ListWatch(NODES), transform=as_is),
        Informer(client, ListWatch(NODE_MAINTENANCES), transform=as_is),
        Informer(client, ListWatch(MAINTENANCE_NOTICES), transform=as_is),
        FreezeLister(client),
        is_used=False,
    )
