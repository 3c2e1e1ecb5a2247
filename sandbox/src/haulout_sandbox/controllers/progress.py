"""How far a deployment is: its status, by which `kubectl rollout status` and people tell.

Follows `pkg/controller/deployment/{progress,sync}.go` of Kubernetes 1.36. The condition Progressing is renewed whenever
something moves; when nothing has for as long as the deployment allows, it says that the rollout is late. Nothing is
undone then: whoever looks decides.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from haulout.kube.objects import RawObject
from haulout_sandbox.controllers import conditions, rollouts
from haulout_sandbox.controllers.objects import Deployment, ReplicaSet

NO_LIMIT = 2**31 - 1


def counts(
    deployment: Deployment,
    old: Sequence[ReplicaSet],
    new: ReplicaSet | None,
    told: list[RawObject],
    now: datetime,
) -> RawObject:
    """Return the status, but for what is known of the rollout's progress."""
    every = [*old, *([] if new is None else [new])]
    available = _sum(every, "availableReplicas")
    return {
        "observedGeneration": deployment.metadata.generation or None,
        "replicas": _sum(every, "replicas") or None,
        "updatedReplicas": _sum([] if new is None else [new], "replicas") or None,
        "readyReplicas": _sum(every, "readyReplicas") or None,
        "availableReplicas": available or None,
        "unavailableReplicas": max(sum(each.spec.replicas for each in every) - available, 0) or None,
        "terminatingReplicas": _sum(every, "terminatingReplicas"),
        "conditions": _with_availability(deployment, told, available, now),
    }


def _sum(sets: Iterable[ReplicaSet], name: str) -> int:
    return sum(each.status.get(name, 0) for each in sets)


def _with_availability(deployment: Deployment, told: list[RawObject], available: int, now: datetime) -> list[RawObject]:
    enough = available >= deployment.spec.replicas - rollouts.limits(deployment)[1]
    if enough:
        reason, message = "MinimumReplicasAvailable", "Deployment has minimum availability."
    else:
        reason, message = "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
    condition = conditions.made(
        "Available", holds=enough, reason=reason, message=message, lastUpdateTime=conditions.stamp(now)
    )
    return conditions.put(told, condition, now=now)


def is_complete(deployment: Deployment, status: RawObject) -> bool:
    """Tell whether all pods are of the wanted template, and available."""
    wanted = deployment.spec.replicas
    names = ("updatedReplicas", "replicas", "availableReplicas")
    return all((status.get(name) or 0) == wanted for name in names)


def _has_deadline(deployment: Deployment) -> bool:
    return deployment.spec.progress_deadline_seconds != NO_LIMIT


def _with_progress(told: list[RawObject], condition: RawObject | None, now: datetime) -> list[RawObject]:
    if condition is None:
        return told
    return conditions.put(told, condition | {"lastUpdateTime": conditions.stamp(now)}, now=now)


def _progressing(deployment: Deployment, status: str, reason: str, message: str) -> RawObject | None:
    if not _has_deadline(deployment):
        return None
    return {"type": "Progressing", "status": status, "reason": reason, "message": message}


def created(deployment: Deployment, new: ReplicaSet, told: list[RawObject], now: datetime) -> list[RawObject]:
    """Return the conditions after a new replica set was made."""
    made = _progressing(deployment, "True", "NewReplicaSetCreated", f'Created new replica set "{new.name}"')
    return _with_progress(told, made, now)


def found(deployment: Deployment, new: ReplicaSet, told: list[RawObject], now: datetime) -> list[RawObject]:
    """Return the conditions after a replica set was found that has the template already."""
    made = _progressing(deployment, "True", "FoundNewReplicaSet", f'Found new replica set "{new.name}"')
    return _with_progress(told, made, now)


def paused_or_resumed(deployment: Deployment, told: list[RawObject], now: datetime) -> list[RawObject]:
    """Restart the progress clock at a resumption: the time that it was paused is no lack of progress."""
    current = conditions.find(deployment.status, "Progressing")
    reason = "" if current is None else current.get("reason", "")
    if reason == "ProgressDeadlineExceeded" or deployment.spec.paused is (reason == "DeploymentPaused"):
        return told
    if deployment.spec.paused:
        condition = _progressing(deployment, "Unknown", "DeploymentPaused", "Deployment is paused")
    else:
        condition = _progressing(deployment, "Unknown", "DeploymentResumed", "Deployment is resumed")
    return _with_progress(told, condition, now)


def rollout_conditions(
    deployment: Deployment, status: RawObject, old: Sequence[ReplicaSet], new: ReplicaSet | None, now: datetime
) -> list[RawObject]:
    """Return the conditions of a `status` with what is known of the rollout's progress, and of failures."""
    told: list[RawObject] = status["conditions"]
    if not _has_deadline(deployment):
        told = conditions.without(told, "Progressing")
    else:
        told = _estimated(deployment, status, told, new, now)
    failure = next((it for each in [*([] if new is None else [new]), *old] for it in _failures(each)), None)
    if failure is None:
        return conditions.without(told, "ReplicaFailure")
    return conditions.put(told, failure | {"lastUpdateTime": failure["lastTransitionTime"]}, now=now)


def _estimated(
    deployment: Deployment, status: RawObject, told: list[RawObject], new: ReplicaSet | None, now: datetime
) -> list[RawObject]:
    """Return the conditions with what is known of the rollout's progress."""
    current = conditions.find({"conditions": told}, "Progressing")
    reason = "" if current is None else current.get("reason", "")
    if reason == "NewReplicaSetAvailable" and status["replicas"] == status["updatedReplicas"]:
        return told
    what = f'Deployment "{deployment.name}"' if new is None else f'ReplicaSet "{new.name}"'
    if is_complete(deployment, status):
        done = _progressing(deployment, "True", "NewReplicaSetAvailable", f"{what} has successfully progressed.")
        return _with_progress(told, done, now)
    if _has_progressed(deployment.status, status):
        # Put anew even if it says the same: its lastUpdateTime is what the deadline counts from.
        since = current["lastTransitionTime"] if current and current["status"] == "True" else conditions.stamp(now)
        moving = _progressing(deployment, "True", "ReplicaSetUpdated", f"{what} is progressing.")
        times = {"lastUpdateTime": conditions.stamp(now), "lastTransitionTime": since}
        return [*conditions.without(told, "Progressing"), (moving or {}) | times]
    if current is not None and reason != "NewReplicaSetAvailable" and _is_late(deployment, current, now):
        late = _progressing(deployment, "False", "ProgressDeadlineExceeded", f"{what} has timed out progressing.")
        return _with_progress(told, late, now)
    return told


def _has_progressed(before: RawObject, after: RawObject) -> bool:
    def number(status: RawObject, name: str) -> int:
        return status.get(name) or 0

    def outdated(status: RawObject) -> int:
        return number(status, "replicas") - number(status, "updatedReplicas")

    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return outdated(after) < outdated(before) or any(number(after, name) > number(before, name) for name in grown)


def _is_late(deployment: Deployment, current: RawObject, now: datetime) -> bool:
    return current.get("reason") == "ProgressDeadlineExceeded" or _late_at(deployment, current) < now


def _late_at(deployment: Deployment, current: RawObject) -> datetime:
    since = conditions.instant(current["lastUpdateTime"])
    return since + timedelta(seconds=deployment.spec.progress_deadline_seconds)


def next_look(deployment: Deployment, status: RawObject) -> datetime | None:
    """Return when to look whether the rollout is late."""
    current = conditions.find(status, "Progressing")
    if current is None or is_complete(deployment, status):
        return None
    if current.get("reason") in ("ProgressDeadlineExceeded", "NewReplicaSetAvailable"):
        return None
    return _late_at(deployment, current) + timedelta(seconds=1)


def _failures(replica_set: ReplicaSet) -> list[RawObject]:
    failure = conditions.find(replica_set.status, "ReplicaFailure")
    return [] if failure is None else [failure]
