"""Leader election: of several processes, at most one does the work.

The leader's name stands in a Lease, which the leader renews every `retry_period`. The fields mean what client-go's
leader election means by them, so both kinds of candidates can stand for the same lease.

That two never lead at once rests on three rules, none of which trusts a wall clock:

- A leader stops early. It may lead until `renew_deadline` after the moment just *before* its last successful write was
  sent. By then its work has been cancelled, whether the server refuses, is silent or cannot be reached.
- A candidate takes over late. It must have seen the lease unchanged for the lease's whole duration on its own monotonic
  clock, counted from *after* it first saw it so. This is longer than the deadline, and the difference is the margin
  for requests that are still on their way and for clocks that do not run alike. A lease that vanishes while somebody
  holds it is waited for just as long.
- A stalled process is fenced. After a stall of the event loop the work may run before the timer that should end it has
  rung. So the work gets a client whose every write first looks at the clock, and raises `LeadershipLost`.

A write whose outcome is unknown (no answer, a 5xx) is settled by looking: each write carries a renewTime that is its
own, and if that stands in the lease, the write took effect. Identities must be unique to a process: a candidate that
finds its own identity in the lease takes it for its own from before a restart, and continues at once.

Two gaps stay open, as in client-go. A process that was started after a lease in use was deleted, and never saw it held,
takes it at once; the deposed leader finds out when it renews next. And what was sent in time may take effect late. This
is why every write that matters carries a precondition of its own.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from haulout.core.backoff import Backoff
from haulout.errors import AlreadyExists, Conflict, KubeError, LeadershipLost, NotFound
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.kube.objects import Lease, LeaseSpec, object_key

logger = logging.getLogger(__name__)

_JITTER = 1.2  # client-go's: a candidate looks again after 1 to 2.2 retry periods
_RELEASE_TRIES = 3


class _Sight(NamedTuple):
    """What the lease looked like; if it was missing, without a uid and with what it said before."""

    uid: str
    spec: LeaseSpec


class LeaderElection:
    """One candidate for one lease."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        lease_duration: timedelta = timedelta(seconds=15),
        renew_deadline: timedelta = timedelta(seconds=10),
        retry_period: timedelta = timedelta(seconds=2),
        on_new_leader: Callable[[str], object] | None = None,
    ) -> None:
        _check_settings(identity, lease_duration, renew_deadline, retry_period)
        self.name = name
        self.namespace = namespace
        self.identity = identity
        self.lease_duration = lease_duration
        self.renew_deadline = renew_deadline
        self.retry_period = retry_period
        self._client = client
        self._clock = client.clock
        self._on_new_leader = on_new_leader
        self._backoff = Backoff(first=retry_period, limit=max(lease_duration, retry_period), jitter=0.5)
        # One request that hangs must leave time for another, on a new connection.
        self._patience = renew_deadline / 2

        self._sight = _Sight("", LeaseSpec())
        self._seen_at = -math.inf  # since when the lease has looked like this, on our monotonic clock
        self._version: str | None = None  # what the next write rests on; empty: there is no lease; None: must look
        self._written: dict[datetime, float] = {}  # our writes that may stand in the lease: renewTime, and when sent
        self._until = -math.inf
        self._reported_leader = ""
        self._problem = ""

    @property
    def leader(self) -> str:
        """Who held the lease when it was last seen; empty if nobody did."""
        return self._sight.spec.holder_identity or ""

    @property
    def leading_until(self) -> float:
        """Until when, on the monotonic clock, this process may lead unless it renews; in the past if it may not."""
        return self._until

    def is_leader(self) -> bool:
        """Return whether this process may act as the leader right now."""
        return self._clock.monotonic() < self._until

    async def run(self, lead: Callable[[Client], Awaitable[None]]) -> None:
        """Wait for leadership, then await `lead` with a client that writes only while leading.

        Returns or raises what `lead` does. Raises `LeadershipLost`, after `lead` was cancelled and has ended, when
        leadership is lost: whether to stand again or to start afresh is for the owner to decide, and `run` may be
        called again. However it ends, the lease is released if it is still ours, so that others need not wait.
        """
        try:
            await self._campaign()
            await self._lead(lead)
        except LeadershipLost:
            _end_if_cancelled()
            raise
        finally:
            self._until = -math.inf
            await _to_its_end(self._release())

    # Becoming the leader

    async def _campaign(self) -> None:
        failures = 0
        while True:
            try:
                async with asyncio.timeout(self._patience.total_seconds()):
                    await self._take_if_free()
            except (Conflict, AlreadyExists):
                failures = 0  # somebody was quicker, which the next look will show
            except (KubeError, TimeoutError) as error:
                failures += 1
                self._complain("take", error)
            else:
                failures = 0
                self._problem = ""
            self._count_last_write()
            if self.is_leader():
                return
            await self._clock.sleep(self._pause(failures))

    async def _take_if_free(self) -> None:
        await self._look()
        if self._free_at() <= self._clock.monotonic():
            await self._write()

    def _free_at(self) -> float:
        """Return from when on, on our monotonic clock, we may write our name into the lease as it was last seen."""
        spec = self._sight.spec
        if not spec.holder_identity or spec.holder_identity == self.identity:
            return -math.inf
        return self._seen_at + (spec.lease_duration_seconds or self.lease_duration.total_seconds())

    def _pause(self, failures: int) -> timedelta:
        if failures:
            return self._backoff.delay(failures, self._client.random)
        return self.retry_period * (1 + _JITTER * self._client.random.random())

    # Being the leader

    async def _lead(self, lead: Callable[[Client], Awaitable[None]]) -> None:
        logger.info("%s leads now: lease %s", self.identity, self._lease_key)
        failure: Exception | None = None
        cancelled_before = _times_cancelled()
        async with asyncio.TaskGroup() as group:
            # The work runs in this very task: whoever cancels `run` cancels it, and the lease is renewed until it has
            # ended, however long it takes to tidy up.
            renewing: asyncio.Task[None] | None = None
            try:
                async with asyncio.timeout_at(self._loop_deadline()) as deadline:
                    renewing = group.create_task(self._keep_renewing(deadline))
                    await lead(self._client.fenced(self._check_leadership))
            except Exception as error:  # noqa: BLE001 - raised again below, where the group does not wrap it
                failure = error
            finally:
                if renewing:
                    renewing.cancel()
        if _times_cancelled() > cancelled_before:
            # Who tidies up after a cancellation may fail, since it must not write any more: that is no reason to go on.
            raise asyncio.CancelledError from failure
        if deadline.expired():
            raise LeadershipLost(f"{self.identity} lost lease {self._lease_key}: {self._loss()}") from failure
        if failure:
            raise failure

    def _check_leadership(self) -> None:
        if not self.is_leader():
            raise LeadershipLost(f"{self.identity} must not write: it lost lease {self._lease_key}: {self._loss()}")

    async def _keep_renewing(self, deadline: asyncio.Timeout) -> None:
        """Move the deadline of the work with each renewal; let it come at once when the lease is lost."""
        pause = self.retry_period
        while True:
            await self._clock.sleep(pause)
            if not self.is_leader():
                break
            pause = await self._renew_in_time()
            # A renewal that is known too late does not count: the work may have been told already.
            if deadline.expired() or not self.is_leader():
                break
            self._count_last_write()
            deadline.reschedule(self._loop_deadline())
        self._until = -math.inf
        if not deadline.expired():
            deadline.reschedule(self._loop_deadline())

    async def _renew_in_time(self) -> timedelta:
        """Try once to renew and return how long to wait before the next time."""
        left = self._until - self._clock.monotonic()
        try:
            async with asyncio.timeout(min(left, self._patience.total_seconds())):
                await self._renew()
        except (KubeError, TimeoutError) as error:
            if not (isinstance(error, TimeoutError) and self._problem):  # cut short by the deadline: not what is wrong
                self._complain("renew", error)
            return self.retry_period / 4
        self._problem = ""
        return self.retry_period

    async def _renew(self) -> None:
        if self._version is None:
            await self._look()
        if not self._is_deposed():
            try:
                # A lease that was deleted is created anew: that fails if anybody did so before, and whoever saw us hold
                # it waits for as long as we may lead.
                await self._write()
            except (Conflict, AlreadyExists, NotFound):
                await self._look()
                if not self._is_deposed():
                    raise
        if self._is_deposed():
            self._until = -math.inf

    def _is_deposed(self) -> bool:
        return bool(self._sight.uid) and self._standing_since() == -math.inf

    def _count_last_write(self) -> None:
        """Lead from the moment at which we sent what stands in the lease."""
        self._until = max(self._until, self._standing_since() + self.renew_deadline.total_seconds())

    def _loop_deadline(self) -> float:
        return asyncio.get_running_loop().time() + max(self._until - self._clock.monotonic(), 0)

    def _loss(self) -> str:
        if self.leader != self.identity:
            return f"it is held by {self.leader or 'nobody'}"
        if self._is_deposed():
            return "another process with the same identity holds it"
        seconds = f"{self.renew_deadline.total_seconds():g}"
        return f"it could not be renewed for {seconds} s" + (f": {self._problem}" if self._problem else "")

    # No longer being the leader

    async def _release(self) -> None:
        if not self._written:
            return
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                await self._clear_if_ours()
        except (
            KubeError,
            LeadershipLost,
            TimeoutError,
        ) as error:  # the client may itself belong to a leader: a former one
            reason = _in_words(error, self._patience)
            logger.warning("lease %s is not released and must run out first: %s", self._lease_key, reason)
        self._written.clear()

    async def _clear_if_ours(self) -> None:
        for _ in range(_RELEASE_TRIES):
            await self._look()
            if self._standing_since() == -math.inf:
                return
            now = self._clock.now()
            # What client-go writes: held by nobody, and for old readers, which count time, for one more second.
            released = LeaseSpec(holder_identity="", lease_duration_seconds=1, acquire_time=now, renew_time=now)
            try:
                self._saw(await self._put(released, self._version or ""))
            except (Conflict, NotFound):
                continue  # a renewal of ours was still on its way, or somebody touched it
            logger.info("%s released lease %s", self.identity, self._lease_key)
            return

    # The lease

    @property
    def _lease_key(self) -> str:
        return object_key(self.name, self.namespace)

    async def _look(self) -> None:
        self._saw(await leases.find(self._client, self.name, namespace=self.namespace))

    def _saw(self, lease: Lease | None) -> None:
        self._version = lease.resource_version if lease else ""
        # Not the resourceVersion: if something else kept touching a dead leader's lease, nobody could ever take it.
        sight = _Sight(lease.uid, lease.spec) if lease else _Sight("", self._sight.spec)
        if sight != self._sight:
            self._sight, self._seen_at = sight, self._clock.monotonic()
        if self.leader and self.leader != self._reported_leader:
            self._reported_leader = self.leader
            if self.leader != self.identity:
                logger.info("%s leads: lease %s", self.leader, self._lease_key)
            self._tell_new_leader()

    def _tell_new_leader(self) -> None:
        if self._on_new_leader is None:
            return
        try:
            self._on_new_leader(self.leader)
        except Exception:
            logger.exception("a listener for lease %s failed; going on", self._lease_key)

    async def _write(self) -> None:
        """Write our name into the lease as it was last seen."""
        version, self._version = self._version, None
        sent_at = self._clock.monotonic()
        too_old = sent_at - self.lease_duration.total_seconds()
        self._written = {time: sent for time, sent in self._written.items() if sent > too_old}
        renew_time = self._clock.now()
        # A wall clock that was set back may say the same again, and then nothing would change for others to see.
        while renew_time in self._written:
            renew_time += timedelta(microseconds=1)
        self._written[renew_time] = sent_at
        self._saw(await self._put(self._record(renew_time), version or ""))

    async def _put(self, record: LeaseSpec, version: str) -> Lease:
        return await leases.write(self._client, self.name, record, namespace=self.namespace, version=version)

    def _record(self, now: datetime) -> LeaseSpec:
        last = self._sight.spec
        ours = last.holder_identity == self.identity
        return LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=round(self.lease_duration.total_seconds()),
            acquire_time=last.acquire_time if ours and last.acquire_time else now,
            renew_time=now,
            lease_transitions=(last.lease_transitions or 0) + (0 if ours or last == LeaseSpec() else 1),
        )

    def _standing_since(self) -> float:
        """Return when we sent what stands in the lease as last seen; minus infinity if we did not."""
        uid, spec = self._sight
        if not uid or spec.holder_identity != self.identity or spec.renew_time is None:
            return -math.inf
        return self._written.get(spec.renew_time, -math.inf)

    def _complain(self, doing: str, error: Exception) -> None:
        """Log what is wrong, once for as long as it stays the same."""
        problem = _in_words(error, self._patience)
        if problem != self._problem:
            self._problem = problem
            logger.warning("%s cannot %s lease %s, trying on: %s", self.identity, doing, self._lease_key, problem)


def _end_if_cancelled() -> None:
    """Let a cancellation be one, though the work answered it by complaining that it may not write any more."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _check_settings(
    identity: str, lease_duration: timedelta, renew_deadline: timedelta, retry_period: timedelta
) -> None:
    if not identity:
        raise ValueError("leader election: the identity is empty; give every process one of its own")
    if lease_duration % timedelta(seconds=1):
        raise ValueError(f"leader election: a lease lasts whole seconds, not {lease_duration}")
    if not lease_duration > renew_deadline > retry_period * _JITTER > timedelta():
        raise ValueError(
            f"leader election: expected lease duration > renew deadline > {_JITTER} x retry period > 0,"
            f" got {lease_duration}, {renew_deadline} and {retry_period}"
        )


def _in_words(error: Exception, patience: timedelta) -> str:
    return str(error) or f"no answer within {patience.total_seconds():g} s"


async def _to_its_end(coroutine: Coroutine[Any, Any, None]) -> None:
    """Await `coroutine`, which is bounded in time, also when cancelled meanwhile; only then be cancelled."""
    task = asyncio.get_running_loop().create_task(coroutine)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        raise cancelled


def _times_cancelled() -> int:
    """Return how often the running task was cancelled by others, as far as nobody has taken that back."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
