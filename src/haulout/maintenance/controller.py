"""The NodeMaintenance controller: looks, has `decision` decide, has the step performed, until there is nothing to do.

    controller = Controller(client, events=recorder)
    await controller.run()                      # until cancelled

It is woken by changes of maintenances, nodes and leases and by its own drains, and otherwise at the instants that its
decisions name. Everything that a successor needs is in the API server; what is kept here only saves work.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from haulout.budget import cordon_copies
from haulout.budget.away import Cause, is_away, orders_of, recovering_of
from haulout.budget.limits import NO_BUDGET, Budget
from haulout.budget.line import Line, Order
from haulout.budget.room import Crowded, View, may_make_room
from haulout.budget.slots import Slots
from haulout.budget.tallies import Use, uses
from haulout.core.backoff import Backoff
from haulout.drain.blockers import GRANT_DELETION
from haulout.drain.cordon import Hold
from haulout.drain.keeper import Drains
from haulout.drain.lasting import BLOCKED_AFTER
from haulout.drain.permissions import DELETION
from haulout.drain.tallies import Meter
from haulout.errors import Conflict, HandOver, HauloutError, KubeError, LeadershipLost, NotFound
from haulout.history.interface import History, NoHistory
from haulout.kinds.hold import HELD
from haulout.kube import access
from haulout.kube.admission import admission_of, shown_reason
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.objects import Lease, Node
from haulout.kube.queue import Queue
from haulout.kube.resources import NODES
from haulout.maintenance import etcd, quorum
from haulout.maintenance import lease as node_lease
from haulout.maintenance.decision import NEVER, decide, may_delete_pods
from haulout.maintenance.holding import counts_copy, is_mark_lost
from haulout.maintenance.pacing import StatusPace
from haulout.maintenance.performing import Performer
from haulout.maintenance.recording import Recorder
from haulout.maintenance.recovery import RecoverySeen
from haulout.maintenance.resource import (
    FINALIZER,
    NODE_MAINTENANCES,
    ConditionType,
    NodeMaintenance,
    OrderMetadata,
    Phase,
    Spec,
    Status,
)
from haulout.maintenance.restlessness import Restlessness
from haulout.maintenance.seen import Decision, Seen, Stray
from haulout.maintenance.sight import MaintenanceGone, Sight, changed_for_us, holders_of
from haulout.maintenance.status import RETRYING, describe, is_said
from haulout.maintenance.steps import Accept, RemoveFinalizer
from haulout.maintenance.telling import MAINTENANCE_ERROR, RECOVERING, WAITING, Teller
from haulout.maintenance.workloads import Workloads

log = logging.getLogger(__name__)

_MOST_STEPS = 30  # in a row: more would mean that decisions go in circles
_MOST_CONFLICTS = 5  # before the others are left alone for a while
_TOLD_WITHIN = timedelta(seconds=10)
_BACKOFF = Backoff(limit=timedelta(seconds=45))  # what was forbidden may be allowed now, and nobody tells us
_RETRIED_WITHIN = timedelta(minutes=1)  # after a failure
ORPHANS_RELEASED_AFTER = timedelta(minutes=5)  # nodes held for a maintenance that does not exist
_WORKERS = 64  # a maintenance that stops a drain waits for its answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What can differ from one installation to the next."""

    lease_namespace: str = node_lease.NAMESPACE
    own_node: str = ""  # hand over before it is drained; empty: never
    guard_quorum: bool = True  # of etcd, on clusters that are not OpenShift; there it is always guarded
    namespace: str = "haulout"  # of the operator: where the ledger of a budget is


class Controller:
    """Sees to all NodeMaintenances; `run` may be called once.

    `nodes` is a copy that somebody else keeps up to date, made by `sight.node_cache`; without it, it has its own.
    """

    def __init__(
        self,
        client: Client,
        *,
        events: EventRecorder,
        settings: Settings | None = None,
        nodes: Cache[Node] | None = None,
        history: History | None = None,
        line: Line | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.history = history or NoHistory()
        self._recorder = Recorder(self.history, client)
        self._client = client
        self._clock = client.clock
        self._control_plane = asyncio.Lock()  # of its nodes one is judged and taken at a time
        self._teller = Teller(events)
        self._queue: Queue[str] = Queue(
            self._work,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            backoff=_BACKOFF,
            meters=client.meters,
            name="NodeMaintenance",
        )
        self._sight = Sight(client, lease_namespace=self.settings.lease_namespace, nodes=nodes)
        self._drains = Drains(client, changed=self._note_drain, meter=meter)
        self._workloads = Workloads(client, wake=self._queue.add)
        self._performer = Performer(
            client,
            self._sight,
            self._drains,
            self._teller,
            lease_namespace=self.settings.lease_namespace,
            before_drain=self._hand_over_if_on,
            slots=Slots(client, namespace=self.settings.namespace, cause=Cause.ORDERS),
            workloads=self._workloads,
            view=self._view,
        )
        self._budget = NO_BUDGET
        self._line = line or Line()
        self._pace = StatusPace(client.clock)
        self._untold: set[str] = set()  # of which the last status could not be written
        self._restlessness = Restlessness(client.clock)
        self._orphaned_at: dict[str, float] = {}  # by maintenance: since when we know that it left a node behind
        self._is_handing_over = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled; raises `HandOver` when another process should go on."""
        async with asyncio.TaskGroup() as group:
            runs = (*self._sight.runs(), self._drains.run, self._workloads.run)
            background = [group.create_task(run()) for run in runs]
            end = self._line.subscribe(self._wake_waiting)
            try:
                await self._sight.wait_synced()
                self._subscribe()
                self._recorder.begin()
                background.append(group.create_task(self._queue.run()))
                await self._is_handing_over.wait()
            finally:
                end()
                for task in background:
                    task.cancel()
        raise HandOver(f"this process runs on node {self.settings.own_node}, which is about to be drained")

    def _hand_over_if_on(self, node: str) -> None:
        """Give way to another process before the node is emptied on which this one runs."""
        if node == self.settings.own_node:
            self._is_handing_over.set()
            raise HandOver(f"node {node} is to be drained by another process")

    @property
    def maintenances(self) -> Cache[NodeMaintenance]:
        """All NodeMaintenances."""
        return self._sight.maintenances.cache

    def use(self, budget: Budget) -> None:
        """Go on by this budget: who waits for room is looked at again, and who holds a node goes on."""
        self._budget = budget
        self._look_at_all()

    def _look_at_all(self) -> None:
        for maintenance in list(self._sight.maintenances.cache.all()):
            self._queue.add(maintenance.name)

    def budget_uses(self) -> tuple[Use, ...]:
        """Return how much of the budget is used, for metrics."""
        sight, now = self._sight, self._clock.now()
        return uses(self._budget, candidates=sight.candidates(), sizes=sight.sizes, now=now)

    @property
    def out_of_service(self) -> int:
        """How many nodes are, as budgets see it."""
        now = self._clock.now()
        return sum(is_away(it, now) for it in self._sight.candidates())

    @property
    def follows_workloads(self) -> bool:
        """Whether workloads are followed, as a maintenance asks for recovery."""
        return self._workloads.is_following

    @property
    def in_line(self) -> int:
        """How many orders wait for room."""
        return len(self._line.orders())

    # Who is woken by what

    def _subscribe(self) -> None:
        self._sight.maintenances.cache.subscribe(self._note_maintenance)
        self._sight.nodes.cache.subscribe(self._note_node)
        self._sight.leases.cache.subscribe(self._note_lease)
        self.history.subscribe(self._look_at_all)

    def _note_maintenance(self, old: NodeMaintenance | None, new: NodeMaintenance | None) -> None:
        changed = new or old or NodeMaintenance()
        self._queue.add(changed.name)
        if old is None and new is not None and self._budget and _may_wait_for_room(new):
            self._line.join(_order(new))  # before anybody behind it is looked at
        if old is None or new is None or (old.is_leaving, old.node) != (new.is_leaving, new.node):
            for node in {it.node: it for it in (old, new) if it is not None}:
                for other in self._sight.maintenances_of(node):  # they may wait behind it
                    self._queue.add(other.name)

    def _note_node(self, old: Node | None, new: Node | None) -> None:
        self._sight.note_node(old, new)
        if self._line.orders() and may_make_room(self._budget, old, new):
            self._wake_waiting()
        if not changed_for_us(old, new):
            return
        for maintenance in self._sight.maintenances_of((new or old or Node()).name):
            self._queue.add(maintenance.name)
        for owner in () if new is None else holders_of(new):
            self._queue.add(owner)  # it may be gone, and that is to be told

    def _wake_waiting(self) -> None:
        for order in self._line.orders():
            self._queue.add(order.name)

    def _note_drain(self, name: str) -> None:
        """Look at a drain that tells something new: when that may be written, or at once if another phase begins."""
        maintenance = self._sight.maintenances.get(name)
        is_going_on = maintenance is not None and maintenance.status.phase == Phase.RUNNING
        if not is_going_on or self._drains.has_ended(name):
            self._queue.add(name)
        else:
            self._queue.wake_at(name, self._clock.now() + self._pace.wait(name))

    def _note_lease(self, old: Lease | None, new: Lease | None) -> None:
        name = (new or old or Lease()).name
        for maintenance in list(self._sight.maintenances.cache.all()):
            if node_lease.name_of(maintenance.node) == name:
                self._queue.add(maintenance.name)

    # One look

    async def _work(self, name: str) -> datetime | None:
        maintenance = self._sight.maintenances.get(name)
        if maintenance is None:
            return await self._forget(name)
        self._orphaned_at.pop(name, None)
        if pauses_until := self._restlessness.pauses_until(name):
            log.warning("NodeMaintenance %s changes again and again; it is left alone for a while", name)
            return pauses_until
        try:
            self._performer.refused.pop(name, None)
            async with self._in_turn(maintenance):
                return await self._go_on(maintenance)
        except MaintenanceGone:
            return self._clock.now() + _TOLD_WITHIN  # by the watch, and there is no look at what is gone

    @asynccontextmanager
    async def _in_turn(self, maintenance: NodeMaintenance) -> AsyncIterator[None]:
        """Judge and take one node of the control plane at a time, so that each judgement knows of the last."""
        node = self._sight.nodes.get(maintenance.node)
        if node is None or not quorum.is_control_plane(node) or maintenance.name in orders_of(node):
            yield
            return
        async with self._control_plane:
            yield

    async def _go_on(self, maintenance: NodeMaintenance) -> datetime | None:
        """Perform one step after the other until there is none left; then tell how things stand."""
        decision, seen = Decision(), Seen(maintenance=maintenance, now=self._clock.now())
        conflicts = 0
        try:
            for _ in range(_MOST_STEPS):
                self._workloads.note(maintenance)
                seen = await self._look(maintenance)
                decision = decide(seen)
                await self._recorder.sees(seen, decision)
                try:
                    if decision.step is None:
                        return await self._rest(seen, decision)
                    self._restlessness.note(maintenance.name)
                    if isinstance(decision.step, Accept):
                        self._pace.note(maintenance.name)
                    maintenance = await self._performer.perform(decision.step, seen)
                except Conflict:
                    conflicts += 1
                    if conflicts >= _MOST_CONFLICTS:
                        raise
                    maintenance = await self._sight.refresh(maintenance)
            raise RuntimeError(f"NodeMaintenance {maintenance.name} goes in circles; the last step was {decision.step}")
        except (HandOver, LeadershipLost, MaintenanceGone):
            raise
        except Exception as error:
            await self._tell_failure(replace(seen, maintenance=maintenance), decision, error)
            raise  # the queue backs off, for this maintenance alone

    async def _look(self, maintenance: NodeMaintenance) -> Seen:
        name = maintenance.node
        node = await self._sight.node(name)
        lease = await self._sight.lease(name)
        return Seen(
            maintenance=maintenance,
            node=node,
            lease=lease,
            drain=self._drains.seen(maintenance.name),
            rivals=tuple(it for it in self._sight.maintenances_of(name) if it.name != maintenance.name),
            objection=await self._objection(maintenance, node),
            lacking=await self._lacking(maintenance, node),
            strays=await self._strays(maintenance),
            other_holds=await self._other_holds(maintenance, node),
            leased_at=self._performer.leased_at.get(maintenance.name),
            restored_at=self._performer.restored_at.get(maintenance.name),
            may_publish=self._performer.may_publish(),
            has_budget=bool(self._budget),
            crowded=self._crowded(maintenance, node),
            recovery=await self._recovery(maintenance, node),
            now=self._clock.now(),
        )

    async def _recovery(self, maintenance: NodeMaintenance, node: Node | None) -> RecoverySeen | None:
        """Return how it stands with the workloads of a node, where the maintenance asks for that and it matters now."""
        said = maintenance.status.recovery
        if maintenance.spec.recovery is None or node is None:
            return None
        if said is None:
            drain = self._drains.seen(maintenance.name)
            is_next = maintenance.name in orders_of(node) and drain is not None and drain.is_waiting
            return await self._workloads.on_node(node.name) if is_next and not maintenance.is_leaving else None
        return await self._workloads.short_of(said) if maintenance.name in recovering_of(node) else None

    async def _other_holds(self, maintenance: NodeMaintenance, node: Node | None) -> Mapping[str, Hold]:
        """Return who else holds a node whose mark is lost: it must stay cordoned for them."""
        if node is None or not (is_mark_lost(maintenance, node) or counts_copy(maintenance, node)):
            return {}
        return await cordon_copies.holds_of(self._client, node, namespace=self.settings.namespace)

    def _crowded(self, maintenance: NodeMaintenance, node: Node | None) -> Crowded | None:
        """Return why the budget has no room for a node that the maintenance does not hold yet."""
        view = self._view(maintenance)
        if view is None or node is None or maintenance.is_leaving or maintenance.name in orders_of(node):
            return None
        return self._performer.refused.get(maintenance.name) or view.crowded(node)

    def _view(self, maintenance: NodeMaintenance) -> View | None:
        """Return the budget, with what is seen of the nodes that share it now; None if there is none."""
        if not self._budget:
            return None
        orders, now = self._line.orders(), self._clock.now()
        return View(budget=self._budget, nodes=self._sight, now=now, orders=orders, order=_order(maintenance))

    async def _objection(self, maintenance: NodeMaintenance, node: Node | None) -> str:
        """Return why a node may not be taken now: etcd would lose its quorum, as the webhook would have said."""
        if node is None or maintenance.is_leaving or not quorum.is_control_plane(node):
            return ""
        if maintenance.name in orders_of(node):
            return ""
        try:
            judged = await etcd.judge(
                self._client, node, maintained=self._sight.held(), elsewhere=self.settings.guard_quorum
            )
        except quorum.QuorumUnknown as error:
            return str(error)
        return "" if judged is None or judged.allowed else f"{quorum.refusal(node.name)}: {judged.why}"

    async def _lacking(self, maintenance: NodeMaintenance, node: Node | None) -> str:
        """Return which permission the drain of a node lacks that is not held yet: no drain starts that cannot end."""
        is_held = node is None or maintenance.name in orders_of(node)
        if is_held or maintenance.is_leaving or not may_delete_pods(maintenance):
            return ""
        try:
            refused = await access.missing(self._client, (DELETION,))
        except KubeError as error:
            log.debug("whether pods may be deleted cannot be told: %s", error)
            return ""
        return f"the operator may not delete pods; {GRANT_DELETION}" if refused else ""

    async def _strays(self, maintenance: NodeMaintenance) -> tuple[Stray, ...]:
        others = [it for it in self._sight.nodes_held_by(maintenance.name) if it.name != maintenance.node]
        return tuple([Stray(node=it, lease=await self._sight.lease(it.name)) for it in others])

    async def _forget(self, name: str) -> datetime | None:
        """Stop what is done for a maintenance that is gone, and give back what came late; return when to look again.

        What else it left is told of at once, and given back after a while: somebody may work on the node.
        """
        await self._drains.stop(name)
        self._untold.discard(name)
        self._restlessness.forget(name)
        self._performer.forget(name)
        self._workloads.forget(name)
        self._sight.forget(name)
        await self._recorder.forget(name, now=self._clock.now())
        self._line.leave(name)
        self._teller.forget(name)
        if (over := self._sight.over(name)) is not None:
            await self._clear_away(over)
            return None
        held = [it for it in self._sight.nodes_held_by(name) if await self._is_orphan(it, name)]
        if not held:
            self._orphaned_at.pop(name, None)
            return None
        since = self._orphaned_at.setdefault(name, self._clock.monotonic())
        left = ORPHANS_RELEASED_AFTER - timedelta(seconds=self._clock.monotonic() - since)
        for node in held:
            if left > timedelta():
                self._teller.orphaned(node, name, released_in=ORPHANS_RELEASED_AFTER)
            else:
                await self._clear_away(_gone(name, node, self._clock.now()))
        return self._clock.now() + max(left, _RETRIED_WITHIN)

    async def _clear_away(self, maintenance: NodeMaintenance) -> None:
        """Give back what was taken for a maintenance that was over by then."""
        for _ in range(_MOST_STEPS):
            seen = await self._look(maintenance)
            step = decide(seen).step
            if step is None or isinstance(step, RemoveFinalizer) or await self._is_there(maintenance.name):
                return
            await self._performer.perform(step, seen)

    async def _is_orphan(self, node: Node, name: str) -> bool:
        """Tell whether a node is held for a maintenance that does not exist."""
        if await self._is_there(name):
            return False
        found = self._sight.nodes.note(await self._client.get(NODES, node.name))
        return name in holders_of(found)

    async def _is_there(self, name: str) -> bool:
        """Ask the server itself whether there is such a maintenance, and look at it then: copies may be old."""
        try:
            self._sight.maintenances.note(await self._client.get(NODE_MAINTENANCES, name))
        except NotFound:
            return False
        self._queue.add(name)
        return True

    # What is told

    async def _rest(self, seen: Seen, decision: Decision) -> datetime | None:
        """Tell how things stand; return when to look again."""
        if decision.crowded is not None:
            self._line.join(_order(seen.maintenance))
        elif seen.maintenance.status.phase or seen.maintenance.is_leaving:
            self._line.leave(seen.maintenance.name)
        self._teller.waits_for_room(seen.maintenance, decision.crowded)
        is_silent = seen.maintenance.is_leaving or not seen.maintenance.status.phase
        if is_silent and not decision.problem:
            return decision.wakes_at
        self._teller.stands(seen, told_after=BLOCKED_AFTER)
        if decision.problem and decision.crowded is None:
            self._teller.waits(
                seen.maintenance,
                problem=decision.problem,
                for_whom=decision.waits_for,
                reason=RECOVERING if decision.is_recovering else WAITING if decision.hold is None else HELD,
            )
        report = describe(seen, decision, lease_namespace=self.settings.lease_namespace)
        is_tried_again = seen.maintenance.name in self._untold  # the queue sees to it that this is not too often
        status_at = await self._tell_status(seen.maintenance, report.status, at_once=is_tried_again)
        wakes = (decision.wakes_at, report.wakes_at, status_at)
        return min((it for it in wakes if it is not None), default=None)

    async def _tell_status(
        self, maintenance: NodeMaintenance, status: Status, *, at_once: bool = False
    ) -> datetime | None:
        """Write the status when it is time, but another phase at once; return when it is to be written."""
        if is_said(maintenance, status):
            return None
        name, is_another_phase = maintenance.name, status.phase != maintenance.status.phase
        if (wait := self._pace.wait(name)) and not is_another_phase and not at_once:
            return self._clock.now() + wait
        self._pace.note(name)
        if is_another_phase:
            self._restlessness.note(name)
        try:
            await self._performer.write_status(maintenance, status)
        except Conflict:  # our copy was old, and is looked at again
            raise
        except HauloutError:
            self._untold.add(name)
            raise
        self._untold.discard(name)
        self._teller.changes(maintenance, status)
        return None

    async def _tell_failure(self, seen: Seen, decision: Decision, error: Exception) -> None:
        """Say in the status what went wrong, as far as that is possible."""
        problem = str(error) if isinstance(error, HauloutError) else f"a defect in the operator: {error!r}"
        self._line.leave(seen.maintenance.name)  # it must not stand in the way of others
        shown_as = shown_reason(error)
        self._teller.fails_for_now(seen.maintenance, problem, reason=shown_as or MAINTENANCE_ERROR)
        decided = replace(decision, step=None, wakes_at=seen.now + _RETRIED_WITHIN)
        report = describe(
            seen,
            decided,
            error=problem,
            error_reason=shown_as or RETRYING,
            admission=admission_of(error),
            lease_namespace=self.settings.lease_namespace,
        )
        try:
            await self._tell_status(seen.maintenance, report.status)
        except (KubeError, MaintenanceGone) as another:
            log.debug("NodeMaintenance %s: its status cannot be written: %s", seen.maintenance.name, another)


def _order(maintenance: NodeMaintenance) -> Order:
    return Order(maintenance.metadata.creation_timestamp or NEVER, maintenance.name, maintenance.node)


def _gone(name: str, node: Node, now: datetime) -> NodeMaintenance:
    """Return a maintenance that does not exist any more, as it would be at its end."""
    metadata = OrderMetadata(name=name, finalizers=(FINALIZER,), deletion_timestamp=now)
    return NodeMaintenance(metadata=metadata, spec=Spec(node_name=node.name))


def _may_wait_for_room(maintenance: NodeMaintenance) -> bool:
    """Tell whether a maintenance that is seen for the first time is new, or waits as a predecessor has said."""
    told = maintenance.status.condition(ConditionType.WITHIN_BUDGET)
    is_waiting = told is not None and told.status == "False"
    return not maintenance.is_leaving and (is_waiting or not maintenance.status.phase)
