"""The state of a drain: an immutable value, from which the next decision is made.

    state = TrackedDrain(started=now)
    state = state.record_attempt(uid, EscalationStep.EVICT, at=now, retry_key=uid)
    state = state.record_refusal(uid, blocker, at=now, wait=…)

Losing it costs little: a successor with only a `Checkpoint` repeats a request or two, and reaches the same end. Pods
are identified by UID: a pod with the same name and another UID is another pod.

**Retry keys.** Pods that were refused by the same object for the same reason (one PodDisruptionBudget, an unreachable
API server) share a retry key: only the one with the oldest attempt is retried when the key is due. When it is accepted,
the next is tried at once, unless `haulout.drain.pdb_watch` tells when the next try makes sense. Twenty pods behind one
PodDisruptionBudget thus cost the API server one request now and then.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from haulout.api.objects import Pod
from haulout.drain.blockers import Blocker, BlockerKind
from haulout.drain.escalation import EscalationStep
from haulout.drain.pod_filters import controller_of

# Blockers that concern more than one pod: the others would be refused by the same object or in the same namespace.
_SHARED_RETRY_KINDS = (BlockerKind.DISRUPTION_BUDGET, BlockerKind.API, BlockerKind.NAMESPACE, BlockerKind.THROTTLING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a successor needs to continue a drain."""

    started: datetime
    # By UID of a pod or VolumeAttachment: when its turn came.
    since: Mapping[str, datetime] = field(default_factory=dict)
    gone: int = 0
    percent: int = 0
    is_drained: bool = False  # the node was empty, so there is no further wait for its volumes


@dataclass(frozen=True, slots=True)
class PendingRetry:
    """When the pods that share a retry key are tried again."""

    refusals: int  # in a row
    next_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedPod:
    """What the drain knows of one pod beyond the pod object itself: its turn, its requests and their answers."""

    uid: str
    owner: str
    first_observed_at: datetime
    # 0: present from the start; 1: came later; 2: came after one of generation 1 was evicted
    replacement_count: int = 0
    is_counted: bool = False  # it had to leave at some time, so the progress counts it
    turn_since: datetime | None = None  # when its turn came
    attempts: int = 0
    last_attempt_at: datetime | None = None
    in_flight: EscalationStep | None = None  # the request in flight
    retry_key: str = ""  # of its last attempt
    requested_at: datetime | None = None  # when its EvictionRequest was last sent
    request_problem: str = ""  # why it cannot be evicted by an EvictionRequest
    accepted_at: datetime | None = None
    accepted_step: EscalationStep | None = None  # step of the accepted request
    blocker: Blocker | None = None  # why its last request was refused
    blocked_since: datetime | None = None
    needs_verification: bool = False  # the API server answered 404, which a list must confirm

    def shift_clock(self, by: timedelta, *, is_inherited: bool) -> "TrackedPod":
        """Return the pod with its times shifted after the wall clock was set. Inherited times are not shifted."""
        return replace(
            self,
            first_observed_at=self.first_observed_at + by,
            turn_since=self.turn_since if is_inherited else _shift(self.turn_since, by),
            last_attempt_at=_shift(self.last_attempt_at, by),
            requested_at=_shift(self.requested_at, by),
            accepted_at=_shift(self.accepted_at, by),
            blocked_since=_shift(self.blocked_since, by),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedDrain:
    """The drain's knowledge of all pods, by UID."""

    started: datetime
    passed_precheck: bool = False  # all pods were judged, and none refused the drain
    tracked_pods: Mapping[str, TrackedPod] = field(default_factory=dict)
    retries: Mapping[str, PendingRetry] = field(default_factory=dict)
    inherited: Checkpoint | None = None
    percent: int = 0
    verified_at: datetime | None = None  # when a list last confirmed the pods
    verifications: int = 0  # lists in a row that changed nothing
    detaching_since: datetime | None = None  # when the wait for volumes began
    is_detached: bool = False  # the wait for volumes is over
    left_attached: str = ""  # warning about volumes for which the drain stopped waiting

    @classmethod
    def resume(cls, checkpoint: Checkpoint) -> "TrackedDrain":
        return cls(
            started=checkpoint.started,
            inherited=checkpoint,
            percent=checkpoint.percent,
            is_detached=checkpoint.is_drained,
        )

    @property
    def requests_in_flight(self) -> int:
        return sum(tracked.in_flight is not None for tracked in self.tracked_pods.values())

    @property
    def gone_before_takeover(self) -> int:
        """The number of pods that left during a predecessor's drain."""
        return 0 if self.inherited is None else self.inherited.gone

    def observe(self, pods: Iterable[Pod], *, now: datetime) -> "TrackedDrain":
        """Return the state with an entry for each new pod."""
        new = [pod for pod in pods if pod.uid not in self.tracked_pods]
        if not new:
            return self
        tracked_pods = {**self.tracked_pods, **{pod.uid: self._track_pod(pod, now=now) for pod in new}}
        return replace(self, tracked_pods=tracked_pods)

    def shift_clock(self, by: timedelta) -> "TrackedDrain":
        """Return the state with its times shifted after the wall clock was set.

        Inherited times are not shifted: another process recorded them by its own clock.
        """
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
        return replace(self, tracked_pods={**self.tracked_pods, **changed}) if changed else self

    def record_attempt(self, uid: str, step: EscalationStep, *, at: datetime, retry_key: str) -> "TrackedDrain":
        """Return the state with a request in flight."""
        tracked = self.tracked_pods[uid]
        return self.with_tracked_pods(
            {
                uid: replace(
                    tracked, in_flight=step, attempts=tracked.attempts + 1, last_attempt_at=at, retry_key=retry_key
                )
            }
        )

    def record_accepted(self, uid: str, *, at: datetime, wait: timedelta = timedelta()) -> "TrackedDrain":
        """Return the state after a request was accepted. The next pod of the same retry key is due after `wait`."""
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
            self.with_tracked_pods({uid: accepted}),
            retries={**self.retries, tracked.retry_key: PendingRetry(0, at + wait)},
        )

    def record_eviction_request(self, uid: str, *, at: datetime, problem: str) -> "TrackedDrain":
        """Return the state after an EvictionRequest was created. If `problem`, it failed and would fail again."""
        tracked = self.tracked_pods[uid]
        requested = replace(
            tracked, in_flight=None, requested_at=at, request_problem=problem, blocker=None, blocked_since=None
        )
        return replace(
            self.with_tracked_pods({uid: requested}), retries={**self.retries, tracked.retry_key: PendingRetry(0, at)}
        )

    def record_not_found(self, uid: str, *, at: datetime, wait: timedelta) -> "TrackedDrain":
        """Return the state after the API server answered 404 for a pod. A list must confirm that the pod is gone."""
        tracked = self.tracked_pods[uid]
        # The shared key is free for the next pod. This pod waits, or the request would be repeated until the cache
        # catches up.
        retries = {**self.retries, tracked.retry_key: PendingRetry(0, at), uid: PendingRetry(1, at + wait)}
        not_found = replace(tracked, in_flight=None, blocker=None, blocked_since=None, needs_verification=True)
        return replace(self.with_tracked_pods({uid: not_found}), retries=retries)

    def record_refusal(self, uid: str, blocker: Blocker, *, at: datetime, wait: timedelta) -> "TrackedDrain":
        """Return the state after a request was refused. All pods of the same retry key wait at least as long."""
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
        # If several pods of a key were refused at the same time, only the first refusal counts.
        counts = retry is None or (tracked.last_attempt_at or at) >= retry.next_at
        next_retry = PendingRetry((retry.refusals if retry else 0) + 1, at + wait) if counts or retry is None else retry
        return replace(self.with_tracked_pods({uid: refused}), retries={**self.retries, retry_key: next_retry})

    def record_not_sent(self, uid: str) -> "TrackedDrain":
        """Return the state after a request was dropped before it was sent."""
        tracked = self.tracked_pods[uid]
        # `attempts` decides whether a pod may be deleted: only real attempts count.
        return self.with_tracked_pods({uid: replace(tracked, in_flight=None, attempts=tracked.attempts - 1)})

    def refusal_count(self, uid: str, blocker: Blocker) -> int:
        """Return how many refusals in a row the retry key of the pod has."""
        retry = self.retries.get(_refusal_retry_key(self.tracked_pods[uid], blocker))
        return retry.refusals if retry else 0

    def retry_now(self, pdb: str, *, at: datetime) -> "TrackedDrain":
        """Return the state in which pods that wait for this PodDisruptionBudget are due."""
        retry_key = f"{BlockerKind.DISRUPTION_BUDGET} {pdb}"
        is_due = retry_key in self.retries
        return replace(self, retries={**self.retries, retry_key: PendingRetry(0, at)}) if is_due else self

    def record_verified(self, *, at: datetime) -> "TrackedDrain":
        """Return the state after a list confirmed the pods."""
        verified = {
            uid: replace(tracked, needs_verification=False)
            for uid, tracked in self.tracked_pods.items()
            if tracked.needs_verification
        }
        return replace(self.with_tracked_pods(verified), verified_at=at, verifications=self.verifications + 1)

    def restart_volume_wait(self) -> "TrackedDrain":
        """Return the state after new pods came during the wait for volumes. The wait restarts when they have left."""
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
        # A successor did not see the start of the drain: creationTimestamp tells which pods were there.
        is_original = not self.passed_precheck and (since is not None or created is None or created <= self.started)
        replacement_count = (
            0
            if is_original
            else 1 + max((tracked.replacement_count for tracked in self._evicted_before(owner, now)), default=0)
        )
        return TrackedPod(
            uid=pod.uid, owner=owner, first_observed_at=now, replacement_count=replacement_count, turn_since=since
        )

    def _evicted_before(self, owner: str, now: datetime) -> list[TrackedPod]:
        return [
            tracked
            for tracked in self.tracked_pods.values()
            if tracked.owner == owner and tracked.accepted_at is not None and tracked.accepted_at <= now
        ]


def owner_of(pod: Pod) -> str:
    """Return the identity of the pod's controller, which its replacements share; the pod's key if it has none."""
    owner = controller_of(pod)
    return pod.key if owner is None else owner.uid or f"{owner.kind} {pod.namespace}/{owner.name}"


def retry_key_of(tracked: TrackedPod) -> str:
    """Return the retry key of a pod: shared by pods with the same blocker, the pod's UID otherwise."""
    blocker = tracked.blocker
    if blocker is None:
        return tracked.uid
    if blocker.kind in _SHARED_RETRY_KINDS and (blocker.object or blocker.kind is BlockerKind.THROTTLING):
        return f"{blocker.kind} {blocker.object}"
    # RBAC grants by namespace, so a refusal holds for all pods of it.
    if blocker.kind is BlockerKind.PERMISSION:
        return f"{blocker.kind} {blocker.pod.partition('/')[0]}"
    return tracked.uid


def pdb_of_retry_key(retry_key: str) -> str:
    """Return the PodDisruptionBudget of a retry key, named as in `Blocker.object`; empty if there is none."""
    kind, _, name = retry_key.partition(" ")
    return name if kind == BlockerKind.DISRUPTION_BUDGET else ""


def _refusal_retry_key(tracked: TrackedPod, blocker: Blocker) -> str:
    """Return the retry key of a refused request.

    Deletions keep their own, since no PodDisruptionBudget applies to them.
    """
    is_deletion = tracked.in_flight in (EscalationStep.DELETE, EscalationStep.FORCE_DELETE)
    return tracked.retry_key if is_deletion else retry_key_of(replace(tracked, blocker=blocker))


def _is_same_blocker(one: Blocker, other: Blocker) -> bool:
    return (one.kind, one.object) == (other.kind, other.object)


def _shift(instant: datetime | None, by: timedelta) -> datetime | None:
    return None if instant is None else instant + by
