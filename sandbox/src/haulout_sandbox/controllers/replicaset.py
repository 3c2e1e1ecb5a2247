"""ReplicaSet controller: keeps a number of identical pods.

Follows `pkg/controller/replicaset` of Kubernetes 1.36. For node maintenance it matters which surplus pods are deleted
first: those that serve least. A terminating pod no longer counts, so its replacement is created at once.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cmp_to_key
from random import Random

from haulout.api.objects import RawObject
from haulout.errors import ApiError, Conflict, NotFound
from haulout_sandbox.controllers import conditions, object_control
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.controller_ref_manager import claim_objects
from haulout_sandbox.controllers.informers import InformerFactory, controlled
from haulout_sandbox.controllers.objects import PODS, REPLICA_SETS, OwnedObject, Pod, ReplicaSet
from haulout_sandbox.controllers.pod_template import controller_ref, pod_from_template
from haulout_sandbox.nodes.pod_spec import LabelSelector

_BURST_REPLICAS = 500
_POD_DELETION_COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
_POD_METADATA, _REPLICA_SET_METADATA = (
    PODS.with_model(OwnedObject),
    REPLICA_SETS.with_model(OwnedObject),
)  # only the metadata of a response is read
_PHASE_RANKS = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaSetController(OwningController):
    """Keeps the number of pods of each replica set."""

    name = "replicasets"
    reporting_controller = "replicaset-controller"

    def __init__(self, informers: InformerFactory, random: Random) -> None:
        super().__init__(informers, random)
        self._replica_sets, self._pods = informers.informer_for(REPLICA_SETS), informers.pods
        self.watch(self._replica_sets)
        self.watch_owned(
            self._pods,
            kind=REPLICA_SETS.kind,
            owners=self._replica_sets,
            selector=lambda owner: owner.spec.selector,
            relevant_fields=_relevant_fields,
        )

    async def sync(self, key: str) -> datetime | None:
        """Create or delete pods, and update the status."""
        replica_set = self._replica_sets.get(key)
        if replica_set is None or replica_set.spec.selector.is_empty:
            return None
        pods = await self._claim_pods(replica_set)
        decision = decide(replica_set, pods, self._sibling_lookup(replica_set), self.clock.now())
        try:
            await self._execute(replica_set, decision)
        except ApiError as error:
            if not isinstance(error, Conflict | NotFound):
                self.record_event(
                    REPLICA_SETS, replica_set, "FailedCreate", f"Error creating: {error}", event_type="Warning"
                )
                await self._update_status(replica_set, pods, problem=error)
            raise
        if decision != _NO_ACTION:
            pods = replica_set.spec.selector.filter(controlled(self._pods, replica_set.uid))
        await self._update_status(replica_set, pods)
        return next_available_at(pods, replica_set.spec.min_ready_seconds, self.clock.now())

    async def _claim_pods(self, replica_set: ReplicaSet) -> list[Pod]:
        return await claim_objects(
            self._pods,
            replica_set,
            replica_set.spec.selector,
            resource=PODS,
            owner_resource=REPLICA_SETS,
            client=self.client,
            may_adopt=lambda pod: pod.is_active,
        )

    async def _execute(self, replica_set: ReplicaSet, decision: "ReplicaSetDecision") -> None:
        owner = controller_ref(replica_set, REPLICA_SETS)

        def pod_with_name(name: str) -> RawObject:
            return pod_from_template(replica_set.spec.template, name=name, namespace=replica_set.namespace, owner=owner)

        async with object_control.WriteBarrier(self._pods) as writes:
            for _ in range(decision.missing):
                pod = await object_control.create_with_generated_name(
                    self.client, _POD_METADATA, replica_set.name, pod_with_name, random=self.random
                )
                writes.record(pod)
                self.record_event(REPLICA_SETS, replica_set, "SuccessfulCreate", f"Created pod: {pod.name}")
            for pod in decision.surplus:
                writes.record_version(await object_control.delete(self.client, PODS, pod))
                self.record_event(REPLICA_SETS, replica_set, "SuccessfulDelete", f"Deleted pod: {pod.name}")

    def _sibling_lookup(self, replica_set: ReplicaSet) -> Callable[[], list[Pod]]:
        """Return a function that finds the pods of all replica sets of the same owner; lazy, because rarely needed."""

        def find_siblings() -> list[Pod]:
            owner = replica_set.controller_uid
            return [
                pod for sibling in controlled(self._replica_sets, owner) for pod in controlled(self._pods, sibling.uid)
            ]

        return find_siblings

    async def _update_status(
        self, replica_set: ReplicaSet, pods: list[Pod], *, problem: ApiError | None = None
    ) -> None:
        desired = replica_set_status(replica_set, pods, self.clock.now(), problem=problem)
        async with object_control.WriteBarrier(self._replica_sets) as writes:
            written = await object_control.update_status(
                self.client, _REPLICA_SET_METADATA, replica_set, current=replica_set.status, desired=desired
            )
            writes.record(self.record_own_status(written))


@dataclass(frozen=True, slots=True)
class ReplicaSetDecision:
    """How many pods to create, and which to delete."""

    missing: int = 0
    surplus: tuple[Pod, ...] = ()


_NO_ACTION = ReplicaSetDecision()


def decide(
    replica_set: ReplicaSet, pods: Iterable[Pod], siblings: Callable[[], Iterable[Pod]], now: datetime
) -> ReplicaSetDecision:
    """Decide how to get the desired number of active pods."""
    if replica_set.is_being_deleted:
        return _NO_ACTION
    active_pods = [pod for pod in pods if pod.is_active]
    difference = len(active_pods) - replica_set.spec.replicas
    if difference < 0:
        return ReplicaSetDecision(missing=min(-difference, _BURST_REPLICAS))
    if difference == 0:
        return _NO_ACTION
    return ReplicaSetDecision(
        surplus=tuple(pods_to_delete(active_pods, siblings(), min(difference, _BURST_REPLICAS), now))
    )


def replica_set_status(
    replica_set: ReplicaSet, pods: Iterable[Pod], now: datetime, *, problem: ApiError | None = None
) -> RawObject:
    spec, current = replica_set.spec, replica_set.status
    all_pods = list(pods)
    active = [pod for pod in all_pods if pod.is_active]
    ready_pods = [pod for pod in active if pod.is_ready]
    replicas, ready, min_ready_seconds = len(active), len(ready_pods), spec.min_ready_seconds
    available = sum(pod.is_available(min_ready_seconds, now) for pod in ready_pods) if min_ready_seconds else ready
    terminating = (
        sum(not pod.is_active and not pod.is_finished for pod in all_pods) if len(active) < len(all_pods) else 0
    )
    status_conditions: list[RawObject] = conditions.without(current.get("conditions") or [], "ReplicaFailure")
    if problem is not None:
        reason = "FailedCreate" if replicas < spec.replicas else "FailedDelete"
        failure = conditions.new_condition("ReplicaFailure", is_true=True, reason=reason, message=str(problem))
        status_conditions = conditions.upsert(current.get("conditions") or [], failure, now=now)
    return {
        "replicas": replicas,
        "fullyLabeledReplicas": _fully_labeled(replica_set, active) or None,
        "readyReplicas": ready or None,
        "availableReplicas": available or None,
        "terminatingReplicas": terminating,
        "observedGeneration": replica_set.metadata.generation or None,
        "conditions": status_conditions or None,
    }


def _fully_labeled(replica_set: ReplicaSet, active: list[Pod]) -> int:
    """Return how many of the pods have all labels of the template; all of them match the selector."""
    labels = replica_set.spec.template.get("metadata", {}).get("labels", {})
    # the usual case: template labels equal the selector
    if labels.items() <= replica_set.spec.selector.match_labels.items():
        return len(active)
    return len(LabelSelector(match_labels=labels).filter(active))


def next_available_at(pods: Iterable[Pod], min_ready_seconds: int, now: datetime) -> datetime | None:
    """Return when the next ready pod becomes available."""
    if not min_ready_seconds:
        return None
    available_times = (pod.available_at(min_ready_seconds) for pod in pods if pod.is_active)
    return min(
        (available_at for available_at in available_times if available_at is not None and available_at > now),
        default=None,
    )


def pods_to_delete(active: list[Pod], siblings: Iterable[Pod], count: int, now: datetime) -> list[Pod]:
    """Return the pods to delete when scaling down, in the order of Kubernetes."""
    pods_per_node = Counter(pod.spec.node_name for pod in siblings if pod.is_active)

    ranks = {pod.uid: _deletion_rank(pod, pods_per_node) for pod in active}

    def compare(a: Pod, b: Pod) -> int:
        left, right = ranks[a.uid], ranks[b.uid]
        if left != right:
            return -1 if left < right else 1
        return _compare_same_rank(a, b, now)

    return heapq.nsmallest(count, active, key=cmp_to_key(compare))


def _compare_same_rank(a: Pod, b: Pod, now: datetime) -> int:
    """Return less than zero if `a` is deleted before `b`, which has the same rank."""
    if a.is_ready and b.is_ready:
        order = _younger_first(_ready_since(a), _ready_since(b), now)
        if order is not None:
            return order or (-1 if a.uid < b.uid else 1)
    if a.max_restart_count != b.max_restart_count:
        return b.max_restart_count - a.max_restart_count
    order = _younger_first(a.metadata.creation_timestamp, b.metadata.creation_timestamp, now)
    # Equal for Kubernetes, which then picks at random; here the order is fixed, so that runs are reproducible.
    return order or (-1 if a.uid < b.uid else 1)


def _deletion_rank(pod: Pod, pods_per_node: Counter[str]) -> tuple[bool, int, bool, int, int]:
    """Return the sort key of ActivePodsWithRanks in controller_utils.go, without the ages."""
    return (
        bool(pod.spec.node_name),
        _PHASE_RANKS.get(pod.status.phase, 0),
        pod.is_ready,
        _deletion_cost(pod),
        -pods_per_node[pod.spec.node_name],
    )


def _deletion_cost(pod: Pod) -> int:
    text = pod.metadata.annotations.get(_POD_DELETION_COST_ANNOTATION, "0")
    return int(text) if text.lstrip("-").isdecimal() else 0


def _ready_since(pod: Pod) -> datetime | None:
    condition = pod.condition("Ready")
    return None if condition is None else condition.last_transition_time


def _younger_first(a: datetime | None, b: datetime | None, now: datetime) -> int | None:
    """Compare ages by order of magnitude; None if they are equal to the second, 0 if only roughly equal."""
    if a == b:
        return None
    if a is None or b is None:
        return -1 if a is None else 1
    return _log2_age(now - a) - _log2_age(now - b)


def _log2_age(age: timedelta) -> int:
    nanoseconds = round(age.total_seconds() * 1e9)
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


def _relevant_fields(pod: Pod) -> object:
    """Return the fields of a pod that affect its replica set."""
    return pod.labels, pod.is_being_deleted, pod.is_finished, pod.is_ready and _ready_since(pod), pod.controller_uid
