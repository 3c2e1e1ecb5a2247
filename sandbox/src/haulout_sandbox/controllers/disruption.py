"""Disruption budgets: how many pods are healthy, how many must be, and so how many may be evicted now.

Follows `pkg/controller/disruption` of Kubernetes 1.36. A percentage, and `maxUnavailable`, count from what the pods'
owners want, not from what there is: otherwise each eviction would shrink the number that the next is measured by.

The API server takes evictions off `disruptionsAllowed` by itself and notes the pods. Such a pod is taken for gone until
it is, or for two minutes: then it was not deleted after all. A status is written only over the one that was read, so
that an eviction meanwhile is never forgotten.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from random import Random
from typing import Any

from haulout.errors import HauloutError
from haulout.kube.objects import RawObject
from haulout_sandbox.controllers import conditions, edge
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.caches import Caches, budgets_for, selected
from haulout_sandbox.controllers.objects import (
    BUDGETS,
    Budget,
    Deployment,
    IntOrPercent,
    OwnerReference,
    Pod,
    ReplicaSet,
    StatefulSet,
)
from haulout_sandbox.controllers.templates import share

_GONE_WITHIN = timedelta(minutes=2)
_PLACES_KNOWN = 10_000
_CONTROLLER_UID = attrgetter("controller_uid")


class Disruption(OwningController):
    """Keeps the status of each disruption budget."""

    name = "disruption"
    reporter = "controllermanager"

    def __init__(self, caches: Caches, random: Random) -> None:
        super().__init__(caches, random)
        self._budgets, self._pods = caches.budgets, caches.pods
        self._replica_sets, self._deployments = caches.replica_sets, caches.deployments
        self._stateful_sets = caches.stateful_sets
        self._concerned: dict[object, tuple[str, ...]] = {}  # keys of budgets, by namespace and labels of pods
        self._budgets.subscribe(self._note_budget)
        self.follow(self._budgets)
        self._pods.subscribe(self._note_pod)
        for owners in (self._replica_sets, self._deployments, self._stateful_sets):
            owners.subscribe(self._note_owner)

    def _note_pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None and _counts_the_same(old, new):
            return
        moved = old is None or new is None or old.labels != new.labels
        for pod in (old, new) if moved else (new,):
            if pod is not None:
                self._look_at_those_for(pod.namespace, pod.labels)

    def _note_owner(self, old: Any, new: Any) -> None:
        """Count anew when an owner comes or wants another number of pods than before."""
        if new is None or (old is not None and old.spec.replicas == new.spec.replicas):
            return
        labels = new.spec.template.get("metadata", {}).get("labels", {})
        self._look_at_those_for(new.namespace, labels)

    def _look_at_those_for(self, namespace: str, labels: Mapping[str, str]) -> None:
        """Look at the budgets for pods with these labels, which replicas have in common."""
        place = namespace, *labels.items()
        keys = self._concerned.get(place)
        if keys is None:
            if len(self._concerned) >= _PLACES_KNOWN:
                self._concerned.clear()
            keys = tuple(budget.key for budget in budgets_for(self._budgets, namespace, labels))
            self._concerned[place] = keys
        for key in keys:
            self.look_soon(key)

    def _note_budget(self, old: Budget | None, new: Budget | None) -> None:
        if old is None or new is None or old.spec.selector != new.spec.selector:
            self._concerned.clear()

    async def sync(self, key: str) -> datetime | None:
        """Count, and tell."""
        budget = self._budgets.get(key)
        if budget is None:
            return None
        now = self.clock.now()
        pods = [] if budget.spec.selector is None else selected(self._pods, budget.namespace, budget.spec.selector)
        if not pods:
            self.record(BUDGETS, budget, "NoPods", "No matching pods found")
        try:
            needs = needed(budget, pods, self._scale)
        except NoScale as problem:
            note = f"Failed to calculate the number of expected pods: {problem}"
            self.record(BUDGETS, budget, "CalculateExpectedPodCountFailed", note, kind="Warning")
            await self._tell(budget, failed(budget, problem, now))
            return None  # the owner, when it comes, brings us back
        disrupted = still_expected_to_go(budget, pods, now)
        await self._tell(budget, status(budget, pods, needs, disrupted, now))
        return min((at + _GONE_WITHIN for at in disrupted.values()), default=None)

    async def _tell(self, budget: Budget, wanted: RawObject) -> None:
        async with edge.Writes(self._budgets) as writes:
            written = await edge.write_status(self.client, BUDGETS, budget, seen=budget.status, wanted=wanted)
            writes.made(self.told(written))

    def _scale(self, namespace: str, owner: OwnerReference) -> tuple[str, int] | None:
        """Return the uid and the wanted number of pods of the workload that a pod belongs to in the end."""
        key = f"{namespace}/{owner.name}"
        workload: ReplicaSet | StatefulSet | Deployment | None = None
        if owner.kind == "ReplicaSet":
            workload = self._replica_sets.get(key)
        elif owner.kind == "StatefulSet":
            workload = self._stateful_sets.get(key)
        if workload is None or workload.uid != owner.uid:
            return None
        above = workload.controller
        if above is not None and above.kind == "Deployment":
            workload = self._deployments.get(f"{namespace}/{above.name}")
            if workload is None or workload.uid != above.uid:
                return None
        return workload.uid, workload.spec.replicas


class NoScale(HauloutError):
    """It is not known how many pods there should be."""


@dataclass(frozen=True, slots=True)
class Needs:
    """How many pods there should be, and how many of them healthy."""

    expected: int
    healthy: int


Scale = Callable[[str, OwnerReference], tuple[str, int] | None]


def needed(budget: Budget, pods: Iterable[Pod], scale: Scale) -> Needs:
    """Return how many pods the budget is about, and how many it wants to be healthy."""
    every = list(pods)
    most, least = budget.spec.max_unavailable, budget.spec.min_available
    if most is not None:
        expected = _expected(every, scale)
        return Needs(expected, max(expected - _share(most, expected), 0))
    if isinstance(least, int):
        return Needs(len(every), least)
    if least is not None:
        expected = _expected(every, scale)
        return Needs(expected, _share(least, expected))
    return Needs(0, 0)


def still_expected_to_go(budget: Budget, pods: Iterable[Pod], now: datetime) -> dict[str, datetime]:
    """Return the pods that were evicted and do not show it yet, and since when."""
    noted = {name: conditions.instant(at) for name, at in (budget.status.get("disruptedPods") or {}).items()}
    if not noted:
        return {}
    there = [pod.name for pod in pods if not pod.deleting]
    return {name: noted[name] for name in there if name in noted and noted[name] + _GONE_WITHIN > now}


def status(
    budget: Budget, pods: Iterable[Pod], needs: Needs, disrupted: Mapping[str, datetime], now: datetime
) -> RawObject:
    """Return what the status should be."""
    serving = [pod for pod in pods if pod.ready and pod.metadata.deletion_timestamp is None]
    healthy = sum(pod.name not in disrupted for pod in serving) if disrupted else len(serving)
    allowed = max(healthy - needs.healthy, 0) if needs.expected > 0 else 0
    seen = budget.status
    generation = budget.metadata.generation
    reason = "SufficientPods" if allowed else "InsufficientPods"
    told = _with_condition(budget, conditions.made("DisruptionAllowed", holds=allowed > 0, reason=reason), now)
    entries: RawObject = {name: conditions.stamp(at) for name, at in disrupted.items()}
    before = seen.get("disruptedPods") or {}
    gone: RawObject = dict.fromkeys(name for name in before if name not in entries)
    return {
        "observedGeneration": generation or None,
        "currentHealthy": healthy,
        "desiredHealthy": needs.healthy,
        "expectedPods": needs.expected,
        "disruptionsAllowed": allowed,
        "disruptedPods": (entries | gone if gone else entries) or None,
        "conditions": told,
    }


def failed(budget: Budget, problem: NoScale, now: datetime) -> RawObject:
    """Return a status that allows nothing, since not enough is known to allow anything."""
    condition = conditions.made("DisruptionAllowed", holds=False, reason="SyncFailed", message=str(problem))
    return {"disruptionsAllowed": 0, "conditions": _with_condition(budget, condition, now)}


def _with_condition(budget: Budget, condition: RawObject, now: datetime) -> list[RawObject]:
    condition = {"message": "", **condition, "observedGeneration": budget.metadata.generation}
    told: list[RawObject] = budget.status.get("conditions") or []
    old = conditions.find(budget.status, condition["type"])
    if old is not None and old["status"] == condition["status"]:
        new = condition | {"lastTransitionTime": old["lastTransitionTime"]}
        return told if old == new else [*conditions.without(told, condition["type"]), new]
    return conditions.put(told, condition, now=now)


def _expected(pods: Iterable[Pod], scale: Scale) -> int:
    """Return how many pods the owners of these want. Pods without an owner do not count."""
    scales: dict[str, int] = {}
    every = list(pods)
    some = dict(zip(map(_CONTROLLER_UID, every), every, strict=True))  # one for each owner
    for pod in some.values():
        owner = pod.controller
        if owner is None:
            continue
        found = scale(pod.namespace, owner)
        if found is None:
            raise NoScale(f"found no controllers for pod {pod.name!r}: {owner.kind} {owner.name} has no known scale")
        uid, number = found
        scales[uid] = number
    return sum(scales.values())


def _share(amount: IntOrPercent, total: int) -> int:
    return share(amount, total, round_up=True)


def _counts_the_same(old: Pod, new: Pod) -> bool:
    return (
        old.ready is new.ready
        and old.deleting is new.deleting
        and old.labels == new.labels
        and old.controller_uid == new.controller_uid
    )
