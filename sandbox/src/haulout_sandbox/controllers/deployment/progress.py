"""Status of a deployment, which `kubectl rollout status` reads.

Follows `pkg/controller/deployment/{progress,sync}.go` of Kubernetes 1.36. The condition Progressing is renewed at each
progress. Without progress for progressDeadlineSeconds it turns to ProgressDeadlineExceeded. There is no automatic
rollback.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from haulout.api.objects import RawObject
from haulout_sandbox.controllers import conditions
from haulout_sandbox.controllers.deployment import rollouts
from haulout_sandbox.controllers.objects import Deployment, ReplicaSet

NO_HISTORY_LIMIT = 2**31 - 1


def replica_counts(
    deployment: Deployment,
    old: Sequence[ReplicaSet],
    new: ReplicaSet | None,
    status_conditions: list[RawObject],
    now: datetime,
) -> RawObject:
    """Return the status without the conditions of the rollout's progress."""
    replica_sets = [*old, *([] if new is None else [new])]
    available = _sum_status(replica_sets, "availableReplicas")
    return {
        "observedGeneration": deployment.metadata.generation or None,
        "replicas": _sum_status(replica_sets, "replicas") or None,
        "updatedReplicas": _sum_status([] if new is None else [new], "replicas") or None,
        "readyReplicas": _sum_status(replica_sets, "readyReplicas") or None,
        "availableReplicas": available or None,
        "unavailableReplicas": max(sum(replica_set.spec.replicas for replica_set in replica_sets) - available, 0)
        or None,
        "terminatingReplicas": _sum_status(replica_sets, "terminatingReplicas"),
        "conditions": _with_availability(deployment, status_conditions, available, now),
    }


def _sum_status(replica_sets: Iterable[ReplicaSet], name: str) -> int:
    return sum(replica_set.status.get(name, 0) for replica_set in replica_sets)


def _with_availability(
    deployment: Deployment, status_conditions: list[RawObject], available: int, now: datetime
) -> list[RawObject]:
    is_available = available >= deployment.spec.replicas - rollouts.surge_and_unavailable(deployment)[1]
    if is_available:
        reason, message = "MinimumReplicasAvailable", "Deployment has minimum availability."
    else:
        reason, message = "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
    condition = conditions.new_condition(
        "Available", is_true=is_available, reason=reason, message=message, lastUpdateTime=conditions.format_time(now)
    )
    return conditions.upsert(status_conditions, condition, now=now)


def is_complete(deployment: Deployment, status: RawObject) -> bool:
    """Return whether all pods have the current template and are available."""
    replicas = deployment.spec.replicas
    names = ("updatedReplicas", "replicas", "availableReplicas")
    return all((status.get(name) or 0) == replicas for name in names)


def _has_deadline(deployment: Deployment) -> bool:
    return deployment.spec.progress_deadline_seconds != NO_HISTORY_LIMIT


def _with_progress(status_conditions: list[RawObject], condition: RawObject | None, now: datetime) -> list[RawObject]:
    if condition is None:
        return status_conditions
    return conditions.upsert(status_conditions, condition | {"lastUpdateTime": conditions.format_time(now)}, now=now)


def _progressing_condition(deployment: Deployment, status: str, reason: str, message: str) -> RawObject | None:
    if not _has_deadline(deployment):
        return None
    return {"type": "Progressing", "status": status, "reason": reason, "message": message}


def with_new_replica_set_created(
    deployment: Deployment, new: ReplicaSet, status_conditions: list[RawObject], now: datetime
) -> list[RawObject]:
    """Return the conditions after a new replica set was created."""
    condition = _progressing_condition(
        deployment, "True", "NewReplicaSetCreated", f'Created new replica set "{new.name}"'
    )
    return _with_progress(status_conditions, condition, now)


def with_new_replica_set_found(
    deployment: Deployment, new: ReplicaSet, status_conditions: list[RawObject], now: datetime
) -> list[RawObject]:
    """Return the conditions after an existing replica set with the template was found."""
    condition = _progressing_condition(deployment, "True", "FoundNewReplicaSet", f'Found new replica set "{new.name}"')
    return _with_progress(status_conditions, condition, now)


def with_paused_or_resumed(
    deployment: Deployment, status_conditions: list[RawObject], now: datetime
) -> list[RawObject]:
    """Restart the progress deadline when a deployment is resumed: the pause does not count."""
    current = conditions.find(deployment.status, "Progressing")
    reason = "" if current is None else current.get("reason", "")
    if reason == "ProgressDeadlineExceeded" or deployment.spec.paused is (reason == "DeploymentPaused"):
        return status_conditions
    if deployment.spec.paused:
        condition = _progressing_condition(deployment, "Unknown", "DeploymentPaused", "Deployment is paused")
    else:
        condition = _progressing_condition(deployment, "Unknown", "DeploymentResumed", "Deployment is resumed")
    return _with_progress(status_conditions, condition, now)


def rollout_conditions(
    deployment: Deployment, status: RawObject, old: Sequence[ReplicaSet], new: ReplicaSet | None, now: datetime
) -> list[RawObject]:
    """Return the conditions of `status` with those for progress and replica failures."""
    status_conditions: list[RawObject] = status["conditions"]
    if not _has_deadline(deployment):
        status_conditions = conditions.without(status_conditions, "Progressing")
    else:
        status_conditions = _with_estimated_progress(deployment, status, status_conditions, new, now)
    failure = next(
        (
            condition
            for replica_set in [*([] if new is None else [new]), *old]
            for condition in _replica_failures(replica_set)
        ),
        None,
    )
    if failure is None:
        return conditions.without(status_conditions, "ReplicaFailure")
    return conditions.upsert(status_conditions, failure | {"lastUpdateTime": failure["lastTransitionTime"]}, now=now)


def _with_estimated_progress(
    deployment: Deployment, status: RawObject, status_conditions: list[RawObject], new: ReplicaSet | None, now: datetime
) -> list[RawObject]:
    """Return the conditions with the progress of the rollout."""
    current = conditions.find({"conditions": status_conditions}, "Progressing")
    reason = "" if current is None else current.get("reason", "")
    if reason == "NewReplicaSetAvailable" and status["replicas"] == status["updatedReplicas"]:
        return status_conditions
    subject_text = f'Deployment "{deployment.name}"' if new is None else f'ReplicaSet "{new.name}"'
    if is_complete(deployment, status):
        complete = _progressing_condition(
            deployment, "True", "NewReplicaSetAvailable", f"{subject_text} has successfully progressed."
        )
        return _with_progress(status_conditions, complete, now)
    if _has_progressed(deployment.status, status):
        # Replace the condition even if it says the same: the deadline counts from its lastUpdateTime.
        since = (
            current["lastTransitionTime"] if current and current["status"] == "True" else conditions.format_time(now)
        )
        progressing = _progressing_condition(deployment, "True", "ReplicaSetUpdated", f"{subject_text} is progressing.")
        times = {"lastUpdateTime": conditions.format_time(now), "lastTransitionTime": since}
        return [*conditions.without(status_conditions, "Progressing"), (progressing or {}) | times]
    if current is not None and reason != "NewReplicaSetAvailable" and _has_exceeded_deadline(deployment, current, now):
        deadline_exceeded = _progressing_condition(
            deployment, "False", "ProgressDeadlineExceeded", f"{subject_text} has timed out progressing."
        )
        return _with_progress(status_conditions, deadline_exceeded, now)
    return status_conditions


def _has_progressed(previous: RawObject, current: RawObject) -> bool:
    def count(status: RawObject, name: str) -> int:
        return status.get(name) or 0

    def outdated(status: RawObject) -> int:
        return count(status, "replicas") - count(status, "updatedReplicas")

    growing_fields = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return outdated(current) < outdated(previous) or any(
        count(current, name) > count(previous, name) for name in growing_fields
    )


def _has_exceeded_deadline(deployment: Deployment, current: RawObject, now: datetime) -> bool:
    return current.get("reason") == "ProgressDeadlineExceeded" or _deadline(deployment, current) < now


def _deadline(deployment: Deployment, current: RawObject) -> datetime:
    updated_at = conditions.parse_time(current["lastUpdateTime"])
    return updated_at + timedelta(seconds=deployment.spec.progress_deadline_seconds)


def deadline_check_at(deployment: Deployment, status: RawObject) -> datetime | None:
    """Return when to check the progress deadline."""
    current = conditions.find(status, "Progressing")
    if current is None or is_complete(deployment, status):
        return None
    if current.get("reason") in ("ProgressDeadlineExceeded", "NewReplicaSetAvailable"):
        return None
    return _deadline(deployment, current) + timedelta(seconds=1)


def _replica_failures(replica_set: ReplicaSet) -> list[RawObject]:
    failure = conditions.find(replica_set.status, "ReplicaFailure")
    return [] if failure is None else [failure]
