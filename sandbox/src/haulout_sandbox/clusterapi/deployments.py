"""MachineDeployments: a MachineSet for each template, and the way from one to the next.

A template with another spec gets a MachineSet of its own, and Machines are replaced as its strategy says: by default
one more at a time, and none less. What only concerns labels, annotations and timeouts goes to the newest MachineSet as
it is, and replaces nothing.
"""

from collections.abc import Sequence
from datetime import datetime
from random import Random

from haulout.kube.objects import RawObject, object_key
from haulout.kube.patches import difference
from haulout_sandbox.clusterapi.objects import TEMPLATE_HASH, Kinds, MachineSet, is_paused
from haulout_sandbox.clusterapi.sets import IN_PLACE
from haulout_sandbox.controllers import edge, rollouts
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.caches import Caches, controlled
from haulout_sandbox.controllers.objects import Deployment, DeploymentSpec, ReplicaSet, ReplicaSetSpec
from haulout_sandbox.controllers.templates import fingerprint, reference


class MachineDeployments(OwningController):
    """Leads each MachineDeployment from one template to the next."""

    name = "machinedeployments"

    def __init__(self, caches: Caches, random: Random, *, kinds: Kinds) -> None:
        super().__init__(caches, random)
        self._kinds = kinds
        self._deployments = caches.of(kinds.deployments)
        self._sets = caches.of(kinds.sets)
        self._clusters = caches.of(kinds.clusters)
        self.follow(self._deployments)
        self._sets.subscribe(self._note_set)

    def _note_set(self, old: MachineSet | None, new: MachineSet | None) -> None:
        for each in (old, new):
            owner = None if each is None else each.controller
            if each is not None and owner is not None and owner.kind == self._kinds.deployments.kind:
                self.look_soon(object_key(owner.name, each.namespace))

    async def sync(self, key: str) -> datetime | None:
        """Take one step of a rollout, and tell how far it is."""
        found = self._deployments.get(key)
        if found is None or found.deleting:
            return None
        cluster = self._clusters.get(object_key(found.spec.cluster_name, found.namespace))
        if is_paused(found, cluster) or (cluster is not None and cluster.deleting):
            return None
        name = f"{found.name}-{_hash(found)}"
        sets = controlled(self._sets, found.uid)
        new, old = next((it for it in sets if it.name == name), None), [it for it in sets if it.name != name]
        async with edge.Writes(self._sets) as writes:
            if new is None:
                first = rollouts.first_size(_as_deployment(found), [_as_replica_set(it) for it in old])
                writes.made(await edge.create(self.client, self._kinds.sets, self._set(found, name, replicas=first)))
            elif not found.spec.paused:
                for each, patch in _changes(found, new, old, self._set(found, name, replicas=0)):
                    writes.made(await edge.change(self.client, self._kinds.sets, each, patch))
                for each in old:
                    if not each.spec.replicas and not each.status.get("replicas") and _is_over(found, new):
                        writes.at(await edge.delete(self.client, self._kinds.sets, each))
        await self._tell(found, name)
        return None

    def _set(self, owner: MachineSet, name: str, *, replicas: int) -> RawObject:
        template, mark = owner.spec.template, {TEMPLATE_HASH: _hash(owner)}
        meta = template.get("metadata", {})
        selector = {**owner.spec.selector.match_labels, **mark}
        labels = {**meta.get("labels", {}), **mark}
        return {
            "apiVersion": self._kinds.sets.api_version,
            "kind": self._kinds.sets.kind,
            "metadata": {
                "name": name,
                "namespace": owner.namespace,
                "labels": labels,
                "ownerReferences": [reference(owner, self._kinds.deployments)],
            },
            "spec": {
                "clusterName": owner.spec.cluster_name,
                "replicas": replicas,
                "selector": {"matchLabels": selector},
                "template": {**template, "metadata": {**meta, "labels": labels}},
            },
        }

    async def _tell(self, owner: MachineSet, newest: str) -> None:
        sets = controlled(self._sets, owner.uid)
        counted = {
            name: sum(int(it.status.get(name) or 0) for it in sets)
            for name in ("replicas", "readyReplicas", "availableReplicas")
        }
        current = sum(int(it.status.get("replicas") or 0) for it in sets if it.name == newest)
        is_settled = current == counted["replicas"] == counted["availableReplicas"] == owner.spec.replicas
        labels = sorted(owner.spec.selector.match_labels.items())
        wanted = {
            **counted,
            "upToDateReplicas": current,
            "phase": "Running" if is_settled else "ScalingUp",
            "selector": ",".join(f"{key}={value}" for key, value in labels),
            "observedGeneration": owner.metadata.generation,
        }
        async with edge.Writes(self._deployments) as writes:
            written = await edge.write_status(
                self.client, self._kinds.deployments, owner, seen=owner.status, wanted=wanted
            )
            writes.made(self.told(written))


def _changes(
    owner: MachineSet, new: MachineSet, old: Sequence[MachineSet], wanted: RawObject
) -> list[tuple[MachineSet, RawObject]]:
    """Return what is to be changed about which MachineSet now."""
    change = difference(new.spec.template, wanted["spec"]["template"])
    if change:
        return [(new, {"spec": {"template": change}})]
    sizes = rollouts.rolling(_as_deployment(owner), _as_replica_set(new), [_as_replica_set(it) for it in old])
    return [(it, {"spec": {"replicas": sizes[it.name]}}) for it in (new, *old) if it.name in sizes]


def _is_over(owner: MachineSet, new: MachineSet) -> bool:
    return int(new.status.get("availableReplicas") or 0) >= owner.spec.replicas


def _hash(owner: MachineSet) -> str:
    spec: RawObject = owner.spec.template.get("spec", {})
    return fingerprint({name: value for name, value in spec.items() if name not in IN_PLACE})


def _as_deployment(it: MachineSet) -> Deployment:
    """Return a Deployment of the same size: the arithmetic of a rollout is the same."""
    spec = DeploymentSpec(replicas=it.spec.replicas, strategy=it.spec.rolling)
    return Deployment(metadata=it.metadata, spec=spec, status=it.status)


def _as_replica_set(it: MachineSet) -> ReplicaSet:
    return ReplicaSet(metadata=it.metadata, spec=ReplicaSetSpec(replicas=it.spec.replicas), status=it.status)
