"""Reconciles one NodeMaintenance: what is observed, which writes follow, what its status says.

`decision` decides, `executor` writes. `haulout.runtime.controller` contains the loop, the handling of conflicts and the
backoff. The API server holds all state that a successor needs. The state in this process only saves work.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from haulout.api.hold import HELD
from haulout.api.nodemaintenance import (
    FINALIZER,
    NODE_MAINTENANCES,
    NodeMaintenance,
    NodeMaintenanceMetadata,
    NodeMaintenanceSpec,
    NodeMaintenanceStatus,
)
from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.budget import cordon_copies
from haulout.budget.budget_check import BudgetCheck, BudgetExhausted, WaitingList, WaitingNodeMaintenance
from haulout.budget.limits import NO_BUDGET
from haulout.budget.slots import BudgetSlots
from haulout.budget.unavailable_nodes import (
    MaintenanceCause,
    node_maintenances_of,
    recovering_node_maintenances_of,
)
from haulout.controllers.nodemaintenance import etcd_quorum
from haulout.controllers.nodemaintenance.actions import RemoveFinalizer, WriteInitialStatus
from haulout.controllers.nodemaintenance.decision import NEVER, decide, may_delete_pods
from haulout.controllers.nodemaintenance.etcd_quorum import check_quorum
from haulout.controllers.nodemaintenance.events import (
    MAINTENANCE_ERROR,
    RECOVERING,
    WAITING,
    NodeMaintenanceEvents,
)
from haulout.controllers.nodemaintenance.executor import NodeMaintenanceExecutor
from haulout.controllers.nodemaintenance.history_recorder import HistoryRecorder
from haulout.controllers.nodemaintenance.informers import (
    MaintenanceGone,
    NodeMaintenanceInformers,
    WorkloadInformers,
    maintenances_holding,
)
from haulout.controllers.nodemaintenance.node_cordon import is_cordon_annotation_lost, uses_status_copy
from haulout.controllers.nodemaintenance.observation import NodeMaintenanceDecision, Observation, StrayNode
from haulout.controllers.nodemaintenance.recovery import RecoveryObservation
from haulout.controllers.nodemaintenance.settings import NodeMaintenanceSettings
from haulout.controllers.nodemaintenance.status import RETRYING_REASON, build_status, is_up_to_date
from haulout.drain.blockers import GRANT_DELETION
from haulout.drain.cordon import CordonOwnership
from haulout.drain.manager import DrainManager
from haulout.drain.permissions import POD_DELETION
from haulout.drain.progress import BLOCKED_AFTER
from haulout.errors import HauloutError, KubeError, NotFound
from haulout.kube import rbac
from haulout.kube.client import Client
from haulout.kube.responses import admission_failure_of, condition_reason
from haulout.runtime.freezes import FreezeSource
from haulout.runtime.journal import Journal
from haulout.runtime.reconciler import Reconciler
from haulout.runtime.status_writer import StatusWriter

log = logging.getLogger(__name__)

_RETRY_INTERVAL = timedelta(minutes=1)  # after a failed reconcile
_MAX_RELEASE_ACTIONS = 30  # to release one node of a maintenance that does not exist any more
ORPHAN_RELEASE_DELAY = timedelta(minutes=5)  # until a node held for a deleted maintenance is released


class NodeMaintenanceReconciler(Reconciler[str, Observation, NodeMaintenanceDecision]):
    """Reconciles one NodeMaintenance at a time, by name."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        client: Client,
        *,
        settings: NodeMaintenanceSettings,
        informers: NodeMaintenanceInformers,
        drains: DrainManager,
        workload_informers: WorkloadInformers,
        journal: Journal,
        waiting_list: WaitingList,
        freezes: FreezeSource,
        before_drain: Callable[[str], object],
        enqueue: Callable[[str], object],
        record_change: Callable[[str], object],
    ) -> None:
        self._events = NodeMaintenanceEvents(journal)
        self.settings = settings
        self.budget = NO_BUDGET
        self.status_writer: StatusWriter[str] = StatusWriter(client.clock)
        self.executor = NodeMaintenanceExecutor(
            client,
            informers,
            drains,
            self._events,
            lease_namespace=settings.lease_namespace,
            before_drain=before_drain,
            slots=BudgetSlots(client, namespace=settings.namespace, cause=MaintenanceCause.NODE_MAINTENANCES),
            workload_informers=workload_informers,
            budget_view=self._budget_view,
        )
        self._client = client
        self._freezes = freezes
        self._clock = client.clock
        self._informers = informers
        self._drains = drains
        self._workload_informers = workload_informers
        self._history_recorder = HistoryRecorder(journal.history, client)
        self._waiting_list = waiting_list
        self._enqueue = enqueue
        self._record_change = record_change
        self._control_plane_lock = asyncio.Lock()  # serializes quorum check and cordon of control-plane nodes
        # By maintenance name: monotonic time at which the orphaned node was found.
        self._orphaned_at: dict[str, float] = {}

    def start(self) -> None:
        """Let the history record maintenances that ended unobserved. Call this once the informers have synced."""
        self._history_recorder.start()

    async def observe(self, key: str) -> Observation | None:
        maintenance = self._informers.maintenances.get(key)
        if maintenance is None:
            return None
        self._orphaned_at.pop(key, None)
        self._workload_informers.track(maintenance)
        return await self._observe(maintenance)

    def decide(self, observation: Observation) -> NodeMaintenanceDecision:
        return decide(observation)

    async def act(self, observation: Observation, decision: NodeMaintenanceDecision) -> bool:
        await self._history_recorder.record(observation, decision)
        if decision.action is None:
            return False
        if isinstance(decision.action, WriteInitialStatus):
            self.status_writer.record_write(observation.maintenance.name)
        await self.executor.execute(decision.action, observation)
        return True

    async def refresh(self, key: str, error: Exception) -> bool:
        maintenance = self._informers.maintenances.get(key)
        if maintenance is None:
            return True
        if isinstance(error, MaintenanceGone):
            return False  # the watch will deliver the deletion
        try:
            await self._informers.refresh(maintenance)
        except MaintenanceGone:
            return False
        return True

    async def forget(self, key: str) -> datetime | None:
        """Stop everything for a deleted maintenance and release its nodes; return when to requeue.

        If this process saw the maintenance end, release at once what was cordoned too late. Otherwise record an event
        at once, and release the orphaned node after `ORPHAN_RELEASE_DELAY`: somebody may still work on it.
        """
        name = key
        await self._drains.stop(name)
        self.status_writer.forget(name)
        self.executor.forget(name)
        self._workload_informers.forget(name)
        self._informers.forget(name)
        await self._history_recorder.forget(name, now=self._clock.now())
        self._waiting_list.remove(name)
        self._events.forget(name)
        if (ended := self._informers.ended(name)) is not None:
            await self._release_leftovers(ended)
            return None
        held_nodes = [
            held_node for held_node in self._informers.nodes_held_by(name) if await self._is_orphan(held_node, name)
        ]
        if not held_nodes:
            self._orphaned_at.pop(name, None)
            return None
        since = self._orphaned_at.setdefault(name, self._clock.monotonic())
        remaining = ORPHAN_RELEASE_DELAY - timedelta(seconds=self._clock.monotonic() - since)
        for node in held_nodes:
            if remaining > timedelta():
                self._events.record_orphaned(node, name, released_in=ORPHAN_RELEASE_DELAY)
            else:
                await self._release_leftovers(_deleted_maintenance(name, node, self._clock.now()))
        return self._clock.now() + max(remaining, _RETRY_INTERVAL)

    async def report(self, observation: Observation, decision: NodeMaintenanceDecision) -> datetime | None:
        """Record events and write the status of a reconcile that has no further action; return when to requeue."""
        if decision.budget_exhausted is not None:
            self._waiting_list.add(waiting_entry(observation.maintenance))
        elif observation.maintenance.status.phase or observation.maintenance.is_being_deleted:
            self._waiting_list.remove(observation.maintenance.name)
        self._events.record_budget(observation.maintenance, decision.budget_exhausted)
        is_silent = observation.maintenance.is_being_deleted or not observation.maintenance.status.phase
        if is_silent and not decision.problem:
            return decision.requeue_at
        self._events.record_drain(observation, report_after=BLOCKED_AFTER)
        if decision.problem and decision.budget_exhausted is None:
            self._events.record_waiting(
                observation.maintenance,
                problem=decision.problem,
                waits_for=decision.waits_for,
                reason=RECOVERING if decision.is_recovering else WAITING if decision.hold is None else HELD,
            )
        update = build_status(observation, decision, lease_namespace=self.settings.lease_namespace)
        status_at = await self._write_status(observation.maintenance, update.status)
        self._events.record_success(observation.maintenance)
        requeue_times = (decision.requeue_at, update.requeue_at, status_at)
        return min((instant for instant in requeue_times if instant is not None), default=None)

    async def report_failure(
        self, key: str, observation: Observation | None, decision: NodeMaintenanceDecision | None, error: Exception
    ) -> None:
        """Write the error into the status if possible."""
        maintenance = self._informers.maintenances.get(key)
        if maintenance is None or isinstance(error, MaintenanceGone):
            return
        observation = observation or Observation(maintenance=maintenance, now=self._clock.now())
        observation = replace(observation, maintenance=maintenance)
        problem = str(error) if isinstance(error, HauloutError) else f"a defect in the operator: {error!r}"
        self._waiting_list.remove(observation.maintenance.name)  # a failing maintenance must not block those behind it
        reason = condition_reason(error)
        self._events.record_retry(observation.maintenance, problem, reason=reason or MAINTENANCE_ERROR)
        failed_decision = replace(
            decision or NodeMaintenanceDecision(), action=None, requeue_at=observation.now + _RETRY_INTERVAL
        )
        update = build_status(
            observation,
            failed_decision,
            error=problem,
            error_reason=reason or RETRYING_REASON,
            admission=admission_failure_of(error),
            lease_namespace=self.settings.lease_namespace,
        )
        if self.status_writer.has_failed(key):
            return
        try:
            await self._write_status(observation.maintenance, update.status)
        except (KubeError, MaintenanceGone) as another:
            log.debug("cannot write the status of NodeMaintenance %s: %s", observation.maintenance.name, another)

    @asynccontextmanager
    async def exclusive(self, key: str) -> AsyncIterator[None]:
        """Hold a lock while a control-plane node is checked and cordoned.

        Thereby each etcd quorum check sees the previous cordon.
        """
        self.executor.refused_slots.pop(key, None)  # the refusal of an earlier reconcile
        maintenance = self._informers.maintenances.get(key)
        node = None if maintenance is None else self._informers.nodes.get(maintenance.node)
        if node is None or not etcd_quorum.is_control_plane(node) or key in node_maintenances_of(node):
            yield
            return
        async with self._control_plane_lock:
            yield

    # Observation

    async def _observe(self, maintenance: NodeMaintenance) -> Observation:
        name = maintenance.node
        node = await self._informers.node(name)
        lease = await self._informers.lease(name)
        return Observation(
            maintenance=maintenance,
            node=node,
            lease=lease,
            drain=self._drains.snapshot(maintenance.name),
            rivals=tuple(other for other in self._informers.maintenances_of(name) if other.name != maintenance.name),
            quorum_problem=await self._quorum_problem(maintenance, node),
            missing_permission=await self._missing_permission(maintenance, node),
            stray_nodes=await self._stray_nodes(maintenance),
            other_cordon_owners=await self._other_cordon_owners(maintenance, node),
            leased_at=self.executor.leased_at.get(maintenance.name),
            restored_at=self.executor.restored_at.get(maintenance.name),
            may_publish_conditions=self.executor.may_publish(),
            has_budget=bool(self.budget),
            budget_exhausted=self._budget_exhausted(maintenance, node),
            recovery=await self._observe_recovery(maintenance, node),
            freezes=self._freezes.current(),
            now=self._clock.now(),
        )

    async def _observe_recovery(self, maintenance: NodeMaintenance, node: Node | None) -> RecoveryObservation | None:
        """Return the state of the node's workloads if the maintenance requests recovery and the decision needs it."""
        reported = maintenance.status.recovery
        if maintenance.spec.recovery is None or node is None:
            return None
        if reported is None:
            drain = self._drains.snapshot(maintenance.name)
            is_next = maintenance.name in node_maintenances_of(node) and drain is not None and drain.is_waiting
            return (
                await self._workload_informers.on_node(node.name)
                if is_next and not maintenance.is_being_deleted
                else None
            )
        return (
            await self._workload_informers.degraded_workloads(reported)
            if maintenance.name in recovering_node_maintenances_of(node)
            else None
        )

    async def _other_cordon_owners(
        self, maintenance: NodeMaintenance, node: Node | None
    ) -> Mapping[str, CordonOwnership]:
        """Return the other cordon owners of a node that lost its cordon annotation.

        The node must stay cordoned for them.
        """
        if node is None or not (is_cordon_annotation_lost(maintenance, node) or uses_status_copy(maintenance, node)):
            return {}
        return await cordon_copies.holds_of(self._client, node, namespace=self.settings.namespace)

    def _budget_exhausted(self, maintenance: NodeMaintenance, node: Node | None) -> BudgetExhausted | None:
        """Return why the budget has no slot for the node.

        None if it has one, or if the maintenance holds the node already.
        """
        budget_view = self._budget_view(maintenance)
        if (
            budget_view is None
            or node is None
            or maintenance.is_being_deleted
            or maintenance.name in node_maintenances_of(node)
        ):
            return None
        return self.executor.refused_slots.get(maintenance.name) or budget_view.exhausted(node)

    def _budget_view(self, maintenance: NodeMaintenance) -> BudgetCheck | None:
        """Return the budget check with the current nodes and waiting list; None if there is no budget."""
        if not self.budget:
            return None
        orders, now = self._waiting_list.entries(), self._clock.now()
        return BudgetCheck(
            budget=self.budget, nodes=self._informers, now=now, waiting=orders, own_entry=waiting_entry(maintenance)
        )

    async def _quorum_problem(self, maintenance: NodeMaintenance, node: Node | None) -> str:
        """Return why the etcd quorum forbids to cordon the node now. The message is that of the admission webhook."""
        if node is None or maintenance.is_being_deleted or not etcd_quorum.is_control_plane(node):
            return ""
        if maintenance.name in node_maintenances_of(node):
            return ""
        try:
            result = await check_quorum(
                self._client,
                node,
                nodes_in_maintenance=self._informers.held_nodes(),
                check_without_openshift=self.settings.guard_quorum,
            )
        except etcd_quorum.QuorumUnknown as error:
            return str(error)
        return "" if result is None or result.allowed else f"{etcd_quorum.refusal_message(node.name)}: {result.reason}"

    async def _missing_permission(self, maintenance: NodeMaintenance, node: Node | None) -> str:
        """Return which permission the drain policy needs and the operator lacks. Empty for a node that is held already.

        Without this check, a drain could start that cannot end.
        """
        is_held = node is None or maintenance.name in node_maintenances_of(node)
        if is_held or maintenance.is_being_deleted or not may_delete_pods(maintenance):
            return ""
        try:
            missing = await rbac.denied_permissions(self._client, (POD_DELETION,))
        except KubeError as error:
            log.debug("cannot check whether the operator may delete pods: %s", error)
            return ""
        return f"the operator is not allowed to delete pods; {GRANT_DELETION}" if missing else ""

    async def _stray_nodes(self, maintenance: NodeMaintenance) -> tuple[StrayNode, ...]:
        others = [node for node in self._informers.nodes_held_by(maintenance.name) if node.name != maintenance.node]
        return tuple([StrayNode(node=node, lease=await self._informers.lease(node.name)) for node in others])

    async def _release_leftovers(self, maintenance: NodeMaintenance) -> None:
        """Release what was taken in the name of a maintenance after the maintenance had ended."""
        for _ in range(_MAX_RELEASE_ACTIONS):
            observation = await self._observe(maintenance)
            action = decide(observation).action
            if action is None or isinstance(action, RemoveFinalizer) or await self._exists(maintenance.name):
                return
            await self.executor.execute(action, observation)

    async def _is_orphan(self, node: Node, name: str) -> bool:
        """Return whether a node is held for a maintenance that does not exist, read from the API server."""
        if await self._exists(name):
            return False
        found = self._informers.nodes.record_write(await self._client.get(NODES, node.name))
        return name in maintenances_holding(found)

    async def _exists(self, name: str) -> bool:
        """Read from the API server, not from the cache, whether the maintenance exists; enqueue it if so."""
        try:
            self._informers.maintenances.record_write(await self._client.get(NODE_MAINTENANCES, name))
        except NotFound:
            return False
        self._enqueue(name)
        return True

    async def _write_status(self, maintenance: NodeMaintenance, status: NodeMaintenanceStatus) -> datetime | None:
        """Write the status, a change of phase at once; return when to write it if that is later."""
        if is_up_to_date(maintenance, status):
            return None
        is_phase_change = status.phase != maintenance.status.phase
        if is_phase_change:
            self._record_change(maintenance.name)

        async def write() -> None:
            await self.executor.write_status(maintenance, status)
            self._events.record_status_change(maintenance, status)

        return await self.status_writer.write(maintenance.name, write, at_once=is_phase_change)


def waiting_entry(maintenance: NodeMaintenance) -> WaitingNodeMaintenance:
    return WaitingNodeMaintenance(maintenance.metadata.creation_timestamp or NEVER, maintenance.name, maintenance.node)


def _deleted_maintenance(name: str, node: Node, now: datetime) -> NodeMaintenance:
    """Return a substitute for a maintenance that does not exist any more, in the state right before its deletion."""
    metadata = NodeMaintenanceMetadata(name=name, finalizers=(FINALIZER,), deletion_timestamp=now)
    return NodeMaintenance(metadata=metadata, spec=NodeMaintenanceSpec(node_name=node.name))
