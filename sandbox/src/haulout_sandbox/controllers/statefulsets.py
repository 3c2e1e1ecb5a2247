"""Stateful sets: pods with numbers, each with a name that stays when the pod is replaced.

Follows `pkg/controller/statefulset` of Kubernetes 1.36. In order: pods are made from the lowest number up, taken away
from the highest down, replaced from the highest down to the partition, one at a time, and the next only when all
others are available. In parallel: making and taking away do not wait; replacing still does. In either case a pod is
made only when the one that had its name is really gone, since two with the same identity must never run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from random import Random

from haulout.errors import AlreadyExists
from haulout.kube.objects import RawObject
from haulout_sandbox.controllers import edge
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.caches import Caches, controlled
from haulout_sandbox.controllers.claims import claimed
from haulout_sandbox.controllers.objects import (
    CLAIMS,
    PODS,
    REVISIONS,
    STATEFUL_SETS,
    ControllerRevision,
    Pod,
    StatefulSet,
)
from haulout_sandbox.controllers.replicasets import next_available
from haulout_sandbox.controllers.revisions import History, kept_history, superfluous, template_of
from haulout_sandbox.controllers.templates import pod_from, reference

REVISION = "controller-revision-hash"
POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
HASH = "controller.kubernetes.io/hash"


class StatefulSets(OwningController):
    """Keeps each stateful set's pods."""

    name = "statefulsets"
    reporter = "statefulset-controller"

    def __init__(self, caches: Caches, random: Random) -> None:
        super().__init__(caches, random)
        self._sets, self._pods = caches.stateful_sets, caches.pods
        self._revisions = caches.revisions
        self.follow(self._sets)
        self.follow_owned(
            self._pods, kind=STATEFUL_SETS.kind, owners=self._sets, selector=lambda owner: owner.spec.selector
        )

    async def sync(self, key: str) -> datetime | None:
        """Make, delete and replace pods, and tell how many there are."""
        stateful_set = self._sets.get(key)
        if stateful_set is None or stateful_set.spec.selector.selects_all:
            return None
        pods = await claimed(
            self._pods,
            stateful_set,
            stateful_set.spec.selector,
            resource=PODS,
            owner_resource=STATEFUL_SETS,
            client=self.client,
            may_adopt=lambda pod: ordinal_of(stateful_set, pod) is not None,
        )
        history = await kept_history(
            self.caches,
            stateful_set,
            stateful_set.spec.template,
            resource=STATEFUL_SETS,
            mark=HASH,
            collisions=int(stateful_set.status.get("collisionCount", 0)),
        )
        plan = decide(stateful_set, pods, history, self.clock.now())
        await self._act(stateful_set, plan)
        pods = controlled(self._pods, stateful_set.uid)
        await self._tell(stateful_set, status(stateful_set, pods, history, self.clock.now()))
        await self._forget(stateful_set, pods, history)
        return next_available(pods, stateful_set.spec.min_ready_seconds, self.clock.now())

    async def _act(self, stateful_set: StatefulSet, plan: "Plan") -> None:
        async with edge.Writes(self._pods) as writes:
            for pod in plan.create:
                for claim in claims(stateful_set, pod["metadata"]["name"]):
                    await self._provide(claim)
                try:
                    writes.made(await edge.create(self.client, PODS, pod))
                except AlreadyExists:
                    continue  # the old one is not gone, or somebody else has its name: its end brings us back
                self._report(stateful_set, "create", pod["metadata"]["name"])
            for old in plan.delete:
                writes.at(await edge.delete(self.client, PODS, old))
                self._report(stateful_set, "delete", old.name)

    def _report(self, stateful_set: StatefulSet, verb: str, pod: str) -> None:
        note = f"{verb} Pod {pod} in StatefulSet {stateful_set.name} successful"
        self.record(STATEFUL_SETS, stateful_set, f"Successful{verb.capitalize()}", note)

    async def _provide(self, claim: RawObject) -> None:
        try:
            await self.client.create(CLAIMS, claim, namespace=claim["metadata"]["namespace"])
        except AlreadyExists:
            return

    async def _tell(self, stateful_set: StatefulSet, wanted: RawObject) -> None:
        async with edge.Writes(self._sets) as writes:
            seen = stateful_set.status
            writes.made(await edge.write_status(self.client, STATEFUL_SETS, stateful_set, seen=seen, wanted=wanted))

    async def _forget(self, stateful_set: StatefulSet, pods: Iterable[Pod], history: History) -> None:
        live = {revision_of(pod) for pod in pods} | {current_revision(stateful_set, history).name}
        for each in superfluous(history, live=live, limit=stateful_set.spec.revision_history_limit):
            await edge.delete(self.client, REVISIONS, each)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which pods to make, and which to delete."""

    create: list[RawObject] = field(default_factory=list)
    delete: list[Pod] = field(default_factory=list)


def decide(stateful_set: StatefulSet, pods: Iterable[Pod], history: History, now: datetime) -> Plan:
    """Decide the next step of a stateful set."""
    plan = Plan()
    if stateful_set.deleting:
        return plan
    numbered = {number: pod for pod in pods if (number := ordinal_of(stateful_set, pod)) is not None}
    ordered = stateful_set.spec.pod_management_policy != "Parallel"
    wanted = _wanted(stateful_set)
    if _fill(plan, stateful_set, numbered, history, now) and ordered:
        return plan
    if _take_away(plan, stateful_set, numbered, now) and ordered:
        return plan
    if stateful_set.spec.update_strategy.type != "OnDelete":
        for index in reversed(range(stateful_set.spec.update_strategy.rolling_update.partition, len(wanted))):
            pod = numbered.get(wanted[index])
            if pod is None:
                break
            if revision_of(pod) != history.latest.name and not pod.deleting:
                plan.delete.append(pod)
                break
            if _unavailable(pod, stateful_set, now):
                break
    return plan


def _fill(plan: Plan, stateful_set: StatefulSet, numbered: Mapping[int, Pod], history: History, now: datetime) -> bool:
    """Make what is missing; return whether that is a reason for an ordered set to go no further."""
    ordered = stateful_set.spec.pod_management_policy != "Parallel"
    for number in _wanted(stateful_set):
        pod = numbered.get(number)
        if pod is None:
            plan.create.append(new_pod(stateful_set, number, history))
        elif pod.finished:
            plan.delete.extend([] if pod.deleting else [pod])
        elif not _unavailable(pod, stateful_set, now):
            continue
        if ordered:
            return True
    return False


def _take_away(plan: Plan, stateful_set: StatefulSet, numbered: Mapping[int, Pod], now: datetime) -> bool:
    """Delete what is too many; return whether that is a reason for an ordered set to go no further."""
    ordered = stateful_set.spec.pod_management_policy != "Parallel"
    wanted = _wanted(stateful_set)
    condemned = [pod for number, pod in sorted(numbered.items()) if number not in wanted]
    first_unavailable = next((pod for pod in condemned if _unavailable(pod, stateful_set, now)), None)
    for pod in reversed(condemned):
        # One that is not available is waited for, unless it is the first such: then it would be waited for in vain.
        waits = pod.deleting or (_unavailable(pod, stateful_set, now) and pod is not first_unavailable)
        if not pod.deleting and not (waits and ordered):
            plan.delete.append(pod)
        if ordered:
            return True
    return False


def status(stateful_set: StatefulSet, pods: Iterable[Pod], history: History, now: datetime) -> RawObject:
    """Return what the status should be."""
    every = list(pods)
    current, update = current_revision(stateful_set, history).name, history.latest.name
    staying = [pod for pod in every if not pod.deleting]
    running = [pod for pod in every if pod.status.phase == "Running" and pod.ready]
    updated = sum(revision_of(pod) == update for pod in staying)
    still_current = sum(revision_of(pod) == current for pod in staying)
    wanted = stateful_set.spec.replicas
    rolls = stateful_set.spec.update_strategy.type == "RollingUpdate"
    if rolls and updated == len(running) == len(every) == wanted:
        current, still_current = update, updated
    return {
        "observedGeneration": stateful_set.metadata.generation or None,
        "replicas": len(every),
        "readyReplicas": len(running) or None,
        "availableReplicas": sum(pod.available(stateful_set.spec.min_ready_seconds, now) for pod in running),
        "currentReplicas": still_current or None,
        "updatedReplicas": updated or None,
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": history.collisions,
    }


def current_revision(stateful_set: StatefulSet, history: History) -> ControllerRevision:
    """Return the revision that pods below the partition have."""
    return history.named(stateful_set.status.get("currentRevision", ""))


def new_pod(stateful_set: StatefulSet, number: int, history: History) -> RawObject:
    """Return the pod of this number, of the revision that its number asks for."""
    spec = stateful_set.spec
    kept = number < spec.ordinals.start + spec.update_strategy.rolling_update.partition
    revision = current_revision(stateful_set, history) if kept else history.latest
    template = template_of(revision)
    name = f"{stateful_set.name}-{number}"
    identity: RawObject = {"hostname": name}
    if spec.service_name:
        identity["subdomain"] = spec.service_name
    if spec.volume_claim_templates:
        identity["volumes"] = _volumes(stateful_set, name, template)
    return pod_from(
        template,
        name=name,
        namespace=stateful_set.namespace,
        owner=reference(stateful_set, STATEFUL_SETS),
        labels={REVISION: revision.name, POD_NAME: name, POD_INDEX: str(number)},
        spec=identity,
    )


def claims(stateful_set: StatefulSet, pod_name: str) -> list[RawObject]:
    """Return the volume claims of a pod."""
    return [
        {
            "apiVersion": CLAIMS.api_version,
            "kind": CLAIMS.kind,
            "metadata": {
                "name": f"{template['metadata']['name']}-{pod_name}",
                "namespace": stateful_set.namespace,
                "labels": {
                    **template["metadata"].get("labels", {}),
                    **stateful_set.spec.selector.match_labels,
                },
            },
            "spec": template.get("spec", {}),
        }
        for template in stateful_set.spec.volume_claim_templates
    ]


def ordinal_of(stateful_set: StatefulSet, pod: Pod) -> int | None:
    """Return a pod's number, or None if its name is not one of this set's."""
    parent, _, number = pod.name.rpartition("-")
    return int(number) if parent == stateful_set.name and number.isdecimal() else None


def revision_of(pod: Pod) -> str:
    """Return the name of the revision that a pod was made from."""
    return pod.labels.get(REVISION, "")


def _wanted(stateful_set: StatefulSet) -> range:
    start = stateful_set.spec.ordinals.start
    return range(start, start + stateful_set.spec.replicas)


def _unavailable(pod: Pod, stateful_set: StatefulSet, now: datetime) -> bool:
    running = pod.status.phase == "Running"
    return pod.deleting or not running or not pod.available(stateful_set.spec.min_ready_seconds, now)


def _volumes(stateful_set: StatefulSet, pod_name: str, template: RawObject) -> list[RawObject]:
    names = [claim["metadata"]["name"] for claim in stateful_set.spec.volume_claim_templates]
    own = [volume for volume in template["spec"].get("volumes", ()) if volume["name"] not in names]
    return own + [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod_name}"}} for name in names]
