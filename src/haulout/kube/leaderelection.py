"""Leader election: at most one of several processes does the work.

The leader writes its identity into a Lease and renews it every `retry_period`. The fields have the meaning that
client-go's leader election gives them, so candidates of both implementations can share a lease.

Three rules ensure that two processes never lead at once. None of them trusts a wall clock:

- A leader stops early. It may lead until `renew_deadline` after the instant just *before* its last successful write was
  sent. By then its work has been cancelled, whether the server refuses, does not answer or is unreachable.
- A candidate takes over late. It must have seen the lease unchanged for the lease's whole duration on its own monotonic
  clock, counted from *after* it first saw this state. The duration is longer than the deadline. The difference is the
  margin for requests in flight and for clocks that run at different speeds. A candidate waits just as long after a held
  lease was deleted.
- A stalled process is fenced. After a stall of the event loop, the work may run before the timer that cancels it. So
  the work gets a client whose writes first check the clock, and raise `LeadershipLost`.

A candidate watches the lease. It wakes up at once when the lease is released, and exactly when it expires. The watch is
a hint. A candidate reads the lease before it takes it, and writes with the resourceVersion that it read, so a late or
silent watch costs time but never safety. Where the lease may not be watched, the candidate polls it.

An election can depend on another one. `run` is then given the `fence` of the other election, and acquires, renews and
works only as long as that fence allows it. While the process waits for the other lease, it observes this one
(`observe`), so that it waits for both at once. Only the release of a lease ignores the fence. That is safe, because a
release is written only if the lease still contains our own last write.

A write whose outcome is unknown (no response, a 5xx) is settled by a read: each write has a unique renewTime, and if
the lease contains it, the write took effect. Identities must be unique to a process. A candidate that finds its own
identity in the lease assumes that it wrote it before a restart, and continues at once.

Two gaps remain, as in client-go. A process that starts after a held lease was deleted, and never saw it held, takes it
at once; the deposed leader notices at its next renewal. And a request that was sent in time may take effect late. This
is why every write that matters carries a precondition of its own.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from haulout.api.objects import Bookmark, Lease, LeaseSpec, UndecodableObject, object_key
from haulout.api.resources import LEASES
from haulout.core.backoff import Backoff
from haulout.core.retry import Retry
from haulout.errors import AlreadyExists, Conflict, Expired, Forbidden, KubeError, LeadershipLost, NotFound
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.kube.leaderelection_config import JITTER_FACTOR, LeaderElectionConfig

logger = logging.getLogger(__name__)

# A conflict means that a renewal of ours arrived late. There is at most one in flight, so the second attempt succeeds
# unless another client writes to the lease.
_MAX_RELEASE_ATTEMPTS = 3
# As client-go's reflector, which asks for 5 to 10 minutes (tools/cache/reflector.go).
_WATCH_TIMEOUT = timedelta(minutes=5)
_WATCH_END_GRACE = timedelta(seconds=10)  # after the watch timeout; a watch that lasts longer has a dead connection
_WATCH_FORBIDDEN_RETRY = timedelta(minutes=1)  # until a candidate without permission to watch tries again


class _ObservedLease(NamedTuple):
    """The last observed state of the lease. A deleted lease has an empty `uid` and keeps its last `spec`."""

    uid: str
    spec: LeaseSpec


class LeaderElection:
    """One candidate for one lease. `identity` must be unique to the process."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        config: LeaderElectionConfig | None = None,
        on_new_leader: Callable[[str], object] | None = None,
    ) -> None:
        if not identity:
            raise ValueError("leader election: the identity is empty; every process needs its own")
        if client.fence is not None:
            raise ValueError(
                "leader election: the client has a fence; pass the fence to `run` instead, or it blocks the release"
            )
        config = config or LeaderElectionConfig()
        self.name = name
        self.namespace = namespace
        self.identity = identity
        self.lease_duration = config.lease_duration
        self.renew_deadline = config.renew_deadline
        self.retry_period = config.retry_period
        self._client = client
        self._fence: Callable[[], None] | None = None
        self._clock = client.clock
        self._on_new_leader = on_new_leader
        # Without the Retry-After: a successor must take over within the lease duration.
        backoff = Backoff(first=self.retry_period, limit=self.lease_duration, jitter=0.5)
        self._new_retry = partial(Retry, self._clock, client.random, backoff, max_retry_after=timedelta())
        # A hanging request that was sent one retry period after the last renewal must leave time for a second one.
        self._request_timeout = (self.renew_deadline - self.retry_period) / 2

        self._observed = _ObservedLease("", LeaseSpec())
        self._observed_at = -math.inf  # since when the lease is unchanged, on our monotonic clock
        # resourceVersion for the next write; empty: the lease does not exist; None: read first
        self._version: str | None = None
        # Several, because a write without a response may still be applied after a later one was sent.
        # our writes that the lease may contain: renewTime to the instant of sending
        self._written: dict[datetime, float] = {}
        self._leading_until = -math.inf
        self._reported_leader = ""
        self._problem = ""
        self._watch_problem = ""
        self._watch_again_at = -math.inf

    @property
    def leader(self) -> str:
        """Return the holder of the lease when it was last read; empty if nobody held it."""
        return self._observed.spec.holder_identity or ""

    def is_leader(self) -> bool:
        """Return whether this process may act as the leader right now."""
        return self._clock.monotonic() < self._leading_until

    def is_held_by_another(self) -> bool:
        return self._acquirable_at() > self._clock.monotonic()

    async def observe(self) -> None:
        """Observe the lease without taking it, until cancelled. The time of observation counts for `run`."""
        retry = self._new_retry()
        while True:
            if error := await self._attempt(self._read_lease, "read"):
                await retry.wait(error)
            else:
                retry.reset()
                await self._wait_for_change(may_acquire=False)

    async def run(
        self,
        lead: Callable[[Client], Awaitable[None]],
        *,
        fence: Callable[[], None] | None = None,
        next_election: "LeaderElection | None" = None,
    ) -> None:
        """Wait for leadership, then await `lead` with a client that writes only while this process leads.

        `fence` raises `LeadershipLost` when this process may no longer lead, whatever this lease contains.
        `next_election` is an election that `lead` runs later; this method observes its lease until then.

        Return or raise what `lead` does. When leadership is lost, cancel `lead`, wait for its end and raise
        `LeadershipLost`. The caller decides whether to call `run` again or to restart the process. In all cases, the
        lease is released if it is still ours, so that other candidates need not wait.
        """
        self._fence, self._problem = fence, ""
        try:
            await (
                self._campaign() if next_election is None else self._campaign_while_observing(next_election.observe())
            )
            await self._lead(lead)
        except LeadershipLost:
            _raise_if_cancelled()
            raise
        finally:
            self._leading_until = -math.inf
            await _await_shielded(self._release())

    # Acquiring the lease

    async def _campaign_while_observing(self, observe: Coroutine[Any, Any, None]) -> None:
        async with asyncio.TaskGroup() as group:
            observing = group.create_task(observe)
            await self._campaign()
            observing.cancel()

    async def _campaign(self) -> None:
        retry = self._new_retry()
        while True:
            error = await self._attempt(self._try_acquire, "take")
            self._extend_leadership()
            if self.is_leader():
                return
            if error:
                await retry.wait(error)
                continue
            retry.reset()
            if self.is_held_by_another():
                await self._wait_for_change(may_acquire=True)
            else:
                # Nobody holds the lease and another candidate was faster or the write conflicted, so look again sooner
                # than a poll would. The jitter keeps the candidates apart.
                await self._clock.sleep(self.retry_period / 4 * (1 + JITTER_FACTOR * self._client.random.random()))

    async def _attempt(self, request: Callable[[], Awaitable[None]], doing: str) -> Exception | None:
        """Await a request and return the error if it failed."""
        try:
            async with asyncio.timeout(self._request_timeout.total_seconds()):
                await request()
        except (Conflict, AlreadyExists):
            # Not a failure: a backoff would delay the next read, and the lease may be free by then.
            return None  # another candidate was faster; the next read shows it
        except (KubeError, TimeoutError) as error:
            self._log_problem(doing, error)
            return error
        self._problem = ""
        return None

    async def _try_acquire(self) -> None:
        await self._read_lease()
        if not self.is_held_by_another():
            await self._write()

    def _acquirable_at(self) -> float:
        """Return the instant, on our monotonic clock, from which we may take the lease as last observed."""
        spec = self._observed.spec
        if not spec.holder_identity or spec.holder_identity == self.identity:
            return -math.inf
        # The duration in the lease, not our own: the holder stops by its own settings, which may be longer during an
        # upgrade.
        return self._observed_at + (spec.lease_duration_seconds or self.lease_duration.total_seconds())

    # Observing the lease

    async def _wait_for_change(self, *, may_acquire: bool) -> None:
        """Return when the lease must be read again. With `may_acquire`, that is when it may be free."""
        try:
            async with asyncio.timeout_at(self._loop_time(self._read_again_at())) as deadline:
                wait = self._watch_again_at - self._clock.monotonic()
                if wait <= 0:
                    await self._watch(deadline, may_acquire=may_acquire)
                else:
                    poll = self.retry_period * (1 + JITTER_FACTOR * self._client.random.random())
                    await self._clock.sleep(min(poll, timedelta(seconds=wait)))
        except TimeoutError:
            return
        except Forbidden as error:
            self._watch_again_at = self._clock.monotonic() + _WATCH_FORBIDDEN_RETRY.total_seconds()
            self._log_watch_problem(error)
        except KubeError:
            return  # the connection broke; if that lasts, the next read reports it

    async def _watch(self, deadline: asyncio.Timeout, *, may_acquire: bool) -> None:
        """Move the deadline with each change of the lease, until the watch ends or the lease can be acquired."""
        # A watch that the server closes at once must not be reopened in a tight loop.
        self._watch_again_at = self._clock.monotonic() + self.retry_period.total_seconds()
        try:
            await self._watch_from(self._version or "", deadline, may_acquire=may_acquire)
        except Expired:  # no change for so long that the resource version was compacted: start from the current state
            await self._watch_from("", deadline, may_acquire=may_acquire)

    async def _watch_from(self, version: str, deadline: asyncio.Timeout, *, may_acquire: bool) -> None:
        async with self._client.watch(
            LEASES,
            namespace=self.namespace,
            fields=f"metadata.name={self.name}",
            resource_version=version,
            watch_timeout=_WATCH_TIMEOUT,
            open_timeout=self._request_timeout,
        ) as events:
            self._watch_problem = ""
            async for event in events:
                if isinstance(event, Bookmark):
                    continue
                if isinstance(event.object, UndecodableObject):
                    return
                self._observe_lease(None if event.type == "DELETED" else event.object)
                if may_acquire and not self.is_held_by_another():
                    return
                deadline.reschedule(self._loop_time(self._read_again_at()))

    def _read_again_at(self) -> float:
        """Return when to stop relying on a watch: when the lease expires, or else when the watch should have ended."""
        now, acquirable_at = self._clock.monotonic(), self._acquirable_at()
        return acquirable_at if acquirable_at > now else now + (_WATCH_TIMEOUT + _WATCH_END_GRACE).total_seconds()

    def _log_watch_problem(self, error: KubeError) -> None:
        if str(error) != self._watch_problem:
            self._watch_problem = str(error)
            logger.warning("lease %s is polled, since it cannot be watched: %s", self._lease_key, error)

    # Leading

    async def _lead(self, lead: Callable[[Client], Awaitable[None]]) -> None:
        logger.info("%s leads now: lease %s", self.identity, self._lease_key)
        failure: Exception | None = None
        cancelled_before = _cancellation_count()
        async with asyncio.TaskGroup() as group:
            # `lead` runs in this very task, so a cancellation of `run` reaches it directly. The lease is renewed until
            # `lead` has ended, however long its cleanup takes.
            renewing: asyncio.Task[None] | None = None
            try:
                async with asyncio.timeout_at(self._loop_deadline()) as deadline:
                    renewing = group.create_task(self._keep_renewing(deadline))
                    await lead(self._client.with_fence(self._check_leadership))
            except Exception as error:  # noqa: BLE001 - raised again below, so that the task group does not wrap it
                failure = error
            finally:
                if renewing:
                    # Only now: while the work cleans up, no successor may start.
                    renewing.cancel()
        if _cancellation_count() > cancelled_before:
            # Cleanup after a cancellation may fail because it must not write any more. `run` ends as cancelled all the
            # same.
            raise asyncio.CancelledError from failure
        if deadline.expired():
            raise LeadershipLost(f"{self.identity} lost lease {self._lease_key}: {self._loss_reason()}") from failure
        if failure:
            raise failure

    def _check_leadership(self) -> None:
        if self._fence:
            self._fence()
        if not self.is_leader():
            raise LeadershipLost(
                f"{self.identity} must not write: it lost lease {self._lease_key}: {self._loss_reason()}"
            )

    async def _keep_renewing(self, deadline: asyncio.Timeout) -> None:
        """Move the deadline of the work with each renewal. Expire it at once when the lease is lost."""
        pause = self.retry_period
        while True:
            await self._clock.sleep(pause)
            if not self.is_leader():
                break
            pause = await self._renew_in_time()
            # A renewal that completes too late does not count: the work may have been cancelled already.
            if deadline.expired() or not self.is_leader():
                break
            self._extend_leadership()
            deadline.reschedule(self._loop_deadline())
        self._leading_until = -math.inf
        if not deadline.expired():
            deadline.reschedule(self._loop_deadline())

    async def _renew_in_time(self) -> timedelta:
        """Try once to renew. Return how long to wait before the next attempt."""
        remaining = self._leading_until - self._clock.monotonic()
        try:
            # A renewal that is still in flight at the deadline is worthless. Its connection may be hanging, so a second
            # attempt needs time, too.
            async with asyncio.timeout(min(remaining, self._request_timeout.total_seconds())):
                await self._renew()
        except (KubeError, TimeoutError) as error:
            # cut short by the deadline: keep the earlier problem, which is the cause
            if not (isinstance(error, TimeoutError) and self._problem):
                self._log_problem("renew", error)
            # client-go retries after the whole period. Within a deadline of a few seconds, four times as many attempts
            # survive a short outage that one or two would not.
            return self.retry_period / 4
        except LeadershipLost as error:
            self._problem, self._leading_until = str(error), -math.inf
        else:
            self._problem = ""
        return self.retry_period

    async def _renew(self) -> None:
        if self._version is None:
            await self._read_lease()
        if not self._is_deposed():
            try:
                # If the lease was deleted, create it again. That fails if another process created it first. A process
                # that saw us hold the lease waits until we may no longer lead.
                await self._write()
            except (Conflict, AlreadyExists, NotFound):
                await self._read_lease()
                if not self._is_deposed():
                    raise
        if self._is_deposed():
            self._leading_until = -math.inf

    def _is_deposed(self) -> bool:
        # A deleted lease deposes nobody: the leader creates it again, and that fails if another process was faster.
        return bool(self._observed.uid) and self._last_write_sent_at() == -math.inf

    def _extend_leadership(self) -> None:
        """Extend leadership, counted from the instant at which we sent the write that the lease contains."""
        # From the instant of sending, not of the response: other candidates may have seen the renewal that early.
        self._leading_until = max(self._leading_until, self._last_write_sent_at() + self.renew_deadline.total_seconds())

    def _loop_deadline(self) -> float:
        return self._loop_time(self._leading_until)

    def _loop_time(self, instant: float) -> float:
        """Convert an instant of our monotonic clock to the event loop's clock, and return at least the current time."""
        return asyncio.get_running_loop().time() + max(instant - self._clock.monotonic(), 0)

    def _loss_reason(self) -> str:
        if self.leader != self.identity:
            return f"it is held by {self.leader}" if self.leader else "it has no holder"
        if self._is_deposed():
            return "another process with the same identity holds it"
        seconds = f"{self.renew_deadline.total_seconds():g}"
        return f"it could not be renewed for {seconds} s" + (f": {self._problem}" if self._problem else "")

    # Releasing the lease

    async def _release(self) -> None:
        # Never wrote, so the lease cannot be ours, and the shutdown of a standby costs no request.
        if not self._written:
            return
        try:
            async with asyncio.timeout(self._request_timeout.total_seconds()):
                await self._release_if_ours()
        except (KubeError, TimeoutError) as error:
            reason = _error_text(error, self._request_timeout)
            logger.warning("lease %s was not released and must expire first: %s", self._lease_key, reason)
        self._written.clear()

    async def _release_if_ours(self) -> None:
        for _ in range(_MAX_RELEASE_ATTEMPTS):
            await self._read_lease()
            if self._last_write_sent_at() == -math.inf:
                return
            now = self._clock.now()
            # As client-go does: no holder, and a duration of 1 second for candidates that compare only times.
            released = LeaseSpec(holder_identity="", lease_duration_seconds=1, acquire_time=now, renew_time=now)
            try:
                self._observe_lease(await self._put(self._client, released, self._version or ""))
            except (Conflict, NotFound):
                continue  # an earlier renewal of ours was still in flight, or another client changed the lease
            logger.info("%s released lease %s", self.identity, self._lease_key)
            return

    # Reading and writing the lease

    @property
    def _lease_key(self) -> str:
        return object_key(self.name, self.namespace)

    async def _read_lease(self) -> None:
        self._observe_lease(await self._client.find(LEASES, self.name, namespace=self.namespace))

    def _observe_lease(self, lease: Lease | None) -> None:
        self._version = lease.resource_version if lease else ""
        # Do not compare the resourceVersion: if another client kept modifying a dead leader's lease, it would never
        # expire.
        observed = _ObservedLease(lease.uid, lease.spec) if lease else _ObservedLease("", self._observed.spec)
        # Only the fact of a change counts, and when we saw it: the times in the lease come from another clock (package
        # comment of client-go's tools/leaderelection/leaderelection.go).
        if observed != self._observed:
            self._observed, self._observed_at = observed, self._clock.monotonic()
        if self.leader and self.leader != self._reported_leader:
            self._reported_leader = self.leader
            if self.leader != self.identity:
                logger.info("%s leads: lease %s", self.leader, self._lease_key)
            self._notify_new_leader()

    def _notify_new_leader(self) -> None:
        if self._on_new_leader is None:
            return
        try:
            self._on_new_leader(self.leader)
        except Exception:
            logger.exception("a listener for lease %s failed; going on", self._lease_key)

    async def _write(self) -> None:
        """Write our identity into the lease, with the resourceVersion last seen."""
        # Until the response tells the new version, the old one is useless: if the write fails, read first.
        version, self._version = self._version, None
        sent_at = self._clock.monotonic()
        too_old = sent_at - self.lease_duration.total_seconds()
        self._written = {time: sent for time, sent in self._written.items() if sent > too_old}
        renew_time = self._clock.now()
        # A wall clock that was set back may repeat a renewTime. Other candidates would then see no change.
        while renew_time in self._written:
            renew_time += timedelta(microseconds=1)
        self._written[renew_time] = sent_at
        client = self._client.with_fence(self._fence) if self._fence else self._client
        self._observe_lease(await self._put(client, self._lease_spec(renew_time), version or ""))

    async def _put(self, client: Client, spec: LeaseSpec, version: str) -> Lease:
        return await leases.write(client, self.name, spec, namespace=self.namespace, version=version)

    def _lease_spec(self, now: datetime) -> LeaseSpec:
        last = self._observed.spec
        is_ours = last.holder_identity == self.identity
        return LeaseSpec(
            holder_identity=self.identity,
            # A Lease has whole seconds only (LeaseSpec in staging/src/k8s.io/api/coordination/v1/types.go).
            lease_duration_seconds=round(self.lease_duration.total_seconds()),
            acquire_time=last.acquire_time if is_ours and last.acquire_time else now,
            renew_time=now,
            # As client-go counts: a new lease starts at 0, and only another holder counts as a transition.
            lease_transitions=(last.lease_transitions or 0) + (0 if is_ours or last == LeaseSpec() else 1),
        )

    def _last_write_sent_at(self) -> float:
        """Return when we sent the write that the lease contains, as last observed; minus infinity if it is not ours."""
        uid, spec = self._observed
        if not uid or spec.holder_identity != self.identity or spec.renew_time is None:
            return -math.inf
        return self._written.get(spec.renew_time, -math.inf)

    def _log_problem(self, doing: str, error: Exception) -> None:
        """Log a problem once, until it changes."""
        problem = _error_text(error, self._request_timeout)
        if problem != self._problem:
            self._problem = problem
            logger.warning("%s cannot %s lease %s, retrying: %s", self.identity, doing, self._lease_key, problem)


def _raise_if_cancelled() -> None:
    """Raise CancelledError if this task was cancelled.

    `lead` may have raised `LeadershipLost` in its cleanup instead.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _error_text(error: Exception, timeout: timedelta) -> str:
    return str(error) or f"no answer within {timeout.total_seconds():g} s"


async def _await_shielded(coroutine: Coroutine[Any, Any, None]) -> None:
    """Await `coroutine`, which must be bounded in time, to its end. A cancellation meanwhile is raised afterwards."""
    # `shield` alone returns at the cancellation and leaves the task without an owner; the process would end before the
    # lease is released. So cancellations are kept until the task is done.
    task = asyncio.get_running_loop().create_task(coroutine)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        raise cancelled


def _cancellation_count() -> int:
    """Return the number of pending cancellations of the running task."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
