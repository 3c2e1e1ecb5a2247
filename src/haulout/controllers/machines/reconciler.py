"""Reconciles one MachineMaintenance: what is observed, which write follows, what its status says.

`decision` decides, `executor` writes. `claim_reconciler` releases claims whose MachineMaintenance is over or gone.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import msgspec

from haulout.api.machinemaintenance import (
    MACHINE_MAINTENANCES,
    MachineMaintenance,
    MachineMaintenanceCondition,
    MachineMaintenancePhase,
)
from haulout.api.objects import Node
from haulout.api.openshift import MACHINES, Machine
from haulout.api.reasons import MachineMaintenanceReason
from haulout.api.resources import NODES
from haulout.controllers.machines.decision import decide
from haulout.controllers.machines.executor import MachineExecutor
from haulout.controllers.machines.informers import MachineInformers
from haulout.controllers.machines.observation import Decision, Observation
from haulout.controllers.machines.replacement_time import ReplacementPolicy
from haulout.controllers.machines.status import build_status
from haulout.core.clock import Clock
from haulout.errors import HauloutError, KubeError
from haulout.kube.informer import Informer
from haulout.kube.patches import difference
from haulout.kube.recorder import object_reference
from haulout.kube.responses import condition_reason
from haulout.runtime.freezes import FreezeSource
from haulout.runtime.journal import Journal, Transition
from haulout.runtime.reconciler import Reconciler
from haulout.runtime.status_writer import StatusWriter

log = logging.getLogger(__name__)


class MachineMaintenanceReconciler(Reconciler[str, Observation, Decision]):
    """Reconciles one MachineMaintenance at a time, by key."""

    def __init__(
        self,
        clock: Clock,
        *,
        informers: MachineInformers,
        nodes: Informer[Node],
        executor: MachineExecutor,
        policy: ReplacementPolicy,
        freezes: FreezeSource,
        journal: Journal,
        record_change: Callable[[str], object],
    ) -> None:
        self._clock = clock
        self._informers = informers
        self._nodes = nodes
        self._executor = executor
        self._policy = policy
        self._freezes = freezes
        self._journal = journal
        self._record_change = record_change
        self._status_writer: StatusWriter[str] = StatusWriter(clock)

    async def observe(self, key: str) -> Observation | None:
        maintenance = self._informers.maintenances.get(key)
        if maintenance is None:
            return None
        return await self._informers.observe(maintenance, policy=self._policy, freezes=self._freezes.current())

    def decide(self, observation: Observation) -> Decision:
        return decide(observation)

    async def act(self, observation: Observation, decision: Decision) -> bool:
        if decision.action is None:
            return False
        await self._executor.execute(decision.action)
        action = type(decision.action).__name__
        log.info("MachineMaintenance %s: %s (%s)", observation.maintenance.key, decision.message, action)
        return True

    async def refresh(self, key: str, error: Exception) -> bool:
        """Read the MachineMaintenance; return whether the cached one was stale.

        Machines and their sets are never read ahead of the watch. Their resourceVersions are the fence between two
        operators: a fresh set with stale Machines would let the second one replace the next Machine too early.
        """
        del error
        return await self._informers.refresh_maintenance(key)

    async def report(self, observation: Observation, decision: Decision) -> datetime | None:
        """Write the status and record events; return when to write it if that is later."""
        maintenance = observation.maintenance
        status = build_status(observation, decision)
        change = difference(msgspec.to_builtins(maintenance.status), msgspec.to_builtins(status))
        if not change:
            return None
        is_phase_change = decision.phase != maintenance.status.phase
        if is_phase_change:
            self._record_change(maintenance.key)

        async def write() -> None:
            await self._executor.write_status(maintenance, change)
            previous = maintenance.status.condition(MachineMaintenanceCondition.READY)
            if is_phase_change or (previous and previous.reason) != decision.reason:
                self._journal.record(self._transition(maintenance, observation.machine, decision))

        return await self._status_writer.write(maintenance.key, write, at_once=is_phase_change)

    async def report_failure(
        self, key: str, observation: Observation | None, decision: Decision | None, error: Exception
    ) -> None:
        maintenance = self._informers.maintenances.get(key)
        if maintenance is None or self._status_writer.has_failed(key):
            return
        failed = _failed_decision(maintenance, decision, error)
        if failed.phase.is_over:
            return
        observation = observation or Observation(maintenance=maintenance, now=self._clock.now())
        try:
            await self.report(replace(observation, maintenance=maintenance), failed)
        except KubeError as another:
            log.debug("cannot write the status of MachineMaintenance %s: %s", key, another)

    async def forget(self, key: str) -> datetime | None:
        self._status_writer.forget(key)
        return None

    def _transition(self, maintenance: MachineMaintenance, machine: Machine | None, decision: Decision) -> Transition:
        objects = [object_reference(MACHINE_MAINTENANCES, maintenance)]
        if machine is not None and decision.phase in (
            MachineMaintenancePhase.SURGING,
            MachineMaintenancePhase.REPLACING,
        ):
            node = self._nodes.get(machine.node)
            objects.append(object_reference(MACHINES, machine))
            objects += [] if node is None else [object_reference(NODES, node)]
        return Transition(
            regarding=tuple(objects),
            subject=f"MachineMaintenance {maintenance.key}",
            reason=MachineMaintenanceReason(f"Machine{decision.phase}") if decision.phase.is_over else decision.reason,
            message=decision.message,
            action="Replace",
            is_warning=decision.is_warning,
        )


def _failed_decision(maintenance: MachineMaintenance, decision: Decision | None, error: Exception) -> Decision:
    """Return what the status says after a failure. Without a decision, it keeps the phase that it has."""
    problem = str(error) if isinstance(error, HauloutError) else f"a defect in the operator: {error!r}"
    if decision is None:
        on_time = maintenance.status.condition(MachineMaintenanceCondition.ON_TIME)
        decision = Decision(
            phase=MachineMaintenancePhase(maintenance.status.phase or MachineMaintenancePhase.WAITING),
            reason=MachineMaintenanceReason.FAILED,
            message="",
            is_on_time=on_time is None or on_time.status != "False",
        )
    return replace(
        decision,
        action=None,
        reason=condition_reason(error) or MachineMaintenanceReason.FAILED,
        message=f"{decision.message}: {problem}" if decision.message else problem,
        is_warning=True,
    )
