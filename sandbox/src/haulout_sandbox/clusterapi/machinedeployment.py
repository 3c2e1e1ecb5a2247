"""MachineDeployment controller: one MachineSet per template, and rollouts between them.

A template with another spec gets a new MachineSet, and Machines are replaced as the strategy says: by default with one
surplus Machine at a time, and none missing. Changes of labels, annotations and timeouts are made in place in the newest
MachineSet and replace no Machine.
"""

from collections.abc import Sequence
from datetime import datetime
from random import Random

from haulout.api.objects import RawObject, object_key
from haulout.kube.patches import difference
from haulout_sandbox.clusterapi.machineset import IN_PLACE_FIELDS
from haulout_sandbox.clusterapi.objects import TEMPLATE_HASH, ClusterApiResources, MachineSet, is_paused
from haulout_sandbox.controllers import object_control
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.deployment import rollouts
from haulout_sandbox.controllers.informers import InformerFactory, controlled
from haulout_sandbox.controllers.objects import Deployment, DeploymentSpec, ReplicaSet, ReplicaSetSpec
from haulout_sandbox.controllers.pod_template import compute_hash, controller_ref


class MachineDeploymentController(OwningController):
    name = "machinedeployments"

    def __init__(self, informers: InformerFactory, random: Random, *, resources: ClusterApiResources) -> None:
        super().__init__(informers, random)
        self._resources = resources
        self._deployments = informers.informer_for(resources.machine_deployments)
        self._machine_sets = informers.informer_for(resources.machine_sets)
        self._clusters = informers.informer_for(resources.clusters)
        self.watch(self._deployments)
        self._machine_sets.subscribe(self._on_machine_set_change)

    def _on_machine_set_change(self, old: MachineSet | None, new: MachineSet | None) -> None:
        for machine_set in (old, new):
            owner = None if machine_set is None else machine_set.controller
            if machine_set is not None and owner is not None and owner.kind == self._resources.machine_deployments.kind:
                self.enqueue_batched(object_key(owner.name, machine_set.namespace))

    async def sync(self, key: str) -> datetime | None:
        """Take one step of a rollout, and update the status."""
        deployment = self._deployments.get(key)
        if deployment is None or deployment.is_being_deleted:
            return None
        cluster = self._clusters.get(object_key(deployment.spec.cluster_name, deployment.namespace))
        if is_paused(deployment, cluster) or (cluster is not None and cluster.is_being_deleted):
            return None
        name = f"{deployment.name}-{_template_hash(deployment)}"
        machine_sets = controlled(self._machine_sets, deployment.uid)
        new, old = (
            next((machine_set for machine_set in machine_sets if machine_set.name == name), None),
            [machine_set for machine_set in machine_sets if machine_set.name != name],
        )
        async with object_control.WriteBarrier(self._machine_sets) as writes:
            if new is None:
                replicas = rollouts.initial_replicas(
                    _as_deployment(deployment), [_as_replica_set(machine_set) for machine_set in old]
                )
                writes.record(
                    await object_control.create(
                        self.client,
                        self._resources.machine_sets,
                        self._machine_set_body(deployment, name, replicas=replicas),
                    )
                )
            elif not deployment.spec.paused:
                for machine_set, patch in _machine_set_patches(
                    deployment, new, old, self._machine_set_body(deployment, name, replicas=0)
                ):
                    writes.record(
                        await object_control.patch(self.client, self._resources.machine_sets, machine_set, patch)
                    )
                for machine_set in old:
                    if (
                        not machine_set.spec.replicas
                        and not machine_set.status.get("replicas")
                        and _is_rollout_complete(deployment, new)
                    ):
                        writes.record_version(
                            await object_control.delete(self.client, self._resources.machine_sets, machine_set)
                        )
        await self._update_status(deployment, name)
        return None

    def _machine_set_body(self, owner: MachineSet, name: str, *, replicas: int) -> RawObject:
        template, hash_label = owner.spec.template, {TEMPLATE_HASH: _template_hash(owner)}
        metadata = template.get("metadata", {})
        selector = {**owner.spec.selector.match_labels, **hash_label}
        labels = {**metadata.get("labels", {}), **hash_label}
        return {
            "apiVersion": self._resources.machine_sets.api_version,
            "kind": self._resources.machine_sets.kind,
            "metadata": {
                "name": name,
                "namespace": owner.namespace,
                "labels": labels,
                "ownerReferences": [controller_ref(owner, self._resources.machine_deployments)],
            },
            "spec": {
                "clusterName": owner.spec.cluster_name,
                "replicas": replicas,
                "selector": {"matchLabels": selector},
                "template": {**template, "metadata": {**metadata, "labels": labels}},
            },
        }

    async def _update_status(self, owner: MachineSet, new_name: str) -> None:
        machine_sets = controlled(self._machine_sets, owner.uid)
        totals = {
            name: sum(int(machine_set.status.get(name) or 0) for machine_set in machine_sets)
            for name in ("replicas", "readyReplicas", "availableReplicas")
        }
        up_to_date = sum(
            int(machine_set.status.get("replicas") or 0) for machine_set in machine_sets if machine_set.name == new_name
        )
        is_complete = up_to_date == totals["replicas"] == totals["availableReplicas"] == owner.spec.replicas
        labels = sorted(owner.spec.selector.match_labels.items())
        desired = {
            **totals,
            "upToDateReplicas": up_to_date,
            "phase": "Running" if is_complete else "ScalingUp",
            "selector": ",".join(f"{key}={value}" for key, value in labels),
            "observedGeneration": owner.metadata.generation,
        }
        async with object_control.WriteBarrier(self._deployments) as writes:
            written = await object_control.update_status(
                self.client, self._resources.machine_deployments, owner, current=owner.status, desired=desired
            )
            writes.record(self.record_own_status(written))


def _machine_set_patches(
    owner: MachineSet, new: MachineSet, old: Sequence[MachineSet], desired: RawObject
) -> list[tuple[MachineSet, RawObject]]:
    template_patch = difference(new.spec.template, desired["spec"]["template"])
    if template_patch:
        return [(new, {"spec": {"template": template_patch}})]
    sizes = rollouts.next_rolling_update(
        _as_deployment(owner), _as_replica_set(new), [_as_replica_set(machine_set) for machine_set in old]
    )
    return [
        (machine_set, {"spec": {"replicas": sizes[machine_set.name]}})
        for machine_set in (new, *old)
        if machine_set.name in sizes
    ]


def _is_rollout_complete(owner: MachineSet, new: MachineSet) -> bool:
    return int(new.status.get("availableReplicas") or 0) >= owner.spec.replicas


def _template_hash(owner: MachineSet) -> str:
    spec: RawObject = owner.spec.template.get("spec", {})
    return compute_hash({name: value for name, value in spec.items() if name not in IN_PLACE_FIELDS})


def _as_deployment(machine_deployment: MachineSet) -> Deployment:
    """Return a Deployment of the same size, whose rollout arithmetic applies."""
    spec = DeploymentSpec(replicas=machine_deployment.spec.replicas, strategy=machine_deployment.spec.rollout_strategy)
    return Deployment(metadata=machine_deployment.metadata, spec=spec, status=machine_deployment.status)


def _as_replica_set(machine_set: MachineSet) -> ReplicaSet:
    return ReplicaSet(
        metadata=machine_set.metadata,
        spec=ReplicaSetSpec(replicas=machine_set.spec.replicas),
        status=machine_set.status,
    )
