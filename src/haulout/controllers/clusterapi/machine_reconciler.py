"""Reconciles one Machine and its node, in two clusters.

The node is written first. The Machine is written only when its node needs no write any more, so that a removed hook
proves that all writes before it were done. An event is recorded after the write that it tells about.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from haulout.api.clusterapi import ClusterKey, Machine
from haulout.api.objects import Node
from haulout.controllers.clusterapi.cluster_accessor import ClusterAccessor
from haulout.controllers.clusterapi.cluster_slot import ClusterSlot
from haulout.controllers.clusterapi.decision import decide
from haulout.controllers.clusterapi.management import ManagementContext
from haulout.controllers.clusterapi.observation import Decision, Observation, PendingEvent
from haulout.controllers.clusterapi.status import ConnectionState, MachineRequestStatus
from haulout.errors import HauloutError
from haulout.kube.recorder import object_reference
from haulout.runtime.reconciler import Reconciler

log = logging.getLogger(__name__)


class MachineReconciler(Reconciler[str, Observation, Decision]):
    """Reconciles the Machines of one workload cluster. `on_change` is called when a status has changed."""

    def __init__(
        self,
        cluster: ClusterKey,
        management: ManagementContext,
        accessor: ClusterAccessor,
        slot: ClusterSlot,
        *,
        on_change: Callable[[], None],
    ) -> None:
        self.statuses: dict[str, tuple[MachineRequestStatus, ...]] = {}  # by key of the Machine
        self.unsettled: set[str] = set()  # Machines with work left before they may be forgotten
        self.known: dict[str, Machine] = {}  # last known versions, to withdraw the requests of deleted Machines
        self._cluster = cluster
        self._management = management
        self._accessor = accessor
        self._slot = slot
        self._on_change = on_change
        # By key of the Machine: its uid, and the reasons of its status that were recorded.
        self._recorded: dict[str, frozenset[tuple[str, str]]] = {}

    async def observe(self, key: str) -> Observation | None:
        machine, previous = self._management.machines.get(key), self.known.get(key)
        if machine is not None and machine.cluster != self._cluster:
            machine = None
        if previous is not None and (machine is None or machine.uid != previous.uid):
            return await self._observe(previous, is_gone=True)
        if machine is None:
            return None
        self.known[key] = machine
        return await self._observe(machine, is_gone=False)

    def decide(self, observation: Observation) -> Decision:
        return decide(observation)

    async def act(self, observation: Observation, decision: Decision) -> bool:
        machine = observation.machine
        if await self._slot.acquire(machine.key, decision):
            return True  # decide again, with the refusal
        if decision.node and observation.node is not None:
            await self._accessor.patch_node(observation.node, decision.node.to_patch(observation.node))
            log.debug("cluster %s: node %s: %s", self._cluster, observation.node.name, decision.node)
            self._record(observation, (event for event in decision.events if event.on_node))
        elif observation.is_gone and decision.is_settled:
            del self.known[machine.key]
        elif decision.machine:
            patch = decision.machine.to_patch(machine)
            self._management.machines.record_write(
                await self._management.client.patch(
                    self._management.resource, machine.name, patch, namespace=machine.namespace
                )
            )
            level = logging.DEBUG if decision.events else logging.INFO
            log.log(level, "Machine %s: %s", machine.key, decision.machine, extra={"cluster": str(self._cluster)})
            self._record(observation, (event for event in decision.events if not event.on_node))
        else:
            return False
        return True

    async def report(self, observation: Observation, decision: Decision) -> datetime | None:
        if observation.is_gone:
            return None  # reconciled again once the cluster is connected
        key, previous = observation.machine.key, self._visible_state(observation.machine.key)
        self._set_statuses(key, decision.statuses)
        self._slot.update(key, decision)
        if decision.is_settled and key in self.unsettled:
            self.unsettled.discard(key)
            if not self.unsettled:
                self._slot.inherit()
        self._slot.release_if_idle()
        self._record_status_events(observation, decision)
        if self._visible_state(key) != previous:
            self._on_change()
        return self._slot.retry_at(key)

    async def refresh(self, key: str, error: Exception) -> bool:
        del error
        machine = self.known.get(key)
        if machine is None:
            return False
        if machine.node:
            await self._accessor.refresh_node(machine.node)  # without a connection, the node is not observed either
        management = self._management
        await management.machines.refresh(
            management.client, management.resource, machine.name, namespace=machine.namespace
        )
        return True

    async def report_failure(
        self, key: str, observation: Observation | None, decision: Decision | None, error: Exception
    ) -> None:
        del observation
        problem = str(error) if isinstance(error, HauloutError) else f"a defect in the hub: {error!r}; see the log"
        # What was decided has not happened: a request counts as approved only if it did before.
        decided = () if decision is None else tuple(replace(item, is_approved=False) for item in decision.statuses)
        self._set_statuses(key, tuple(replace(status, reason=problem) for status in self.statuses.get(key, decided)))
        self._on_change()

    async def forget(self, key: str) -> datetime | None:
        self.statuses.pop(key, None)
        self._recorded.pop(key, None)
        self.unsettled.discard(key)
        self._slot.forget(key)
        self._slot.release_if_idle()
        self._on_change()
        return None

    async def _observe(self, machine: Machine, *, is_gone: bool) -> Observation:
        cluster, health = self._management.cluster(self._cluster), self._accessor.health
        is_node_known = self._accessor.is_connected
        return Observation(
            machine=machine,
            now=self._management.client.clock.now(),
            settings=self._management.settings,
            node=await self._node(machine, is_gone=is_gone) if is_node_known else None,
            is_node_known=is_node_known,
            is_gone=is_gone,
            is_node_claimed=bool(machine.node and self._management.machines_of_node(self._cluster, machine.node)),
            unreachable_since=health.since if health.connection_state.is_unavailable else None,
            is_unreadable=health.connection_state is ConnectionState.UNREADABLE,
            has_cluster=cluster is not None,
            is_cluster_being_deleted=cluster is not None and cluster.is_being_deleted,
            is_cluster_paused=cluster is not None and cluster.is_paused,
            budget_refusal=self._slot.refusal(machine.key),
            freezes=self._management.freezes.current(),
            drain_rules=None if is_gone else self._management.drain_rules(machine, cluster),
        )

    async def _node(self, machine: Machine, *, is_gone: bool) -> Node | None:
        nodes = self._accessor.nodes
        if not machine.node or nodes is None:
            return None
        found = nodes.get(machine.node)
        # A deletion is released if its node does not exist: confirm it, the cache may be stale.
        is_confirmed = found is not None or is_gone or not machine.is_being_deleted
        return found if is_confirmed else await self._accessor.read_node(machine.node)

    def _visible_state(self, key: str) -> object:
        return self.statuses.get(key), self._slot.waiting_reason, bool(self.unsettled)

    def _set_statuses(self, key: str, statuses: tuple[MachineRequestStatus, ...]) -> None:
        if statuses:
            self.statuses[key] = statuses
        else:
            self.statuses.pop(key, None)

    # Events

    def _record_status_events(self, observation: Observation, decision: Decision) -> None:
        """Record events about the status of a Machine, each reason once, although its message may change."""
        key, uid = observation.machine.key, observation.machine.uid
        recorded = self._recorded.pop(key, frozenset())
        self._record(observation, (event for event in decision.status_events if (uid, event.reason) not in recorded))
        if decision.status_events:
            self._recorded[key] = frozenset((uid, event.reason) for event in decision.status_events)

    def _record(self, observation: Observation, events: Iterable[PendingEvent]) -> None:
        machine, node = observation.machine, observation.node
        for event in events:
            transition = event.transition(f"Machine {machine.key}", self._cluster)
            if not observation.is_gone:
                self._management.metrics.events_recorded.add(event.reason)
                transition = replace(transition, regarding=(object_reference(self._management.resource, machine),))
            self._management.journal.record(transition)
            if event.on_node and node is not None:
                self._accessor.emit_event(node, transition)
