"""How many pods each replica set of a deployment gets next: pure arithmetic.

Follows `pkg/controller/deployment/{rolling,recreate,sync}.go` of Kubernetes 1.36. A rolling update keeps between
`replicas - maxUnavailable` available and `replicas + maxSurge` existing pods: it first grows the new set as far as that
allows, then shrinks the old ones by what is not available anyway, then by what the new set has made up for. A change of
the size in the middle of it is spread over all sets in proportion, so that it does not speed the rollout up.
"""

from collections.abc import Iterable, Mapping, Sequence

from haulout_sandbox.controllers.objects import Deployment, Pod, ReplicaSet
from haulout_sandbox.controllers.templates import share

DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"
Sizes = Mapping[str, int]  # by the name of the replica set: only those that change


def limits(deployment: Deployment) -> tuple[int, int]:
    """Return how many pods there may be too many, and how many may be unavailable."""
    spec = deployment.spec
    if spec.strategy.type != "RollingUpdate":
        return 0, 0
    rolling = spec.strategy.rolling_update
    surge = share(rolling.max_surge, spec.replicas, round_up=True)
    unavailable = share(rolling.max_unavailable, spec.replicas, round_up=False)
    if not surge and not unavailable:
        unavailable = 1  # rounded down to nothing, the update could never begin
    return surge, min(unavailable, spec.replicas)


def is_scaled(deployment: Deployment, sets: Iterable[ReplicaSet]) -> bool:
    """Tell whether the deployment's size was changed since its sets were last sized."""
    return any(
        desired is not None and desired != deployment.spec.replicas
        for desired in (_number(each, DESIRED) for each in sets if each.spec.replicas)
    )


def rolling(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> Sizes:
    """Return the next step of a rolling update."""
    wanted = deployment.spec.replicas
    if new.spec.replicas > wanted:
        return {new.name: wanted}
    grown = new.spec.replicas + _room(deployment, new, old)
    if grown != new.spec.replicas:
        return {new.name: grown}
    return _shrunk(deployment, new, [each for each in old if each.spec.replicas])


def first_size(deployment: Deployment, old: Sequence[ReplicaSet]) -> int:
    """Return with how many pods a new set begins."""
    if deployment.spec.strategy.type != "RollingUpdate":
        return deployment.spec.replicas
    room = deployment.spec.replicas + limits(deployment)[0] - _total(old)
    return max(min(room, deployment.spec.replicas), 0)


def recreating(deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet], pods: Iterable[Pod]) -> Sizes:
    """Return the next step when all old pods must be gone before a new one is made."""
    if shrunk := {each.name: 0 for each in old if each.spec.replicas}:
        return shrunk
    if new is None or new.spec.replicas == deployment.spec.replicas or old_pods_run(new, old, pods):
        return {}
    return {new.name: deployment.spec.replicas}


def old_pods_run(new: ReplicaSet | None, old: Iterable[ReplicaSet], pods: Iterable[Pod]) -> bool:
    """Tell whether a pod of an old set may still run, if only to its end."""
    if any(each.status.get("replicas") for each in old):
        return True
    current = "" if new is None else new.uid
    return any(pod.controller_uid != current and not pod.finished for pod in pods)


def scaling(deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet]) -> Sizes:
    """Return the sizes after the deployment's own was changed, or while it is paused."""
    wanted = deployment.spec.replicas
    every = [*old, *([] if new is None else [new])]
    active = [each for each in every if each.spec.replicas]
    if not every:
        return {}
    if len(active) <= 1:
        only = active[0] if active else new or max(old, key=lambda each: each.age_key)
        return {} if only.spec.replicas == wanted else {only.name: wanted}
    if new is not None and _is_saturated(deployment, new):
        return {each.name: 0 for each in old if each.spec.replicas}
    if deployment.spec.strategy.type != "RollingUpdate":
        return {}
    return _in_proportion(deployment, active)


def marks(deployment: Deployment) -> dict[str, str]:
    """Return the annotations that tell for which size of the deployment a set was sized."""
    wanted = deployment.spec.replicas
    return {DESIRED: str(wanted), MAXIMUM: str(wanted + limits(deployment)[0])}


def available(replica_set: ReplicaSet) -> int:
    """Return how many of a set's pods are available."""
    return int(replica_set.status.get("availableReplicas", 0))


def _room(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> int:
    wanted = deployment.spec.replicas
    most = wanted + limits(deployment)[0]
    return max(min(most - _total([*old, new]), wanted - new.spec.replicas), 0)


def _shrunk(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> Sizes:
    least = deployment.spec.replicas - limits(deployment)[1]
    # Pods of the new set that are not available yet are no reason to shrink the old ones any further.
    spare = _total([*old, new]) - least - (new.spec.replicas - available(new))
    if spare <= 0:
        return {}
    sizes = {each.name: each.spec.replicas for each in old}
    oldest_first = sorted(old, key=lambda each: each.age_key)
    for each in oldest_first:
        unhealthy = min(max(each.spec.replicas - available(each), 0), spare)
        sizes[each.name] -= unhealthy
        spare -= unhealthy
    surplus = sum(available(each) for each in [*old, new]) - least
    for each in oldest_first:
        healthy = min(sizes[each.name], max(surplus, 0))
        sizes[each.name] -= healthy
        surplus -= healthy
    return {each.name: sizes[each.name] for each in old if sizes[each.name] != each.spec.replicas}


def _in_proportion(deployment: Deployment, active: Sequence[ReplicaSet]) -> Sizes:
    wanted = deployment.spec.replicas
    change = (wanted + limits(deployment)[0] if wanted else 0) - _total(active)
    # The largest takes what rounding leaves; of two alike the newer grows first, and the older shrinks first.
    by_age = sorted(active, key=lambda each: each.age_key, reverse=change > 0)
    ordered = sorted(by_age, key=lambda each: -each.spec.replicas)
    sizes: dict[str, int] = {}
    left = change
    for each in ordered:
        part = _part(deployment, each)
        part = min(part, left) if change > 0 else max(part, left)
        part = part if change else 0
        sizes[each.name] = each.spec.replicas + part
        left -= part
    sizes[ordered[0].name] = max(sizes[ordered[0].name] + left, 0)
    return sizes  # also those whose number stays: their marks must tell the new size


def _part(deployment: Deployment, replica_set: ReplicaSet) -> int:
    size, wanted = replica_set.spec.replicas, deployment.spec.replicas
    if not wanted:
        return -size
    before = _number(replica_set, MAXIMUM) or int(deployment.status.get("replicas", 0))
    if not before:
        return 0
    most = wanted + limits(deployment)[0]
    return (2 * size * most + before) // (2 * before) - size  # rounded to the nearest


def _is_saturated(deployment: Deployment, new: ReplicaSet) -> bool:
    wanted = deployment.spec.replicas
    return new.spec.replicas == wanted == _number(new, DESIRED) == available(new)


def _total(sets: Iterable[ReplicaSet]) -> int:
    return sum(each.spec.replicas for each in sets)


def _number(replica_set: ReplicaSet, annotation: str) -> int | None:
    text = replica_set.metadata.annotations.get(annotation, "")
    return int(text) if text.isdecimal() else None
