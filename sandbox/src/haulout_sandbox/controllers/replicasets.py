"""Replica sets: a number of pods that are alike.

Follows `pkg/controller/replicaset` of Kubernetes 1.36. What matters to maintenance is which pods go when there are too
many: first those that serve least. A pod that is being deleted no longer counts, so its successor is made at once.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cmp_to_key
from random import Random

from haulout.errors import ApiError, Conflict, NotFound
from haulout.kube.objects import RawObject
from haulout_sandbox.controllers import conditions, edge
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.caches import Caches, controlled
from haulout_sandbox.controllers.claims import claimed
from haulout_sandbox.controllers.objects import PODS, REPLICA_SETS, LabelSelector, Owned, Pod, ReplicaSet
from haulout_sandbox.controllers.templates import pod_from, reference

_MOST_AT_ONCE = 500
_COST = "controller.kubernetes.io/pod-deletion-cost"
_ANSWERED_PODS, _ANSWERED_SETS = PODS.of(Owned), REPLICA_SETS.of(Owned)  # of an answer only metadata is read
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaSets(OwningController):
    """Keeps each replica set's number of pods."""

    name = "replicasets"
    reporter = "replicaset-controller"

    def __init__(self, caches: Caches, random: Random) -> None:
        super().__init__(caches, random)
        self._sets, self._pods = caches.replica_sets, caches.pods
        self.follow(self._sets)
        self.follow_owned(
            self._pods,
            kind=REPLICA_SETS.kind,
            owners=self._sets,
            selector=lambda owner: owner.spec.selector,
            matters=_matters,
        )

    async def sync(self, key: str) -> datetime | None:
        """Make or delete pods, and tell how many there are."""
        replica_set = self._sets.get(key)
        if replica_set is None or replica_set.spec.selector.selects_all:
            return None
        pods = await self._claimed(replica_set)
        plan = decide(replica_set, pods, self._siblings(replica_set), self.clock.now())
        try:
            await self._act(replica_set, plan)
        except ApiError as error:
            if not isinstance(error, Conflict | NotFound):
                self.record(REPLICA_SETS, replica_set, "FailedCreate", f"Error creating: {error}", kind="Warning")
                await self._tell(replica_set, pods, problem=error)
            raise
        if plan != _NOTHING:
            pods = replica_set.spec.selector.among(controlled(self._pods, replica_set.uid))
        await self._tell(replica_set, pods)
        return next_available(pods, replica_set.spec.min_ready_seconds, self.clock.now())

    async def _claimed(self, replica_set: ReplicaSet) -> list[Pod]:
        return await claimed(
            self._pods,
            replica_set,
            replica_set.spec.selector,
            resource=PODS,
            owner_resource=REPLICA_SETS,
            client=self.client,
            may_adopt=lambda pod: pod.active,
        )

    async def _act(self, replica_set: ReplicaSet, plan: "Plan") -> None:
        owner = reference(replica_set, REPLICA_SETS)

        def pod_named(name: str) -> RawObject:
            return pod_from(replica_set.spec.template, name=name, namespace=replica_set.namespace, owner=owner)

        async with edge.Writes(self._pods) as writes:
            for _ in range(plan.missing):
                pod = await edge.create_named(
                    self.client, _ANSWERED_PODS, replica_set.name, pod_named, random=self.random
                )
                writes.made(pod)
                self.record(REPLICA_SETS, replica_set, "SuccessfulCreate", f"Created pod: {pod.name}")
            for pod in plan.surplus:
                writes.at(await edge.delete(self.client, PODS, pod))
                self.record(REPLICA_SETS, replica_set, "SuccessfulDelete", f"Deleted pod: {pod.name}")

    def _siblings(self, replica_set: ReplicaSet) -> Callable[[], list[Pod]]:
        """Return how to find the pods of all replica sets of the same owner: rarely needed, so not at once."""

        def find() -> list[Pod]:
            owner = replica_set.controller_uid
            return [pod for each in controlled(self._sets, owner) for pod in controlled(self._pods, each.uid)]

        return find

    async def _tell(self, replica_set: ReplicaSet, pods: list[Pod], *, problem: ApiError | None = None) -> None:
        wanted = status(replica_set, pods, self.clock.now(), problem=problem)
        async with edge.Writes(self._sets) as writes:
            written = await edge.write_status(
                self.client, _ANSWERED_SETS, replica_set, seen=replica_set.status, wanted=wanted
            )
            writes.made(self.told(written))


@dataclass(frozen=True, slots=True)
class Plan:
    """How many pods to make, and which to delete."""

    missing: int = 0
    surplus: tuple[Pod, ...] = ()


_NOTHING = Plan()


def decide(replica_set: ReplicaSet, pods: Iterable[Pod], siblings: Callable[[], Iterable[Pod]], now: datetime) -> Plan:
    """Decide what brings the number of active pods to what is wanted."""
    if replica_set.deleting:
        return _NOTHING
    active = [pod for pod in pods if pod.active]
    difference = len(active) - replica_set.spec.replicas
    if difference < 0:
        return Plan(missing=min(-difference, _MOST_AT_ONCE))
    if difference == 0:
        return _NOTHING
    return Plan(surplus=tuple(victims(active, siblings(), min(difference, _MOST_AT_ONCE), now)))


def status(
    replica_set: ReplicaSet, pods: Iterable[Pod], now: datetime, *, problem: ApiError | None = None
) -> RawObject:
    """Return what the status should be."""
    spec, seen = replica_set.spec, replica_set.status
    every = list(pods)
    active = [pod for pod in every if pod.active]
    serving = [pod for pod in active if pod.ready]
    replicas, ready, wait = len(active), len(serving), spec.min_ready_seconds
    available = sum(pod.available(wait, now) for pod in serving) if wait else ready
    terminating = sum(not pod.active and not pod.finished for pod in every) if len(active) < len(every) else 0
    told: list[RawObject] = conditions.without(seen.get("conditions") or [], "ReplicaFailure")
    if problem is not None:
        reason = "FailedCreate" if replicas < spec.replicas else "FailedDelete"
        failure = conditions.made("ReplicaFailure", holds=True, reason=reason, message=str(problem))
        told = conditions.put(seen.get("conditions") or [], failure, now=now)
    return {
        "replicas": replicas,
        "fullyLabeledReplicas": _fully_labelled(replica_set, active) or None,
        "readyReplicas": ready or None,
        "availableReplicas": available or None,
        "terminatingReplicas": terminating,
        "observedGeneration": replica_set.metadata.generation or None,
        "conditions": told or None,
    }


def _fully_labelled(replica_set: ReplicaSet, active: list[Pod]) -> int:
    """Return how many of the pods, all of which the set selects, have all labels of the template."""
    labels = replica_set.spec.template.get("metadata", {}).get("labels", {})
    if labels.items() <= replica_set.spec.selector.match_labels.items():  # mostly these are the same
        return len(active)
    return len(LabelSelector(match_labels=labels).among(active))


def next_available(pods: Iterable[Pod], min_ready_seconds: int, now: datetime) -> datetime | None:
    """Return when the next of the pods that are ready now will have been so for long enough."""
    if not min_ready_seconds:
        return None
    moments = (pod.available_at(min_ready_seconds) for pod in pods if pod.active)
    return min((at for at in moments if at is not None and at > now), default=None)


def victims(active: list[Pod], siblings: Iterable[Pod], count: int, now: datetime) -> list[Pod]:
    """Return the pods that can be missed most easily."""
    crowd = Counter(pod.spec.node_name for pod in siblings if pod.active)

    ranks = {pod.uid: _rank(pod, crowd) for pod in active}

    def compare(one: Pod, other: Pod) -> int:
        left, right = ranks[one.uid], ranks[other.uid]
        if left != right:
            return -1 if left < right else 1
        return _compare_alike(one, other, now)

    return heapq.nsmallest(count, active, key=cmp_to_key(compare))


def _compare_alike(one: Pod, other: Pod, now: datetime) -> int:
    """Return less than zero if `one` goes before `other`, which has the same rank."""
    if one.ready and other.ready:
        order = _younger_first(_ready_since(one), _ready_since(other), now)
        if order is not None:
            return order or (-1 if one.uid < other.uid else 1)
    if one.restarts != other.restarts:
        return other.restarts - one.restarts
    order = _younger_first(one.metadata.creation_timestamp, other.metadata.creation_timestamp, now)
    # Equal in all that Kubernetes looks at: there the order is left to chance, here runs repeat themselves.
    return order or (-1 if one.uid < other.uid else 1)


def _rank(pod: Pod, crowd: Counter[str]) -> tuple[bool, int, bool, int, int]:
    """Return what goes first: the order of ActivePodsWithRanks in controller_utils.go, up to how long each served."""
    return (
        bool(pod.spec.node_name),
        _PHASES.get(pod.status.phase, 0),
        pod.ready,
        _deletion_cost(pod),
        -crowd[pod.spec.node_name],
    )


def _deletion_cost(pod: Pod) -> int:
    text = pod.metadata.annotations.get(_COST, "0")
    return int(text) if text.lstrip("-").isdecimal() else 0


def _ready_since(pod: Pod) -> datetime | None:
    condition = pod.condition("Ready")
    return None if condition is None else condition.last_transition_time


def _younger_first(one: datetime | None, other: datetime | None, now: datetime) -> int | None:
    """Compare ages by their order of magnitude; None if they are the same to the second, 0 if only roughly so."""
    if one == other:
        return None
    if one is None or other is None:
        return -1 if one is None else 1
    return _magnitude(now - one) - _magnitude(now - other)


def _magnitude(age: timedelta) -> int:
    nanoseconds = round(age.total_seconds() * 1e9)
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


def _matters(pod: Pod) -> object:
    """Return all of a pod that its set counts."""
    return pod.labels, pod.deleting, pod.finished, pod.ready and _ready_since(pod), pod.controller_uid
