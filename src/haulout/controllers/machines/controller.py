"""The MachineMaintenance controller: observes, calls `decision.decide`, executes the action, and repeats.

A reconcile ends when the decision contains no action. Changes of MachineMaintenances, Machines, MachineSets and nodes
trigger the next reconcile, and so does the decision's `requeue_at`. The API server holds all state that a successor
needs.

MachineMaintenances outside of the operator's namespace are ignored: whoever can create one can have a Machine deleted.
"""

import asyncio
import logging
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from haulout.api.hold import hold_of
from haulout.api.machinemaintenance import (
    MACHINE_MAINTENANCES,
    MachineMaintenance,
    MachineMaintenanceCondition,
    MachineMaintenancePhase,
)
from haulout.api.objects import Node, OwnerReference, object_key
from haulout.api.openshift import CONTROL_PLANE_MACHINE_SETS, MACHINES, Machine, MachineSet
from haulout.api.reasons import MachineMaintenanceReason
from haulout.api.resources import NODES
from haulout.controllers.machines.actions import Action
from haulout.controllers.machines.decision import decide, next_release_action
from haulout.controllers.machines.executor import ClaimStillNeeded, Executor
from haulout.controllers.machines.informers import MachineInformers
from haulout.controllers.machines.observation import Decision, Observation, is_ready
from haulout.controllers.machines.replacement_claim import read_claim
from haulout.controllers.machines.settings import MachineSettings
from haulout.controllers.machines.status import build_status
from haulout.errors import Conflict, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.patches import difference
from haulout.kube.recorder import EventRecorder, object_reference
from haulout.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

_MAX_ACTIONS = 20  # per reconcile; more actions mean that decisions go in circles
_CONFLICT_DELAY = timedelta(seconds=2)
_STATUS_INTERVAL = timedelta(seconds=1)
_WORKERS = 8

_MAINTENANCE, _MACHINE_SET, _CONTROL_PLANE = "record", "set", "control plane"
QueueKey = tuple[str, str]  # kind and name


class MachineMaintenanceController:
    """Reconciles all MachineMaintenances. Call `run` at most once. The caller runs the node informer."""

    def __init__(
        self, client: Client, *, events: EventRecorder, nodes: Informer[Node], settings: MachineSettings | None = None
    ) -> None:
        self.settings = settings or MachineSettings()
        self._clock = client.clock
        self._events = events
        self._nodes = nodes
        self.informers = MachineInformers(
            client,
            nodes=nodes,
            namespace=self.settings.namespace,
            machine_namespace=self.settings.machine_namespace,
        )
        self._executor = Executor(client, self.informers)
        self._status_written_at: dict[str, float] = {}  # by MachineMaintenance key; monotonic
        self._queue: WorkQueue[QueueKey] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            metrics=client.metrics,
            name="MachineMaintenance",
        )

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.informers.run())
            await self.informers.wait_synced()
            with self._event_handlers():
                await self._queue.run()

    # Event handlers

    @contextmanager
    def _event_handlers(self) -> Iterator[None]:
        """Subscribe to changes while the context lasts. The node informer outlasts this controller."""
        with ExitStack() as stack:
            stack.callback(self.informers.maintenances.informer.subscribe(self._on_maintenance_change))
            stack.callback(self.informers.machines.informer.subscribe(self._on_machine_change))
            stack.callback(self.informers.machine_sets.informer.subscribe(self._on_machine_set_change))
            stack.callback(self._nodes.subscribe(self._on_node_change))
            yield

    def _on_maintenance_change(self, old: MachineMaintenance | None, new: MachineMaintenance | None) -> None:
        for maintenance in (old, new):
            if maintenance is not None:
                self._queue.add((_MAINTENANCE, maintenance.key))
                machine = self.informers.machine(maintenance.spec.machinelink)
                self._enqueue_owner(None if machine is None else machine.controller_owner)

    def _on_machine_change(self, old: Machine | None, new: Machine | None) -> None:
        for machine in (old, new):
            if machine is not None:
                self._enqueue_owner_and_waiting(machine.controller_owner)
                for maintenance in self.informers.open_maintenances():
                    if maintenance.spec.machinelink == machine.name:
                        self._queue.add((_MAINTENANCE, maintenance.key))

    def _on_machine_set_change(self, old: MachineSet | None, new: MachineSet | None) -> None:
        machine_set = new or old
        if machine_set is not None:
            self._enqueue_owner_and_waiting(OwnerReference(name=machine_set.name))

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and is_ready(old) == is_ready(new) and hold_of(old) == hold_of(new):
            return
        for node in (old, new):
            machine = None if node is None else self.informers.machine_of(node.name)
            if machine is not None:
                self._enqueue_owner_and_waiting(machine.controller_owner)

    def _enqueue_owner_and_waiting(self, owner: OwnerReference | None) -> None:
        """Enqueue a MachineSet and all MachineMaintenances that wait for it."""
        if owner is not None:
            self._enqueue_owner(owner)
            self._enqueue_maintenances_of(owner.name)

    def _enqueue_owner(self, owner: OwnerReference | None) -> None:
        if owner is None:
            return
        if owner.kind == CONTROL_PLANE_MACHINE_SETS.kind:
            self._queue.add((_CONTROL_PLANE, ""))
        else:
            self._queue.add((_MACHINE_SET, object_key(owner.name, self.settings.machine_namespace)))

    def _enqueue_maintenances_of(self, owner: str) -> None:
        for maintenance in self.informers.open_maintenances():
            machine = self.informers.machine(maintenance.spec.machinelink)
            if machine is not None and machine.controller_owner is not None and machine.controller_owner.name == owner:
                self._queue.add((_MAINTENANCE, maintenance.key))

    # Reconcile

    async def _reconcile(self, key: QueueKey) -> datetime | None:
        kind, name = key
        try:
            if kind == _MAINTENANCE:
                return await self._reconcile_maintenance(name)
            owner = (
                self.informers.machine_sets.get(name)
                if kind == _MACHINE_SET
                else await self.informers.control_plane_set()
            )
            return await self._reconcile_claim(owner, name, kind)
        except (Conflict, NotFound, ClaimStillNeeded) as error:
            log.debug("%s %s has changed, retrying: %s", kind, name, error)
            return self._clock.now() + _CONFLICT_DELAY

    async def _reconcile_maintenance(self, key: str) -> datetime | None:
        for _ in range(_MAX_ACTIONS):
            maintenance = self.informers.maintenances.get(key)
            if maintenance is None:
                self._status_written_at.pop(key, None)
                return None
            observation = await self.informers.observe(maintenance, policy=self.settings.policy)
            decision = decide(observation)
            if decision.action is None:
                requeue_times = (decision.requeue_at, await self._write_status(observation, decision))
                return min((instant for instant in requeue_times if instant is not None), default=None)
            await self._execute(observation, decision, decision.action)
        raise RuntimeError(f"MachineMaintenance {key}: still not settled after {_MAX_ACTIONS} actions")

    async def _execute(self, observation: Observation, decision: Decision, action: Action) -> None:
        try:
            await self._executor.execute(action)
        except (Conflict, NotFound):
            raise
        except KubeError as error:
            failed = replace(
                decision,
                action=None,
                reason=MachineMaintenanceReason.FAILED,
                message=f"{decision.message}: {error}",
                is_warning=True,
            )
            await self._write_status(observation, failed)
            raise  # the work queue backs off for this MachineMaintenance only
        log.info("MachineMaintenance %s: %s (%s)", observation.maintenance.key, decision.message, type(action).__name__)

    async def _reconcile_claim(self, owner: MachineSet | None, name: str, kind: str) -> datetime | None:
        for _ in range(_MAX_ACTIONS):
            claim = None if owner is None else read_claim(owner)
            if owner is None or claim is None:
                return None
            action = next_release_action(
                owner,
                self.informers.peers(owner),
                is_replacement_requested=self.informers.is_replacement_requested(claim.machine),
            )
            if action is None:
                return None
            await self._executor.execute(action)
            log.info("%s: releasing the claim of Machine %s (%s)", owner.name, claim.machine, type(action).__name__)
            # The ControlPlaneMachineSet is not watched, so its change triggers nothing.
            self._enqueue_maintenances_of(owner.name)
            owner = (
                self.informers.machine_sets.get(name)
                if kind == _MACHINE_SET
                else await self.informers.control_plane_set()
            )
        raise RuntimeError(f"the claim on {name}: still not settled after {_MAX_ACTIONS} actions")

    # Status and events

    async def _write_status(self, observation: Observation, decision: Decision) -> datetime | None:
        """Write the status, at most once per `_STATUS_INTERVAL`; return when to write it otherwise.

        Without the limit, two operators that both believe to lead and observe different states would overwrite each
        other's status in a tight loop.
        """
        maintenance = self.informers.maintenances.get(observation.maintenance.key)
        if maintenance is None or maintenance.uid != observation.maintenance.uid:
            return None
        status = build_status(replace(observation, maintenance=maintenance), decision)
        change = difference(msgspec.to_builtins(maintenance.status), msgspec.to_builtins(status))
        if not change:
            return None
        pause = (
            self._status_written_at.get(maintenance.key, -math.inf)
            + _STATUS_INTERVAL.total_seconds()
            - self._clock.monotonic()
        )
        if pause > 0:
            # Without the extra millisecond, an instant rounded down to now would be requeued again and again.
            return self._clock.now() + timedelta(seconds=pause) + timedelta(milliseconds=1)
        self._status_written_at[maintenance.key] = self._clock.monotonic()
        await self._executor.write_status(maintenance, change)
        previous = maintenance.status.condition(MachineMaintenanceCondition.READY)
        if (maintenance.status.phase, previous and previous.reason) != (decision.phase, decision.reason):
            self._record_events(maintenance, observation.machine, decision)
        return None

    def _record_events(self, maintenance: MachineMaintenance, machine: Machine | None, decision: Decision) -> None:
        objects = [object_reference(MACHINE_MAINTENANCES, maintenance)]
        if machine is not None and decision.phase in (
            MachineMaintenancePhase.SURGING,
            MachineMaintenancePhase.REPLACING,
        ):
            node = self._nodes.get(machine.node)
            objects.append(object_reference(MACHINES, machine))
            objects += [] if node is None else [object_reference(NODES, node)]
        for regarding in objects:
            self._events.event(
                regarding,
                reason=MachineMaintenanceReason(f"Machine{decision.phase}")
                if decision.phase.is_over
                else decision.reason,
                note=decision.message,
                action="Replace",
                type="Warning" if decision.is_warning else "Normal",
            )
