"""Deployment controller: replica sets, one of which has the current template.

Follows `pkg/controller/deployment` of Kubernetes 1.36; `rollouts` computes replica counts, `progress` the status. A
change of the template (also the annotation of `kubectl rollout restart`) creates a new replica set, named after the
template's hash, so that it cannot be created twice. Old replica sets are kept at zero replicas for `kubectl rollout
undo`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random

import msgspec

from haulout.api.objects import RawObject
from haulout.errors import AlreadyExists
from haulout_sandbox.controllers import conditions, object_control
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.controller_ref_manager import claim_objects
from haulout_sandbox.controllers.deployment import progress, rollouts
from haulout_sandbox.controllers.informers import InformerFactory, controlled
from haulout_sandbox.controllers.objects import DEPLOYMENTS, REPLICA_SETS, Deployment, OwnedObject, Pod, ReplicaSet
from haulout_sandbox.controllers.pod_template import compute_hash, controller_ref

REVISION_ANNOTATION = "deployment.kubernetes.io/revision"
POD_TEMPLATE_HASH_LABEL = "pod-template-hash"

_DEPLOYMENT_METADATA = DEPLOYMENTS.with_model(OwnedObject)  # of the response to a status update only metadata is read

_NOT_COPIED_ANNOTATIONS = {
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION_ANNOTATION,
    rollouts.DESIRED_REPLICAS_ANNOTATION,
    rollouts.MAX_REPLICAS_ANNOTATION,
    "deprecated.deployment.rollback.to",
}


class DeploymentController(OwningController):
    """Brings the replica sets of each deployment to its template and size."""

    name = "deployments"
    reporting_controller = "deployment-controller"

    def __init__(self, informers: InformerFactory, random: Random) -> None:
        super().__init__(informers, random)
        self._deployments, self._pods = informers.informer_for(DEPLOYMENTS), informers.pods
        self._replica_sets = informers.informer_for(REPLICA_SETS)
        self.watch(self._deployments)
        self.watch_owned(
            self._replica_sets,
            kind=DEPLOYMENTS.kind,
            owners=self._deployments,
            selector=lambda owner: owner.spec.selector,
        )
        self._pods.subscribe(self._on_pod_change)

    def _on_pod_change(self, old: Pod | None, new: Pod | None) -> None:
        """Enqueue a deployment with strategy Recreate when a pod has ended: its replica sets count only active pods."""
        if old is None or (new is not None and new.is_finished is old.is_finished):
            return
        owner = old.controller
        deployment_ref = None
        if owner is not None and owner.kind == REPLICA_SETS.kind:
            replica_set = self._replica_sets.get(f"{old.namespace}/{owner.name}")
            deployment_ref = None if replica_set is None else replica_set.controller
        deployment = None if deployment_ref is None else self._deployments.get(f"{old.namespace}/{deployment_ref.name}")
        if deployment is not None and deployment.spec.strategy.type == "Recreate":
            self.queue.add(deployment.key)

    async def sync(self, key: str) -> datetime | None:
        """Create, scale and delete replica sets, and update the status."""
        deployment = self._deployments.get(key)
        if deployment is None or deployment.spec.selector.is_empty:
            return None
        replica_sets = await claim_objects(
            self._replica_sets,
            deployment,
            deployment.spec.selector,
            resource=REPLICA_SETS,
            owner_resource=DEPLOYMENTS,
            client=self.client,
        )
        is_recreate = deployment.spec.strategy.type == "Recreate"
        pods = (
            [pod for replica_set in replica_sets for pod in controlled(self._pods, replica_set.uid)]
            if is_recreate
            else []
        )
        decision = decide(deployment, replica_sets, pods, self.clock.now())
        async with object_control.WriteBarrier(self._replica_sets) as writes:
            if decision.create is not None and not await self._create(deployment, decision.create, writes):
                return None
            for replica_set in replica_sets:
                if replica_set.name in decision.patches:
                    patched = await object_control.patch(
                        self.client, REPLICA_SETS, replica_set, decision.patches[replica_set.name]
                    )
                    writes.record(patched)
                    self._record_scaling(deployment, patched, old_size=replica_set.spec.replicas)
            for replica_set in decision.delete:
                await object_control.delete(
                    self.client, REPLICA_SETS, replica_set, propagation="Background", only_if_unchanged=True
                )
        if decision.patches and deployment.status.get("observedGeneration") == deployment.metadata.generation:
            # Changes of the replica sets requeue the deployment. The status is updated when the step is done.
            return decision.requeue_at
        await self._update_status(deployment, decision.status, revision=decision.revision)
        return decision.requeue_at

    async def _create(self, deployment: Deployment, body: RawObject, writes: object_control.WriteBarrier) -> bool:
        """Create a replica set; if the name is taken, increase the collision count, which changes later names."""
        try:
            created = await object_control.create(self.client, REPLICA_SETS, body)
            writes.record(created)
            self._record_scaling(deployment, created, old_size=0)
        except AlreadyExists:
            existing = await self.client.get(REPLICA_SETS, body["metadata"]["name"], namespace=deployment.namespace)
            if existing.controller_uid == deployment.uid and _new_replica_set([existing], deployment):
                writes.record(existing)
                return True
            collisions = int(deployment.status.get("collisionCount", 0)) + 1
            await self._update_status(deployment, {"collisionCount": collisions}, is_final=False)
            return False
        return True

    def _record_scaling(self, deployment: Deployment, replica_set: ReplicaSet, *, old_size: int) -> None:
        new_size = replica_set.spec.replicas
        if new_size != old_size:
            direction = "up" if new_size > old_size else "down"
            note = f"Scaled {direction} replica set {replica_set.name} from {old_size} to {new_size}"
            self.record_event(DEPLOYMENTS, deployment, "ScalingReplicaSet", note)

    async def _update_status(
        self, deployment: Deployment, status: RawObject, *, revision: str = "", is_final: bool = True
    ) -> None:
        """Write the status; with `is_final`, the event of that write needs no further pass."""
        async with object_control.WriteBarrier(self._deployments) as writes:
            annotations = {REVISION_ANNOTATION: revision} if revision else {}
            written = await object_control.update_status(
                self.client,
                _DEPLOYMENT_METADATA,
                deployment,
                current=deployment.status,
                desired=status,
                annotations=annotations,
            )
            writes.record(self.record_own_status(written) if is_final else written)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentDecision:
    create: RawObject | None = None
    patches: Mapping[str, RawObject] = field(default_factory=dict)  # merge patches by name of the replica set
    delete: tuple[ReplicaSet, ...] = ()
    status: RawObject
    revision: str = ""
    requeue_at: datetime | None = None


def decide(
    deployment: Deployment, replica_sets: Sequence[ReplicaSet], pods: Sequence[Pod], now: datetime
) -> DeploymentDecision:
    """Decide the next step of a deployment; `pods` are used only with strategy Recreate."""
    oldest_first = sorted(replica_sets, key=lambda replica_set: replica_set.creation_order)
    new = _new_replica_set(oldest_first, deployment)
    old = [replica_set for replica_set in oldest_first if replica_set is not new]
    status_conditions: list[RawObject] = list(deployment.status.get("conditions") or ())
    if deployment.is_being_deleted:
        return DeploymentDecision(status=progress.replica_counts(deployment, old, new, status_conditions, now))
    status_conditions = progress.with_paused_or_resumed(deployment, status_conditions, now)
    if deployment.spec.paused or rollouts.is_scaling_event(deployment, replica_sets):
        sizes = rollouts.scaled_replicas(deployment, new, old)
        return DeploymentDecision(
            patches=_replica_set_patches(deployment, old, new, sizes),
            delete=_replica_sets_to_prune(deployment, old) if deployment.spec.paused else (),
            status=progress.replica_counts(deployment, old, new, status_conditions, now),
            revision="" if new is None else str(_new_revision(new, old)),
        )
    create = None
    is_recreate = deployment.spec.strategy.type == "Recreate"
    if new is None and not (is_recreate and _must_wait_for_old_pods(old, pods)):
        create = _replica_set_body(deployment, old)
        new = msgspec.convert(create, ReplicaSet)
        status_conditions = progress.with_new_replica_set_created(deployment, new, status_conditions, now)
    elif new is not None and conditions.find(deployment.status, "Progressing") is None:
        status_conditions = progress.with_new_replica_set_found(deployment, new, status_conditions, now)
    if is_recreate:
        sizes = rollouts.next_recreate(deployment, new, old, pods)
    else:
        sizes = {} if new is None else rollouts.next_rolling_update(deployment, new, old)
    status = progress.replica_counts(deployment, old, new, status_conditions, now)
    status["conditions"] = progress.rollout_conditions(deployment, status, old, new, now)
    return DeploymentDecision(
        create=create,
        patches=_replica_set_patches(deployment, old, None if create else new, sizes),
        delete=_replica_sets_to_prune(deployment, old)
        if not sizes and progress.is_complete(deployment, status)
        else (),
        status=status,
        revision="" if new is None else str(_new_revision(new, old)),
        requeue_at=progress.deadline_check_at(deployment, status),
    )


def _must_wait_for_old_pods(old: Sequence[ReplicaSet], pods: Iterable[Pod]) -> bool:
    return any(replica_set.spec.replicas for replica_set in old) or rollouts.are_old_pods_running(None, old, pods)


# Replica sets


def _new_replica_set(replica_sets: Iterable[ReplicaSet], deployment: Deployment) -> ReplicaSet | None:
    """Return the first replica set with the current template."""
    template = _without_hash(deployment.spec.template)
    annotations = _annotations(template)  # the restart annotation differs in most old ones, and is quick to compare
    candidates = (replica_set for replica_set in replica_sets if _annotations(replica_set.spec.template) == annotations)
    return next(
        (replica_set for replica_set in candidates if _without_hash(replica_set.spec.template) == template), None
    )


def _without_hash(template: RawObject) -> RawObject:
    metadata = template.get("metadata", {})
    labels = {name: value for name, value in metadata.get("labels", {}).items() if name != POD_TEMPLATE_HASH_LABEL}
    return {**template, "metadata": {**metadata, "labels": labels}}


def _annotations(template: RawObject) -> object:
    return template.get("metadata", {}).get("annotations")


def _replica_set_body(deployment: Deployment, old: Sequence[ReplicaSet]) -> RawObject:
    spec = deployment.spec
    template_hash = compute_hash(spec.template, collisions=int(deployment.status.get("collisionCount", 0)))
    metadata = spec.template.get("metadata", {})
    labels = {**metadata.get("labels", {}), POD_TEMPLATE_HASH_LABEL: template_hash}
    selector = msgspec.to_builtins(spec.selector)
    return {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {
            "name": f"{deployment.name[: 252 - len(template_hash)]}-{template_hash}",
            "namespace": deployment.namespace,
            "labels": labels,
            "annotations": {
                **_copied_annotations(deployment),
                **rollouts.replica_annotations(deployment),
                REVISION_ANNOTATION: str(_latest_revision(old) + 1),
            },
            "ownerReferences": [controller_ref(deployment, DEPLOYMENTS)],
        },
        "spec": {
            "replicas": rollouts.initial_replicas(deployment, old),
            "minReadySeconds": spec.min_ready_seconds,
            "selector": {
                **selector,
                "matchLabels": {**spec.selector.match_labels, POD_TEMPLATE_HASH_LABEL: template_hash},
            },
            "template": {**spec.template, "metadata": {**metadata, "labels": labels}},
        },
    }


def _replica_set_patches(
    deployment: Deployment, old: Sequence[ReplicaSet], new: ReplicaSet | None, sizes: rollouts.ReplicaCounts
) -> dict[str, RawObject]:
    """Return the patches that scale the replica sets, and copy annotations of the deployment to the new one."""
    patches: dict[str, RawObject] = {}
    for replica_set in [*old, *([] if new is None else [new])]:
        annotations: dict[str, str] = {}
        spec: RawObject = {}
        if replica_set.name in sizes:
            annotations |= rollouts.replica_annotations(deployment)
            spec["replicas"] = sizes[replica_set.name]
        if replica_set is new:
            annotations |= _copied_annotations(deployment) | _revision_annotations(replica_set, old)
            spec["minReadySeconds"] = deployment.spec.min_ready_seconds
        current_annotations = replica_set.metadata.annotations
        patch = {
            "metadata": {
                "annotations": {
                    name: text for name, text in annotations.items() if current_annotations.get(name) != text
                }
            },
            "spec": {name: value for name, value in spec.items() if value != _current_spec(replica_set)[name]},
        }
        if patch["metadata"]["annotations"] or patch["spec"]:
            patches[replica_set.name] = patch
    return patches


def _current_spec(replica_set: ReplicaSet) -> dict[str, int]:
    return {"replicas": replica_set.spec.replicas, "minReadySeconds": replica_set.spec.min_ready_seconds}


def _copied_annotations(deployment: Deployment) -> dict[str, str]:
    return {name: text for name, text in deployment.metadata.annotations.items() if name not in _NOT_COPIED_ANNOTATIONS}


def _revision_annotations(new: ReplicaSet, old: Sequence[ReplicaSet]) -> dict[str, str]:
    return {REVISION_ANNOTATION: str(_new_revision(new, old))}


def _new_revision(new: ReplicaSet, old: Sequence[ReplicaSet]) -> int:
    return max(_revision(new), _latest_revision(old) + 1)


def _latest_revision(replica_sets: Iterable[ReplicaSet]) -> int:
    return max((_revision(replica_set) for replica_set in replica_sets), default=0)


def _revision(replica_set: ReplicaSet) -> int:
    text = replica_set.metadata.annotations.get(REVISION_ANNOTATION, "")
    return int(text) if text.isdecimal() else 0


def _replica_sets_to_prune(deployment: Deployment, old: Sequence[ReplicaSet]) -> tuple[ReplicaSet, ...]:
    limit = deployment.spec.revision_history_limit
    remaining = [replica_set for replica_set in old if not replica_set.is_being_deleted]
    if limit == progress.NO_HISTORY_LIMIT or len(remaining) <= limit:
        return ()
    by_revision = sorted(remaining, key=lambda replica_set: (_revision(replica_set), replica_set.creation_order))
    return tuple(replica_set for replica_set in by_revision[: len(remaining) - limit] if _is_scaled_down(replica_set))


def _is_scaled_down(replica_set: ReplicaSet) -> bool:
    observed_generation = replica_set.status.get("observedGeneration", 0)
    return (
        not replica_set.spec.replicas
        and not replica_set.status.get("replicas")
        and replica_set.metadata.generation <= observed_generation
    )
