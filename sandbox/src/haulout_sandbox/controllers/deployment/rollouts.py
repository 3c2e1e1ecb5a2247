"""The replica counts of a deployment's replica sets for the next step of a rollout: pure arithmetic.

Follows `pkg/controller/deployment/{rolling,recreate,sync}.go` of Kubernetes 1.36. A rolling update keeps at least
`replicas - maxUnavailable` pods available and at most `replicas + maxSurge` in existence. It first scales up the new
replica set as far as that allows, then scales down the old ones by pods that are unavailable anyway, then by what the
new one has made available. Scaling the deployment during a rollout is distributed over all replica sets in proportion,
so that it does not speed up the rollout.
"""

from collections.abc import Iterable, Mapping, Sequence

from haulout_sandbox.controllers.objects import Deployment, Pod, ReplicaSet
from haulout_sandbox.controllers.pod_template import scaled_value

DESIRED_REPLICAS_ANNOTATION = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS_ANNOTATION = "deployment.kubernetes.io/max-replicas"
ReplicaCounts = Mapping[str, int]  # by name of the replica set; only those that change


def surge_and_unavailable(deployment: Deployment) -> tuple[int, int]:
    """Return maxSurge and maxUnavailable as numbers of pods."""
    spec = deployment.spec
    if spec.strategy.type != "RollingUpdate":
        return 0, 0
    rolling = spec.strategy.rolling_update
    surge = scaled_value(rolling.max_surge, spec.replicas, round_up=True)
    unavailable = scaled_value(rolling.max_unavailable, spec.replicas, round_up=False)
    if not surge and not unavailable:
        unavailable = 1  # with both rounded to zero, the update could never begin
    return surge, min(unavailable, spec.replicas)


def is_scaling_event(deployment: Deployment, replica_sets: Iterable[ReplicaSet]) -> bool:
    """Return whether the deployment was scaled since its replica sets were last sized."""
    return any(
        desired is not None and desired != deployment.spec.replicas
        for desired in (
            _annotation_int(replica_set, DESIRED_REPLICAS_ANNOTATION)
            for replica_set in replica_sets
            if replica_set.spec.replicas
        )
    )


def next_rolling_update(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> ReplicaCounts:
    replicas = deployment.spec.replicas
    if new.spec.replicas > replicas:
        return {new.name: replicas}
    new_size = new.spec.replicas + _scale_up_capacity(deployment, new, old)
    if new_size != new.spec.replicas:
        return {new.name: new_size}
    return _scale_down_old(deployment, new, [replica_set for replica_set in old if replica_set.spec.replicas])


def initial_replicas(deployment: Deployment, old: Sequence[ReplicaSet]) -> int:
    """Return the initial replicas of a new replica set."""
    if deployment.spec.strategy.type != "RollingUpdate":
        return deployment.spec.replicas
    capacity = deployment.spec.replicas + surge_and_unavailable(deployment)[0] - _total_replicas(old)
    return max(min(capacity, deployment.spec.replicas), 0)


def next_recreate(
    deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet], pods: Iterable[Pod]
) -> ReplicaCounts:
    """Return the next step of strategy Recreate: all old pods must be gone before the new ones are created."""
    if scaled_down := {replica_set.name: 0 for replica_set in old if replica_set.spec.replicas}:
        return scaled_down
    if new is None or new.spec.replicas == deployment.spec.replicas or are_old_pods_running(new, old, pods):
        return {}
    return {new.name: deployment.spec.replicas}


def are_old_pods_running(new: ReplicaSet | None, old: Iterable[ReplicaSet], pods: Iterable[Pod]) -> bool:
    """Return whether a pod of an old replica set may still run, even if it is terminating."""
    if any(replica_set.status.get("replicas") for replica_set in old):
        return True
    current = "" if new is None else new.uid
    return any(pod.controller_uid != current and not pod.is_finished for pod in pods)


def scaled_replicas(deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet]) -> ReplicaCounts:
    """Return the sizes after the deployment was scaled, or while it is paused."""
    replicas = deployment.spec.replicas
    replica_sets = [*old, *([] if new is None else [new])]
    active = [candidate for candidate in replica_sets if candidate.spec.replicas]
    if not replica_sets:
        return {}
    if len(active) <= 1:
        replica_set = active[0] if active else new or max(old, key=lambda candidate: candidate.creation_order)
        return {} if replica_set.spec.replicas == replicas else {replica_set.name: replicas}
    if new is not None and _is_saturated(deployment, new):
        return {candidate.name: 0 for candidate in old if candidate.spec.replicas}
    if deployment.spec.strategy.type != "RollingUpdate":
        return {}
    return _scale_proportionally(deployment, active)


def replica_annotations(deployment: Deployment) -> dict[str, str]:
    """Return the annotations that record the deployment's size when the replica set was sized."""
    replicas = deployment.spec.replicas
    return {
        DESIRED_REPLICAS_ANNOTATION: str(replicas),
        MAX_REPLICAS_ANNOTATION: str(replicas + surge_and_unavailable(deployment)[0]),
    }


def available_replicas(replica_set: ReplicaSet) -> int:
    return int(replica_set.status.get("availableReplicas", 0))


def _scale_up_capacity(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> int:
    replicas = deployment.spec.replicas
    max_pods = replicas + surge_and_unavailable(deployment)[0]
    return max(min(max_pods - _total_replicas([*old, new]), replicas - new.spec.replicas), 0)


def _scale_down_old(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> ReplicaCounts:
    min_available = deployment.spec.replicas - surge_and_unavailable(deployment)[1]
    # Unavailable pods of the new replica set are no reason to scale down the old ones further.
    removable = _total_replicas([*old, new]) - min_available - (new.spec.replicas - available_replicas(new))
    if removable <= 0:
        return {}
    sizes = {replica_set.name: replica_set.spec.replicas for replica_set in old}
    oldest_first = sorted(old, key=lambda replica_set: replica_set.creation_order)
    for replica_set in oldest_first:
        unhealthy = min(max(replica_set.spec.replicas - available_replicas(replica_set), 0), removable)
        sizes[replica_set.name] -= unhealthy
        removable -= unhealthy
    surplus = sum(available_replicas(replica_set) for replica_set in [*old, new]) - min_available
    for replica_set in oldest_first:
        healthy = min(sizes[replica_set.name], max(surplus, 0))
        sizes[replica_set.name] -= healthy
        surplus -= healthy
    return {
        replica_set.name: sizes[replica_set.name]
        for replica_set in old
        if sizes[replica_set.name] != replica_set.spec.replicas
    }


def _scale_proportionally(deployment: Deployment, active: Sequence[ReplicaSet]) -> ReplicaCounts:
    replicas = deployment.spec.replicas
    change = (replicas + surge_and_unavailable(deployment)[0] if replicas else 0) - _total_replicas(active)
    # The largest gets the rounding remainder. Among equals the newer grows first, and the older shrinks first.
    by_age = sorted(active, key=lambda replica_set: replica_set.creation_order, reverse=change > 0)
    largest_first = sorted(by_age, key=lambda replica_set: -replica_set.spec.replicas)
    sizes: dict[str, int] = {}
    remaining = change
    for replica_set in largest_first:
        fraction = _proportional_change(deployment, replica_set)
        fraction = min(fraction, remaining) if change > 0 else max(fraction, remaining)
        fraction = fraction if change else 0
        sizes[replica_set.name] = replica_set.spec.replicas + fraction
        remaining -= fraction
    sizes[largest_first[0].name] = max(sizes[largest_first[0].name] + remaining, 0)
    return sizes  # also those whose number is unchanged: their annotations must record the new size


def _proportional_change(deployment: Deployment, replica_set: ReplicaSet) -> int:
    size, replicas = replica_set.spec.replicas, deployment.spec.replicas
    if not replicas:
        return -size
    previous_max = _annotation_int(replica_set, MAX_REPLICAS_ANNOTATION) or int(deployment.status.get("replicas", 0))
    if not previous_max:
        return 0
    max_replicas = replicas + surge_and_unavailable(deployment)[0]
    return (2 * size * max_replicas + previous_max) // (2 * previous_max) - size  # rounded to the nearest


def _is_saturated(deployment: Deployment, new: ReplicaSet) -> bool:
    replicas = deployment.spec.replicas
    return new.spec.replicas == replicas == _annotation_int(new, DESIRED_REPLICAS_ANNOTATION) == available_replicas(new)


def _total_replicas(replica_sets: Iterable[ReplicaSet]) -> int:
    return sum(replica_set.spec.replicas for replica_set in replica_sets)


def _annotation_int(replica_set: ReplicaSet, annotation: str) -> int | None:
    text = replica_set.metadata.annotations.get(annotation, "")
    return int(text) if text.isdecimal() else None
