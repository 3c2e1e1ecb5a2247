"""Disruption controller: computes the status of PodDisruptionBudgets.

Follows `pkg/controller/disruption` of Kubernetes 1.36. A percentage, and `maxUnavailable`, count from the replicas that
the owners of the pods want, not from the existing pods: otherwise each eviction would lower the base of the next.

The API server itself decrements `disruptionsAllowed` at an eviction and records the pod in `disruptedPods`. Such a pod
counts as deleted until it is, or for two minutes: after that it was evidently not deleted. The status is written only
on the resourceVersion that was read, so that an eviction in between is never lost.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from random import Random
from typing import Any

from haulout.api.objects import RawObject
from haulout.errors import HauloutError
from haulout_sandbox.controllers import conditions, object_control
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.informers import InformerFactory, pdbs_for, selected_pods
from haulout_sandbox.controllers.objects import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Deployment,
    IntOrPercent,
    OwnerReference,
    Pod,
    PodDisruptionBudget,
    ReplicaSet,
    StatefulSet,
)
from haulout_sandbox.controllers.pod_template import scaled_value

_DELETION_TIMEOUT = timedelta(minutes=2)
_MAX_CACHED_LABEL_SETS = 10_000
_CONTROLLER_UID = attrgetter("controller_uid")


class DisruptionController(OwningController):
    name = "disruption"
    reporting_controller = "controllermanager"

    def __init__(self, informers: InformerFactory, random: Random) -> None:
        super().__init__(informers, random)
        self._pdbs, self._pods = informers.informer_for(POD_DISRUPTION_BUDGETS), informers.pods
        self._replica_sets = informers.informer_for(REPLICA_SETS)
        self._deployments = informers.informer_for(DEPLOYMENTS)
        self._stateful_sets = informers.informer_for(STATEFUL_SETS)
        self._pdb_keys_by_labels: dict[object, tuple[str, ...]] = {}  # keys of budgets, by namespace and labels of pods
        self._pdbs.subscribe(self._on_pdb_change)
        self.watch(self._pdbs)
        self._pods.subscribe(self._on_pod_change)
        for owners in (self._replica_sets, self._deployments, self._stateful_sets):
            owners.subscribe(self._on_owner_change)

    def _on_pod_change(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None and _is_equivalent(old, new):
            return
        labels_changed = old is None or new is None or old.labels != new.labels
        for pod in (old, new) if labels_changed else (new,):
            if pod is not None:
                self._enqueue_pdbs_for(pod.namespace, pod.labels)

    def _on_owner_change(self, old: Any, new: Any) -> None:
        """Enqueue the budgets of an owner's pods when the owner is created or scaled."""
        if new is None or (old is not None and old.spec.replicas == new.spec.replicas):
            return
        labels = new.spec.template.get("metadata", {}).get("labels", {})
        self._enqueue_pdbs_for(new.namespace, labels)

    def _enqueue_pdbs_for(self, namespace: str, labels: Mapping[str, str]) -> None:
        """Enqueue the budgets for pods with these labels, which replicas share."""
        cache_key = namespace, *labels.items()
        keys = self._pdb_keys_by_labels.get(cache_key)
        if keys is None:
            if len(self._pdb_keys_by_labels) >= _MAX_CACHED_LABEL_SETS:
                self._pdb_keys_by_labels.clear()
            keys = tuple(pdb.key for pdb in pdbs_for(self._pdbs, namespace, labels))
            self._pdb_keys_by_labels[cache_key] = keys
        for key in keys:
            self.enqueue_batched(key)

    def _on_pdb_change(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        if old is None or new is None or old.spec.selector != new.spec.selector:
            self._pdb_keys_by_labels.clear()

    async def sync(self, key: str) -> datetime | None:
        """Count pods and update the status."""
        pdb = self._pdbs.get(key)
        if pdb is None:
            return None
        now = self.clock.now()
        pods = [] if pdb.spec.selector is None else selected_pods(self._pods, pdb.namespace, pdb.spec.selector)
        if not pods:
            self.record_event(POD_DISRUPTION_BUDGETS, pdb, "NoPods", "No matching pods found")
        try:
            requirement = required_pods(pdb, pods, self._scale_of)
        except UnknownScale as problem:
            note = f"Failed to calculate the number of expected pods: {problem}"
            self.record_event(
                POD_DISRUPTION_BUDGETS, pdb, "CalculateExpectedPodCountFailed", note, event_type="Warning"
            )
            await self._update_status(pdb, sync_failed_status(pdb, problem, now))
            return None  # the informer event of the owner requeues the budget
        disrupted = disrupted_pods(pdb, pods, now)
        await self._update_status(pdb, pdb_status(pdb, pods, requirement, disrupted, now))
        return min((disrupted_at + _DELETION_TIMEOUT for disrupted_at in disrupted.values()), default=None)

    async def _update_status(self, pdb: PodDisruptionBudget, desired: RawObject) -> None:
        async with object_control.WriteBarrier(self._pdbs) as writes:
            written = await object_control.update_status(
                self.client, POD_DISRUPTION_BUDGETS, pdb, current=pdb.status, desired=desired
            )
            writes.record(self.record_own_status(written))

    def _scale_of(self, namespace: str, owner: OwnerReference) -> tuple[str, int] | None:
        """Return uid and desired replicas of the top-level workload of a pod."""
        key = f"{namespace}/{owner.name}"
        workload: ReplicaSet | StatefulSet | Deployment | None = None
        if owner.kind == "ReplicaSet":
            workload = self._replica_sets.get(key)
        elif owner.kind == "StatefulSet":
            workload = self._stateful_sets.get(key)
        if workload is None or workload.uid != owner.uid:
            return None
        deployment_ref = workload.controller
        if deployment_ref is not None and deployment_ref.kind == "Deployment":
            workload = self._deployments.get(f"{namespace}/{deployment_ref.name}")
            if workload is None or workload.uid != deployment_ref.uid:
                return None
        return workload.uid, workload.spec.replicas


class UnknownScale(HauloutError):
    """The desired number of pods is unknown."""


@dataclass(frozen=True, slots=True)
class PodRequirement:
    """The expected number of pods, and how many of them must be healthy."""

    expected_pods: int
    desired_healthy: int


ScaleLookup = Callable[[str, OwnerReference], tuple[str, int] | None]


def required_pods(pdb: PodDisruptionBudget, pods: Iterable[Pod], scale_of: ScaleLookup) -> PodRequirement:
    """Return how many pods the budget expects, and how many it requires to be healthy."""
    all_pods = list(pods)
    max_unavailable, min_available = pdb.spec.max_unavailable, pdb.spec.min_available
    if max_unavailable is not None:
        expected = _expected_pods(all_pods, scale_of)
        return PodRequirement(expected, max(expected - _scaled_amount(max_unavailable, expected), 0))
    if isinstance(min_available, int):
        return PodRequirement(len(all_pods), min_available)
    if min_available is not None:
        expected = _expected_pods(all_pods, scale_of)
        return PodRequirement(expected, _scaled_amount(min_available, expected))
    return PodRequirement(0, 0)


def disrupted_pods(pdb: PodDisruptionBudget, pods: Iterable[Pod], now: datetime) -> dict[str, datetime]:
    """Return pods that were evicted but are not yet terminating, with the time of the eviction."""
    recorded = {
        name: conditions.parse_time(disrupted_at)
        for name, disrupted_at in (pdb.status.get("disruptedPods") or {}).items()
    }
    if not recorded:
        return {}
    remaining_names = [pod.name for pod in pods if not pod.is_being_deleted]
    return {
        name: recorded[name]
        for name in remaining_names
        if name in recorded and recorded[name] + _DELETION_TIMEOUT > now
    }


def pdb_status(
    pdb: PodDisruptionBudget,
    pods: Iterable[Pod],
    requirement: PodRequirement,
    disrupted: Mapping[str, datetime],
    now: datetime,
) -> RawObject:
    ready_pods = [pod for pod in pods if pod.is_ready and not pod.is_being_deleted]
    healthy = sum(pod.name not in disrupted for pod in ready_pods) if disrupted else len(ready_pods)
    allowed = max(healthy - requirement.desired_healthy, 0) if requirement.expected_pods > 0 else 0
    current = pdb.status
    generation = pdb.metadata.generation
    reason = "SufficientPods" if allowed else "InsufficientPods"
    status_conditions = _with_condition(
        pdb, conditions.new_condition("DisruptionAllowed", is_true=allowed > 0, reason=reason), now
    )
    entries: RawObject = {name: conditions.format_time(disrupted_at) for name, disrupted_at in disrupted.items()}
    previous = current.get("disruptedPods") or {}
    removed_entries: RawObject = dict.fromkeys(name for name in previous if name not in entries)
    return {
        "observedGeneration": generation or None,
        "currentHealthy": healthy,
        "desiredHealthy": requirement.desired_healthy,
        "expectedPods": requirement.expected_pods,
        "disruptionsAllowed": allowed,
        "disruptedPods": (entries | removed_entries if removed_entries else entries) or None,
        "conditions": status_conditions,
    }


def sync_failed_status(pdb: PodDisruptionBudget, problem: UnknownScale, now: datetime) -> RawObject:
    """Return a status that allows no disruption, because the desired number of pods is unknown."""
    condition = conditions.new_condition("DisruptionAllowed", is_true=False, reason="SyncFailed", message=str(problem))
    return {"disruptionsAllowed": 0, "conditions": _with_condition(pdb, condition, now)}


def _with_condition(pdb: PodDisruptionBudget, condition: RawObject, now: datetime) -> list[RawObject]:
    condition = {"message": "", **condition, "observedGeneration": pdb.metadata.generation}
    status_conditions: list[RawObject] = pdb.status.get("conditions") or []
    existing = conditions.find(pdb.status, condition["type"])
    if existing is not None and existing["status"] == condition["status"]:
        updated = condition | {"lastTransitionTime": existing["lastTransitionTime"]}
        return (
            status_conditions
            if existing == updated
            else [*conditions.without(status_conditions, condition["type"]), updated]
        )
    return conditions.upsert(status_conditions, condition, now=now)


def _expected_pods(pods: Iterable[Pod], scale_of: ScaleLookup) -> int:
    """Return how many pods the owners want. Pods without an owner do not count."""
    replicas_by_owner: dict[str, int] = {}
    all_pods = list(pods)
    pod_by_controller = dict(zip(map(_CONTROLLER_UID, all_pods), all_pods, strict=True))  # one pod per owner
    for pod in pod_by_controller.values():
        owner = pod.controller
        if owner is None:
            continue
        scale_result = scale_of(pod.namespace, owner)
        if scale_result is None:
            raise UnknownScale(
                f"found no controllers for pod {pod.name!r}: {owner.kind} {owner.name} has no known scale"
            )
        uid, replicas = scale_result
        replicas_by_owner[uid] = replicas
    return sum(replicas_by_owner.values())


def _scaled_amount(amount: IntOrPercent, total: int) -> int:
    return scaled_value(amount, total, round_up=True)


def _is_equivalent(old: Pod, new: Pod) -> bool:
    return (
        old.is_ready is new.is_ready
        and old.is_being_deleted is new.is_being_deleted
        and old.labels == new.labels
        and old.controller_uid == new.controller_uid
    )
