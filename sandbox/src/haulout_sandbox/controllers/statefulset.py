"""StatefulSet controller: pods with ordinals, whose names stay the same when pods are replaced.

Follows `pkg/controller/statefulset` of Kubernetes 1.36. OrderedReady: pods are created from the lowest ordinal up,
deleted from the highest down, and replaced from the highest down to the partition, one at a time, each only when all
others are available. Parallel: creation and deletion do not wait; replacement still does. In either case a pod is
created only after its predecessor of the same name is deleted, since two pods with one identity must never run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from random import Random

from haulout.api.objects import RawObject
from haulout.errors import AlreadyExists
from haulout_sandbox.controllers import object_control
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.controller_history import (
    RevisionHistory,
    revisions_to_delete,
    sync_history,
    template_of,
)
from haulout_sandbox.controllers.controller_ref_manager import claim_objects
from haulout_sandbox.controllers.informers import InformerFactory, controlled
from haulout_sandbox.controllers.objects import (
    CONTROLLER_REVISIONS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
    ControllerRevision,
    Pod,
    StatefulSet,
)
from haulout_sandbox.controllers.pod_template import controller_ref, pod_from_template
from haulout_sandbox.controllers.replicaset import next_available_at

REVISION_LABEL = "controller-revision-hash"
POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
HASH_LABEL = "controller.kubernetes.io/hash"


class StatefulSetController(OwningController):
    """Keeps the pods of each stateful set."""

    name = "statefulsets"
    reporting_controller = "statefulset-controller"

    def __init__(self, informers: InformerFactory, random: Random) -> None:
        super().__init__(informers, random)
        self._stateful_sets, self._pods = informers.informer_for(STATEFUL_SETS), informers.pods
        self._revisions = informers.informer_for(CONTROLLER_REVISIONS)
        self.watch(self._stateful_sets)
        self.watch_owned(
            self._pods, kind=STATEFUL_SETS.kind, owners=self._stateful_sets, selector=lambda owner: owner.spec.selector
        )

    async def sync(self, key: str) -> datetime | None:
        """Create, delete and replace pods, and update the status."""
        stateful_set = self._stateful_sets.get(key)
        if stateful_set is None or stateful_set.spec.selector.is_empty:
            return None
        pods = await claim_objects(
            self._pods,
            stateful_set,
            stateful_set.spec.selector,
            resource=PODS,
            owner_resource=STATEFUL_SETS,
            client=self.client,
            may_adopt=lambda pod: ordinal_of(stateful_set, pod) is not None,
        )
        history = await sync_history(
            self.informers,
            stateful_set,
            stateful_set.spec.template,
            resource=STATEFUL_SETS,
            hash_label=HASH_LABEL,
            collisions=int(stateful_set.status.get("collisionCount", 0)),
        )
        decision = decide(stateful_set, pods, history, self.clock.now())
        await self._execute(stateful_set, decision)
        pods = controlled(self._pods, stateful_set.uid)
        await self._update_status(stateful_set, stateful_set_status(stateful_set, pods, history, self.clock.now()))
        await self._delete_old_revisions(stateful_set, pods, history)
        return next_available_at(pods, stateful_set.spec.min_ready_seconds, self.clock.now())

    async def _execute(self, stateful_set: StatefulSet, decision: "StatefulSetDecision") -> None:
        async with object_control.WriteBarrier(self._pods) as writes:
            for pod in decision.create:
                for claim in volume_claims(stateful_set, pod["metadata"]["name"]):
                    await self._create_claim(claim)
                try:
                    writes.record(await object_control.create(self.client, PODS, pod))
                except AlreadyExists:
                    continue  # the old pod still exists, or the name is taken: its deletion requeues the key
                self._record_pod_event(stateful_set, "create", pod["metadata"]["name"])
            for obsolete in decision.delete:
                writes.record_version(await object_control.delete(self.client, PODS, obsolete))
                self._record_pod_event(stateful_set, "delete", obsolete.name)

    def _record_pod_event(self, stateful_set: StatefulSet, verb: str, pod: str) -> None:
        note = f"{verb} Pod {pod} in StatefulSet {stateful_set.name} successful"
        self.record_event(STATEFUL_SETS, stateful_set, f"Successful{verb.capitalize()}", note)

    async def _create_claim(self, claim: RawObject) -> None:
        try:
            await self.client.create(PERSISTENT_VOLUME_CLAIMS, claim, namespace=claim["metadata"]["namespace"])
        except AlreadyExists:
            return

    async def _update_status(self, stateful_set: StatefulSet, desired: RawObject) -> None:
        async with object_control.WriteBarrier(self._stateful_sets) as writes:
            current = stateful_set.status
            writes.record(
                await object_control.update_status(
                    self.client, STATEFUL_SETS, stateful_set, current=current, desired=desired
                )
            )

    async def _delete_old_revisions(
        self, stateful_set: StatefulSet, pods: Iterable[Pod], history: RevisionHistory
    ) -> None:
        revisions_in_use = {revision_of(pod) for pod in pods} | {current_revision(stateful_set, history).name}
        for revision in revisions_to_delete(
            history, names_in_use=revisions_in_use, limit=stateful_set.spec.revision_history_limit
        ):
            await object_control.delete(self.client, CONTROLLER_REVISIONS, revision)


@dataclass(frozen=True, slots=True)
class StatefulSetDecision:
    """Which pods to create, and which to delete."""

    create: list[RawObject] = field(default_factory=list)
    delete: list[Pod] = field(default_factory=list)


def decide(
    stateful_set: StatefulSet, pods: Iterable[Pod], history: RevisionHistory, now: datetime
) -> StatefulSetDecision:
    decision = StatefulSetDecision()
    if stateful_set.is_being_deleted:
        return decision
    pods_by_ordinal = {ordinal: pod for pod in pods if (ordinal := ordinal_of(stateful_set, pod)) is not None}
    is_ordered = stateful_set.spec.pod_management_policy != "Parallel"
    ordinals = _wanted_ordinals(stateful_set)
    if _create_missing(decision, stateful_set, pods_by_ordinal, history, now) and is_ordered:
        return decision
    if _delete_surplus(decision, stateful_set, pods_by_ordinal, now) and is_ordered:
        return decision
    if stateful_set.spec.update_strategy.type != "OnDelete":
        for index in reversed(range(stateful_set.spec.update_strategy.rolling_update.partition, len(ordinals))):
            pod = pods_by_ordinal.get(ordinals[index])
            if pod is None:
                break
            if revision_of(pod) != history.latest.name and not pod.is_being_deleted:
                decision.delete.append(pod)
                break
            if _is_unavailable(pod, stateful_set, now):
                break
    return decision


def _create_missing(
    decision: StatefulSetDecision,
    stateful_set: StatefulSet,
    pods_by_ordinal: Mapping[int, Pod],
    history: RevisionHistory,
    now: datetime,
) -> bool:
    """Create missing pods; return whether an ordered set must stop here."""
    is_ordered = stateful_set.spec.pod_management_policy != "Parallel"
    for ordinal in _wanted_ordinals(stateful_set):
        pod = pods_by_ordinal.get(ordinal)
        if pod is None:
            decision.create.append(new_pod(stateful_set, ordinal, history))
        elif pod.is_finished:
            decision.delete.extend([] if pod.is_being_deleted else [pod])
        elif not _is_unavailable(pod, stateful_set, now):
            continue
        if is_ordered:
            return True
    return False


def _delete_surplus(
    decision: StatefulSetDecision, stateful_set: StatefulSet, pods_by_ordinal: Mapping[int, Pod], now: datetime
) -> bool:
    """Delete surplus pods; return whether an ordered set must stop here."""
    is_ordered = stateful_set.spec.pod_management_policy != "Parallel"
    ordinals = _wanted_ordinals(stateful_set)
    surplus = [pod for ordinal, pod in sorted(pods_by_ordinal.items()) if ordinal not in ordinals]
    first_unavailable = next((pod for pod in surplus if _is_unavailable(pod, stateful_set, now)), None)
    for pod in reversed(surplus):
        # Wait for an unavailable pod, except the first one: it may never become available.
        must_wait = pod.is_being_deleted or (_is_unavailable(pod, stateful_set, now) and pod is not first_unavailable)
        if not pod.is_being_deleted and not (must_wait and is_ordered):
            decision.delete.append(pod)
        if is_ordered:
            return True
    return False


def stateful_set_status(
    stateful_set: StatefulSet, pods: Iterable[Pod], history: RevisionHistory, now: datetime
) -> RawObject:
    all_pods = list(pods)
    current, update = current_revision(stateful_set, history).name, history.latest.name
    remaining = [pod for pod in all_pods if not pod.is_being_deleted]
    running = [pod for pod in all_pods if pod.status.phase == "Running" and pod.is_ready]
    updated_count = sum(revision_of(pod) == update for pod in remaining)
    current_count = sum(revision_of(pod) == current for pod in remaining)
    replicas = stateful_set.spec.replicas
    is_rolling_update = stateful_set.spec.update_strategy.type == "RollingUpdate"
    if is_rolling_update and updated_count == len(running) == len(all_pods) == replicas:
        current, current_count = update, updated_count
    return {
        "observedGeneration": stateful_set.metadata.generation or None,
        "replicas": len(all_pods),
        "readyReplicas": len(running) or None,
        "availableReplicas": sum(pod.is_available(stateful_set.spec.min_ready_seconds, now) for pod in running),
        "currentReplicas": current_count or None,
        "updatedReplicas": updated_count or None,
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": history.collisions,
    }


def current_revision(stateful_set: StatefulSet, history: RevisionHistory) -> ControllerRevision:
    """Return the revision of pods below the partition."""
    return history.revision_named(stateful_set.status.get("currentRevision", ""))


def new_pod(stateful_set: StatefulSet, ordinal: int, history: RevisionHistory) -> RawObject:
    """Return the pod of this ordinal, in the revision that applies to the ordinal."""
    spec = stateful_set.spec
    keeps_current = ordinal < spec.ordinals.start + spec.update_strategy.rolling_update.partition
    revision = current_revision(stateful_set, history) if keeps_current else history.latest
    template = template_of(revision)
    name = f"{stateful_set.name}-{ordinal}"
    identity: RawObject = {"hostname": name}
    if spec.service_name:
        identity["subdomain"] = spec.service_name
    if spec.volume_claim_templates:
        identity["volumes"] = _volumes(stateful_set, name, template)
    return pod_from_template(
        template,
        name=name,
        namespace=stateful_set.namespace,
        owner=controller_ref(stateful_set, STATEFUL_SETS),
        labels={REVISION_LABEL: revision.name, POD_NAME_LABEL: name, POD_INDEX_LABEL: str(ordinal)},
        spec=identity,
    )


def volume_claims(stateful_set: StatefulSet, pod_name: str) -> list[RawObject]:
    return [
        {
            "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
            "kind": PERSISTENT_VOLUME_CLAIMS.kind,
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
    """Return a pod's ordinal, or None if its name is not one of this set's."""
    parent, _, ordinal = pod.name.rpartition("-")
    return int(ordinal) if parent == stateful_set.name and ordinal.isdecimal() else None


def revision_of(pod: Pod) -> str:
    return pod.labels.get(REVISION_LABEL, "")


def _wanted_ordinals(stateful_set: StatefulSet) -> range:
    start = stateful_set.spec.ordinals.start
    return range(start, start + stateful_set.spec.replicas)


def _is_unavailable(pod: Pod, stateful_set: StatefulSet, now: datetime) -> bool:
    is_running = pod.status.phase == "Running"
    return pod.is_being_deleted or not is_running or not pod.is_available(stateful_set.spec.min_ready_seconds, now)


def _volumes(stateful_set: StatefulSet, pod_name: str, template: RawObject) -> list[RawObject]:
    names = [claim["metadata"]["name"] for claim in stateful_set.spec.volume_claim_templates]
    template_volumes = [volume for volume in template["spec"].get("volumes", ()) if volume["name"] not in names]
    return template_volumes + [
        {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod_name}"}} for name in names
    ]
