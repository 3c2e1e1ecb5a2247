"""The NodeMaintenance controller: observes, calls `decision.decide`, executes the action, and repeats.

    controller = NodeMaintenanceController(client, events=recorder)
    await controller.run()                      # until cancelled

A reconcile ends when the decision contains no action. Changes of NodeMaintenances, nodes, leases and drains trigger the
next reconcile, and so does the decision's `requeue_at`.

The API server holds all state that a successor needs. The state in this process only saves work.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from haulout.api.hold import HELD
from haulout.api.nodemaintenance import (
    FINALIZER,
    NODE_MAINTENANCES,
    NodeMaintenance,
    NodeMaintenanceConditionType,
    NodeMaintenanceMetadata,
    NodeMaintenancePhase,
    NodeMaintenanceSpec,
    NodeMaintenanceStatus,
)
from haulout.api.objects import Lease, Node
from haulout.api.resources import NODES
from haulout.budget import cordon_copies
from haulout.budget.budget_check import BudgetCheck, BudgetExhausted, WaitingList, WaitingNodeMaintenance, may_free_slot
from haulout.budget.limits import NO_BUDGET, Budget
from haulout.budget.metrics import LimitUsage, limit_usage
from haulout.budget.slots import BudgetSlots
from haulout.budget.unavailable_nodes import (
    MaintenanceCause,
    is_unavailable,
    node_maintenances_of,
    recovering_node_maintenances_of,
)
from haulout.controllers.nodemaintenance import etcd_quorum, node_lease
from haulout.controllers.nodemaintenance.actions import RemoveFinalizer, WriteInitialStatus
from haulout.controllers.nodemaintenance.decision import NEVER, decide, may_delete_pods
from haulout.controllers.nodemaintenance.etcd_quorum import check_quorum
from haulout.controllers.nodemaintenance.events import (
    MAINTENANCE_ERROR,
    RECOVERING,
    WAITING,
    NodeMaintenanceEventRecorder,
)
from haulout.controllers.nodemaintenance.executor import NodeMaintenanceExecutor
from haulout.controllers.nodemaintenance.history_recorder import HistoryRecorder
from haulout.controllers.nodemaintenance.informers import (
    MaintenanceGone,
    NodeMaintenanceInformers,
    WorkloadInformers,
    has_relevant_change,
    maintenances_holding,
)
from haulout.controllers.nodemaintenance.node_cordon import is_cordon_annotation_lost, uses_status_copy
from haulout.controllers.nodemaintenance.observation import NodeMaintenanceDecision, Observation, StrayNode
from haulout.controllers.nodemaintenance.rate_limiters import ReconcileRateLimiter, StatusRateLimiter
from haulout.controllers.nodemaintenance.recovery import RecoveryObservation
from haulout.controllers.nodemaintenance.status import RETRYING_REASON, build_status, is_up_to_date
from haulout.core.backoff import Backoff
from haulout.drain.blockers import GRANT_DELETION
from haulout.drain.cordon import CordonOwnership
from haulout.drain.manager import DrainManager
from haulout.drain.metrics import InitiatorDrainMetrics
from haulout.drain.permissions import POD_DELETION
from haulout.drain.progress import BLOCKED_AFTER
from haulout.errors import Conflict, HauloutError, KubeError, LeadershipHandover, LeadershipLost, NotFound
from haulout.history.interface import History, NoHistory
from haulout.kube import rbac
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.recorder import EventRecorder
from haulout.kube.responses import admission_failure_of, condition_reason
from haulout.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

_MAX_ACTIONS = 30  # limit per reconcile; more actions mean that decisions go in circles
_MAX_CONFLICTS = 5  # per reconcile, then the work queue backs off
_WATCH_DELAY = timedelta(seconds=10)
# Retries also cover permissions granted meanwhile, for which there is no event.
_BACKOFF = Backoff(limit=timedelta(seconds=45))
_RETRY_INTERVAL = timedelta(minutes=1)  # after a failed reconcile
ORPHAN_RELEASE_DELAY = timedelta(minutes=5)  # until a node held for a deleted maintenance is released
_WORKERS = 64  # many, because a reconcile that stops a drain waits for its pending requests


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMaintenanceSettings:
    """Settings that differ between installations."""

    lease_namespace: str = node_lease.NAMESPACE
    own_node: str = ""  # node of this process; hand leadership over before it is drained; empty: never
    guard_quorum: bool = True  # check the etcd quorum; on OpenShift it is always checked
    namespace: str = "haulout"  # the operator's own; holds the slot ledger of the budget


class NodeMaintenanceController:
    """Reconciles all NodeMaintenances. Call `run` at most once.

    `nodes` is a shared informer that the caller runs. Without one, the controller runs its own.
    """

    def __init__(
        self,
        client: Client,
        *,
        events: EventRecorder,
        settings: NodeMaintenanceSettings | None = None,
        nodes: Informer[Node] | None = None,
        history: History | None = None,
        waiting_list: WaitingList | None = None,
        drain_metrics: InitiatorDrainMetrics | None = None,
    ) -> None:
        self.settings = settings or NodeMaintenanceSettings()
        self.history = history or NoHistory()
        self._history_recorder = HistoryRecorder(self.history, client)
        self._client = client
        self._clock = client.clock
        self._control_plane_lock = asyncio.Lock()  # serializes quorum check and cordon of control-plane nodes
        self._events = NodeMaintenanceEventRecorder(events)
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile_key,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            backoff=_BACKOFF,
            metrics=client.metrics,
            name="NodeMaintenance",
        )
        self._informers = NodeMaintenanceInformers(client, lease_namespace=self.settings.lease_namespace, nodes=nodes)
        self._drains = DrainManager(client, on_change=self._handle_drain, metrics=drain_metrics)
        self._workload_informers = WorkloadInformers(client, enqueue=self._queue.add)
        self._executor = NodeMaintenanceExecutor(
            client,
            self._informers,
            self._drains,
            self._events,
            lease_namespace=self.settings.lease_namespace,
            before_drain=self._hand_over_if_on,
            slots=BudgetSlots(client, namespace=self.settings.namespace, cause=MaintenanceCause.NODE_MAINTENANCES),
            workload_informers=self._workload_informers,
            budget_view=self._budget_view,
        )
        self._budget = NO_BUDGET
        self._waiting_list = waiting_list or WaitingList()
        self._status_rate_limiter = StatusRateLimiter(client.clock)
        self._unwritten_statuses: set[str] = set()  # names of maintenances whose last status write failed
        self._reconcile_rate_limiter = ReconcileRateLimiter(client.clock)
        # By maintenance name: monotonic time at which the orphaned node was found.
        self._orphaned_at: dict[str, float] = {}
        self._is_handing_over = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled. Raise `LeadershipHandover` when another replica must take over."""
        async with asyncio.TaskGroup() as group:
            runs = (*self._informers.run_functions(), self._drains.run, self._workload_informers.run)
            background = [group.create_task(run()) for run in runs]
            unsubscribe = self._waiting_list.subscribe(self._enqueue_waiting)
            try:
                await self._informers.wait_synced()
                self._subscribe()
                self._history_recorder.start()
                background.append(group.create_task(self._queue.run()))
                await self._is_handing_over.wait()
            finally:
                unsubscribe()
                for task in background:
                    task.cancel()
        raise LeadershipHandover(f"this process runs on node {self.settings.own_node}, which is about to be drained")

    def _hand_over_if_on(self, node: str) -> None:
        """Hand leadership over before the node is drained on which this process runs."""
        if node == self.settings.own_node:
            self._is_handing_over.set()
            raise LeadershipHandover(f"node {node} is to be drained by another replica")

    @property
    def maintenances(self) -> Informer[NodeMaintenance]:
        return self._informers.maintenances.informer

    def set_budget(self, budget: Budget) -> None:
        """Replace the budget and requeue all maintenances. Nodes that are already held stay held."""
        self._budget = budget
        self._enqueue_all()

    def _enqueue_all(self) -> None:
        for maintenance in list(self._informers.maintenances.informer.all()):
            self._queue.add(maintenance.name)

    def budget_usage(self) -> tuple[LimitUsage, ...]:
        """Return how much of each limit of the budget is used, for metrics."""
        informers, now = self._informers, self._clock.now()
        return limit_usage(self._budget, candidates=informers.possibly_unavailable(), sizes=informers.sizes, now=now)

    @property
    def unavailable_node_count(self) -> int:
        """The number of nodes that count as unavailable for budgets."""
        now = self._clock.now()
        return sum(is_unavailable(node, now) for node in self._informers.possibly_unavailable())

    @property
    def watches_workloads(self) -> bool:
        """Whether workloads are watched, which is the case while a maintenance requests recovery."""
        return self._workload_informers.is_watching

    @property
    def waiting_count(self) -> int:
        """The number of NodeMaintenances that wait for a budget slot."""
        return len(self._waiting_list.entries())

    # Event handlers

    def _subscribe(self) -> None:
        self._informers.maintenances.informer.subscribe(self._handle_maintenance)
        self._informers.nodes.informer.subscribe(self._handle_node)
        self._informers.leases.informer.subscribe(self._handle_lease)
        self.history.subscribe(self._enqueue_all)

    def _handle_maintenance(self, old: NodeMaintenance | None, new: NodeMaintenance | None) -> None:
        changed = new or old or NodeMaintenance()
        self._queue.add(changed.name)
        if old is None and new is not None and self._budget and _may_wait_for_budget(new):
            self._waiting_list.add(_waiting_entry(new))  # before any younger maintenance is reconciled
        if old is None or new is None or (old.is_being_deleted, old.node) != (new.is_being_deleted, new.node):
            for node in {maintenance.node: maintenance for maintenance in (old, new) if maintenance is not None}:
                for other in self._informers.maintenances_of(node):  # they may wait for this one
                    self._queue.add(other.name)

    def _handle_node(self, old: Node | None, new: Node | None) -> None:
        self._informers.note_node(old, new)
        if self._waiting_list.entries() and may_free_slot(self._budget, old, new):
            self._enqueue_waiting()
        if not has_relevant_change(old, new):
            return
        for maintenance in self._informers.maintenances_of((new or old or Node()).name):
            self._queue.add(maintenance.name)
        for owner in () if new is None else maintenances_holding(new):
            self._queue.add(owner)  # if the owner was deleted, its reconcile reports the orphaned node

    def _enqueue_waiting(self) -> None:
        for order in self._waiting_list.entries():
            self._queue.add(order.name)

    def _handle_drain(self, name: str) -> None:
        """Requeue the maintenance of a drain that reports progress.

        While it is running, requeue when the status rate limiter permits the next write. Requeue at once if the phase
        changes.
        """
        maintenance = self._informers.maintenances.get(name)
        is_running = maintenance is not None and maintenance.status.phase == NodeMaintenancePhase.RUNNING
        if not is_running or self._drains.has_ended(name):
            self._queue.add(name)
        else:
            self._queue.add_at(name, self._clock.now() + self._status_rate_limiter.delay(name))

    def _handle_lease(self, old: Lease | None, new: Lease | None) -> None:
        name = (new or old or Lease()).name
        for maintenance in list(self._informers.maintenances.informer.all()):
            if node_lease.lease_name(maintenance.node) == name:
                self._queue.add(maintenance.name)

    # Reconcile

    async def _reconcile_key(self, name: str) -> datetime | None:
        maintenance = self._informers.maintenances.get(name)
        if maintenance is None:
            return await self._forget(name)
        self._orphaned_at.pop(name, None)
        if paused_until := self._reconcile_rate_limiter.paused_until(name):
            log.warning(
                "NodeMaintenance %s changes too often; its reconciliation is paused until %s UTC",
                name,
                f"{paused_until:%H:%M:%S}",
            )
            return paused_until
        try:
            self._executor.refused_slots.pop(name, None)
            async with self._serialize_control_plane(maintenance):
                return await self._reconcile(maintenance)
        except MaintenanceGone:
            return self._clock.now() + _WATCH_DELAY  # the watch has delivered the deletion by then

    @asynccontextmanager
    async def _serialize_control_plane(self, maintenance: NodeMaintenance) -> AsyncIterator[None]:
        """Hold a lock while a control-plane node is checked and cordoned.

        Thereby each etcd quorum check sees the previous cordon.
        """
        node = self._informers.nodes.get(maintenance.node)
        if node is None or not etcd_quorum.is_control_plane(node) or maintenance.name in node_maintenances_of(node):
            yield
            return
        async with self._control_plane_lock:
            yield

    async def _reconcile(self, maintenance: NodeMaintenance) -> datetime | None:
        """Execute actions until the decision contains none, then write the status and return when to requeue."""
        decision, observation = NodeMaintenanceDecision(), Observation(maintenance=maintenance, now=self._clock.now())
        conflicts = 0
        try:
            for _ in range(_MAX_ACTIONS):
                self._workload_informers.track(maintenance)
                observation = await self._observe(maintenance)
                decision = decide(observation)
                await self._history_recorder.record(observation, decision)
                try:
                    if decision.action is None:
                        return await self._report_status(observation, decision)
                    self._reconcile_rate_limiter.record_change(maintenance.name)
                    if isinstance(decision.action, WriteInitialStatus):
                        self._status_rate_limiter.record_write(maintenance.name)
                    maintenance = await self._executor.execute(decision.action, observation)
                except Conflict:
                    conflicts += 1
                    if conflicts >= _MAX_CONFLICTS:
                        raise
                    maintenance = await self._informers.refresh(maintenance)
            raise RuntimeError(
                f"NodeMaintenance {maintenance.name} is not settled after {_MAX_ACTIONS} actions in one reconcile; "
                f"the last action was {decision.action}"
            )
        except (LeadershipHandover, LeadershipLost, MaintenanceGone):
            raise
        except Exception as error:
            await self._report_failure(replace(observation, maintenance=maintenance), decision, error)
            raise  # the work queue backs off for this maintenance only

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
            leased_at=self._executor.leased_at.get(maintenance.name),
            restored_at=self._executor.restored_at.get(maintenance.name),
            may_publish_conditions=self._executor.may_publish(),
            has_budget=bool(self._budget),
            budget_exhausted=self._budget_exhausted(maintenance, node),
            recovery=await self._observe_recovery(maintenance, node),
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
        return self._executor.refused_slots.get(maintenance.name) or budget_view.exhausted(node)

    def _budget_view(self, maintenance: NodeMaintenance) -> BudgetCheck | None:
        """Return the budget check with the current nodes and waiting list; None if there is no budget."""
        if not self._budget:
            return None
        orders, now = self._waiting_list.entries(), self._clock.now()
        return BudgetCheck(
            budget=self._budget, nodes=self._informers, now=now, waiting=orders, own_entry=_waiting_entry(maintenance)
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
        return f"the operator may not delete pods; {GRANT_DELETION}" if missing else ""

    async def _stray_nodes(self, maintenance: NodeMaintenance) -> tuple[StrayNode, ...]:
        others = [node for node in self._informers.nodes_held_by(maintenance.name) if node.name != maintenance.node]
        return tuple([StrayNode(node=node, lease=await self._informers.lease(node.name)) for node in others])

    async def _forget(self, name: str) -> datetime | None:
        """Stop everything for a deleted maintenance and release its nodes; return when to requeue.

        If this process saw the maintenance end, release at once what was cordoned too late. Otherwise record an event
        at once, and release the orphaned node after `ORPHAN_RELEASE_DELAY`: somebody may still work on it.
        """
        await self._drains.stop(name)
        self._unwritten_statuses.discard(name)
        self._reconcile_rate_limiter.forget(name)
        self._executor.forget(name)
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

    async def _release_leftovers(self, maintenance: NodeMaintenance) -> None:
        """Release what was taken in the name of a maintenance after the maintenance had ended."""
        for _ in range(_MAX_ACTIONS):
            observation = await self._observe(maintenance)
            action = decide(observation).action
            if action is None or isinstance(action, RemoveFinalizer) or await self._exists(maintenance.name):
                return
            await self._executor.execute(action, observation)

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
        self._queue.add(name)
        return True

    # Status and events

    async def _report_status(self, observation: Observation, decision: NodeMaintenanceDecision) -> datetime | None:
        """Record events and write the status of a reconcile that has no further action; return when to requeue."""
        if decision.budget_exhausted is not None:
            self._waiting_list.add(_waiting_entry(observation.maintenance))
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
        is_retry = (
            observation.maintenance.name in self._unwritten_statuses
        )  # the work queue's backoff limits the rate of these retries
        status_at = await self._write_status(observation.maintenance, update.status, at_once=is_retry)
        requeue_times = (decision.requeue_at, update.requeue_at, status_at)
        return min((instant for instant in requeue_times if instant is not None), default=None)

    async def _write_status(
        self, maintenance: NodeMaintenance, status: NodeMaintenanceStatus, *, at_once: bool = False
    ) -> datetime | None:
        """Write the status if the rate limiter permits; return when to write it otherwise.

        A change of phase and `at_once` bypass the rate limiter.
        """
        if is_up_to_date(maintenance, status):
            return None
        name, is_phase_change = maintenance.name, status.phase != maintenance.status.phase
        if (wait := self._status_rate_limiter.delay(name)) and not is_phase_change and not at_once:
            return self._clock.now() + wait
        self._status_rate_limiter.record_write(name)
        if is_phase_change:
            self._reconcile_rate_limiter.record_change(name)
        try:
            await self._executor.write_status(maintenance, status)
        except Conflict:  # the cached object is stale; the caller reads it again
            raise
        except HauloutError:
            self._unwritten_statuses.add(name)
            raise
        self._unwritten_statuses.discard(name)
        self._events.record_status_change(maintenance, status)
        return None

    async def _report_failure(
        self, observation: Observation, decision: NodeMaintenanceDecision, error: Exception
    ) -> None:
        """Write the error into the status if possible."""
        problem = str(error) if isinstance(error, HauloutError) else f"a defect in the operator: {error!r}"
        self._waiting_list.remove(observation.maintenance.name)  # a failing maintenance must not block those behind it
        reason = condition_reason(error)
        self._events.record_retry(observation.maintenance, problem, reason=reason or MAINTENANCE_ERROR)
        failed_decision = replace(decision, action=None, requeue_at=observation.now + _RETRY_INTERVAL)
        update = build_status(
            observation,
            failed_decision,
            error=problem,
            error_reason=reason or RETRYING_REASON,
            admission=admission_failure_of(error),
            lease_namespace=self.settings.lease_namespace,
        )
        try:
            await self._write_status(observation.maintenance, update.status)
        except (KubeError, MaintenanceGone) as another:
            log.debug("cannot write the status of NodeMaintenance %s: %s", observation.maintenance.name, another)


def _waiting_entry(maintenance: NodeMaintenance) -> WaitingNodeMaintenance:
    return WaitingNodeMaintenance(maintenance.metadata.creation_timestamp or NEVER, maintenance.name, maintenance.node)


def _deleted_maintenance(name: str, node: Node, now: datetime) -> NodeMaintenance:
    """Return a substitute for a maintenance that does not exist any more, in the state right before its deletion."""
    metadata = NodeMaintenanceMetadata(name=name, finalizers=(FINALIZER,), deletion_timestamp=now)
    return NodeMaintenance(metadata=metadata, spec=NodeMaintenanceSpec(node_name=node.name))


def _may_wait_for_budget(maintenance: NodeMaintenance) -> bool:
    """Return whether a maintenance in the first list is new, or was waiting for a slot according to its status."""
    within_budget = maintenance.status.condition(NodeMaintenanceConditionType.WITHIN_BUDGET)
    is_waiting = within_budget is not None and within_budget.status == "False"
    return not maintenance.is_being_deleted and (is_waiting or not maintenance.status.phase)
