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

A candidate watches the lease: it wakes at once when the lease is released, and exactly when it has run out. The watch
is a hint. Whoever takes the lease reads it first, and writes under the resourceVersion that was read, so a watch that
is late or silent costs time and never safety. Where the lease may not be watched, it is polled.

An election can depend on another one. `run` is then given the `fence` of the other, and takes, renews and works only as
long as that fence allows it. While the process waits for the other lease it observes this one (`observe`), so that it
waits for both at once. Only the release of a lease asks no fence. It needs none: it is written only if our own last
write still stands there.

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
from haulout.errors import AlreadyExists, Conflict, Expired, Forbidden, KubeError, LeadershipLost, NotFound
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.kube.lease_timing import JITTER, LeaseTiming
from haulout.kube.objects import Bookmark, Lease, LeaseSpec, Misfit, object_key
from haulout.kube.resources import LEASES

logger = logging.getLogger(__name__)

_RELEASE_TRIES = 3
_WATCH_LASTS = timedelta(minutes=5)
_WATCH_ENDS_WITHIN = timedelta(seconds=10)  # after that, unless its connection is dead
_WATCH_REFUSED_FOR = timedelta(minutes=1)  # after which a candidate without permission to watch tries again


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
        timing: LeaseTiming | None = None,
        on_new_leader: Callable[[str], object] | None = None,
    ) -> None:
        if not identity:
            raise ValueError("leader election: the identity is empty; give every process one of its own")
        if client.may_write is not None:
            raise ValueError("leader election: the client has a fence, which belongs to `run`: a release must pass it")
        timing = timing or LeaseTiming()
        self.name = name
        self.namespace = namespace
        self.identity = identity
        self.lease_duration = timing.lease_duration
        self.renew_deadline = timing.renew_deadline
        self.retry_period = timing.retry_period
        self._client = client
        self._fence: Callable[[], None] | None = None
        self._clock = client.clock
        self._on_new_leader = on_new_leader
        self._backoff = Backoff(first=self.retry_period, limit=self.lease_duration, jitter=0.5)
        # One request that hangs, sent a retry period after the last renewal, must leave time for another.
        self._patience = (self.renew_deadline - self.retry_period) / 2

        self._sight = _Sight("", LeaseSpec())
        self._seen_at = -math.inf  # since when the lease has looked like this, on our monotonic clock
        self._version: str | None = None  # what the next write rests on; empty: there is no lease; None: must look
        self._written: dict[datetime, float] = {}  # our writes that may stand in the lease: renewTime, and when sent
        self._until = -math.inf
        self._reported_leader = ""
        self._problem = ""
        self._watch_problem = ""
        self._watch_again_at = -math.inf

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

    def is_held_by_another(self) -> bool:
        """Return whether the lease, as last seen, keeps this process from taking it now."""
        return self._free_at() > self._clock.monotonic()

    async def observe(self) -> None:
        """Observe the lease and never take it, until cancelled. The time that passes meanwhile counts for `run`."""
        failures = 0
        while True:
            failures = await self._attempt(self._look, "read", failures)
            if failures:
                await self._clock.sleep(self._pause(failures))
            else:
                await self._wait_for_change(takes=False)

    async def run(
        self,
        lead: Callable[[Client], Awaitable[None]],
        *,
        fence: Callable[[], None] | None = None,
        observing: "LeaderElection | None" = None,
    ) -> None:
        """Wait for leadership, then await `lead` with a client that writes only while leading.

        `fence` raises `LeadershipLost` once this process may not lead here any more, whatever this lease says.
        `observing` is an election for which this process stands once it leads here; it observes until then.

        Returns or raises what `lead` does. Raises `LeadershipLost`, after `lead` was cancelled and has ended, when
        leadership is lost: whether to stand again or to start afresh is for the owner to decide, and `run` may be
        called again. However it ends, the lease is released if it is still ours, so that others need not wait.
        """
        self._fence, self._problem = fence, ""
        try:
            await (self._campaign() if observing is None else self._campaign_and(observing.observe()))
            await self._lead(lead)
        except LeadershipLost:
            _end_if_cancelled()
            raise
        finally:
            self._until = -math.inf
            await _to_its_end(self._release())

    # Becoming the leader

    async def _campaign_and(self, observe: Coroutine[Any, Any, None]) -> None:
        async with asyncio.TaskGroup() as group:
            observing = group.create_task(observe)
            await self._campaign()
            observing.cancel()

    async def _campaign(self) -> None:
        failures = 0
        while True:
            failures = await self._attempt(self._take_if_free, "take", failures)
            self._count_last_write()
            if self.is_leader():
                return
            if failures or not self.is_held_by_another():  # the latter: somebody else wrote to it as we did
                await self._clock.sleep(self._pause(failures))
            else:
                await self._wait_for_change(takes=True)

    async def _attempt(self, request: Callable[[], Awaitable[None]], doing: str, failures: int) -> int:
        """Await a request and return how often in a row none succeeded, after `failures` so far."""
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                await request()
        except (Conflict, AlreadyExists):
            return 0  # somebody was quicker, which the next look will show
        except (KubeError, TimeoutError) as error:
            self._complain(doing, error)
            return failures + 1
        self._problem = ""
        return 0

    async def _take_if_free(self) -> None:
        await self._look()
        if not self.is_held_by_another():
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
        return self.retry_period / 4 * (1 + JITTER * self._client.random.random())

    # Observing the lease

    async def _wait_for_change(self, *, takes: bool) -> None:
        """Return when the lease must be read again; for one who `takes` it, at the moment from which it may be free."""
        try:
            async with asyncio.timeout_at(self._loop_time(self._read_again_at())) as deadline:
                until = self._watch_again_at - self._clock.monotonic()
                if until <= 0:
                    await self._watch(deadline, takes=takes)
                else:
                    poll = self.retry_period * (1 + JITTER * self._client.random.random())
                    await self._clock.sleep(min(poll, timedelta(seconds=until)))
        except TimeoutError:
            return
        except Forbidden as error:
            self._watch_again_at = self._clock.monotonic() + _WATCH_REFUSED_FOR.total_seconds()
            self._complain_of_watch(error)
        except KubeError:
            return  # the connection broke; if that is more than a moment, the next read complains

    async def _watch(self, deadline: asyncio.Timeout, *, takes: bool) -> None:
        """Move the deadline with each change of the lease, until the watch ends or the lease is free to be taken."""
        self._watch_again_at = self._clock.monotonic() + self.retry_period.total_seconds()
        try:
            await self._watch_from(self._version or "", deadline, takes=takes)
        except Expired:  # the lease did not change for so long that the server has forgotten: start from what is there
            await self._watch_from("", deadline, takes=takes)

    async def _watch_from(self, version: str, deadline: asyncio.Timeout, *, takes: bool) -> None:
        async with self._client.watch(
            LEASES,
            namespace=self.namespace,
            fields=f"metadata.name={self.name}",
            resource_version=version,
            lasting=_WATCH_LASTS,
            opening_within=self._patience,
        ) as events:
            self._watch_problem = ""
            async for event in events:
                if isinstance(event, Bookmark):
                    continue
                if isinstance(event.object, Misfit):
                    return
                self._saw(None if event.type == "DELETED" else event.object)
                if takes and not self.is_held_by_another():
                    return
                deadline.reschedule(self._loop_time(self._read_again_at()))

    def _read_again_at(self) -> float:
        """Return when to stop relying on a watch: when the lease runs out, or else when the watch should have ended."""
        now, free_at = self._clock.monotonic(), self._free_at()
        return free_at if free_at > now else now + (_WATCH_LASTS + _WATCH_ENDS_WITHIN).total_seconds()

    def _complain_of_watch(self, error: KubeError) -> None:
        if str(error) != self._watch_problem:
            self._watch_problem = str(error)
            logger.warning("lease %s is polled, since it cannot be watched: %s", self._lease_key, error)

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
        if self._fence:
            self._fence()
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
        except LeadershipLost as error:
            self._problem, self._until = str(error), -math.inf
        else:
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
        return self._loop_time(self._until)

    def _loop_time(self, instant: float) -> float:
        """Return an instant of our monotonic clock on the clock of the event loop, and no earlier than now."""
        return asyncio.get_running_loop().time() + max(instant - self._clock.monotonic(), 0)

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
        except (KubeError, TimeoutError) as error:
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
                self._saw(await self._put(self._client, released, self._version or ""))
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
        client = self._client.fenced(self._fence) if self._fence else self._client
        self._saw(await self._put(client, self._record(renew_time), version or ""))

    async def _put(self, client: Client, record: LeaseSpec, version: str) -> Lease:
        return await leases.write(client, self.name, record, namespace=self.namespace, version=version)

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
