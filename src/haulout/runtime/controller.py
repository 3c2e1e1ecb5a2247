"""Runs a `Reconciler`: the loop, and all safeguards, the same for every controller.

- **Until nothing is left.** One reconcile acts and observes again until the decision has no action; then it reports.
- **Conflicts.** A write whose precondition fails has changed nothing. The objects are read again and the key is tried
  again at once, `MAX_CONFLICTS` times in a row at most. Where the reconciler cannot read them, the watch delivers them,
  and the key is requeued after `CONFLICT_DELAY`. A key whose writes conflict again and again is reported as a failure.
- **Failures** are reported in the status. The work queue retries this key only, with exponential backoff.
- **Circles.** A reconcile with more than `max_actions` actions is a defect of its decisions. It fails and backs off.
- **Flapping.** A key that changes again and again over several reconciles pauses (`haulout.runtime.flapping_guard`).
- **Leadership.** `LeadershipLost` and `LeadershipHandover` are never reported as failures of an object.

`Controller` reconciles the keys of a work queue. `ReconcileRunner` does the same for one key at a time, without a
queue: for what is polled, such as the nodes of a vCenter.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any, Generic

from haulout.core.backoff import Backoff
from haulout.errors import (
    Conflict,
    LeadershipHandover,
    LeadershipLost,
    NotFound,
    ObservationStale,
    ReconcileLoop,
)
from haulout.kube.client import Client
from haulout.kube.workqueue import CompletedRun, WorkQueue
from haulout.runtime.flapping_guard import FlappingGuard
from haulout.runtime.handover import Handover
from haulout.runtime.reconciler import D, K, O, Reconciler

log = logging.getLogger(__name__)

MAX_ACTIONS = 30
MAX_CONFLICTS = 5
CONFLICT_DELAY = timedelta(seconds=2)  # until the watch should have delivered what somebody else wrote
WATCH_DELAY = timedelta(seconds=10)  # the same where only the watch can tell, for example that an object is gone
BACKOFF = Backoff(limit=timedelta(minutes=1))  # permissions may be granted meanwhile, for which there is no event
WORKERS = 16

# Errors that mean: the observation was stale, and nothing was changed.
STALE = Conflict, NotFound, ObservationStale

Run = Callable[[], Awaitable[object]]


class ReconcileRunner(Generic[K, O, D]):
    """Reconciles one key when it is called. For controllers that poll, and reconcile what they have polled."""

    def __init__(
        self, reconciler: Reconciler[K, O, D], client: Client, *, name: str, max_actions: int = MAX_ACTIONS
    ) -> None:
        self.name = name
        self._reconciler = reconciler
        self._clock = client.clock
        self._max_actions = max_actions
        self._flapping: FlappingGuard[K] = FlappingGuard(client.clock)
        self._stale_runs: dict[K, int] = {}  # consecutive reconciles that ended with a stale observation

    def record_change(self, key: K) -> None:
        """Count a change that is not an action, such as a new phase in the status, for the pause of flapping keys."""
        self._flapping.record_change(key)

    async def reconcile(self, key: K) -> datetime | None:
        """Reconcile a key; return when to do so again."""
        if paused_until := self._flapping.paused_until(key):
            # A deletion ends the pause: what runs for the object, such as a drain, must stop at once.
            if await self._reconciler.observe(key) is None:
                return await self._forget(key)
            log.warning(
                "%s %s changes too often; its reconciliation is paused until %s UTC",
                self.name,
                key,
                f"{paused_until:%H:%M:%S}",
                extra={"controller": self.name, "key": str(key)},
            )
            return paused_until
        async with self._reconciler.exclusive(key):
            attempt = _Attempt[O, D]()
            try:
                return await self._reconcile(key, attempt)
            except (LeadershipHandover, LeadershipLost):
                raise
            except Exception as error:
                await self._reconciler.report_failure(key, attempt.observation, attempt.decision, error)
                raise  # the work queue backs off for this key only

    async def _reconcile(self, key: K, attempt: "_Attempt[O, D]") -> datetime | None:
        conflicts = 0
        for _ in range(self._max_actions):
            try:
                observation = attempt.observation = await self._reconciler.observe(key)
                if observation is None:
                    return await self._forget(key)
                decision = attempt.decision = self._reconciler.decide(observation)
                acted = await self._reconciler.act(observation, decision)
                if acted is not True:
                    decision = attempt.decision = acted or decision
                    report_at = await self._reconciler.report(observation, decision)
                    self._stale_runs.pop(key, None)
                    return min(filter(None, (decision.requeue_at, report_at)), default=None)
                self._flapping.record_change(key)
            except STALE as error:
                conflicts += 1
                if conflicts >= MAX_CONFLICTS:
                    raise
                log.debug("%s %s has changed, retrying: %s", self.name, key, error)
                if not await self._reconciler.refresh(key, error):
                    return self._retry_later(key, error)
        raise ReconcileLoop(
            f"{self.name} {key} is not settled after {self._max_actions} actions in one reconcile; "
            f"the last decision was {attempt.decision}"
        )

    def _retry_later(self, key: K, error: Exception) -> datetime:
        """Return when the watch should have delivered what the observation lacks; raise if that does not help."""
        if isinstance(error, ObservationStale):
            return self._clock.now() + WATCH_DELAY
        stale_runs = self._stale_runs[key] = self._stale_runs.get(key, 0) + 1
        if stale_runs >= MAX_CONFLICTS:
            del self._stale_runs[key]
            raise error
        return self._clock.now() + CONFLICT_DELAY

    async def _forget(self, key: K) -> datetime | None:
        self._flapping.forget(key)
        self._stale_runs.pop(key, None)
        return await self._reconciler.forget(key)


class Controller(ReconcileRunner[K, O, D]):
    """Reconciles the keys of a work queue. Call `run` again only after it has failed.

    `max_actions` limits the actions of one reconcile. `workers` reconciles run in parallel.
    """

    def __init__(
        self,
        reconciler: Reconciler[K, O, D],
        client: Client,
        *,
        name: str,
        workers: int = WORKERS,
        max_actions: int = MAX_ACTIONS,
        backoff: Backoff = BACKOFF,
        handover: Handover | None = None,
        on_completed: Callable[[CompletedRun[K]], object] | None = None,
    ) -> None:
        super().__init__(reconciler, client, name=name, max_actions=max_actions)
        self.handover = handover or Handover()
        self.queue: WorkQueue[K] = WorkQueue(
            self.reconcile,
            clock=client.clock,
            random=client.random,
            workers=workers,
            backoff=backoff,
            metrics=client.metrics,
            name=name,
            on_completed=on_completed,
        )

    async def run(
        self,
        *,
        background: Sequence[Run] = (),
        start: Callable[[ExitStack], Awaitable[object]] | None = None,
        stop: Run | None = None,
    ) -> None:
        """Reconcile until cancelled; raise `LeadershipHandover` when another process must take over.

        `background` runs beside the queue, for example informers. `start` waits for informers and subscribes to them;
        the callbacks of its stack are called at the end. `stop` is called before the background ends at a handover.
        """
        async with asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[Any]] = [group.create_task(_run(item)) for item in background]
            try:
                with ExitStack() as stack:
                    if start is not None:
                        await start(stack)
                    queue = group.create_task(self.queue.run())
                    tasks.append(queue)
                    await self.handover.wait()
                    queue.cancel()
                    if stop is not None:
                        await stop()
            finally:
                for task in tasks:
                    task.cancel()
        raise self.handover.reason()


class _Attempt(Generic[O, D]):
    """What a reconcile has observed and decided last, for its report if it fails."""

    def __init__(self) -> None:
        self.observation: O | None = None
        self.decision: D | None = None


async def _run(item: Run) -> None:
    await item()
