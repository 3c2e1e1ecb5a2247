"""The controller of MaintenanceFreezes: their status, and Events when they begin and end."""

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

import msgspec

from haulout.api.maintenancefreeze import (
    MAINTENANCE_FREEZES,
    FreezeCondition,
    FreezePhase,
    MaintenanceFreeze,
    MaintenanceFreezeStatus,
    phase_at,
)
from haulout.api.objects import Node, RawObject, StatusCondition
from haulout.api.reasons import FreezeReason
from haulout.core.text import format_count
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.patches import difference, merge_patch
from haulout.kube.recorder import object_reference
from haulout.runtime.controller import Controller
from haulout.runtime.freezes import Freeze, FreezeLister, parse_freeze
from haulout.runtime.journal import Journal, Transition
from haulout.runtime.reconciler import Reconciler
from haulout.runtime.status_writer import StatusWriter

_NAME = "MaintenanceFreeze"


@dataclass(frozen=True, slots=True)
class Observation:
    """A freeze, and how many nodes it selects."""

    freeze: Freeze
    nodes: int
    now: datetime


@dataclass(frozen=True, slots=True)
class Decision:
    """The status, and when it changes by itself."""

    status: MaintenanceFreezeStatus
    change: RawObject  # of the status; empty: it is written
    requeue_at: datetime | None = None


def decide(observation: Observation) -> Decision:
    freeze = observation.freeze.freeze
    phase = phase_at(freeze, now=observation.now)
    reason = FreezeReason.SELECTOR_INVALID if observation.freeze.problem else FreezeReason(phase.phase)
    message = observation.freeze.problem or _message(observation.freeze, phase.phase)
    holding = {FreezeCondition.READY: False, FreezeCondition.STALLED: True}
    if not observation.freeze.problem:
        holding = {FreezeCondition.READY: True}
    status = MaintenanceFreezeStatus(
        phase=phase.phase,
        nodes=observation.nodes,
        observed_generation=freeze.metadata.generation,
        conditions=tuple(
            _condition(observation, kind, reason, message, holds=holds) for kind, holds in holding.items()
        ),
    )
    change = difference(msgspec.to_builtins(freeze.status), msgspec.to_builtins(status))
    return Decision(status, change, phase.until)


def _message(freeze: Freeze, phase: FreezePhase) -> str:
    if phase is FreezePhase.ENDED:
        return "maintenance may begin"
    exception = ", except maintenance that a notice announces" if freeze.allows_notices else ""
    return f"no new maintenance begins on the selected nodes{exception}"


def _condition(
    observation: Observation, kind: FreezeCondition, reason: FreezeReason, message: str, *, holds: bool
) -> StatusCondition:
    freeze = observation.freeze.freeze
    previous = next((condition for condition in freeze.status.conditions if condition.type == kind), None)
    is_same = previous is not None and previous.status == str(holds)
    return StatusCondition(
        type=kind,
        status=str(holds),
        reason=reason,
        message=message,
        last_transition_time=(previous.last_transition_time if previous is not None and is_same else None)
        or observation.now.replace(microsecond=0),
        observed_generation=freeze.metadata.generation,
    )


class FreezeReconciler(Reconciler[str, Observation, Decision]):
    """Keys are names of freezes. It writes nothing but their status."""

    def __init__(
        self, client: Client, freezes: Informer[MaintenanceFreeze], nodes: Informer[Node], journal: Journal
    ) -> None:
        self._client = client
        self._freezes = MutationCache(freezes)
        self._nodes = nodes
        self._journal = journal
        self._status_writer: StatusWriter[str] = StatusWriter(client.clock)

    async def observe(self, key: str) -> Observation | None:
        found = self._freezes.get(key)
        if found is None:
            return None
        freeze = parse_freeze(found)
        return Observation(freeze, sum(map(freeze.selects, self._nodes.all())), self._client.clock.now())

    def decide(self, observation: Observation) -> Decision:
        return decide(observation)

    async def act(self, observation: Observation, decision: Decision) -> bool:
        del observation, decision
        return False

    async def report(self, observation: Observation, decision: Decision) -> datetime | None:
        if not decision.change:
            return None
        freeze = observation.freeze.freeze

        async def write() -> None:
            metadata = {"uid": freeze.uid, "resourceVersion": freeze.resource_version}
            patch = merge_patch({"metadata": metadata, "status": decision.change})
            self._freezes.record_write(
                await self._client.patch(MAINTENANCE_FREEZES, freeze.name, patch, subresource="status")
            )
            if decision.status.phase != freeze.status.phase:
                self.record_phase(freeze, decision.status.phase, nodes=observation.nodes)

        is_phase_change = decision.status.phase != freeze.status.phase
        return await self._status_writer.write(freeze.name, write, at_once=is_phase_change)

    async def refresh(self, key: str, error: Exception) -> bool:
        del error
        await self._freezes.refresh(self._client, MAINTENANCE_FREEZES, key)
        return True

    async def forget(self, key: str) -> datetime | None:
        self._status_writer.forget(key)
        return None

    def record_phase(self, freeze: MaintenanceFreeze, phase: str, *, nodes: int) -> None:
        """Record that a freeze has begun, or has ended after it had begun."""
        if phase == FreezePhase.ACTIVE:
            reason = FreezeReason.STARTED
        elif phase == FreezePhase.ENDED and freeze.status.phase == FreezePhase.ACTIVE:
            reason = FreezeReason.FINISHED
        else:
            return
        text = str(parse_freeze(freeze).to_hold())
        self._journal.record(
            Transition(
                regarding=(object_reference(MAINTENANCE_FREEZES, freeze),),
                subject=f"{_NAME} {freeze.name}",
                reason=reason,
                message=f"{format_count(nodes, 'node')}: {text}" if phase == FreezePhase.ACTIVE else f"ended: {text}",
                action="Freeze",
            )
        )


class FreezeController:
    """Reconciles all freezes. Call `run` at most once; the caller runs the informers and the journal's writers."""

    def __init__(self, client: Client, *, freezes: FreezeLister, nodes: Informer[Node], journal: Journal) -> None:
        self._lister, self._freezes = freezes, freezes.informer
        self._nodes = nodes
        self._reconciler = FreezeReconciler(client, self._freezes, nodes, journal)
        self._controller: Controller[str, Observation, Decision] = Controller(
            self._reconciler, client, name=_NAME, workers=1
        )

    async def run(self) -> None:
        await self._controller.run(start=self._start)

    async def _start(self, subscriptions: ExitStack) -> None:
        await self._freezes.wait_synced()  # for ever where the CRD is not installed
        await self._nodes.wait_synced()
        subscriptions.callback(self._freezes.subscribe(self._on_freeze))
        subscriptions.callback(self._nodes.subscribe(self._on_node))

    def _on_freeze(self, old: MaintenanceFreeze | None, new: MaintenanceFreeze | None) -> None:
        if new is not None:
            self._controller.queue.add(new.name)
        elif old is not None:
            self._controller.queue.add(old.name)
            self._reconciler.record_phase(old, FreezePhase.ENDED, nodes=old.status.nodes or 0)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
            return
        for item in self._lister.current().items:
            if (old is not None and item.selects(old)) != (new is not None and item.selects(new)):
                self._controller.queue.add(item.freeze.name)
