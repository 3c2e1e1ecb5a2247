"""The hub process: leader election, and the controller that couples Machines with nodes of workload clusters.

The lease has the name of the runtime-extension-maintenance-controller's, so that the two never work at once in one
namespace. The hub may run outside of a pod: its lease is then in the namespace of the kubeconfig context, or in the
given one. Leader election can be turned off if the user guarantees that only one hub runs.

Beside the hub's controller run MachineDrainRules and, if enabled, Metal3 BareMetalHosts. Each has its own supervisor: a
component that fails restarts alone, and the hub continues.

    async with open_hub_components(client, events=events, status=status, settings=settings) as components:
        hub = ClusterApiController(…, drain_rules=components.drain_rules)
        components.start_for(hub)
        await hub.run()
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from haulout.api.clusterapi import EXTENSION_LEASE, Cluster, Machine
from haulout.app.hub_dashboard import run_hub_dashboard
from haulout.app.hub_status import HubStatus
from haulout.app.replica import ReplicaSettings, serve_replica
from haulout.controllers.clusterapi.cluster_accessor import ClientFactory, network_client_factory
from haulout.controllers.clusterapi.cluster_budget import ClusterBudget, new_cluster_budget
from haulout.controllers.clusterapi.controller import EVENT_REPORTER, ClusterApiController, ClusterApiNotServed
from haulout.controllers.clusterapi.host_power import Metal3Settings
from haulout.controllers.clusterapi.machine_drain_rules import MachineDrainRuleInformer
from haulout.controllers.clusterapi.metal3 import Metal3Controller
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.core.clock import Clock
from haulout.core.memory import memory_limit
from haulout.errors import LeadershipLost
from haulout.kube.client import Client
from haulout.kube.leaderelection import LeaderElection
from haulout.kube.limits import WorkloadClusterMemory
from haulout.kube.recorder import EventRecorder

log = logging.getLogger(__name__)

_FLUSH_TIMEOUT = timedelta(seconds=2)
_DEFAULT_MEMORY_LIMIT = 400 << 20  # outside of a container: the limit of the Deployment of `hub_manifests`


@dataclass(frozen=True, slots=True, kw_only=True)
class HubReplicaSettings(ReplicaSettings):
    """Settings of a hub replica; `cluster` is its management cluster."""

    elects_leader: bool = True  # False: work at once, without leader election
    hub: ClusterApiSettings = field(default_factory=ClusterApiSettings)


async def run_hub(
    client: Client,
    settings: HubReplicaSettings,
    *,
    connect: ClientFactory | None = None,
    admission: ClusterBudget | None = None,
    status: HubStatus | None = None,
) -> None:
    """Serve HTTP on every replica and run for leader, until cancelled. `status` receives the state of the hub."""
    status = status or HubStatus()
    status.client = client
    connect = connect or network_client_factory(
        clock=client.clock, random=client.random, memory=_memory_budget(settings.hub, client.clock)
    )
    async with serve_replica(client, status, settings, lease=EXTENSION_LEASE):
        await _run_leader_election(client, settings, connect=connect, admission=admission, status=status)


def _memory_budget(settings: ClusterApiSettings, clock: Clock) -> WorkloadClusterMemory:
    limit = settings.memory_limit or memory_limit() or _DEFAULT_MEMORY_LIMIT
    memory = WorkloadClusterMemory(limit, clock=clock)
    log.info("workload clusters get %s MiB for caches, of %s MiB of memory", memory.caches.limit >> 20, limit >> 20)
    return memory


async def _run_leader_election(
    client: Client,
    settings: HubReplicaSettings,
    *,
    connect: ClientFactory,
    admission: ClusterBudget | None,
    status: HubStatus,
) -> None:
    lead = partial(_lead, settings=settings, connect=connect, admission=admission, status=status)
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


async def _lead(
    client: Client,
    *,
    settings: HubReplicaSettings,
    connect: ClientFactory,
    admission: ClusterBudget | None,
    status: HubStatus,
) -> None:
    events = EventRecorder(client, instance=settings.identity, controller=EVENT_REPORTER)
    # With the leader's fenced client: a deposed leader cannot take a slot.
    admission = admission or new_cluster_budget(client, settings.hub.cluster_budget, namespace=settings.namespace)
    dashboard = run_hub_dashboard(
        client,
        status,
        admission,
        namespace=settings.namespace,
        identity=settings.identity,
        cluster=settings.cluster,
    )

    async def run_hub_controller() -> None:
        while True:
            try:
                async with open_hub_components(
                    client, events=events, status=status, settings=settings.hub
                ) as companions:
                    hub = status.hub = ClusterApiController(
                        client,
                        connect=connect,
                        events=events,
                        settings=settings.hub,
                        cluster_budget=admission,
                        metrics=status.hub_metrics,
                        drain_rules=companions.drain_rules,
                        instance=settings.identity,
                    )
                    companions.start_for(hub)
                    await hub.run()
            # A CRD may be upgraded while the hub runs. A new controller discovers the version; this is not a failure
            # of the component, and must not count for the supervisor's backoff.
            except ClusterApiNotServed as error:
                log.warning("%s: discovering the served version", error)
            finally:
                status.hub = None

    status.is_leader, status.admission = True, admission
    async with asyncio.TaskGroup() as group:
        background = [group.create_task(coroutine) for coroutine in (events.run(), dashboard)]
        try:
            await status.supervisor.run(run_hub_controller, client=client)
        finally:
            status.is_leader, status.admission = False, None
            await events.flush(_FLUSH_TIMEOUT)
            for task in background:
                task.cancel()


class HubComponents:
    """The components that run beside one hub controller."""

    def __init__(
        self,
        client: Client,
        group: asyncio.TaskGroup,
        *,
        events: EventRecorder,
        status: HubStatus,
        settings: ClusterApiSettings,
    ) -> None:
        self._client = client
        self._group = group
        self._events = events
        self._status = status
        self._settings = settings
        self._rules: MachineDrainRuleInformer | None = None
        self.tasks: list[asyncio.Task[None]] = []

    def drain_rules(self, machine: Machine, cluster: Cluster | None) -> str | None:
        """Return the drain rules annotation for the node of a Machine; None: keep the current one."""
        return None if self._rules is None else self._rules.annotation_for(machine, cluster)

    def start_for(self, hub: ClusterApiController) -> None:
        """Start the components for a hub controller."""

        async def watch_drain_rules() -> None:
            # The drain rules are served in the version of the Machines: both are CRDs of one release of Cluster API.
            version = (await hub.wait_for_machines()).resource.version
            rules = self._rules = MachineDrainRuleInformer(self._client, events=self._events, on_change=hub.enqueue_all)
            await rules.run(version)

        async def power_hosts() -> None:
            guard = Metal3Settings(unguarded=self._settings.metal3_unguarded)
            metal3 = Metal3Controller(
                self._client, await hub.wait_for_machines(), node_of=hub.node_of, events=self._events, settings=guard
            )
            unsubscribe = hub.subscribe(metal3.enqueue_waiting)
            self._status.metal3_controller = metal3
            try:
                await metal3.run()
            finally:
                self._status.metal3_controller = None
                unsubscribe()

        self._create_task(self._status.drain_rules_supervisor.run(watch_drain_rules, client=self._client))
        if self._settings.metal3:
            self._create_task(self._status.metal3_supervisor.run(power_hosts, client=self._client))

    def _create_task(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(self._group.create_task(work))


@asynccontextmanager
async def open_hub_components(
    client: Client, *, events: EventRecorder, status: HubStatus, settings: ClusterApiSettings
) -> AsyncIterator[HubComponents]:
    """Yield components that can be started for a hub controller; they end with the context."""
    try:
        async with asyncio.TaskGroup() as group:
            components = HubComponents(client, group, events=events, status=status, settings=settings)
            try:
                yield components
            finally:
                for task in components.tasks:
                    task.cancel()
    except BaseExceptionGroup as failures:  # supervisors contain other failures: only the hub's ends the context
        raise failures.exceptions[0] from None
