"""Cluster controller: the kubeconfig Secret of each Cluster, and the deletion of all that belongs to it.

The controller creates the Secret once. From then on rotation is up to others (`KubeconfigSecrets`); a deleted Secret is
not created again until it is restored.
"""

import base64
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random

from haulout.api.clusterapi import CLUSTER_NAME, GROUP, KUBECONFIG_KEY, ClusterKey
from haulout.api.objects import Object, RawObject, object_key
from haulout.api.resources import SECRETS
from haulout.errors import AlreadyExists, NotFound
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout_sandbox.clusterapi.objects import Cluster, ClusterApiResources, Machine, MachineSet, is_paused
from haulout_sandbox.clusterapi.workload_clusters import RegisteredCluster, WorkloadClusterRegistry
from haulout_sandbox.controllers import conditions, object_control
from haulout_sandbox.controllers.base import Controller
from haulout_sandbox.controllers.informers import InformerFactory
from haulout_sandbox.controllers.pod_template import controller_ref

SECRET_TYPE = f"{GROUP}/secret"
_FINALIZER = "cluster.cluster.x-k8s.io"
_CONTROL_PLANE_INITIALIZED = "ControlPlaneInitialized"
_RETRY_INTERVAL = timedelta(seconds=5)
_SECRETS = SECRETS.with_model(Object)


class ClusterController(Controller[str]):
    name = "clusters"

    def __init__(
        self,
        informers: InformerFactory,
        random: Random,
        *,
        resources: ClusterApiResources,
        registry: WorkloadClusterRegistry,
    ) -> None:
        super().__init__(informers, random)
        self._resources = resources
        self._registry = registry
        self._clusters = informers.informer_for(resources.clusters)
        self._deployments, self._machine_sets = (
            informers.informer_for(resources.machine_deployments),
            informers.informer_for(resources.machine_sets),
        )
        self._machines = informers.informer_for(resources.machines)
        self._clusters.subscribe(self._on_cluster_change)
        registry.subscribe(lambda key: self.queue.add(str(key)))

    def _on_cluster_change(self, old: Cluster | None, new: Cluster | None) -> None:
        changed = new or old
        if changed is not None:
            self.queue.add(changed.key)

    async def sync(self, key: str) -> datetime | None:
        """Provision a Cluster, or delete everything that belongs to it."""
        cluster = self._clusters.get(key)
        if cluster is None or is_paused(cluster, cluster):
            return None
        if cluster.is_being_deleted:
            return await self._reconcile_delete(cluster)
        workload_cluster = self._registry.get(cluster.cluster_key)
        if _FINALIZER not in cluster.metadata.finalizers:
            finalizers = [*cluster.metadata.finalizers, _FINALIZER]
            await object_control.patch(
                self.client, self._resources.clusters, cluster, {"metadata": {"finalizers": finalizers}}
            )
        elif workload_cluster is None:
            await self._update_status(cluster, "Provisioning")
        else:
            if not conditions.is_true(cluster.status, _CONTROL_PLANE_INITIALIZED):
                with suppress(AlreadyExists):  # created before a crash that prevented the status update
                    owner = controller_ref(cluster, self._resources.clusters)
                    await self.client.create(
                        _SECRETS, kubeconfig_secret(workload_cluster, owner=owner), namespace=cluster.namespace
                    )
            await self._update_status(
                cluster,
                "Provisioned",
                conditions.new_condition(_CONTROL_PLANE_INITIALIZED, is_true=True, reason="Initialized"),
            )
        return None

    async def _reconcile_delete(self, cluster: Cluster) -> datetime | None:
        await self._update_status(cluster, "Deleting")
        remaining: list[tuple[object, Machine | MachineSet]] = []
        for resource, informer in (
            (self._resources.machine_deployments, self._deployments),
            (self._resources.machine_sets, self._machine_sets),
        ):
            for obj in informer.all():
                if _belongs_to(obj, cluster):
                    remaining.append((resource, obj))
                    if not obj.is_being_deleted:
                        await object_control.delete(self.client, resource, obj)
        for machine in self._machines.all():
            if _belongs_to(machine, cluster):
                remaining.append((self._resources.machines, machine))
                if not machine.is_being_deleted:
                    await object_control.delete(self.client, self._resources.machines, machine)
        if remaining:
            return self.clock.now() + _RETRY_INTERVAL
        finalizers = [finalizer for finalizer in cluster.metadata.finalizers if finalizer != _FINALIZER]
        await object_control.patch(
            self.client, self._resources.clusters, cluster, {"metadata": {"finalizers": finalizers}}
        )
        return None

    async def _update_status(self, cluster: Cluster, phase: str, *new_conditions: RawObject) -> None:
        desired: RawObject = {"phase": phase}
        if new_conditions:
            desired["conditions"] = conditions.merge(cluster.status, *new_conditions, now=self.clock.now())
        async with object_control.WriteBarrier(self._clusters) as writes:
            writes.record(
                await object_control.update_status(
                    self.client, self._resources.clusters, cluster, current=cluster.status, desired=desired
                )
            )


class KubeconfigSecrets:
    """Rotates, removes and restores kubeconfig Secrets, as others would do."""

    def __init__(self, client: Client, registry: WorkloadClusterRegistry) -> None:
        self._client = client
        self._registry = registry

    async def rotate(self, key: ClusterKey) -> None:
        """Rotate the token, also in the Secret; the old token is refused from now on."""
        workload_cluster = self._workload_cluster(key)
        workload_cluster.rotate()
        patch = merge_patch({"data": _secret_data(workload_cluster)})
        await self._client.patch(_SECRETS, key.kubeconfig_secret, patch, namespace=key.namespace)

    async def remove(self, key: ClusterKey) -> None:
        with suppress(NotFound):
            await self._client.delete(_SECRETS, key.kubeconfig_secret, namespace=key.namespace)

    async def restore(self, key: ClusterKey) -> None:
        """Create the Secret again, with the current token."""
        await self._client.create(_SECRETS, kubeconfig_secret(self._workload_cluster(key)), namespace=key.namespace)

    def _workload_cluster(self, key: ClusterKey) -> RegisteredCluster:
        workload_cluster = self._registry.get(key)
        if workload_cluster is None:
            raise KeyError(f"there is no workload cluster {key}")
        return workload_cluster


def kubeconfig_secret(workload_cluster: RegisteredCluster, *, owner: RawObject | None = None) -> RawObject:
    metadata: RawObject = {
        "name": workload_cluster.key.kubeconfig_secret,
        "namespace": workload_cluster.key.namespace,
        "labels": {CLUSTER_NAME: workload_cluster.key.name},
    }
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": SECRET_TYPE,
        "metadata": metadata,
        "data": _secret_data(workload_cluster),
    }


def _secret_data(workload_cluster: RegisteredCluster) -> dict[str, str]:
    return {KUBECONFIG_KEY: base64.b64encode(workload_cluster.kubeconfig()).decode()}


def _belongs_to(obj: Machine | MachineSet, cluster: Cluster) -> bool:
    return object_key(obj.spec.cluster_name, obj.namespace) == cluster.key
