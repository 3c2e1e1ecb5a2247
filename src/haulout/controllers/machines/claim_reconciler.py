"""Reconciles the claim on one set of Machines: releases it when no MachineMaintenance needs it any more.

Nothing is read ahead of the watch after a conflict: see `MachineMaintenanceReconciler.refresh`.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from haulout.api.openshift import CONTROL_PLANE_MACHINE_SET, MachineSet
from haulout.controllers.machines.actions import Action
from haulout.controllers.machines.decision import next_release_action
from haulout.controllers.machines.executor import MachineExecutor
from haulout.controllers.machines.informers import MachineInformers
from haulout.controllers.machines.observation import Peer
from haulout.controllers.machines.replacement_claim import ReplacementClaim, read_claim
from haulout.runtime.reconciler import Reconciler

log = logging.getLogger(__name__)

CONTROL_PLANE = CONTROL_PLANE_MACHINE_SET  # the key of the ControlPlaneMachineSet; keys of MachineSets have a namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimObservation:
    """A set of Machines at one moment."""

    owner: MachineSet
    claim: ReplacementClaim | None
    peers: tuple[Peer, ...] = ()
    is_replacement_requested: bool = False  # a MachineMaintenance still needs the claim


@dataclass(frozen=True, slots=True)
class ClaimDecision:
    """The next write, if any."""

    action: Action | None
    requeue_at: datetime | None = None


class ClaimReconciler(Reconciler[str, ClaimObservation, ClaimDecision]):
    """Reconciles the claim on one MachineSet at a time, or on the ControlPlaneMachineSet.

    `on_released` is called with the name of the set.
    """

    def __init__(
        self, informers: MachineInformers, executor: MachineExecutor, *, on_released: Callable[[str], object]
    ) -> None:
        self._informers = informers
        self._executor = executor
        self._on_released = on_released

    async def observe(self, key: str) -> ClaimObservation | None:
        informers = self._informers
        owner = await informers.control_plane_set() if key == CONTROL_PLANE else informers.machine_sets.get(key)
        if owner is None:
            return None
        claim = read_claim(owner)
        if claim is None:
            return ClaimObservation(owner=owner, claim=None)
        is_requested = informers.is_replacement_requested(claim.machine)
        return ClaimObservation(
            owner=owner, claim=claim, peers=informers.peers(owner), is_replacement_requested=is_requested
        )

    def decide(self, observation: ClaimObservation) -> ClaimDecision:
        return ClaimDecision(
            next_release_action(
                observation.owner,
                observation.peers,
                is_replacement_requested=observation.is_replacement_requested,
            )
        )

    async def act(self, observation: ClaimObservation, decision: ClaimDecision) -> bool:
        if decision.action is None or observation.claim is None:
            return False
        await self._executor.execute(decision.action)
        owner, action = observation.owner.name, type(decision.action).__name__
        log.info("%s: releasing the claim of Machine %s (%s)", owner, observation.claim.machine, action)
        self._on_released(owner)  # the ControlPlaneMachineSet is not watched: its change enqueues nothing
        return True
