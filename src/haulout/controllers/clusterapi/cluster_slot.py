"""The slot of one workload cluster in the budget across clusters: which of its Machines need it, and which wait for it.

A cluster is in maintenance, and keeps its slot, as long as any of its nodes has a request. When in doubt the slot
counts as held: it is released once more rather than kept for ever.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.clusterapi import ClusterKey
from haulout.controllers.clusterapi.cluster_budget import ClusterBudget
from haulout.controllers.clusterapi.observation import Decision
from haulout.core.clock import Clock

_RETRY_INTERVAL = timedelta(seconds=30)  # another controller may release a slot without an event here


@dataclass(slots=True)
class _Refusal:
    reason: str
    retry_at: datetime


class ClusterSlot:
    """Acquires the slot of a cluster. `on_idle` is called when no node has a request: the slot may be released."""

    def __init__(
        self, key: ClusterKey, budget: ClusterBudget, clock: Clock, *, on_idle: Callable[[ClusterKey], None]
    ) -> None:
        self._key = key
        self._budget = budget
        self._clock = clock
        self._on_idle = on_idle
        self._active: set[str] = set()  # Machines with a request, or about to have one
        self._refusals: dict[str, _Refusal] = {}  # by Machine that waits
        self._may_be_held = False
        self._may_be_inherited = True  # a previous leader may have left a slot

    @property
    def is_active(self) -> bool:
        """Whether any of the nodes has a request."""
        return bool(self._active)

    @property
    def waiting_reason(self) -> str:
        """Why maintenance of the cluster may not begin; empty if no Machine waits for that."""
        return next((refusal.reason for refusal in self._refusals.values()), "")

    def refusal(self, machine: str) -> str:
        """Return why the slot was refused to a Machine; empty if it was not, or may be asked for again."""
        found = self._refusals.get(machine)
        return found.reason if found is not None and self._clock.now() < found.retry_at else ""

    def retry_at(self, machine: str) -> datetime | None:
        """Return when a Machine that waits asks again."""
        found = self._refusals.get(machine)
        return None if found is None else found.retry_at

    def retry_now(self) -> tuple[str, ...]:
        """Let the waiting Machines ask again at once; return them."""
        for refusal in self._refusals.values():
            refusal.retry_at = self._clock.now()
        return tuple(self._refusals)

    async def acquire(self, machine: str, decision: Decision) -> bool:
        """Acquire the slot if a decision needs it; return whether it is refused, so that nothing may be written."""
        if not decision.is_active or (self._may_be_held and not decision.is_new_request):
            return False
        self._active.add(machine)  # before the request: otherwise a concurrent release would be missed
        self._may_be_held = True  # before the request: its response may be lost
        is_running = not decision.is_new_request
        reason = await self._budget.acquire(self._key, is_running=is_running)
        if reason and self._active == {machine}:
            self._may_be_held = False
        if not reason or is_running:
            return False
        self._refusals[machine] = _Refusal(reason, self._clock.now() + _RETRY_INTERVAL)
        return True

    def update(self, machine: str, decision: Decision) -> None:
        """Record the decision for a Machine."""
        if not decision.is_waiting_for_budget:
            self._end_wait(machine)
        if decision.is_active:
            self._active.add(machine)
        elif decision.is_settled:  # requests on a node that cannot be observed stay as they were
            self._active.discard(machine)

    def forget(self, machine: str) -> None:
        self._end_wait(machine)
        self._active.discard(machine)

    def inherit(self) -> None:
        """Record that all nodes are known now: a slot that a previous leader left is released if none has a request."""
        if self._may_be_inherited:
            self._may_be_inherited, self._may_be_held = False, True

    def release_if_idle(self) -> None:
        """Call `on_idle` if no node has a request.

        Not for a cluster that waits for a slot: that would reconcile it again at once.
        """
        if self._may_be_held and not self.is_active:
            self._may_be_held = False
            self._on_idle(self._key)

    def _end_wait(self, machine: str) -> None:
        if self._refusals.pop(machine, None) is not None:
            self._may_be_held = True  # it may have the slot, since it does not wait any more
