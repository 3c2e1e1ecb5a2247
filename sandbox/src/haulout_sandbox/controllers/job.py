"""Job controller: runs pods until enough of them have succeeded or too many have failed.

Follows `pkg/controller/job` of Kubernetes 1.36. Each pod has a finalizer until it is counted, so that a pod that is
deleted meanwhile (by a drain, for example) is counted exactly once. Counting takes three steps and survives a crash
after any of them: record the pod's uid in `uncountedTerminatedPods`, remove its finalizer, and, once that is observed,
replace the uid by an increment of the counter.

A terminating pod counts as failed and is replaced at once, unless podReplacementPolicy says otherwise. Indexed jobs run
as if they were not indexed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

from haulout.api.objects import RawObject
from haulout.core.backoff import Backoff
from haulout.errors import NotFound
from haulout_sandbox.controllers import conditions, object_control
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.informers import InformerFactory
from haulout_sandbox.controllers.objects import JOBS, PODS, Job, Pod, PodFailurePolicyRule
from haulout_sandbox.controllers.pod_template import controller_ref, pod_from_template
from haulout_sandbox.controllers.replicaset import pods_to_delete

JOB_TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"

_BACKOFF = Backoff(first=timedelta(seconds=10), factor=2, limit=timedelta(minutes=10), jitter=0)


class JobController(OwningController):
    """Runs the pods of each job to its end."""

    name = "jobs"
    reporting_controller = "job-controller"

    def __init__(self, informers: InformerFactory, random: Random) -> None:
        super().__init__(informers, random)
        self._jobs, self._pods = informers.informer_for(JOBS), informers.pods
        self._pod_failures: dict[str, PodFailures] = {}  # by the key of the job
        self.watch(self._jobs)
        self.watch_owned(self._pods, kind=JOBS.kind, owners=self._jobs, selector=lambda _: None)

    async def sync(self, key: str) -> datetime | None:
        """Create, delete and count pods, and update the status."""
        job = self._jobs.get(key)
        job_pods = list(self._pods.by_index("job", key))
        uid = "" if job is None or job.is_being_deleted or is_finished(job) else job.uid
        pods = [pod for pod in job_pods if pod.controller_uid == uid]
        await self._remove_finalizer(pod for pod in job_pods if pod.controller_uid != uid)
        if job is None or not uid:
            self._pod_failures.pop(key, None)
            return None if job is None else await self._delete_if_expired(job)
        decision = decide(job, pods, self._pod_failures.get(key, PodFailures()), self.clock.now(), self.random)
        self._pod_failures[key] = decision.failures
        async with object_control.WriteBarrier(self._jobs) as writes:
            written = await object_control.update_status(
                self.client, JOBS, job, current=job.status, desired=decision.status
            )
            writes.record(written)
        if written is not None:
            self._record_end(written)
        await self._remove_finalizer(decision.pods_to_untrack)
        await self._execute(job, decision)
        return decision.requeue_at

    def _record_end(self, job: Job) -> None:
        for condition in job.status.get("conditions") or ():
            if condition["type"] == "Complete":
                self.record_event(JOBS, job, "Completed", "Job completed")
            elif condition["type"] == "Failed":
                self.record_event(JOBS, job, condition["reason"], condition["message"], event_type="Warning")

    async def _execute(self, job: Job, decision: "JobDecision") -> None:
        owner = controller_ref(job, JOBS)

        def pod_with_name(name: str) -> RawObject:
            return pod_from_template(
                job.spec.template,
                name=name,
                namespace=job.namespace,
                owner=owner,
                labels=_pod_labels(job),
                finalizers=[JOB_TRACKING_FINALIZER],
            )

        await self._remove_finalizer(decision.pods_to_discard)
        async with object_control.WriteBarrier(self._pods) as writes:
            for pod in [*decision.pods_to_discard, *decision.pods_to_delete]:
                writes.record_version(await object_control.delete(self.client, PODS, pod))
                self.record_event(JOBS, job, "SuccessfulDelete", f"Deleted pod: {pod.name}")
            for _ in range(decision.pods_to_create):
                created = await object_control.create_with_generated_name(
                    self.client, PODS, job.name, pod_with_name, random=self.random
                )
                writes.record(created)
                self.record_event(JOBS, job, "SuccessfulCreate", f"Created pod: {created.name}")

    async def _remove_finalizer(self, pods: Iterable[Pod]) -> None:
        """Remove the tracking finalizer from pods that are counted, or whose job no longer counts."""
        async with object_control.WriteBarrier(self._pods) as writes:
            for pod in pods:
                if JOB_TRACKING_FINALIZER in pod.metadata.finalizers:
                    remaining = [name for name in pod.metadata.finalizers if name != JOB_TRACKING_FINALIZER]
                    try:
                        writes.record(
                            await object_control.patch(self.client, PODS, pod, {"metadata": {"finalizers": remaining}})
                        )
                    except NotFound:
                        continue

    async def _delete_if_expired(self, job: Job) -> datetime | None:
        """Delete a finished job when its TTL is over; return when that is."""
        if job.spec.ttl_seconds_after_finished is None or job.is_being_deleted:
            return None
        end_conditions = [
            condition for condition in job.status["conditions"] if condition["type"] in ("Complete", "Failed")
        ]
        finished_at = max(conditions.parse_time(condition["lastTransitionTime"]) for condition in end_conditions)
        expires_at = finished_at + timedelta(seconds=job.spec.ttl_seconds_after_finished)
        if expires_at > self.clock.now():
            return expires_at
        await object_control.delete(self.client, JOBS, job, propagation="Foreground")
        return None


@dataclass(frozen=True, slots=True)
class PodFailures:
    """Failures since the last success and the time of the last one, for the backoff."""

    count: int = 0
    last_failed_at: datetime | None = None

    def updated(self, succeeded: Sequence[Pod], failed: Sequence[Pod]) -> "PodFailures":
        """Return the failures after these pods have ended."""
        last_success = max((ended_at(pod) for pod in succeeded), default=None)
        failure_times = [ended_at(pod) for pod in failed if last_success is None or ended_at(pod) > last_success]
        base = self if last_success is None else PodFailures()
        if not failure_times:
            return base
        return PodFailures(base.count + len(failure_times), max(failure_times))

    def retry_at(self, random: Random) -> datetime | None:
        """Return when the next pod may be created; None: now."""
        return None if self.last_failed_at is None else self.last_failed_at + _BACKOFF.delay(self.count, random)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDecision:
    """What to do about a job, in this order."""

    status: RawObject
    pods_to_untrack: Sequence[Pod] = ()  # recorded in that status: remove their finalizers
    pods_to_discard: Sequence[Pod] = ()  # delete without counting
    pods_to_delete: Sequence[Pod] = ()
    pods_to_create: int = 0
    failures: PodFailures
    requeue_at: datetime | None = None


@dataclass(slots=True)
class _PodCounts:
    """Pods by outcome, with those that the status has recorded but not counted yet."""

    active: list[Pod] = field(default_factory=list)
    newly_succeeded: list[Pod] = field(default_factory=list)
    newly_failed: list[Pod] = field(default_factory=list)
    ignored: list[Pod] = field(default_factory=list)  # failed, but ignored by the podFailurePolicy
    succeeded: int = 0
    failed: int = 0
    uncounted: dict[str, list[str]] = field(default_factory=lambda: {"succeeded": [], "failed": []})


def decide(job: Job, pods: Sequence[Pod], failures: PodFailures, now: datetime, random: Random) -> JobDecision:
    counts = _count_pods(job, pods)
    failures = failures.updated(counts.newly_succeeded, counts.newly_failed)
    status_conditions: list[RawObject] = list(job.status.get("conditions") or ())
    start_time = job.status.get("startTime") or (None if job.spec.suspend else conditions.format_time(now))
    delete: Sequence[Pod] = ()
    discard: Sequence[Pod] = ()
    missing = 0
    requeue_times: list[datetime] = []
    end_condition = _end_condition(job, pods, counts, start_time, now)
    if end_condition is not None:
        status_conditions = conditions.upsert(
            status_conditions, end_condition | {"lastProbeTime": conditions.format_time(now)}, now=now
        )
        delete = counts.active
    else:
        status_conditions, start_time = _update_suspended(job, status_conditions, start_time, now)
        discard = _surplus_pods(job, counts, now)
        retry_at = failures.retry_at(random)
        wanted_pods = 0 if discard else _missing_pods(job, pods, counts)
        if wanted_pods and retry_at is not None and retry_at > now:
            requeue_times.append(retry_at)
        else:
            missing = wanted_pods
        if (deadline := _deadline(job, start_time)) is not None:
            requeue_times.append(deadline)
    counted = [*counts.newly_succeeded, *counts.newly_failed, *counts.ignored]
    counted += [pod for pod in pods if pod.uid in (*counts.uncounted["succeeded"], *counts.uncounted["failed"])]
    remaining = len(counts.active) - len(delete) - len(discard)
    status = _job_status(job, counts, pods, active=remaining + missing)
    is_ending = remaining == 0 and not any(counts.uncounted.values()) and not status["terminating"] and not delete
    if end_condition is not None and is_ending:
        status_conditions, status = _final_status(status_conditions, status, end_condition, now)
    return JobDecision(
        status=status | {"conditions": status_conditions or None, "startTime": start_time},
        pods_to_untrack=counted,
        pods_to_discard=discard,
        pods_to_delete=delete,
        pods_to_create=missing,
        failures=failures,
        requeue_at=min(requeue_times, default=None),
    )


def is_finished(job: Job) -> bool:
    """Return whether a job has completed or failed."""
    return any(conditions.is_true(job.status, condition_type) for condition_type in ("Complete", "Failed"))


def ended_at(pod: Pod) -> datetime:
    """Return when a pod ended, or the best estimate."""
    terminations = [container.state.terminated for container in pod.status.container_statuses]
    finish_times = [
        termination.finished_at
        for termination in terminations
        if termination is not None and termination.finished_at is not None
    ]
    if finish_times:
        return max(finish_times)
    ready = pod.condition("Ready")
    if ready is not None and ready.status == "False" and ready.last_transition_time is not None:
        return ready.last_transition_time
    metadata = pod.metadata
    if metadata.deletion_timestamp is not None:
        return metadata.deletion_timestamp - timedelta(seconds=metadata.deletion_grace_period_seconds or 0)
    return metadata.creation_timestamp or datetime.fromtimestamp(0, UTC)


# Counting


def _count_pods(job: Job, pods: Iterable[Pod]) -> _PodCounts:
    recorded = job.status.get("uncountedTerminatedPods") or {}
    counts = _PodCounts()
    tracked = set()
    for pod in pods:
        if JOB_TRACKING_FINALIZER in pod.metadata.finalizers:
            tracked.add(pod.uid)
        if pod.is_active:
            counts.active.append(pod)
        elif pod.uid not in tracked or pod.uid in (*recorded.get("succeeded", ()), *recorded.get("failed", ())):
            continue
        elif pod.status.phase == "Succeeded":
            counts.newly_succeeded.append(pod)
        elif _has_failed(job, pod):
            rule = _failure_rule(job, pod)
            (counts.ignored if rule is not None and rule.action == "Ignore" else counts.newly_failed).append(pod)
    for kind, new in (("succeeded", counts.newly_succeeded), ("failed", counts.newly_failed)):
        # A uid whose pod is deleted, or has lost its finalizer, moves to the counter.
        counts.uncounted[kind] = [uid for uid in recorded.get(kind, ()) if uid in tracked] + [pod.uid for pod in new]
    counts.succeeded = job.status.get("succeeded", 0) + len(recorded.get("succeeded", ())) + len(counts.newly_succeeded)
    counts.failed = job.status.get("failed", 0) + len(recorded.get("failed", ())) + len(counts.newly_failed)
    return counts


def _job_status(job: Job, counts: _PodCounts, pods: Iterable[Pod], *, active: int) -> RawObject:
    uncounted = {kind: uids for kind, uids in counts.uncounted.items() if uids}
    return {
        "active": active or None,
        "ready": sum(pod.is_ready for pod in counts.active),
        "terminating": sum(pod.is_being_deleted and not pod.is_finished for pod in pods),
        "succeeded": counts.succeeded - len(counts.uncounted["succeeded"]) or None,
        "failed": counts.failed - len(counts.uncounted["failed"]) or None,
        "uncountedTerminatedPods": _merge_patch_map(job.status.get("uncountedTerminatedPods") or {}, uncounted),
    }


def _merge_patch_map(old: RawObject, new: RawObject) -> RawObject:
    """Return `new` with null for each key that it lacks, as a merge patch requires."""
    return {name: None for name in old if name not in new} | new if old != new else new


def _has_failed(job: Job, pod: Pod) -> bool:
    if pod.status.phase == "Failed":
        return True
    return pod.is_being_deleted and not pod.is_finished and not _waits_for_pod_termination(job)


def _waits_for_pod_termination(job: Job) -> bool:
    return job.spec.pod_replacement_policy == "Failed" or job.spec.pod_failure_policy is not None


def _failure_rule(job: Job, pod: Pod) -> PodFailurePolicyRule | None:
    policy = job.spec.pod_failure_policy
    return None if policy is None else next((rule for rule in policy.rules if _rule_matches(rule, pod)), None)


def _rule_matches(rule: PodFailurePolicyRule, pod: Pod) -> bool:
    for pattern in rule.on_pod_conditions:
        condition = pod.condition(pattern.type)
        if condition is not None and condition.status == pattern.status:
            return True
    exit_codes = rule.on_exit_codes
    if exit_codes is None:
        return False
    codes = (
        container.state.terminated.exit_code
        for container in pod.status.container_statuses
        if container.state.terminated is not None and exit_codes.container_name in ("", container.name)
    )
    return any(code != 0 and (code in exit_codes.values) is (exit_codes.operator == "In") for code in codes)


# Deciding


def _wanted_completions(job: Job) -> int | None:
    """Return completions; None if the first success stops new pods. The server defaults absent completions to one."""
    return 1 if job.spec.completions is None and job.spec.parallelism is None else job.spec.completions


def _end_condition(
    job: Job, pods: Iterable[Pod], counts: _PodCounts, start_time: str | None, now: datetime
) -> RawObject | None:
    """Return the condition that announces the end of the job, if it ends."""
    for condition_type in ("SuccessCriteriaMet", "FailureTarget"):
        if conditions.is_true(job.status, condition_type):
            return conditions.find(job.status, condition_type)
    failed = [pod for pod in pods if _has_failed(job, pod)]
    rules = [(pod, rule) for pod in failed if (rule := _failure_rule(job, pod)) is not None]
    failing_pod = next((pod for pod, rule in rules if rule.action == "FailJob"), None)
    if failing_pod is not None:
        message = f"Pod {failing_pod.key} has failed in a way that a FailJob rule of the job's policy names"
        return _failure_target("PodFailurePolicy", message)
    if counts.failed > job.spec.backoff_limit or _exceeds_backoff_limit(job, counts.active):
        return _failure_target("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    deadline = _deadline(job, start_time)
    if deadline is not None and deadline <= now:
        return _failure_target("DeadlineExceeded", "Job was active longer than specified deadline")
    completions = _wanted_completions(job)
    if not counts.active and counts.succeeded >= (completions if completions is not None else 1):
        message = "Reached expected number of succeeded pods"
        return conditions.new_condition(
            "SuccessCriteriaMet", is_true=True, reason="CompletionsReached", message=message
        )
    return None


def _deadline(job: Job, start_time: str | None) -> datetime | None:
    limit = job.spec.active_deadline_seconds
    if limit is None or not start_time or job.spec.suspend:
        return None
    return conditions.parse_time(start_time) + timedelta(seconds=limit)


def _failure_target(reason: str, message: str) -> RawObject:
    return conditions.new_condition("FailureTarget", is_true=True, reason=reason, message=message)


def _exceeds_backoff_limit(job: Job, active: Iterable[Pod]) -> bool:
    if job.spec.template.get("spec", {}).get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(container.restart_count for pod in active for container in pod.status.container_statuses)
    return restarts >= max(job.spec.backoff_limit, 1)


def _final_status(
    status_conditions: list[RawObject], status: RawObject, end_condition: RawObject, now: datetime
) -> tuple[list[RawObject], RawObject]:
    condition_type = "Complete" if end_condition["type"] == "SuccessCriteriaMet" else "Failed"
    final_condition = end_condition | {"type": condition_type, "lastProbeTime": conditions.format_time(now)}
    if condition_type == "Complete":
        status = status | {"completionTime": conditions.format_time(now)}
    return conditions.upsert(status_conditions, final_condition, now=now), status


def _wanted_active(job: Job, counts: _PodCounts) -> int:
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    completions = _wanted_completions(job)
    if completions is None:
        return len(counts.active) if counts.succeeded else parallelism
    return max(min(completions - counts.succeeded, parallelism), 0)


def _surplus_pods(job: Job, counts: _PodCounts, now: datetime) -> Sequence[Pod]:
    if job.spec.suspend:
        return counts.active
    surplus = len(counts.active) - _wanted_active(job, counts)
    return pods_to_delete(counts.active, (), surplus, now) if surplus > 0 else ()


def _missing_pods(job: Job, pods: Iterable[Pod], counts: _PodCounts) -> int:
    if job.spec.suspend:
        return 0
    terminating = (
        sum(pod.is_being_deleted and not pod.is_finished for pod in pods) if _waits_for_pod_termination(job) else 0
    )
    return max(_wanted_active(job, counts) - len(counts.active) - terminating, 0)


def _update_suspended(
    job: Job, status_conditions: list[RawObject], start_time: str | None, now: datetime
) -> tuple[list[RawObject], str | None]:
    was_suspended = conditions.is_true({"conditions": status_conditions}, "Suspended")
    if job.spec.suspend is was_suspended:
        return status_conditions, start_time
    if job.spec.suspend:
        condition = conditions.new_condition("Suspended", is_true=True, reason="JobSuspended", message="Job suspended")
        return conditions.upsert(
            status_conditions, condition | {"lastProbeTime": conditions.format_time(now)}, now=now
        ), None
    condition = conditions.new_condition("Suspended", is_true=False, reason="JobResumed", message="Job resumed")
    resumed = conditions.upsert(status_conditions, condition | {"lastProbeTime": conditions.format_time(now)}, now=now)
    return resumed, conditions.format_time(now)


def _pod_labels(job: Job) -> dict[str, str]:
    """Return the labels of a job's pods; a server with defaulting has put them into the template."""
    names = ("batch.kubernetes.io/job-name", "job-name")
    uids = ("batch.kubernetes.io/controller-uid", "controller-uid")
    return dict.fromkeys(names, job.name) | dict.fromkeys(uids, job.uid)
