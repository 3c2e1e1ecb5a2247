"""What a controller is made of: observe, decide, act, report.

    Controller ──key──> observe ──> decide ──> act ──> observe ──> decide ──> report ──> requeue time
                        informers   pure       one write                      status, events

A `Reconciler` contains what differs between controllers. `haulout.runtime.controller` calls it, and contains what all
controllers share. A reconciler keeps no state that a successor needs, and contains no loop, no retry and no sleep.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from typing import Generic, Protocol, TypeVar


class Requeue(Protocol):
    """The part of a decision that the runtime reads."""

    @property
    def requeue_at(self) -> datetime | None:
        """When to decide again if nothing changes until then; None: only after a change."""
        ...


K = TypeVar("K", bound=Hashable)
O = TypeVar("O")  # noqa: E741 - named like K and D
D = TypeVar("D", bound=Requeue)


class Reconciler(ABC, Generic[K, O, D]):
    """One controller. `K` is the type of its keys, `O` of its observations, `D` of its decisions."""

    @abstractmethod
    async def observe(self, key: K) -> O | None:
        """Return all that the decision depends on, the time included; None: the object does not exist.

        Read informers through a mutation cache, so that our own writes are included.
        """

    @abstractmethod
    def decide(self, observation: O) -> D:
        """Return what to do. A pure function: the same observation leads to the same decision."""

    @abstractmethod
    async def act(self, observation: O, decision: D) -> bool | D:
        """Execute the action of a decision; return whether there was one.

        The key is observed again after an action. If what an action needs is refused, for example a slot, return the
        decision without that action; it replaces the decision and is reported. Raise `Conflict`, `NotFound` or
        `ObservationStale` if the observation was stale: the runtime refreshes it and tries again.
        """

    async def report(self, observation: O, decision: D) -> datetime | None:
        """Write the status of a key that has no action left; return when to reconcile again, if that is earlier."""
        del observation, decision
        return None

    async def refresh(self, key: K, error: Exception) -> bool:
        """Read the objects of a key from the API server, because `error` shows that the observation was stale.

        Return whether the next observation sees them. False: the watch has to deliver them first.
        """
        del key, error
        return False

    async def report_failure(self, key: K, observation: O | None, decision: D | None, error: Exception) -> None:
        """Show in the status why a reconcile failed. The runtime tries again with backoff."""
        del key, observation, decision, error

    async def forget(self, key: K) -> datetime | None:
        """Drop what is known about an object that does not exist; return when to call again, if work is left."""
        del key
        return None

    def exclusive(self, key: K) -> AbstractAsyncContextManager[object]:
        """Return a lock to hold during a reconcile; none by default. Different keys are reconciled in parallel."""
        del key
        return nullcontext()
