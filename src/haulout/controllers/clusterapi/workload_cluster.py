"""One workload cluster: its connection, its work queue, and the reconciliation of its Machines.

A failing cluster does not affect others: clusters share only the client of the management cluster. The node is written
first, and the Machine only if that succeeded, so that a removed hook proves that all writes before it were done.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from haulout.api.clusterapi import CLUSTER_NAME, Cluster, ClusterKey, Machine
from haulout.api.objects import Node
from haulout.api.reasons import HubEventReason
from haulout.api.resources import NODES, Resource
from haulout.controllers.clusterapi import messages
from haulout.controllers.clusterapi.cluster_accessor import ClientFactory, ClusterAccessor, strip_node
from haulout.controllers.clusterapi.cluster_budget import ClusterBudget
from haulout.controllers.clusterapi.decision import decide, requests_on, withdraw_requests
from haulout.controllers.clusterapi.metrics import ClusterApiMetrics
from haulout.controllers.clusterapi.observation import Decision, MetadataChange, NodeRequest, Observation, PendingEvent
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.controllers.clusterapi.status import ConnectionState, MachineRequestStatus, WorkloadClusterStatus
from haulout.errors import Conflict, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.recorder import EventRecorder, EventType, ObjectReference, object_reference
from haulout.kube.workqueue import WorkQueue

T = TypeVar("T")

log = logging.getLogger(__name__)

_WORKERS = 4
# Conflicts are common: Cluster API and the kubelet write the same objects.
_MAX_ATTEMPTS = 5
_NODE = "node "  # prefix of node names in the queue; keys of Machines contain no space
_CONFLICT_DELAY = timedelta(seconds=1)
_BUDGET_RETRY_INTERVAL = timedelta(seconds=30)  # another controller may release a slot without an event here

DrainRulesLookup = Callable[[Machine, Cluster | None], str | None]  # the node's annotation; None: keep what is there


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementContext:
    """What all workload clusters share: the management cluster and the settings."""

    client: Client
    resource: Resource[Machine]
    machines: MutationCache[Machine]
    cluster: Callable[[ClusterKey], Cluster | None]
    machines_of_node: Callable[[ClusterKey, str], tuple[str, ...]]  # keys of the Machines of a node
    machines_of_cluster: Callable[[ClusterKey], tuple[str, ...]]  # keys of all Machines of a cluster
    connect: ClientFactory
    cluster_budget: ClusterBudget
    settings: ClusterApiSettings
    events: EventRecorder
    metrics: ClusterApiMetrics
    instance: str
    reporter: str
    drain_rules: DrainRulesLookup
    on_status_change: Callable[[ClusterKey], None]  # the status of a cluster changed
    on_idle: Callable[[ClusterKey], None]  # no node of a cluster has a request any more


class WorkloadCluster:
    """Reconciles the Machines of one cluster. `run` may be called again after a failure."""

    def __init__(self, key: ClusterKey, management: ManagementContext) -> None:
        self.key = key
        self._management = management
        self._clock = management.client.clock
        self._statuses: dict[str, tuple[MachineRequestStatus, ...]] = {}  # by key of the Machine
        self._active: set[str] = set()  # Machines with a request, or about to have one
        self._logged_connection_state = ConnectionState.CONNECTING
        self._may_hold_slot = False  # the cluster may hold a slot in the budget across clusters
        self._may_inherit_slot = True  # not yet checked whether a previous leader left a slot
        self._budget_refusals: dict[str, str] = {}
        self._unsettled: set[str] = set()  # Machines with work left before they may be forgotten
        self._recorded_status_events: dict[
            str, frozenset[tuple[str, str]]
        ] = {}  # by key of the Machine: its uid, and the reasons recorded already
        self._known_machines: dict[
            str, Machine
        ] = {}  # last known versions, to withdraw the requests of deleted Machines
        self.accessor = ClusterAccessor(
            management.client,
            key,
            connect=management.connect,
            instance=management.instance,
            reporter=management.reporter,
            on_change=self._on_connection_change,
            on_node_change=self._on_node_change,
        )
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=self._clock,
            random=management.client.random,
            workers=_WORKERS,
            name=f"cluster {key}",
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.accessor.run())
            group.create_task(self._queue.run())

    def add(self, machine: Machine, *, must_settle: bool) -> None:
        """Queue a Machine; with `must_settle` it is not forgotten before it was reconciled."""
        if must_settle:
            self._unsettled.add(machine.key)
        self._queue.add(machine.key)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do for Machines that are not managed any more."""
        return not self._unsettled

    @property
    def is_active(self) -> bool:
        """Whether any of the nodes has a request."""
        return bool(self._active)

    def enqueue_waiting(self) -> None:
        """Reconcile the Machines that wait for the budget across clusters."""
        for key in tuple(self._budget_refusals):
            self._queue.add(key)

    def status(self, machines: list[Machine]) -> WorkloadClusterStatus:
        """Return the status of the cluster with these Machines."""
        health, nodes, cluster = self.accessor.health, self.accessor.nodes, self._management.cluster(self.key)
        cache_health = None if nodes is None else nodes.informer.health()
        problem = health.problem if health.failing_since is not None else ""
        return WorkloadClusterStatus(
            key=self.key,
            connection_state=health.connection_state,
            reason=problem and ((cache_health and cache_health.problem) or problem),
            since=health.since,
            last_response_at=health.last_response_at,
            server=self.accessor.server,
            version=self.accessor.version,
            machines=len(machines),
            enabled=sum(machine.is_enabled for machine in machines),
            nodes=0 if nodes is None else len(nodes.informer),
            is_being_deleted=cluster is not None and cluster.is_being_deleted,
            requests=tuple(request for _, statuses in sorted(self._statuses.items()) for request in statuses),
            waiting_reason=next(iter(self._budget_refusals.values()), ""),
        )

    # Event handlers

    def enqueue_all(self) -> None:
        """Reconcile all Machines of the cluster, after a change that affects each of them."""
        for key in {*self._management.machines_of_cluster(self.key), *self._known_machines}:
            self._queue.add(key)

    def _on_connection_change(self) -> None:
        health = self.accessor.health
        if health.connection_state is not self._logged_connection_state:
            self._logged_connection_state = health.connection_state
            if health.connection_state.is_unavailable:
                verb = "read" if health.connection_state is ConnectionState.UNREADABLE else "reached"
                log.warning("cluster %s cannot be %s: %s", self.key, verb, health.problem)
            else:
                log.info("cluster %s is reached at %s", self.key, self.accessor.server)
        self.enqueue_all()
        self._management.on_status_change(self.key)

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and old.spec != new.spec:
            self._management.on_status_change(self.key)  # subscribers may wait for the node to be cordoned
        if old is not None and new is not None and _relevant_state(old) == _relevant_state(new):
            return
        node = new or old
        if node is None:
            return
        machines = self._management.machines_of_node(self.key, node.name)
        for key in machines:
            self._queue.add(key)
        if new is not None and not machines and requests_on(new):
            self._queue.add(f"{_NODE}{new.name}")

    # Reconcile

    async def _reconcile(self, key: str) -> datetime | None:
        if key.startswith(_NODE):
            return await self._reconcile_unclaimed_node(key.removeprefix(_NODE))
        machine, previous = self._management.machines.get(key), self._known_machines.get(key)
        if machine is not None and machine.cluster != self.key:
            machine = None
        if previous is not None and (machine is None or machine.uid != previous.uid):
            if not await self._withdraw_requests_of(previous):
                return None  # reconciled again once the cluster is connected
            del self._known_machines[key]
        if machine is None:
            self._forget(key)
            return None
        self._known_machines[key] = machine
        return await self._reconcile_machine(machine)

    async def _reconcile_machine(self, machine: Machine) -> datetime | None:
        """Reconcile a Machine and its node; after a conflict read both again and retry at once."""
        for _ in range(_MAX_ATTEMPTS):
            try:
                return await self._reconcile_once(machine)
            except (Conflict, NotFound) as error:
                log.debug("Machine %s or its node has changed, retrying: %s", machine.key, error)
            try:
                machine = await self._refresh(machine)
            except KubeError as error:
                log.debug("Machine %s or its node cannot be read: %s", machine.key, error)
                break
        return self._clock.now() + _CONFLICT_DELAY

    async def _refresh(self, machine: Machine) -> Machine:
        client, nodes = self.accessor.client, self.accessor.nodes
        if machine.node and client is not None and nodes is not None:
            nodes.record_write(strip_node(await client.get(NODES, machine.node)))
        current = await self._management.client.get(
            self._management.resource, machine.name, namespace=machine.namespace
        )
        return self._management.machines.record_write(current)

    # Deleted Machines whose nodes remain

    async def _withdraw_requests_of(self, deleted_machine: Machine) -> bool:
        """Withdraw the requests of a deleted Machine; return whether nothing is left to do."""
        if not deleted_machine.node:
            return True
        if not self.accessor.is_connected:
            return self._management.cluster(self.key) is None  # without a Cluster there will never be a connection
        nodes = self.accessor.nodes
        node = None if nodes is None else nodes.get(deleted_machine.node)
        if node is not None:
            is_claimed = bool(self._management.machines_of_node(self.key, node.name))

            def is_gone(request: NodeRequest | None) -> bool:
                return not is_claimed if request is None else request.machine == deleted_machine.uid

            await self._withdraw(node, withdraw_requests(node, is_gone=is_gone, is_claimed=is_claimed))
        return True

    async def _reconcile_unclaimed_node(self, name: str) -> datetime | None:
        """Withdraw requests from a node without a Machine: the Machine was deleted while no controller ran.

        While a Cluster is being moved its Machines are in two management clusters, and the Cluster is paused in this
        one.
        """
        nodes, cluster = self.accessor.nodes, self._management.cluster(self.key)
        node = None if nodes is None or not self.accessor.is_connected else nodes.get(name)
        if node is None or cluster is None or cluster.is_paused or self._management.machines_of_node(self.key, name):
            return None
        selector = f"{CLUSTER_NAME}={self.key.name}"
        machines = (
            await self._management.client.list(self._management.resource, namespace=self.key.namespace, labels=selector)
        ).items
        if any(machine.node == name for machine in machines):
            return None  # the cache is stale
        uids = {machine.uid for machine in machines}

        def is_gone(request: NodeRequest | None) -> bool:
            return request is not None and request.machine not in uids

        await self._withdraw(node, withdraw_requests(node, is_gone=is_gone, is_claimed=False))
        return None

    async def _withdraw(self, node: Node, change: MetadataChange) -> None:
        client, nodes = self.accessor.client, self.accessor.nodes
        if not change or client is None or nodes is None:
            return
        try:
            nodes.record_write(strip_node(await client.patch(NODES, node.name, change.to_patch(node))))
        except NotFound:
            return
        event = PendingEvent(reason=HubEventReason.REQUEST_WITHDRAWN, note=messages.machine_gone(node))
        log.info("cluster %s: %s", self.key, event.note)
        if self.accessor.events is not None:
            _record_event(self.accessor.events, object_reference(NODES, node), event)

    async def _reconcile_once(self, machine: Machine) -> datetime | None:
        observation = await self._observe(machine)
        decision = decide(observation)
        budget_refusal = await self._acquire_slot(machine, decision)
        if budget_refusal:
            decision = decide(replace(observation, budget_refusal=budget_refusal))
        await self._execute(observation, decision)
        self._store_decision(machine, decision, budget_refusal)
        self._record_status_events(observation, decision)
        if budget_refusal:
            return min(filter(None, (decision.requeue_at, self._clock.now() + _BUDGET_RETRY_INTERVAL)))
        return decision.requeue_at

    async def _acquire_slot(self, machine: Machine, decision: Decision) -> str:
        """Acquire a slot in the budget if the decision needs one; return why maintenance may not begin."""
        if not decision.is_active or (self._may_hold_slot and not decision.is_new_request):
            return ""
        self._active.add(machine.key)  # before the request: otherwise a concurrent release would be missed
        self._may_hold_slot = True  # before the request: its response may be lost
        is_running = not decision.is_new_request
        budget_refusal = await self._management.cluster_budget.acquire(self.key, is_running=is_running)
        if budget_refusal and self._active == {machine.key}:
            self._may_hold_slot = False
        return "" if is_running else budget_refusal

    async def _observe(self, machine: Machine) -> Observation:
        cluster, health = self._management.cluster(self.key), self.accessor.health
        is_node_known = self.accessor.is_connected
        return Observation(
            machine=machine,
            now=self._clock.now(),
            settings=self._management.settings,
            node=await self._node(machine) if is_node_known else None,
            is_node_known=is_node_known,
            unreachable_since=health.since if health.connection_state.is_unavailable else None,
            is_unreadable=health.connection_state is ConnectionState.UNREADABLE,
            is_cluster_being_deleted=cluster is not None and cluster.is_being_deleted,
            is_cluster_paused=cluster is not None and cluster.is_paused,
            drain_rules=self._management.drain_rules(machine, cluster),
        )

    async def _node(self, machine: Machine) -> Node | None:
        nodes, client = self.accessor.nodes, self.accessor.client
        if not machine.node or nodes is None or client is None:
            return None
        found = nodes.get(machine.node)
        if found is not None or not machine.is_being_deleted:
            return found
        try:  # a deletion is released if its node does not exist: confirm it, the cache may be stale
            return nodes.record_write(strip_node(await client.get(NODES, machine.node)))
        except NotFound:
            return None

    async def _execute(self, observation: Observation, decision: Decision) -> None:
        machine, client, nodes = observation.machine, self.accessor.client, self.accessor.nodes
        if decision.node and observation.node is not None and client is not None and nodes is not None:
            patch = decision.node.to_patch(observation.node)
            nodes.record_write(strip_node(await client.patch(NODES, observation.node.name, patch)))
            log.debug("cluster %s: node %s: %s", self.key, observation.node.name, decision.node)
        if decision.machine:
            patch = decision.machine.to_patch(machine)
            self._management.machines.record_write(
                await self._management.client.patch(
                    self._management.resource, machine.name, patch, namespace=machine.namespace
                )
            )
            level = logging.DEBUG if decision.events else logging.INFO
            log.log(level, "Machine %s: %s", machine.key, decision.machine, extra={"cluster": str(self.key)})
        for event in decision.events:
            self._report(observation, event)

    def _store_decision(self, machine: Machine, decision: Decision, budget_refusal: str) -> None:
        key, previous = (
            machine.key,
            (self._statuses.get(machine.key, ()), self._budget_refusals.get(machine.key), self.is_settled),
        )
        self._may_hold_slot = self._may_hold_slot or (
            key in self._budget_refusals and not budget_refusal
        )  # it may hold a slot now that it does not wait any more
        _set_or_remove(self._statuses, key, decision.statuses)
        _set_or_remove(self._budget_refusals, key, budget_refusal)
        if decision.is_active:
            self._active.add(key)
        elif decision.is_settled:  # requests on a node that cannot be observed stay as they were
            self._active.discard(key)
        if decision.is_settled and key in self._unsettled:
            self._unsettled.discard(key)
            if self.is_settled and self._may_inherit_slot:  # a previous leader may have left a slot
                self._may_inherit_slot, self._may_hold_slot = False, True
        self._report_if_idle()
        if previous != (decision.statuses, budget_refusal or None, self.is_settled):
            self._management.on_status_change(self.key)

    def _forget(self, key: str) -> None:
        self._statuses.pop(key, None)
        was_waiting = self._budget_refusals.pop(key, None) is not None
        self._may_hold_slot = self._may_hold_slot or was_waiting
        self._recorded_status_events.pop(key, None)
        self._active.discard(key)
        self._unsettled.discard(key)
        self._report_if_idle()
        self._management.on_status_change(self.key)

    def _report_if_idle(self) -> None:
        """Call `on_idle` when no node has a request.

        A cluster that waits for a slot is not reported: that would requeue it at once.
        """
        if self._may_hold_slot and not self.is_active:
            self._may_hold_slot = False
            self._management.on_idle(self.key)

    # Events

    def _record_status_events(self, observation: Observation, decision: Decision) -> None:
        """Record events about the status of a Machine, each reason once."""
        key, uid = observation.machine.key, observation.machine.uid
        recorded = self._recorded_status_events.get(key, frozenset())
        for event in decision.status_events:
            if (uid, event.reason) not in recorded:
                self._report(observation, event)
        _set_or_remove(
            self._recorded_status_events,
            key,
            frozenset((uid, status_event.reason) for status_event in decision.status_events),
        )

    def _report(self, observation: Observation, event: PendingEvent) -> None:
        self._management.metrics.events_recorded.add(event.reason)
        _record_event(self._management.events, object_reference(self._management.resource, observation.machine), event)
        log.log(
            logging.WARNING if event.is_warning else logging.INFO,
            "Machine %s: %s",
            observation.machine.key,
            event.note,
            extra={"cluster": str(self.key), "reason": event.reason},
        )
        if event.on_node and observation.node is not None and self.accessor.events is not None:
            _record_event(self.accessor.events, object_reference(NODES, observation.node), event)


def _relevant_state(node: Node) -> object:
    return node.uid, node.metadata.labels, node.metadata.annotations


def _set_or_remove(mapping: dict[str, T], key: str, value: T) -> None:
    """Set the value, or remove the key if the value is empty."""
    if value:
        mapping[key] = value
    else:
        mapping.pop(key, None)


def _record_event(events: EventRecorder, regarding: ObjectReference, event: PendingEvent) -> None:
    kind: EventType = "Warning" if event.is_warning else "Normal"
    events.event(regarding, reason=event.reason, note=event.note, action="Propagate", type=kind)
