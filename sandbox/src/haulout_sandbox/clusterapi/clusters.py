"""Clusters: the kubeconfig of each in a Secret, and the end of all that belongs to one that is deleted.

The Secret is made once. From then on it belongs to whoever rotates it (`Kubeconfigs`); if somebody removes it, it stays
away until it is restored.
"""

import base64
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random

from haulout.errors import AlreadyExists, NotFound
from haulout.kinds.clusterapi import CLUSTER_NAME, GROUP, KUBECONFIG_KEY, ClusterKey
from haulout.kube.client import Client
from haulout.kube.objects import Object, RawObject, object_key
from haulout.kube.patches import merge_patch
from haulout.kube.resources import SECRETS
from haulout_sandbox.clusterapi.conditions import told
from haulout_sandbox.clusterapi.objects import Cluster, Kinds, Machine, MachineSet, is_paused
from haulout_sandbox.clusterapi.workloads import Workload, Workloads
from haulout_sandbox.controllers import conditions, edge
from haulout_sandbox.controllers.base import Controller
from haulout_sandbox.controllers.caches import Caches
from haulout_sandbox.controllers.templates import reference

SECRET_TYPE = f"{GROUP}/secret"
_FINALIZER = "cluster.cluster.x-k8s.io"
_READY = "ControlPlaneInitialized"
_LOOKS_AGAIN = timedelta(seconds=5)
_SECRETS = SECRETS.of(Object)


class Clusters(Controller[str]):
    """Leads each Cluster through its life."""

    name = "clusters"

    def __init__(self, caches: Caches, random: Random, *, kinds: Kinds, workloads: Workloads) -> None:
        super().__init__(caches, random)
        self._kinds = kinds
        self._workloads = workloads
        self._clusters = caches.of(kinds.clusters)
        self._deployments, self._sets = caches.of(kinds.deployments), caches.of(kinds.sets)
        self._machines = caches.of(kinds.machines)
        self._clusters.subscribe(self._note)
        workloads.subscribe(lambda key: self.queue.add(str(key)))

    def _note(self, old: Cluster | None, new: Cluster | None) -> None:
        changed = new or old
        if changed is not None:
            self.queue.add(changed.key)

    async def sync(self, key: str) -> datetime | None:
        """Bring a Cluster up, or all of it to its end."""
        cluster = self._clusters.get(key)
        if cluster is None or is_paused(cluster, cluster):
            return None
        if cluster.deleting:
            return await self._end(cluster)
        workload = self._workloads.get(cluster.cluster_key)
        if _FINALIZER not in cluster.metadata.finalizers:
            finalizers = [*cluster.metadata.finalizers, _FINALIZER]
            await edge.change(self.client, self._kinds.clusters, cluster, {"metadata": {"finalizers": finalizers}})
        elif workload is None:
            await self._tell(cluster, "Provisioning")
        else:
            if not conditions.is_true(cluster.status, _READY):
                with suppress(AlreadyExists):  # we died before we could tell that we made it
                    owner = reference(cluster, self._kinds.clusters)
                    await self.client.create(_SECRETS, secret(workload, owner=owner), namespace=cluster.namespace)
            await self._tell(cluster, "Provisioned", conditions.made(_READY, holds=True, reason="Initialized"))
        return None

    async def _end(self, cluster: Cluster) -> datetime | None:
        await self._tell(cluster, "Deleting")
        left: list[tuple[object, Machine | MachineSet]] = []
        for resource, cache in ((self._kinds.deployments, self._deployments), (self._kinds.sets, self._sets)):
            for each in cache.all():
                if _is_of(each, cluster):
                    left.append((resource, each))
                    if not each.deleting:
                        await edge.delete(self.client, resource, each)
        for machine in self._machines.all():
            if _is_of(machine, cluster):
                left.append((self._kinds.machines, machine))
                if not machine.deleting:
                    await edge.delete(self.client, self._kinds.machines, machine)
        if left:
            return self.clock.now() + _LOOKS_AGAIN
        finalizers = [it for it in cluster.metadata.finalizers if it != _FINALIZER]
        await edge.change(self.client, self._kinds.clusters, cluster, {"metadata": {"finalizers": finalizers}})
        return None

    async def _tell(self, cluster: Cluster, phase: str, *new: RawObject) -> None:
        wanted: RawObject = {"phase": phase}
        if new:
            wanted["conditions"] = told(cluster.status, *new, now=self.clock.now())
        async with edge.Writes(self._clusters) as writes:
            writes.made(
                await edge.write_status(self.client, self._kinds.clusters, cluster, seen=cluster.status, wanted=wanted)
            )


class Kubeconfigs:
    """What becomes of kubeconfig Secrets: others get new ones, lose them, and have them again."""

    def __init__(self, client: Client, workloads: Workloads) -> None:
        self._client = client
        self._workloads = workloads

    async def rotate(self, key: ClusterKey) -> None:
        """Have another token, in the Secret too; the one before is refused from now on."""
        workload = self._workload(key)
        workload.rotate()
        patch = merge_patch({"data": _data(workload)})
        await self._client.patch(_SECRETS, key.secret, patch, namespace=key.namespace)

    async def remove(self, key: ClusterKey) -> None:
        """Have no Secret."""
        with suppress(NotFound):
            await self._client.delete(_SECRETS, key.secret, namespace=key.namespace)

    async def restore(self, key: ClusterKey) -> None:
        """Have it again, as it would be now."""
        await self._client.create(_SECRETS, secret(self._workload(key)), namespace=key.namespace)

    def _workload(self, key: ClusterKey) -> Workload:
        found = self._workloads.get(key)
        if found is None:
            raise KeyError(f"there is no workload cluster {key}")
        return found


def secret(workload: Workload, *, owner: RawObject | None = None) -> RawObject:
    """Return the Secret with a cluster's kubeconfig."""
    metadata: RawObject = {
        "name": workload.key.secret,
        "namespace": workload.key.namespace,
        "labels": {CLUSTER_NAME: workload.key.name},
    }
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": SECRET_TYPE,
        "metadata": metadata,
        "data": _data(workload),
    }


def _data(workload: Workload) -> dict[str, str]:
    return {KUBECONFIG_KEY: base64.b64encode(workload.kubeconfig()).decode()}


def _is_of(thing: Machine | MachineSet, cluster: Cluster) -> bool:
    return object_key(thing.spec.cluster_name, thing.namespace) == cluster.key
