"""One workload cluster: a connection of its own, a queue of its own, and the Machines that became its nodes.

Whatever it does to us, all others go on: nothing here is shared with another cluster but the client of the management
cluster. The node is written first and the Machine only if that succeeded, so that a hook that is gone says that all
before it was done.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from haulout.api.clusterapi import CLUSTER_NAME, Cluster, ClusterKey, Machine
from haulout.api.objects import Node
from haulout.api.resources import NODES, Resource
from haulout.controllers.clusterapi import messages
from haulout.controllers.clusterapi.cluster_budget import ClusterBudget
from haulout.controllers.clusterapi.decision import decide, requests_on, withdraw_requests
from haulout.controllers.clusterapi.metrics import ClusterApiMetrics
from haulout.controllers.clusterapi.node_request import NodeRequest
from haulout.controllers.clusterapi.observation import Decision, MetadataChange, Observation, PendingEvent
from haulout.controllers.clusterapi.remote.client import ClientFactory
from haulout.controllers.clusterapi.remote.cluster_accessor import ClusterAccessor, strip_node
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
_MAX_ATTEMPTS = 5
_NODE = "node "  # before the name of a node in the queue; the keys of Machines have no blanks
_CONFLICT_DELAY = timedelta(seconds=1)
_BUDGET_RETRY_INTERVAL = timedelta(seconds=30)  # another hub may have given back what we wait for, and tells nobody

DrainRulesLookup = Callable[[Machine, Cluster | None], str | None]  # what a node should say of them; None: as it says


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementContext:
    """What all workload clusters have in common: the cluster that their Machines are in, and how the hub behaves."""

    client: Client
    resource: Resource[Machine]
    machines: MutationCache[Machine]
    cluster: Callable[[ClusterKey], Cluster | None]
    machines_of_node: Callable[[ClusterKey, str], tuple[str, ...]]  # the keys of Machines that became a node
    machines_of_cluster: Callable[[ClusterKey], tuple[str, ...]]  # the keys of all of its Machines
    connect: ClientFactory
    cluster_budget: ClusterBudget
    settings: ClusterApiSettings
    events: EventRecorder
    metrics: ClusterApiMetrics
    instance: str
    reporter: str
    drain_rules: DrainRulesLookup
    on_status_change: Callable[[ClusterKey], None]  # how it stands with a cluster
    on_idle: Callable[[ClusterKey], None]  # nothing of a cluster is maintained any more


class WorkloadCluster:
    """Sees to the Machines of one cluster; `run` may be called again after it broke."""

    def __init__(self, key: ClusterKey, management: ManagementContext) -> None:
        self.key = key
        self._management = management
        self._clock = management.client.clock
        self._statuses: dict[str, tuple[MachineRequestStatus, ...]] = {}  # by the key of the Machine
        self._active: set[str] = set()  # of which something is asked, or about to be
        self._logged_connection_state = ConnectionState.CONNECTING
        self._may_hold_slot = False  # in the budget across clusters, as far as we know
        self._may_inherit_slot = True  # nobody has looked yet whether it should
        self._budget_refusals: dict[str, str] = {}
        self._unsettled: set[str] = set()  # what is left to do about a Machine that may be forgotten otherwise
        self._recorded_status_events: dict[
            str, frozenset[tuple[str, str]]
        ] = {}  # the same: its uid, and what was told already
        self._known_machines: dict[
            str, Machine
        ] = {}  # as they were last, so that requests of those that vanish are withdrawn
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
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.accessor.run())
            group.create_task(self._queue.run())

    def add(self, machine: Machine, *, must_settle: bool) -> None:
        """Look at a Machine; `must_settle`: not to be forgotten before that was done."""
        if must_settle:
            self._unsettled.add(machine.key)
        self._queue.add(machine.key)

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing is left to do about Machines that ask for nothing any more."""
        return not self._unsettled

    @property
    def is_active(self) -> bool:
        """Tell whether something is asked of its nodes."""
        return bool(self._active)

    def enqueue_waiting(self) -> None:
        """Look at what waits for other clusters."""
        for key in tuple(self._budget_refusals):
            self._queue.add(key)

    def status(self, machines: list[Machine]) -> WorkloadClusterStatus:
        """Return how it stands with the cluster, whose Machines these are."""
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

    # Who is woken by what

    def enqueue_all(self) -> None:
        """Look at all of its Machines: what is about each of them has changed."""
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
            self._management.on_status_change(self.key)  # somebody may wait for it to be cordoned
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

    # One look

    async def _reconcile(self, key: str) -> datetime | None:
        if key.startswith(_NODE):
            return await self._reconcile_unclaimed_node(key.removeprefix(_NODE))
        machine, previous = self._management.machines.get(key), self._known_machines.get(key)
        if machine is not None and machine.cluster != self.key:
            machine = None
        if previous is not None and (machine is None or machine.uid != previous.uid):
            if not await self._withdraw_requests_of(previous):
                return None  # looked at again once the cluster is reached
            del self._known_machines[key]
        if machine is None:
            self._forget(key)
            return None
        self._known_machines[key] = machine
        return await self._reconcile_machine(machine)

    async def _reconcile_machine(self, machine: Machine) -> datetime | None:
        """Act on a Machine and its node; read both again at once if somebody else has written to them meanwhile."""
        for _ in range(_MAX_ATTEMPTS):
            try:
                return await self._reconcile_once(machine)
            except (Conflict, NotFound) as error:
                log.debug("Machine %s or its node is not as it was: %s", machine.key, error)
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

    # Machines that are gone while their nodes are not

    async def _withdraw_requests_of(self, deleted_machine: Machine) -> bool:
        """Withdraw what a Machine requested that is gone; return whether nothing is left to do."""
        if not deleted_machine.node:
            return True
        if not self.accessor.is_connected:
            return self._management.cluster(self.key) is None  # without a Cluster nobody will ever be reached
        nodes = self.accessor.nodes
        node = None if nodes is None else nodes.get(deleted_machine.node)
        if node is not None:
            is_claimed = bool(self._management.machines_of_node(self.key, node.name))

            def is_gone(request: NodeRequest | None) -> bool:
                return not is_claimed if request is None else request.machine == deleted_machine.uid

            await self._withdraw(node, withdraw_requests(node, is_gone=is_gone, is_claimed=is_claimed))
        return True

    async def _reconcile_unclaimed_node(self, name: str) -> datetime | None:
        """Withdraw what is requested of a node that no Machine became: its Machine went while no hub ran.

        While a Cluster is moved its Machines are in two management clusters, and it is paused in this one.
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
            return None  # the cache is behind the server
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
        event = PendingEvent(reason="RequestWithdrawn", note=messages.machine_gone(node))
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
        """Have the cluster count in the budget if something of it is maintained; return why that may not begin."""
        if not decision.is_active or (self._may_hold_slot and not decision.is_new_request):
            return ""
        self._active.add(machine.key)  # from before it is asked: what is given back meanwhile would be missed
        self._may_hold_slot = True  # the same: the answer may be lost
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
        try:  # that a node is gone is what a deletion is released for: the copy may be old
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
        )  # who waits no more is not waited for
        _set_or_remove(self._statuses, key, decision.statuses)
        _set_or_remove(self._budget_refusals, key, budget_refusal)
        if decision.is_active:
            self._active.add(key)
        elif decision.is_settled:  # what is asked of a node that cannot be seen stays as it was
            self._active.discard(key)
        if decision.is_settled and key in self._unsettled:
            self._unsettled.discard(key)
            if self.is_settled and self._may_inherit_slot:  # whoever came before us may have left a slot behind
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
        """Tell that nothing of the cluster is maintained any more; not of who waits: it would be woken by that."""
        if self._may_hold_slot and not self.is_active:
            self._may_hold_slot = False
            self._management.on_idle(self.key)

    # What is told

    def _record_status_events(self, observation: Observation, decision: Decision) -> None:
        """Tell how it stands with a Machine, each thing once."""
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
    """Keep what is said of a key; nothing is not kept."""
    if value:
        mapping[key] = value
    else:
        mapping.pop(key, None)


def _record_event(events: EventRecorder, regarding: ObjectReference, event: PendingEvent) -> None:
    kind: EventType = "Warning" if event.is_warning else "Normal"
    events.event(regarding, reason=event.reason, note=event.note, action="Propagate", type=kind)
