"""What a drain remembers of the pods it has seen: a value, from which the next decision is made.

    memory = Memory(started=now)
    memory = memory.ask(uid, Rung.EVICT, at=now, pace=uid).refused(uid, blocker, at=now, wait=…)

Little of it matters: a successor that starts with nothing but a `Checkpoint` asks a pod or two once more than needed,
and comes to the same end. Pods are known by their uid: another pod of the same name is another pod.

**Pace.** Pods that were refused for the same reason by the same thing (one disruption budget, an API server that cannot
be reached) share one pace: only one of them, the one that was asked longest ago, is asked again when the pace says so.
When it is accepted the next is asked at once, unless somebody watches for when that makes sense
(`haulout.drain.pdb_watch`). So twenty pods behind one budget cost the server one request now and then.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from haulout.api.objects import Pod
from haulout.drain.blockers import Blocker, BlockerKind
from haulout.drain.escalation import EscalationStep
from haulout.drain.pod_filters import controller_of

# Trouble that is not about one pod: who else would be refused by the same object, or in the same namespace.
_SHARED_RETRY_KINDS = (BlockerKind.DISRUPTION_BUDGET, BlockerKind.API, BlockerKind.NAMESPACE, BlockerKind.THROTTLING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a successor needs to go on where a drain stood."""

    started: datetime
    since: Mapping[str, datetime] = field(default_factory=dict)  # by uid: when its turn to leave or be detached came
    gone: int = 0
    percent: int = 0
    is_drained: bool = False  # the node was empty: its volumes are not waited for again


@dataclass(frozen=True, slots=True)
class Retry:
    """When one of several pods that are refused alike is asked again."""

    refusals: int  # in a row
    next_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedPod:
    """What is known of one pod."""

    uid: str
    owner: str
    first_seen_at: datetime
    replacement_count: int = (
        0  # 0: there from the beginning; 1: came later; 2: came after one that came later was told to go
    )
    is_counted: bool = False  # it was to leave at some time
    turn_since: datetime | None = None  # when its turn to leave came
    attempts: int = 0
    last_attempt_at: datetime | None = None
    in_flight: EscalationStep | None = None  # a request is under way
    retry_key: str = ""  # in which it was made
    requested_at: datetime | None = None  # when its EvictionRequest was last sent
    request_problem: str = ""  # why it cannot be asked by one
    accepted_at: datetime | None = None
    accepted_step: EscalationStep | None = None  # by what it was told to go
    blocker: Blocker | None = None  # why it was refused the last time
    blocked_since: datetime | None = None
    needs_verification: bool = False  # the server said that there is no such pod

    def shift_clock(self, by: timedelta, *, is_inherited: bool) -> "TrackedPod":
        """Return it after the wall clock was set by so much."""
        return replace(
            self,
            first_seen_at=self.first_seen_at + by,
            turn_since=self.turn_since if is_inherited else _shift(self.turn_since, by),
            last_attempt_at=_shift(self.last_attempt_at, by),
            requested_at=_shift(self.requested_at, by),
            accepted_at=_shift(self.accepted_at, by),
            blocked_since=_shift(self.blocked_since, by),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedDrain:
    """What is known of all pods, by uid."""

    started: datetime
    passed_precheck: bool = False  # the pods were looked through, and none forbade the drain
    tracked_pods: Mapping[str, TrackedPod] = field(default_factory=dict)
    retries: Mapping[str, Retry] = field(default_factory=dict)
    inherited: Checkpoint | None = None
    percent: int = 0
    verified_at: datetime | None = None  # when a list last confirmed what is there
    verifications: int = 0  # in a row, that changed nothing
    detaching_since: datetime | None = None  # when the drain began to wait for volumes
    is_detached: bool = False  # nobody waits for volumes any more
    left_attached: str = ""  # what is to be said of volumes that were given up

    @classmethod
    def resume(cls, checkpoint: Checkpoint) -> "TrackedDrain":
        """Return the memory of one who goes on from there."""
        return cls(
            started=checkpoint.started,
            inherited=checkpoint,
            percent=checkpoint.percent,
            is_detached=checkpoint.is_drained,
        )

    @property
    def requests_in_flight(self) -> int:
        """How many requests are under way."""
        return sum(tracked.in_flight is not None for tracked in self.tracked_pods.values())

    @property
    def gone_before_takeover(self) -> int:
        """How many pods went in a predecessor's time."""
        return 0 if self.inherited is None else self.inherited.gone

    def observe(self, pods: Iterable[Pod], *, now: datetime) -> "TrackedDrain":
        """Return it with a trace for each of the pods."""
        new = [pod for pod in pods if pod.uid not in self.tracked_pods]
        if not new:
            return self
        tracked_pods = {**self.tracked_pods, **{pod.uid: self._track_pod(pod, now=now) for pod in new}}
        return replace(self, tracked_pods=tracked_pods)

    def shift_clock(self, by: timedelta) -> "TrackedDrain":
        """Return it after the wall clock was set by so much; what a predecessor has noted was by another clock."""
        inherited = {} if self.inherited is None else self.inherited.since
        return replace(
            self,
            started=self.started if self.inherited is not None else self.started + by,
            tracked_pods={
                uid: entry.shift_clock(by, is_inherited=uid in inherited) for uid, entry in self.tracked_pods.items()
            },
            retries={name: replace(entry, next_at=entry.next_at + by) for name, entry in self.retries.items()},
            verified_at=_shift(self.verified_at, by),
            detaching_since=_shift(self.detaching_since, by),
        )

    def with_tracked_pods(self, changed: Mapping[str, TrackedPod]) -> "TrackedDrain":
        """Return it with some traces replaced."""
        return replace(self, tracked_pods={**self.tracked_pods, **changed}) if changed else self

    def record_attempt(self, uid: str, step: EscalationStep, *, at: datetime, retry_key: str) -> "TrackedDrain":
        """Return it with a request under way."""
        tracked = self.tracked_pods[uid]
        return self.with_tracked_pods(
            {
                uid: replace(
                    tracked, in_flight=step, attempts=tracked.attempts + 1, last_attempt_at=at, retry_key=retry_key
                )
            }
        )

    def record_accepted(self, uid: str, *, at: datetime, wait: timedelta = timedelta()) -> "TrackedDrain":
        """Return it after a pod was told to go; the next of those that wait for the same thing is due after `wait`."""
        tracked = self.tracked_pods[uid]
        accepted = replace(
            tracked,
            in_flight=None,
            accepted_at=at,
            accepted_step=tracked.in_flight,
            blocker=None,
            blocked_since=None,
        )
        return replace(
            self.with_tracked_pods({uid: accepted}), retries={**self.retries, tracked.retry_key: Retry(0, at + wait)}
        )

    def record_eviction_request(self, uid: str, *, at: datetime, problem: str) -> "TrackedDrain":
        """Return it after an EvictionRequest was sent, or could not be, which would be the same the next time."""
        tracked = self.tracked_pods[uid]
        requested = replace(
            tracked, in_flight=None, requested_at=at, request_problem=problem, blocker=None, blocked_since=None
        )
        return replace(
            self.with_tracked_pods({uid: requested}), retries={**self.retries, tracked.retry_key: Retry(0, at)}
        )

    def record_not_found(self, uid: str, *, at: datetime, wait: timedelta) -> "TrackedDrain":
        """Return it after the server said that there is no such pod, which a list is to confirm."""
        tracked = self.tracked_pods[uid]
        retries = {**self.retries, tracked.retry_key: Retry(0, at), uid: Retry(1, at + wait)}
        not_found = replace(tracked, in_flight=None, blocker=None, blocked_since=None, needs_verification=True)
        return replace(self.with_tracked_pods({uid: not_found}), retries=retries)

    def record_refusal(self, uid: str, blocker: Blocker, *, at: datetime, wait: timedelta) -> "TrackedDrain":
        """Return it after a request was refused; all that wait for the same thing wait at least as long."""
        tracked = self.tracked_pods[uid]
        is_same_blocker = tracked.blocker is not None and _is_same_blocker(tracked.blocker, blocker)
        refused = replace(
            tracked,
            in_flight=None,
            blocker=blocker,
            blocked_since=tracked.blocked_since if is_same_blocker else at,
        )
        retry_key = _refusal_retry_key(tracked, blocker)
        retry = self.retries.get(retry_key)
        # Of several that were refused at the same time only the first counts.
        counts = retry is None or (tracked.last_attempt_at or at) >= retry.next_at
        next_retry = Retry((retry.refusals if retry else 0) + 1, at + wait) if counts or retry is None else retry
        return replace(self.with_tracked_pods({uid: refused}), retries={**self.retries, retry_key: next_retry})

    def record_not_sent(self, uid: str) -> "TrackedDrain":
        """Return it after a request was given up before it was sent."""
        tracked = self.tracked_pods[uid]
        return self.with_tracked_pods({uid: replace(tracked, in_flight=None, attempts=tracked.attempts - 1)})

    def refusal_count(self, uid: str, blocker: Blocker) -> int:
        """Return how often in a row was refused what waits for the same thing."""
        retry = self.retries.get(_refusal_retry_key(self.tracked_pods[uid], blocker))
        return retry.refusals if retry else 0

    def retry_now(self, pdb_prefix: str, *, at: datetime) -> "TrackedDrain":
        """Return it with the next pod due of those that wait for budgets whose name begins like this."""
        prefix = f"{BlockerKind.DISRUPTION_BUDGET} {pdb_prefix}"
        due = {retry_key: Retry(0, at) for retry_key in self.retries if retry_key.startswith(prefix)}
        return replace(self, retries={**self.retries, **due}) if due else self

    def record_verified(self, *, at: datetime) -> "TrackedDrain":
        """Return it after a list confirmed what is there."""
        verified = {
            uid: replace(tracked, needs_verification=False)
            for uid, tracked in self.tracked_pods.items()
            if tracked.needs_verification
        }
        return replace(self.with_tracked_pods(verified), verified_at=at, verifications=self.verifications + 1)

    def restart_volume_wait(self) -> "TrackedDrain":
        """Return it after pods came to a node whose volumes were waited for: that begins anew when they have left."""
        inherited = self.inherited
        if inherited is not None:
            inherited = replace(
                inherited, since={uid: at for uid, at in inherited.since.items() if uid in self.tracked_pods}
            )
        return replace(self, inherited=inherited, detaching_since=None, is_detached=False, left_attached="")

    def _track_pod(self, pod: Pod, *, now: datetime) -> TrackedPod:
        owner = owner_of(pod)
        since = None if self.inherited is None else self.inherited.since.get(pod.uid)
        created = pod.metadata.creation_timestamp
        # Whoever takes over a drain has not seen the beginning: then the pods themselves tell how old they are.
        is_original = not self.passed_precheck and (since is not None or created is None or created <= self.started)
        replacement_count = (
            0
            if is_original
            else 1 + max((tracked.replacement_count for tracked in self._evicted_before(owner, now)), default=0)
        )
        return TrackedPod(
            uid=pod.uid, owner=owner, first_seen_at=now, replacement_count=replacement_count, turn_since=since
        )

    def _evicted_before(self, owner: str, now: datetime) -> list[TrackedPod]:
        return [
            tracked
            for tracked in self.tracked_pods.values()
            if tracked.owner == owner and tracked.accepted_at is not None and tracked.accepted_at <= now
        ]


def owner_of(pod: Pod) -> str:
    """Return who makes pods like this one, so that its successor can be told; a pod without owner is its own."""
    owner = controller_of(pod)
    return pod.key if owner is None else owner.uid or f"{owner.kind} {pod.namespace}/{owner.name}"


def retry_key_of(tracked: TrackedPod) -> str:
    """Return the name of the pace of a pod: shared by those that wait for the same thing."""
    blocker = tracked.blocker
    if blocker is None:
        return tracked.uid
    if blocker.kind in _SHARED_RETRY_KINDS and (blocker.object or blocker.kind is BlockerKind.THROTTLING):
        return f"{blocker.kind} {blocker.object}"
    if blocker.kind is BlockerKind.PERMISSION:
        return f"{blocker.kind} {blocker.pod.partition('/')[0]}"
    return tracked.uid


def pdb_of_retry_key(retry_key: str) -> str:
    """Return the budget, as blockers name it, for which the pods of a pace wait; empty if it is something else."""
    kind, _, name = retry_key.partition(" ")
    return name if kind == BlockerKind.DISRUPTION_BUDGET else ""


def _refusal_retry_key(tracked: TrackedPod, blocker: Blocker) -> str:
    """Return the pace of a pod whose request was refused; no budget has a say in a deletion, so that has its own."""
    is_deletion = tracked.in_flight in (EscalationStep.DELETE, EscalationStep.FORCE_DELETE)
    return tracked.retry_key if is_deletion else retry_key_of(replace(tracked, blocker=blocker))


def _is_same_blocker(one: Blocker, other: Blocker) -> bool:
    return (one.kind, one.object) == (other.kind, other.object)


def _shift(instant: datetime | None, by: timedelta) -> datetime | None:
    return None if instant is None else instant + by
