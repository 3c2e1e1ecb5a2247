"""The Cluster API controller: couple the Machines of a management cluster with the nodes of workload clusters.

It watches Machines, and Clusters if permitted. For each cluster that has a Machine that is enabled or still has the
pre-drain hook, it runs a `WorkloadCluster`, and stops it when nothing is left to do. All state that a new leader needs
is in the API servers: the hook on a Machine says that its node may have a request.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta

from haulout.api import clusterapi
from haulout.api.clusterapi import PRE_DRAIN_HOOK, VERSIONS, Cluster, ClusterKey, Machine
from haulout.api.objects import Node
from haulout.controllers.clusterapi.cluster_accessor import ClientFactory
from haulout.controllers.clusterapi.cluster_budget import ClusterBudget, UnlimitedClusterBudget
from haulout.controllers.clusterapi.management import DrainRulesLookup, ManagementContext
from haulout.controllers.clusterapi.metrics import ClusterApiMetrics
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.controllers.clusterapi.status import WorkloadClusterStatus
from haulout.controllers.clusterapi.workload_cluster import WorkloadCluster
from haulout.core.backoff import Backoff
from haulout.errors import Forbidden, KubeError
from haulout.kube.client import Client
from haulout.kube.discovery import wait_until_served
from haulout.kube.informer import Informer, as_is
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.kube.workqueue import WorkQueue
from haulout.runtime.freezes import FreezeSource
from haulout.runtime.journal import Journal

log = logging.getLogger(__name__)

EVENT_REPORTER = "runtime-extension-maintenance-controller"  # the reporting controller of events
_BY_CLUSTER, _BY_NODE = "cluster", "node"
_DISCOVERY_BACKOFF = Backoff(
    first=timedelta(seconds=5), limit=timedelta(minutes=1)
)  # while Cluster API is not installed
_CLUSTERS_SYNC_TIMEOUT = timedelta(seconds=10)
_DISCOVERY_INTERVAL = timedelta(minutes=1)


class ClusterApiNotServed(KubeError):
    """The management cluster no longer serves Machines in the version that is watched."""


class ClusterApiController:
    """Runs a `WorkloadCluster` for each workload cluster. Call `run` at most once."""

    def __init__(
        self,
        client: Client,
        *,
        connect: ClientFactory,
        events: EventRecorder,
        settings: ClusterApiSettings | None = None,
        cluster_budget: ClusterBudget | None = None,
        freezes: FreezeSource,
        metrics: ClusterApiMetrics | None = None,
        instance: str = "",
    ) -> None:
        self._freezes = freezes
        self.settings = settings or ClusterApiSettings()
        self.machines: Informer[Machine] | None = None  # None until Cluster API is found
        self.metrics = metrics or ClusterApiMetrics()
        self.drain_rules: DrainRulesLookup = lambda *_: None
        self._client = client
        self._clock = client.clock
        self._connect = connect
        self._journal = Journal("ClusterApi", events, metrics=client.metrics)
        self._cluster_budget = cluster_budget or UnlimitedClusterBudget()
        self._instance = instance or socket.gethostname()
        self._management: ManagementContext | None = None
        self._workloads: dict[ClusterKey, WorkloadCluster] = {}
        self._tasks: dict[ClusterKey, asyncio.Task[None]] = {}
        self._machines_to_manage: dict[ClusterKey, set[str]] = {}  # Machines that keep a cluster managed
        self._group: asyncio.TaskGroup | None = None
        self._machines_synced = asyncio.Event()
        self._subscribers: list[Callable[[], None]] = []
        self._idle_clusters: WorkQueue[ClusterKey] = WorkQueue(
            self._release_slot, clock=client.clock, random=client.random, workers=1, name="cluster budget release"
        )

    # For other components

    def cluster_statuses(self) -> tuple[WorkloadClusterStatus, ...]:
        """Return the status of every managed workload cluster, ordered by key."""
        machines = self.machines
        return tuple(
            workload.status([] if machines is None else list(machines.by_index(_BY_CLUSTER, str(key))))
            for key, workload in sorted(self._workloads.items())
        )

    def now(self) -> datetime:
        return self._clock.now()

    def problems(self) -> Iterator[str]:
        """Yield the failures of workload clusters that were restarted."""
        for _, workload in sorted(self._workloads.items()):
            if workload.supervisor.problem:
                yield workload.supervisor.problem

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever a status may have changed; return a function that unsubscribes."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def node_of(self, machine: Machine) -> Node | None:
        """Return the node of a Machine, with the fields that the controller caches; None if it is not known now."""
        workload = self._workloads.get(machine.cluster)
        if workload is None or not workload.accessor.is_connected or workload.accessor.nodes is None:
            return None
        return workload.accessor.nodes.get(machine.node)

    def enqueue_all(self) -> None:
        """Reconcile all Machines of managed clusters, after a change that affects each of them."""
        for workload in self._workloads.values():
            workload.enqueue_all()

    async def wait_for_machines(self) -> Informer[Machine]:
        """Return the informer of Machines, once Cluster API is found and the informer has synced."""
        await self._machines_synced.wait()
        assert self.machines is not None  # noqa: S101 - set before the event
        return self.machines

    # Run

    async def run(self) -> None:
        """Run until cancelled; raise `ClusterApiNotServed` if Cluster API disappears or changes its version."""
        machine_resource = await wait_until_served(
            self._client,
            *map(clusterapi.machine_resource, VERSIONS),
            product="Cluster API",
            backoff=_DISCOVERY_BACKOFF,
        )
        version = machine_resource.version
        log.info("Cluster API is served in version %s", version)
        machines = self.machines = Informer(
            self._client,
            ListWatch(machine_resource),
            transform=as_is,
            indexes={_BY_CLUSTER: lambda machine: [str(machine.cluster)], _BY_NODE: _node_index},
        )
        clusters: Informer[Cluster] = Informer(
            self._client, ListWatch(clusterapi.cluster_resource(version)), transform=as_is
        )
        self._management = ManagementContext(
            client=self._client,
            resource=machine_resource,
            machines=MutationCache(machines),
            cluster=lambda key: clusters.get(str(key)),
            machines_of_node=lambda key, node: tuple(
                machine.key for machine in machines.by_index(_BY_NODE, _node_key(key, node))
            ),
            machines_of_cluster=lambda key: tuple(machine.key for machine in machines.by_index(_BY_CLUSTER, str(key))),
            connect=self._connect,
            cluster_budget=self._cluster_budget,
            freezes=self._freezes,
            settings=self.settings,
            journal=self._journal,
            metrics=self.metrics,
            instance=self._instance,
            reporter=EVENT_REPORTER,
            drain_rules=self._drain_rules_for,
            on_status_change=self._on_status_change,
            on_idle=self._idle_clusters.add,
        )
        try:
            async with asyncio.TaskGroup() as group:
                for coroutine in (
                    machines.run(),
                    clusters.run(),
                    self._idle_clusters.run(),
                    self._check_still_served(machines),
                ):
                    group.create_task(coroutine)
                await machines.wait_synced()
                await self._wait_for_clusters(clusters)
                await self._handle_events(group, machines, clusters)
        except* ClusterApiNotServed as errors:
            raise ClusterApiNotServed(str(errors.exceptions[0])) from None

    async def _handle_events(
        self, group: asyncio.TaskGroup, machines: Informer[Machine], clusters: Informer[Cluster]
    ) -> None:
        self._group = group
        with ExitStack() as stack:
            stack.callback(setattr, self, "_group", None)
            stack.callback(machines.subscribe(self._on_machine_change))
            stack.callback(clusters.subscribe(self._on_cluster_change))
            stack.callback(self._freezes.subscribe(self.enqueue_all))
            self._machines_synced.set()
            await asyncio.get_running_loop().create_future()

    async def _wait_for_clusters(self, clusters: Informer[Cluster]) -> None:
        """Wait for a limited time for the Clusters. Without permission or a response, run without them.

        The runtime-extension-maintenance-controller does not need to list Clusters, so its roles do not permit it.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLUSTERS_SYNC_TIMEOUT.total_seconds()):
                try:
                    await anext(self._client.pages(clusters.resource, page_size=1))
                except Forbidden as error:
                    log.warning("%s: whether a Cluster is paused or deleted is not known", error)
                    return
                except KubeError as error:
                    log.debug("Clusters cannot be listed yet: %s", error)
                await clusters.wait_synced()

    async def _check_still_served(self, machines: Informer[Machine]) -> None:
        while not machines.health().is_missing:
            await self._clock.sleep(_DISCOVERY_INTERVAL)
        raise ClusterApiNotServed(f"{machines.resource.api_version} is no longer served")

    # Which clusters are managed

    def _on_machine_change(self, old: Machine | None, new: Machine | None) -> None:
        for machine in (old, new):
            if machine is not None:
                self._machines_to_manage.setdefault(machine.cluster, set()).discard(machine.key)
        if new is not None and _is_managed(new):
            self._machines_to_manage[new.cluster].add(new.key)
        for key in dict.fromkeys(changed.cluster for changed in (old, new) if changed is not None):
            self._update_workload(key, old, new)

    def _update_workload(self, key: ClusterKey, old: Machine | None, new: Machine | None) -> None:
        workload = self._workloads.get(key)
        if workload is None and self._machines_to_manage[key]:
            workload = self._start_workload(key)
        if workload is None:
            del self._machines_to_manage[key]
            return
        was_managed = any(changed is not None and _is_managed(changed) for changed in (old, new))
        for machine in (old, new):
            if machine is not None and machine.cluster == key:
                workload.add(machine, must_settle=was_managed)
        self._stop_if_unused(key)

    def _on_cluster_change(self, old: Cluster | None, new: Cluster | None) -> None:
        cluster = new or old
        if cluster is None or (old is not None and new is not None and _is_unchanged(old, new)):
            return
        workload = self._workloads.get(ClusterKey(cluster.namespace, cluster.name))
        if workload is not None:
            workload.enqueue_all()

    def _drain_rules_for(self, machine: Machine, cluster: Cluster | None) -> str | None:
        return self.drain_rules(machine, cluster)  # it is set after this controller starts, and after a restart again

    def _on_status_change(self, key: ClusterKey) -> None:
        self._stop_if_unused(key)
        for callback in tuple(self._subscribers):
            callback()

    def _start_workload(self, key: ClusterKey) -> WorkloadCluster | None:
        if self._group is None or self._management is None:
            return None
        workload = self._workloads[key] = WorkloadCluster(key, self._management)
        running = workload.supervisor.run(workload.run, client=self._client)
        self._tasks[key] = self._group.create_task(running, name=f"cluster {key}")
        return workload

    def _stop_if_unused(self, key: ClusterKey) -> None:
        """Stop a cluster for which nothing is left to do."""
        workload = self._workloads.get(key)
        if workload is None or self._machines_to_manage.get(key) or not workload.is_settled:
            return
        # Before the task is cancelled, so that a change that arrives meanwhile starts a new one.
        del self._workloads[key]
        self._machines_to_manage.pop(key, None)
        self._tasks.pop(key).cancel()
        self._idle_clusters.add(key)
        log.info("cluster %s has no enabled Machine left: closing its connection", key)

    async def _release_slot(self, key: ClusterKey) -> None:
        """Release the slot of an idle cluster in the budget across clusters, and reconcile those that wait for one."""
        workload = self._workloads.get(key)
        if workload is not None and workload.slot.is_active:
            return
        await self._cluster_budget.release(key)
        for other in self._workloads.values():
            other.enqueue_waiting()


def _is_managed(machine: Machine) -> bool:
    return machine.is_enabled or PRE_DRAIN_HOOK in machine.metadata.annotations


def _node_key(key: ClusterKey, node: str) -> str:
    return f"{key} {node}"


def _node_index(machine: Machine) -> list[str]:
    return [_node_key(machine.cluster, machine.node)] if machine.node else []


def _is_unchanged(old: Cluster, new: Cluster) -> bool:
    """Return whether no relevant field changed. Labels are relevant: MachineDrainRules select clusters by them."""
    return (old.is_being_deleted, old.is_paused, old.metadata.labels) == (
        new.is_being_deleted,
        new.is_paused,
        new.metadata.labels,
    )
