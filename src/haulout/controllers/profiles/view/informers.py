"""Informers for the objects beside nodes that checks read, limited to what the configuration needs.

    informers = ProfileInformers(controller, client, external=NetworkClient(client=client))
    await informers.prepare(configuration)  # sync what it needs before it takes effect
    controller.use(configuration)

A change of an object that a check may read is reported to the controller by its topic, which requeues the nodes that
subscribe to the topic. An informer that has not synced never looks like an empty list: reading it raises
`InformerNotSynced`, and the node is requeued when the informer has synced.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

from haulout.api import workloads
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.api.objects import Lease, Node, object_key
from haulout.api.resources import LEASES, PODS
from haulout.api.workloads import WORKLOAD_KINDS, FindWorkload, InvalidWorkloadRecord, ScaledWorkload, WorkloadReference
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.events import ProfileEvents
from haulout.controllers.profiles.executor import HYPERVISORS
from haulout.controllers.profiles.external.query_cache import QueryCache
from haulout.controllers.profiles.notify.node_notifier import NodeNotifier
from haulout.controllers.profiles.observation import NotificationRequest
from haulout.controllers.profiles.plugin import ClusterView, ExternalClient, Need, ObservedNode
from haulout.controllers.profiles.view import topics
from haulout.controllers.profiles.view.node_index import NodeIndex
from haulout.controllers.profiles.view.node_view import NodeView, PassiveView, WorkloadSubscriptions
from haulout.controllers.profiles.view.scheduling import NodeCapacity, capacity_beside
from haulout.controllers.profiles.view.transform import (
    CachedObject,
    CachedPod,
    DaemonSetFields,
    PodFields,
    pod_transform,
    transform_daemon_set,
    transform_raw,
)
from haulout.core.clock import Alarm, Clock
from haulout.drain.lookups import DAEMON_SETS
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.informer_set import InformerNotSynced, InformerSet
from haulout.kube.reflector import ListWatch

NODE_INDEX = "node"
# Pods come and go all the time, and each change may concern all nodes that wait for capacity.
_CAPACITY_INTERVAL = timedelta(seconds=5)
_SYNC_TIMEOUT = timedelta(seconds=10)


class Requeuer(Protocol):
    """What the informers call: the controller. A protocol, because the controller creates the informers."""

    events: ProfileEvents

    def requeue(self, node: str) -> None: ...

    def record_repeated_failure(self, node: str) -> None:
        """Record that an external query of a node failed again for the same reason."""
        ...

    def requeue_for_topics(self, topics: frozenset[str]) -> None:
        """Requeue the nodes that subscribe to one of these topics."""
        ...


@dataclass(frozen=True, slots=True)
class InformerKey:
    """Identifies an informer: a resource, and a namespace if it is limited to one."""

    name: str
    namespace: str = ""

    def __str__(self) -> str:
        """Return the key for people: `leases in kube-system`."""
        return f"{self.name} in {self.namespace}" if self.namespace else self.name


_PODS = InformerKey("pods")
_DAEMON_SETS = InformerKey("daemonsets")
_HYPERVISORS = InformerKey(str(HYPERVISORS))
_NOTICES = InformerKey(str(MAINTENANCE_NOTICES))
_WORKLOADS = {kind: InformerKey(str(resource)) for kind, resource in WORKLOAD_KINDS.items()}


class ProfileInformers:
    """Informers, external queries and notifications for the checks of nodes. Call `run` at most once."""

    def __init__(self, controller: Requeuer, client: Client, *, external: ExternalClient) -> None:
        self._controller = controller
        self._client = client
        self._nodes: NodeIndex | None = None
        self._configuration: Configuration | None = None
        self._blocked_nodes: dict[str, None] = {}  # nodes whose checks read an informer that has not synced
        self._capacities: dict[str, tuple[object, NodeCapacity]] = {}
        self._informers: InformerSet[InformerKey] = InformerSet(
            client, new_informer=self._new_informer, on_synced=lambda _: self._requeue_blocked()
        )
        self._publish_capacity = Throttle(
            partial(controller.requeue_for_topics, frozenset({topics.CAPACITY})),
            clock=client.clock,
            interval=_CAPACITY_INTERVAL,
        )
        self._workload_subscriptions = WorkloadSubscriptions(controller.requeue_for_topics)
        self._notifier = NodeNotifier(client, external, events=controller.events)
        self.queries = QueryCache(
            external,
            clock=client.clock,
            random=client.random,
            requeue=controller.requeue,
            on_repeated_failure=controller.record_repeated_failure,
            exists=self._exists,
            metrics=client.metrics,
        )

    # Called by the controller

    async def run(self) -> None:
        """Run informers, external queries and notifications until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for run in (self._informers.run, self.queries.run, self._notifier.run):
                    group.create_task(run())
        finally:
            self._publish_capacity.stop()

    async def prepare(self, configuration: Configuration) -> None:
        """Sync what a configuration needs before it takes effect. Return after a timeout if something does not sync."""
        self._informers.set_keys(dict.fromkeys((*self._informers.keys(), *_required_informers(configuration))))
        await self._informers.wait_synced(_SYNC_TIMEOUT)

    def use(self, configuration: Configuration) -> None:
        """Watch and query what this configuration needs, and nothing else."""
        self._configuration = configuration
        self._informers.set_keys(dict.fromkeys(_required_informers(configuration)))
        self.queries.set_max_age(configuration.requeue)
        if Need.WORKLOADS not in configuration.needs:
            self._workload_subscriptions.clear()
        # Cached values are invalidated by changes of pods, which are not watched for every configuration.
        self._capacities.clear()

    def query_interval(self, node: str) -> timedelta | None:
        """Return how often external queries run for a node; None: it has none."""
        return self.queries.interval(node)

    def cluster_view(self, node: str, nodes: NodeIndex) -> ClusterView:
        """Return the view for the checks of a node, and drop its external queries: its checks register them again."""
        self._nodes = nodes
        self.queries.reset(node)
        self._blocked_nodes.pop(node, None)
        self._subscribe_to_workloads(node, nodes.find(node))
        return NodeView(node, nodes, self)

    def passive_view(self, nodes: NodeIndex) -> ClusterView:
        """Return a view for previews: it sends no external query and requeues no node."""
        return PassiveView("", nodes, self)

    def send(self, notification: NotificationRequest, observed: ObservedNode) -> None:
        """Send a notification. The caller has already recorded it as sent."""
        if self._configuration is not None:
            self._notifier.send(notification, observed, self._configuration)

    async def flush(self, timeout: timedelta) -> None:
        """Return when all queued notifications are sent, or after `timeout`."""
        await self._notifier.flush(timeout)

    # Called by views

    def informer(self, source: InformerKey, *, for_node: str) -> Informer[Any] | None:
        """Return an informer; None if the cluster does not have the resource. Raise `InformerNotSynced`.

        `for_node` is requeued when the informer has synced.
        """
        try:
            return self._informers.get(source)
        except InformerNotSynced:
            if for_node:
                self._blocked_nodes[for_node] = None
            raise

    def pods(self, node: str, *, for_node: str) -> Collection[CachedPod]:
        cache = self.informer(_PODS, for_node=for_node)
        return () if cache is None else cache.by_index(NODE_INDEX, node)

    def daemon_sets(self, *, for_node: str) -> Collection[CachedObject]:
        cache = self.informer(_DAEMON_SETS, for_node=for_node)
        return () if cache is None else cache.all()

    def hypervisor(self, name: str, *, for_node: str) -> CachedObject | None:
        cache = self.informer(_HYPERVISORS, for_node=for_node)
        return None if cache is None else cache.get(name)

    def notices(self, node: str, *, for_node: str) -> Collection[MaintenanceNotice]:
        cache = self.informer(_NOTICES, for_node=for_node)
        return () if cache is None else cache.by_index(NODE_INDEX, node)

    def lease(self, namespace: str, name: str, *, for_node: str) -> Lease | None:
        cache = self.informer(_leases(namespace), for_node=for_node)
        return None if cache is None else cache.get(object_key(name, namespace))

    def free_capacity(self, observed: ObservedNode, *, for_node: str) -> NodeCapacity:
        """Return the free capacity of a node. Cached until the node or one of its pods changes."""
        node = observed.node
        cached = self._capacities.get(node.name)
        if cached is not None and cached[0] is node:
            return cached[1]
        pods = self.pods(node.name, for_node=for_node)
        capacity = capacity_beside(
            node, node.status.allocatable, (pod.scheduling.requirements for pod in pods if pod.uses_capacity)
        )
        self._capacities[node.name] = node, capacity
        return capacity

    def workload_lookup(self, *, for_node: str) -> FindWorkload:
        """Return a function that finds workloads. Raise `InformerNotSynced` if they have not synced."""
        for source in _WORKLOADS.values():
            self.informer(source, for_node=for_node)
        return self._workload

    # Informers

    def _new_informer(self, source: InformerKey) -> tuple[Informer[Any], bool]:
        """Return an informer that reports changes, and whether its resource may be missing in the cluster."""
        if source == _HYPERVISORS:
            return self._subscribed(
                Informer(self._client, ListWatch(HYPERVISORS), transform=transform_raw), self._on_hypervisor
            ), True
        if source == _NOTICES:
            notices: Informer[MaintenanceNotice] = Informer(
                self._client, ListWatch(MAINTENANCE_NOTICES), transform=as_is, indexes={NODE_INDEX: _node_of}
            )
            return self._subscribed(notices, self._on_notice), True
        return self._new_core_informer(source), False

    def _new_core_informer(self, source: InformerKey) -> Informer[Any]:
        client = self._client
        if source == _PODS:
            pods: Informer[CachedPod] = Informer(
                client,
                ListWatch(PODS.with_model(PodFields)),
                transform=pod_transform(),
                indexes={NODE_INDEX: lambda row: (row.node,)},
            )
            return self._subscribed(pods, self._on_pod)
        if source == _DAEMON_SETS:
            sets = Informer(client, ListWatch(DAEMON_SETS.with_model(DaemonSetFields)), transform=transform_daemon_set)
            return self._subscribed(sets, self._on_daemon_set)
        for kind, known in _WORKLOADS.items():
            if source == known:
                scaled: Informer[ScaledWorkload] = Informer(client, ListWatch(WORKLOAD_KINDS[kind]), transform=as_is)
                return self._subscribed(scaled, partial(self._workload_subscriptions.on_workload, kind=kind))
        leases: Informer[Lease] = Informer(client, ListWatch(LEASES, namespace=source.namespace), transform=as_is)
        return self._subscribed(leases, self._on_lease)

    def _subscribed(self, cache: Informer[Any], handler: Callable[[Any, Any], None]) -> Informer[Any]:
        cache.subscribe(handler)
        return cache

    def _on_pod(self, old: CachedPod | None, new: CachedPod | None) -> None:
        if old is not None and new is not None and (old.node, old.raw) == (new.node, new.raw):
            return
        rows = [row for row in (old, new) if row is not None]
        nodes = dict.fromkeys(row.node for row in rows if row.node)
        changed_topics = {topics.pods(node) for node in nodes}
        for node in nodes:
            self._capacities.pop(node, None)
        came_or_went = old is None or new is None or old.node != new.node
        if came_or_went and any(row.scheduling.prefers_operational for row in rows):
            changed_topics.add(topics.POD_PREFERENCE)
        self._controller.requeue_for_topics(frozenset(changed_topics))
        if _consumption(old) != _consumption(new):
            self._publish_capacity()

    def _on_daemon_set(self, old: CachedObject | None, new: CachedObject | None) -> None:
        if old is None or new is None or old.raw != new.raw:
            self._controller.requeue_for_topics(frozenset({topics.DAEMON_SETS}))

    def _on_hypervisor(self, old: CachedObject | None, new: CachedObject | None) -> None:
        self._controller.requeue_for_topics(
            frozenset(topics.hypervisor(row.key) for row in (old, new) if row is not None)
        )

    def _on_notice(self, old: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        nodes = {notice.node for notice in (old, new) if notice is not None and notice.node}
        self._controller.requeue_for_topics(frozenset(map(topics.notices, nodes)))

    def _on_lease(self, old: Lease | None, new: Lease | None) -> None:
        leases = [lease for lease in (old, new) if lease is not None]
        self._controller.requeue_for_topics(frozenset(topics.lease(lease.namespace, lease.name) for lease in leases))

    # Other state

    def _subscribe_to_workloads(self, name: str, node: Node | None) -> None:
        """Subscribe a node to the workloads in the record in its annotation."""
        if self._configuration is None or Need.WORKLOADS not in self._configuration.needs:
            return
        try:
            self._workload_subscriptions.subscribe(name, None if node is None else workloads.decode_annotation(node))
        except InvalidWorkloadRecord:  # the check reports it, and any change of the node requeues it
            self._workload_subscriptions.subscribe(name, None)

    def _workload(self, reference: WorkloadReference) -> ScaledWorkload | None:
        cache = self._informers.get(_WORKLOADS[reference.kind])
        return None if cache is None else cache.get(reference.key)

    def _exists(self, node: str) -> bool:
        return self._nodes is not None and self._nodes.get(node) is not None

    def _requeue_blocked(self) -> None:
        for node in tuple(self._blocked_nodes):
            self._controller.requeue(node)


def _required_informers(configuration: Configuration) -> list[InformerKey]:
    needs = configuration.needs
    wanted: list[InformerKey] = []
    if needs & {Need.PODS, Need.FREE_CAPACITY, Need.WORKLOADS}:
        wanted.append(_PODS)
    if Need.DAEMON_SETS in needs:
        wanted.append(_DAEMON_SETS)
    if Need.HYPERVISORS in needs:
        wanted.append(_HYPERVISORS)
    if Need.NOTICES in needs:
        wanted.append(_NOTICES)
    if Need.WORKLOADS in needs:
        wanted += _WORKLOADS.values()
    namespaces = {
        name for plugin in configuration.plugins() if Need.LEASES in plugin.needs for name in plugin.lease_namespaces()
    }
    return [*wanted, *map(_leases, sorted(namespaces))]


def _node_of(notice: MaintenanceNotice) -> tuple[str, ...]:
    return (notice.node,) if notice.node else ()


def _leases(namespace: str) -> InformerKey:
    return InformerKey("leases", namespace)


def _consumption(row: CachedPod | None) -> object:
    """Return which resources a pod uses on which node."""
    return (
        None
        if row is None or not row.node or not row.uses_capacity
        else (row.node, row.scheduling.spec, row.is_leaving)
    )


class Throttle:
    """Calls `call` at once, and then again after `interval` at the earliest. The last call is never dropped."""

    def __init__(self, call: Callable[[], object], *, clock: Clock, interval: timedelta) -> None:
        self._call = call
        self._clock = clock
        self._interval = interval
        self._last_call: datetime | None = None
        self._alarm: Alarm | None = None

    def __call__(self) -> None:
        """Call now, or as soon as the interval allows."""
        if self._alarm is not None:
            return
        now = self._clock.now()
        if self._last_call is None or now - self._last_call >= self._interval or now < self._last_call:
            self._call_now()
        else:
            # `on_set_back`: if the clock is set back, the time of the alarm may be hours away.
            self._alarm = self._clock.call_at(
                self._last_call + self._interval, self._call_now, on_set_back=self._call_now
            )

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _call_now(self) -> None:
        self._alarm = None
        self._last_call = self._clock.now()
        self._call()
