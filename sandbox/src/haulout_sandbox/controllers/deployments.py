"""Deployments: replica sets, of which one has the template that is wanted now.

Follows `pkg/controller/deployment` of Kubernetes 1.36; `rollouts` has the arithmetic, `progress` the status. A change
of the template (also the annotation that `kubectl rollout restart` writes) makes a new replica set, named after the
template's hash, so that making it twice is impossible. Old ones stay, empty, as what `kubectl rollout undo` goes back
to.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random

import msgspec

from haulout.errors import AlreadyExists
from haulout.kube.objects import RawObject
from haulout_sandbox.controllers import conditions, edge, progress, rollouts
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.caches import Caches, controlled
from haulout_sandbox.controllers.claims import claimed
from haulout_sandbox.controllers.objects import DEPLOYMENTS, REPLICA_SETS, Deployment, Owned, Pod, ReplicaSet
from haulout_sandbox.controllers.templates import fingerprint, reference

REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
HASH = "pod-template-hash"

_ANSWERED = DEPLOYMENTS.of(Owned)  # of the answer to a status only metadata is read

_NOT_COPIED = {
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    rollouts.DESIRED,
    rollouts.MAXIMUM,
    "deprecated.deployment.rollback.to",
}
_LONGEST_HISTORY = 2000


class Deployments(OwningController):
    """Brings each deployment's replica sets to what its template and size ask for."""

    name = "deployments"
    reporter = "deployment-controller"

    def __init__(self, caches: Caches, random: Random) -> None:
        super().__init__(caches, random)
        self._deployments, self._sets, self._pods = caches.deployments, caches.replica_sets, caches.pods
        self.follow(self._deployments)
        self.follow_owned(
            self._sets, kind=DEPLOYMENTS.kind, owners=self._deployments, selector=lambda owner: owner.spec.selector
        )
        self._pods.subscribe(self._note_pod)

    def _note_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Look at a deployment that recreates its pods when one has ended: its sets count only those that run."""
        if old is None or (new is not None and new.finished is old.finished):
            return
        owner = old.controller
        above = None
        if owner is not None and owner.kind == REPLICA_SETS.kind:
            replica_set = self._sets.get(f"{old.namespace}/{owner.name}")
            above = None if replica_set is None else replica_set.controller
        deployment = None if above is None else self._deployments.get(f"{old.namespace}/{above.name}")
        if deployment is not None and deployment.spec.strategy.type == "Recreate":
            self.queue.add(deployment.key)

    async def sync(self, key: str) -> datetime | None:
        """Make, size and delete replica sets, and tell how far it is."""
        deployment = self._deployments.get(key)
        if deployment is None or deployment.spec.selector.selects_all:
            return None
        sets = await claimed(
            self._sets,
            deployment,
            deployment.spec.selector,
            resource=REPLICA_SETS,
            owner_resource=DEPLOYMENTS,
            client=self.client,
        )
        recreates = deployment.spec.strategy.type == "Recreate"
        pods = [pod for each in sets for pod in controlled(self._pods, each.uid)] if recreates else []
        plan = decide(deployment, sets, pods, self.clock.now())
        async with edge.Writes(self._sets) as writes:
            if plan.create is not None and not await self._create(deployment, plan.create, writes):
                return None
            for each in sets:
                if each.name in plan.changes:
                    changed = await edge.change(self.client, REPLICA_SETS, each, plan.changes[each.name])
                    writes.made(changed)
                    self._report(deployment, changed, size=each.spec.replicas)
            for each in plan.delete:
                await edge.delete(self.client, REPLICA_SETS, each, propagation="Background", unchanged=True)
        if plan.changes and deployment.status.get("observedGeneration") == deployment.metadata.generation:
            # The sets that were changed bring us back at once. The counts are told when the step is done.
            return plan.wakes_at
        await self._tell(deployment, plan.status, revision=plan.revision)
        return plan.wakes_at

    async def _create(self, deployment: Deployment, body: RawObject, writes: edge.Writes) -> bool:
        """Create a replica set; if another has its name, say that names must be other ones from now on."""
        try:
            made = await edge.create(self.client, REPLICA_SETS, body)
            writes.made(made)
            self._report(deployment, made, size=0)
        except AlreadyExists:
            found = await self.client.get(REPLICA_SETS, body["metadata"]["name"], namespace=deployment.namespace)
            if found.controller_uid == deployment.uid and _current([found], deployment):
                writes.made(found)
                return True
            collisions = int(deployment.status.get("collisionCount", 0)) + 1
            await self._tell(deployment, {"collisionCount": collisions}, is_all=False)
            return False
        return True

    def _report(self, deployment: Deployment, changed: ReplicaSet, *, size: int) -> None:
        now = changed.spec.replicas
        if now != size:
            way = "up" if now > size else "down"
            note = f"Scaled {way} replica set {changed.name} from {size} to {now}"
            self.record(DEPLOYMENTS, deployment, "ScalingReplicaSet", note)

    async def _tell(
        self, deployment: Deployment, status: RawObject, *, revision: str = "", is_all: bool = True
    ) -> None:
        """Write the status; if it `is_all` there is to do now, seeing it written is no reason to look again."""
        async with edge.Writes(self._deployments) as writes:
            marks = {REVISION: revision} if revision else {}
            written = await edge.write_status(
                self.client, _ANSWERED, deployment, seen=deployment.status, wanted=status, annotations=marks
            )
            writes.made(self.told(written) if is_all else written)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do about a deployment."""

    create: RawObject | None = None
    changes: Mapping[str, RawObject] = field(default_factory=dict)  # merge patches by the replica set's name
    delete: tuple[ReplicaSet, ...] = ()
    status: RawObject
    revision: str = ""
    wakes_at: datetime | None = None


def decide(deployment: Deployment, sets: Sequence[ReplicaSet], pods: Sequence[Pod], now: datetime) -> Plan:
    """Decide the next step of a deployment; `pods` count only for one that recreates them."""
    oldest_first = sorted(sets, key=lambda each: each.age_key)
    new = _current(oldest_first, deployment)
    old = [each for each in oldest_first if each is not new]
    told: list[RawObject] = list(deployment.status.get("conditions") or ())
    if deployment.deleting:
        return Plan(status=progress.counts(deployment, old, new, told, now))
    told = progress.paused_or_resumed(deployment, told, now)
    if deployment.spec.paused or rollouts.is_scaled(deployment, sets):
        sizes = rollouts.scaling(deployment, new, old)
        return Plan(
            changes=_changes(deployment, old, new, sizes),
            delete=_surplus_history(deployment, old) if deployment.spec.paused else (),
            status=progress.counts(deployment, old, new, told, now),
            revision="" if new is None else str(_revision_of(new, old)),
        )
    create = None
    recreates = deployment.spec.strategy.type == "Recreate"
    if new is None and not (recreates and _must_wait(old, pods)):
        create = _new_set(deployment, old)
        new = msgspec.convert(create, ReplicaSet)
        told = progress.created(deployment, new, told, now)
    elif new is not None and conditions.find(deployment.status, "Progressing") is None:
        told = progress.found(deployment, new, told, now)
    if recreates:
        sizes = rollouts.recreating(deployment, new, old, pods)
    else:
        sizes = {} if new is None else rollouts.rolling(deployment, new, old)
    status = progress.counts(deployment, old, new, told, now)
    status["conditions"] = progress.rollout_conditions(deployment, status, old, new, now)
    return Plan(
        create=create,
        changes=_changes(deployment, old, None if create else new, sizes),
        delete=_surplus_history(deployment, old) if not sizes and progress.is_complete(deployment, status) else (),
        status=status,
        revision="" if new is None else str(_revision_of(new, old)),
        wakes_at=progress.next_look(deployment, status),
    )


def _must_wait(old: Sequence[ReplicaSet], pods: Iterable[Pod]) -> bool:
    return any(each.spec.replicas for each in old) or rollouts.old_pods_run(None, old, pods)


# Replica sets


def _current(sets: Iterable[ReplicaSet], deployment: Deployment) -> ReplicaSet | None:
    """Return the first of the sets that has the template that is wanted now."""
    wanted = _without_hash(deployment.spec.template)
    marks = _annotations(wanted)  # most old ones differ in these already, by which a restart is asked for
    alike = (each for each in sets if _annotations(each.spec.template) == marks)
    return next((each for each in alike if _without_hash(each.spec.template) == wanted), None)


def _without_hash(template: RawObject) -> RawObject:
    meta = template.get("metadata", {})
    labels = {name: value for name, value in meta.get("labels", {}).items() if name != HASH}
    return {**template, "metadata": {**meta, "labels": labels}}


def _annotations(template: RawObject) -> object:
    return template.get("metadata", {}).get("annotations")


def _new_set(deployment: Deployment, old: Sequence[ReplicaSet]) -> RawObject:
    spec = deployment.spec
    mark = fingerprint(spec.template, collisions=int(deployment.status.get("collisionCount", 0)))
    meta = spec.template.get("metadata", {})
    labels = {**meta.get("labels", {}), HASH: mark}
    selector = msgspec.to_builtins(spec.selector)
    return {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {
            "name": f"{deployment.name[: 252 - len(mark)]}-{mark}",
            "namespace": deployment.namespace,
            "labels": labels,
            "annotations": {
                **_copied(deployment),
                **rollouts.marks(deployment),
                REVISION: str(_latest_revision(old) + 1),
            },
            "ownerReferences": [reference(deployment, DEPLOYMENTS)],
        },
        "spec": {
            "replicas": rollouts.first_size(deployment, old),
            "minReadySeconds": spec.min_ready_seconds,
            "selector": {**selector, "matchLabels": {**spec.selector.match_labels, HASH: mark}},
            "template": {**spec.template, "metadata": {**meta, "labels": labels}},
        },
    }


def _changes(
    deployment: Deployment, old: Sequence[ReplicaSet], new: ReplicaSet | None, sizes: rollouts.Sizes
) -> dict[str, RawObject]:
    """Return the patches that give the sets their sizes and the new one what it takes over from the deployment."""
    changes: dict[str, RawObject] = {}
    for each in [*old, *([] if new is None else [new])]:
        annotations: dict[str, str] = {}
        spec: RawObject = {}
        if each.name in sizes:
            annotations |= rollouts.marks(deployment)
            spec["replicas"] = sizes[each.name]
        if each is new:
            annotations |= _copied(deployment) | _revision_marks(each, old)
            spec["minReadySeconds"] = deployment.spec.min_ready_seconds
        known = each.metadata.annotations
        patch = {
            "metadata": {"annotations": {name: text for name, text in annotations.items() if known.get(name) != text}},
            "spec": {name: value for name, value in spec.items() if value != _now(each)[name]},
        }
        if patch["metadata"]["annotations"] or patch["spec"]:
            changes[each.name] = patch
    return changes


def _now(replica_set: ReplicaSet) -> dict[str, int]:
    return {"replicas": replica_set.spec.replicas, "minReadySeconds": replica_set.spec.min_ready_seconds}


def _copied(deployment: Deployment) -> dict[str, str]:
    return {name: text for name, text in deployment.metadata.annotations.items() if name not in _NOT_COPIED}


def _revision_marks(new: ReplicaSet, old: Sequence[ReplicaSet]) -> dict[str, str]:
    """Return the annotations of a set that is in use again: its new revision, and those that it had before."""
    current, revision = _revision(new), _revision_of(new, old)
    if current == revision:
        return {}
    marks = {REVISION: str(revision)}
    if current:
        before = new.metadata.annotations.get(REVISION_HISTORY, "")
        history = f"{before},{current}" if before else str(current)
        while len(history) > _LONGEST_HISTORY:
            history = history.partition(",")[2]
        marks[REVISION_HISTORY] = history
    return marks


def _revision_of(new: ReplicaSet, old: Sequence[ReplicaSet]) -> int:
    return max(_revision(new), _latest_revision(old) + 1)


def _latest_revision(sets: Iterable[ReplicaSet]) -> int:
    return max((_revision(each) for each in sets), default=0)


def _revision(replica_set: ReplicaSet) -> int:
    text = replica_set.metadata.annotations.get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def _surplus_history(deployment: Deployment, old: Sequence[ReplicaSet]) -> tuple[ReplicaSet, ...]:
    limit = deployment.spec.revision_history_limit
    alive = [each for each in old if not each.deleting]
    if limit == progress.NO_LIMIT or len(alive) <= limit:
        return ()
    by_revision = sorted(alive, key=lambda each: (_revision(each), each.age_key))
    return tuple(each for each in by_revision[: len(alive) - limit] if _is_empty(each))


def _is_empty(replica_set: ReplicaSet) -> bool:
    seen = replica_set.status.get("observedGeneration", 0)
    return (
        not replica_set.spec.replicas
        and not replica_set.status.get("replicas")
        and replica_set.metadata.generation <= seen
    )
