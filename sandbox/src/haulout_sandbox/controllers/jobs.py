"""Jobs: pods that run until enough of them have succeeded, or too many have failed.

Follows `pkg/controller/job` of Kubernetes 1.36. Each pod carries a finalizer until it is counted, so that none that is
deleted meanwhile (by a drain, say) is lost, or counted twice. Counting takes three writes, and survives a crash after
any: the pod's uid is noted as uncounted, its finalizer is removed, and once that is seen the uid turns into one more
in the counter.

A pod that is told to stop counts as failed and is replaced at once, unless the job asks to wait for its end. Indexed
jobs are run as if they were not indexed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

from haulout.core.backoff import Backoff
from haulout.errors import NotFound
from haulout.kube.objects import RawObject
from haulout_sandbox.controllers import conditions, edge
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.caches import Caches
from haulout_sandbox.controllers.objects import JOBS, PODS, Job, Pod, PodFailureRule
from haulout_sandbox.controllers.replicasets import victims
from haulout_sandbox.controllers.templates import pod_from, reference

FINALIZER = "batch.kubernetes.io/job-tracking"

_BACKOFF = Backoff(first=timedelta(seconds=10), factor=2, limit=timedelta(minutes=10), jitter=0)


class Jobs(OwningController):
    """Runs each job's pods to its end."""

    name = "jobs"
    reporter = "job-controller"

    def __init__(self, caches: Caches, random: Random) -> None:
        super().__init__(caches, random)
        self._jobs, self._pods = caches.jobs, caches.pods
        self._failures: dict[str, Failures] = {}  # by the job's key
        self.follow(self._jobs)
        self.follow_owned(self._pods, kind=JOBS.kind, owners=self._jobs, selector=lambda _: None)

    async def sync(self, key: str) -> datetime | None:
        """Make, delete and count pods, and tell how it goes."""
        job = self._jobs.get(key)
        named = list(self._pods.by("job", key))
        uid = "" if job is None or job.deleting or is_finished(job) else job.uid
        pods = [pod for pod in named if pod.controller_uid == uid]
        await self._release(pod for pod in named if pod.controller_uid != uid)
        if job is None or not uid:
            self._failures.pop(key, None)
            return None if job is None else await self._expire(job)
        plan = decide(job, pods, self._failures.get(key, Failures()), self.clock.now(), self.random)
        self._failures[key] = plan.failures
        async with edge.Writes(self._jobs) as writes:
            written = await edge.write_status(self.client, JOBS, job, seen=job.status, wanted=plan.status)
            writes.made(written)
        if written is not None:
            self._report_end(written)
        await self._release(plan.counted)
        await self._act(job, plan)
        return plan.wakes_at

    def _report_end(self, job: Job) -> None:
        for condition in job.status.get("conditions") or ():
            if condition["type"] == "Complete":
                self.record(JOBS, job, "Completed", "Job completed")
            elif condition["type"] == "Failed":
                self.record(JOBS, job, condition["reason"], condition["message"], kind="Warning")

    async def _act(self, job: Job, plan: "Plan") -> None:
        owner = reference(job, JOBS)

        def pod_named(name: str) -> RawObject:
            return pod_from(
                job.spec.template,
                name=name,
                namespace=job.namespace,
                owner=owner,
                labels=_labels(job),
                finalizers=[FINALIZER],
            )

        await self._release(plan.discard)
        async with edge.Writes(self._pods) as writes:
            for pod in [*plan.discard, *plan.delete]:
                writes.at(await edge.delete(self.client, PODS, pod))
                self.record(JOBS, job, "SuccessfulDelete", f"Deleted pod: {pod.name}")
            for _ in range(plan.missing):
                made = await edge.create_named(self.client, PODS, job.name, pod_named, random=self.random)
                writes.made(made)
                self.record(JOBS, job, "SuccessfulCreate", f"Created pod: {made.name}")

    async def _release(self, pods: Iterable[Pod]) -> None:
        """Take our finalizer off pods that are counted, or that no job counts any more."""
        async with edge.Writes(self._pods) as writes:
            for pod in pods:
                if FINALIZER in pod.metadata.finalizers:
                    left = [name for name in pod.metadata.finalizers if name != FINALIZER]
                    try:
                        writes.made(await edge.change(self.client, PODS, pod, {"metadata": {"finalizers": left}}))
                    except NotFound:
                        continue

    async def _expire(self, job: Job) -> datetime | None:
        """Delete a finished job when its time is up; return when that is."""
        if job.spec.ttl_seconds_after_finished is None or job.deleting:
            return None
        ends = [it for it in job.status["conditions"] if it["type"] in ("Complete", "Failed")]
        finished = max(conditions.instant(it["lastTransitionTime"]) for it in ends)
        expires = finished + timedelta(seconds=job.spec.ttl_seconds_after_finished)
        if expires > self.clock.now():
            return expires
        await edge.delete(self.client, JOBS, job, propagation="Foreground")
        return None


@dataclass(frozen=True, slots=True)
class Failures:
    """How many pods have failed since the last success, and when the last one did: how long to wait with the next."""

    count: int = 0
    last: datetime | None = None

    def after(self, succeeded: Sequence[Pod], failed: Sequence[Pod]) -> "Failures":
        """Return what is known after these pods have ended."""
        best = max((ended_at(pod) for pod in succeeded), default=None)
        since = [ended_at(pod) for pod in failed if best is None or ended_at(pod) > best]
        start = self if best is None else Failures()
        if not since:
            return start
        return Failures(start.count + len(since), max(since))

    def retry_at(self, random: Random) -> datetime | None:
        """Return when the next pod may be made, None if nothing speaks against now."""
        return None if self.last is None else self.last + _BACKOFF.delay(self.count, random)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do about a job, in this order."""

    status: RawObject
    counted: Sequence[Pod] = ()  # noted in that status: their finalizer can go
    discard: Sequence[Pod] = ()  # to be deleted without being counted
    delete: Sequence[Pod] = ()
    missing: int = 0
    failures: Failures
    wakes_at: datetime | None = None


@dataclass(slots=True)
class _Tally:
    """Pods by what became of them, with those that the status has noted but not counted yet."""

    active: list[Pod] = field(default_factory=list)
    newly_succeeded: list[Pod] = field(default_factory=list)
    newly_failed: list[Pod] = field(default_factory=list)
    ignored: list[Pod] = field(default_factory=list)  # failed, but the job's policy says that it does not matter
    succeeded: int = 0
    failed: int = 0
    uncounted: dict[str, list[str]] = field(default_factory=lambda: {"succeeded": [], "failed": []})


def decide(job: Job, pods: Sequence[Pod], failures: Failures, now: datetime, random: Random) -> Plan:
    """Decide the next step of a job."""
    tally = _tallied(job, pods)
    failures = failures.after(tally.newly_succeeded, tally.newly_failed)
    told: list[RawObject] = list(job.status.get("conditions") or ())
    started = job.status.get("startTime") or (None if job.spec.suspend else conditions.stamp(now))
    delete: Sequence[Pod] = ()
    discard: Sequence[Pod] = ()
    missing = 0
    wakes: list[datetime] = []
    verdict = _verdict(job, pods, tally, started, now)
    if verdict is not None:
        told = conditions.put(told, verdict | {"lastProbeTime": conditions.stamp(now)}, now=now)
        delete = tally.active
    else:
        told, started = _suspended_or_resumed(job, told, started, now)
        discard = _too_many(job, tally, now)
        retry_at = failures.retry_at(random)
        wanting = 0 if discard else _too_few(job, pods, tally)
        if wanting and retry_at is not None and retry_at > now:
            wakes.append(retry_at)
        else:
            missing = wanting
        if (deadline := _deadline(job, started)) is not None:
            wakes.append(deadline)
    counted = [*tally.newly_succeeded, *tally.newly_failed, *tally.ignored]
    counted += [pod for pod in pods if pod.uid in (*tally.uncounted["succeeded"], *tally.uncounted["failed"])]
    left = len(tally.active) - len(delete) - len(discard)
    status = _status(job, tally, pods, active=left + missing)
    ending = left == 0 and not any(tally.uncounted.values()) and not status["terminating"] and not delete
    if verdict is not None and ending:
        told, status = _ended(told, status, verdict, now)
    return Plan(
        status=status | {"conditions": told or None, "startTime": started},
        counted=counted,
        discard=discard,
        delete=delete,
        missing=missing,
        failures=failures,
        wakes_at=min(wakes, default=None),
    )


def is_finished(job: Job) -> bool:
    """Tell whether a job has come to its end, well or not."""
    return any(conditions.is_true(job.status, kind) for kind in ("Complete", "Failed"))


def ended_at(pod: Pod) -> datetime:
    """Return when a pod ended, as well as can be told."""
    ends = [container.state.terminated for container in pod.status.container_statuses]
    times = [end.finished_at for end in ends if end is not None and end.finished_at is not None]
    if times:
        return max(times)
    ready = pod.condition("Ready")
    if ready is not None and ready.status == "False" and ready.last_transition_time is not None:
        return ready.last_transition_time
    meta = pod.metadata
    if meta.deletion_timestamp is not None:
        return meta.deletion_timestamp - timedelta(seconds=meta.deletion_grace_period_seconds or 0)
    return meta.creation_timestamp or datetime.fromtimestamp(0, UTC)


# Counting


def _tallied(job: Job, pods: Iterable[Pod]) -> _Tally:
    noted = job.status.get("uncountedTerminatedPods") or {}
    tally = _Tally()
    tracked = set()
    for pod in pods:
        if FINALIZER in pod.metadata.finalizers:
            tracked.add(pod.uid)
        if pod.active:
            tally.active.append(pod)
        elif pod.uid not in tracked or pod.uid in (*noted.get("succeeded", ()), *noted.get("failed", ())):
            continue
        elif pod.status.phase == "Succeeded":
            tally.newly_succeeded.append(pod)
        elif _has_failed(job, pod):
            rule = _rule_for(job, pod)
            (tally.ignored if rule is not None and rule.action == "Ignore" else tally.newly_failed).append(pod)
    for kind, new in (("succeeded", tally.newly_succeeded), ("failed", tally.newly_failed)):
        # A uid whose pod is gone, or has lost its finalizer, is counted for good.
        tally.uncounted[kind] = [uid for uid in noted.get(kind, ()) if uid in tracked] + [pod.uid for pod in new]
    tally.succeeded = job.status.get("succeeded", 0) + len(noted.get("succeeded", ())) + len(tally.newly_succeeded)
    tally.failed = job.status.get("failed", 0) + len(noted.get("failed", ())) + len(tally.newly_failed)
    return tally


def _status(job: Job, tally: _Tally, pods: Iterable[Pod], *, active: int) -> RawObject:
    uncounted = {kind: uids for kind, uids in tally.uncounted.items() if uids}
    return {
        "active": active or None,
        "ready": sum(pod.ready for pod in tally.active),
        "terminating": sum(pod.deleting and not pod.finished for pod in pods),
        "succeeded": tally.succeeded - len(tally.uncounted["succeeded"]) or None,
        "failed": tally.failed - len(tally.uncounted["failed"]) or None,
        "uncountedTerminatedPods": _replacing(job.status.get("uncountedTerminatedPods") or {}, uncounted),
    }


def _replacing(old: RawObject, new: RawObject) -> RawObject:
    """Return `new` as a merge patch understands it: what it lacks must be named to go."""
    return {name: None for name in old if name not in new} | new if old != new else new


def _has_failed(job: Job, pod: Pod) -> bool:
    if pod.status.phase == "Failed":
        return True
    return pod.deleting and not pod.finished and not _waits_for_the_end(job)


def _waits_for_the_end(job: Job) -> bool:
    return job.spec.pod_replacement_policy == "Failed" or job.spec.pod_failure_policy is not None


def _rule_for(job: Job, pod: Pod) -> PodFailureRule | None:
    policy = job.spec.pod_failure_policy
    return None if policy is None else next((rule for rule in policy.rules if _applies(rule, pod)), None)


def _applies(rule: PodFailureRule, pod: Pod) -> bool:
    for pattern in rule.on_pod_conditions:
        condition = pod.condition(pattern.type)
        if condition is not None and condition.status == pattern.status:
            return True
    wanted = rule.on_exit_codes
    if wanted is None:
        return False
    ends = (
        container.state.terminated.exit_code
        for container in pod.status.container_statuses
        if container.state.terminated is not None and wanted.container_name in ("", container.name)
    )
    return any(code != 0 and (code in wanted.values) is (wanted.operator == "In") for code in ends)


# Deciding


def _completions(job: Job) -> int | None:
    """Return how many successes are wanted; None if one is enough to begin no more. The server's default is one."""
    return 1 if job.spec.completions is None and job.spec.parallelism is None else job.spec.completions


def _verdict(job: Job, pods: Iterable[Pod], tally: _Tally, started: str | None, now: datetime) -> RawObject | None:
    """Return how the job ends, if it does: the condition that says so in advance."""
    for kind in ("SuccessCriteriaMet", "FailureTarget"):
        if conditions.is_true(job.status, kind):
            return conditions.find(job.status, kind)
    failed = [pod for pod in pods if _has_failed(job, pod)]
    rules = [(pod, rule) for pod in failed if (rule := _rule_for(job, pod)) is not None]
    fatal = next((pod for pod, rule in rules if rule.action == "FailJob"), None)
    if fatal is not None:
        story = f"Pod {fatal.key} has failed in a way that a FailJob rule of the job's policy names"
        return _failure("PodFailurePolicy", story)
    if tally.failed > job.spec.backoff_limit or _restarted_too_often(job, tally.active):
        return _failure("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    deadline = _deadline(job, started)
    if deadline is not None and deadline <= now:
        return _failure("DeadlineExceeded", "Job was active longer than specified deadline")
    wanted = _completions(job)
    if not tally.active and tally.succeeded >= (wanted if wanted is not None else 1):
        story = "Reached expected number of succeeded pods"
        return conditions.made("SuccessCriteriaMet", holds=True, reason="CompletionsReached", message=story)
    return None


def _deadline(job: Job, started: str | None) -> datetime | None:
    limit = job.spec.active_deadline_seconds
    if limit is None or not started or job.spec.suspend:
        return None
    return conditions.instant(started) + timedelta(seconds=limit)


def _failure(reason: str, message: str) -> RawObject:
    return conditions.made("FailureTarget", holds=True, reason=reason, message=message)


def _restarted_too_often(job: Job, active: Iterable[Pod]) -> bool:
    if job.spec.template.get("spec", {}).get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(container.restart_count for pod in active for container in pod.status.container_statuses)
    return restarts >= max(job.spec.backoff_limit, 1)


def _ended(
    told: list[RawObject], status: RawObject, verdict: RawObject, now: datetime
) -> tuple[list[RawObject], RawObject]:
    kind = "Complete" if verdict["type"] == "SuccessCriteriaMet" else "Failed"
    end = verdict | {"type": kind, "lastProbeTime": conditions.stamp(now)}
    if kind == "Complete":
        status = status | {"completionTime": conditions.stamp(now)}
    return conditions.put(told, end, now=now), status


def _wanted(job: Job, tally: _Tally) -> int:
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    completions = _completions(job)
    if completions is None:
        return len(tally.active) if tally.succeeded else parallelism
    return max(min(completions - tally.succeeded, parallelism), 0)


def _too_many(job: Job, tally: _Tally, now: datetime) -> Sequence[Pod]:
    if job.spec.suspend:
        return tally.active
    surplus = len(tally.active) - _wanted(job, tally)
    return victims(tally.active, (), surplus, now) if surplus > 0 else ()


def _too_few(job: Job, pods: Iterable[Pod], tally: _Tally) -> int:
    if job.spec.suspend:
        return 0
    leaving = sum(pod.deleting and not pod.finished for pod in pods) if _waits_for_the_end(job) else 0
    return max(_wanted(job, tally) - len(tally.active) - leaving, 0)


def _suspended_or_resumed(
    job: Job, told: list[RawObject], started: str | None, now: datetime
) -> tuple[list[RawObject], str | None]:
    was_suspended = conditions.is_true({"conditions": told}, "Suspended")
    if job.spec.suspend is was_suspended:
        return told, started
    if job.spec.suspend:
        condition = conditions.made("Suspended", holds=True, reason="JobSuspended", message="Job suspended")
        return conditions.put(told, condition | {"lastProbeTime": conditions.stamp(now)}, now=now), None
    condition = conditions.made("Suspended", holds=False, reason="JobResumed", message="Job resumed")
    resumed = conditions.put(told, condition | {"lastProbeTime": conditions.stamp(now)}, now=now)
    return resumed, conditions.stamp(now)


def _labels(job: Job) -> dict[str, str]:
    """Return the labels of a job's pods: the server puts them into the template, if it is one that defaults."""
    names = ("batch.kubernetes.io/job-name", "job-name")
    uids = ("batch.kubernetes.io/controller-uid", "controller-uid")
    return dict.fromkeys(names, job.name) | dict.fromkeys(uids, job.uid)
