"""Actions in Cluster API: rollouts and maintenance of Machines, and outages between management and workload cluster."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from random import Random

from haulout.api.clusterapi import APPROVED, MAINTENANCE, REQUESTED, ClusterKey
from haulout.api.objects import RawObject
from haulout.core.duration import format_short
from haulout.errors import NotFound
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout_sandbox.clusterapi.objects import DEPLOYMENT_NAME, Machine, resources_of
from haulout_sandbox.clusterapi.workload_clusters import Outage, RegisteredCluster
from haulout_sandbox.scenarios import model
from haulout_sandbox.scenarios.actions.action_result import (
    ActionHandler,
    ActionResult,
    OnEvent,
    format_names,
    random_sample,
)
from haulout_sandbox.scenarios.workload_clusters import WorkloadClusters

_POLL_INTERVAL = timedelta(seconds=2)
_RESOURCES = resources_of()
_MACHINE_DEPLOYMENTS = _RESOURCES.machine_deployments.with_model(RawObject)
_OUTAGES = {
    Outage.HANG: "does not answer its management cluster",
    Outage.REFUSE: "cannot be reached by its management cluster",
    Outage.SLOW: "answers its management cluster slowly",
}


class ClusterApiActions:
    def __init__(self, client: Client, clusters: WorkloadClusters) -> None:
        self._client = client
        self._clock = client.clock
        self._clusters = clusters
        self.handlers: Mapping[str, ActionHandler] = {
            "rollOut": self._roll_out,
            "deleteMachines": self._delete_machines,
            "requestMaintenance": self._request_maintenance,
            "clusterOutage": self._break_connection,
            "rotateKubeconfig": self._rotate_kubeconfig,
        }

    async def _roll_out(self, action: model.RollOut, _: Random) -> ActionResult:
        key = _cluster_key(action)
        deployment = await self._client.get(_MACHINE_DEPLOYMENTS, action.pool, namespace=key.namespace)
        version = _next_version(deployment["spec"]["template"]["spec"].get("version", ""))
        patch = merge_patch({"spec": {"template": {"spec": {"version": version}}}})
        await self._client.patch(_MACHINE_DEPLOYMENTS, action.pool, patch, namespace=key.namespace)
        return ActionResult(f"rollout: MachineDeployment {key.namespace}/{action.pool} of {key} goes to {version}")

    async def _delete_machines(self, action: model.MachineSelector, random: Random) -> ActionResult:
        names = await self._select_machines(action, random)
        for name in names:
            await self._client.delete(_RESOURCES.machines, name, namespace=_cluster_key(action).namespace)
        return ActionResult(f"deleted of {action.cluster}: {format_names(names, 'no Machine fits')}")

    async def _request_maintenance(self, action: model.RequestMaintenance, random: Random) -> ActionResult:
        names = await self._select_machines(action, random, without=MAINTENANCE)
        for name in names:
            await self._set_maintenance_label(name, action, REQUESTED)
        follow_ups = tuple(partial(self._complete_maintenance, name, action) for name in names)
        return ActionResult(
            f"maintenance requested of {action.cluster}: {format_names(names, 'no Machine fits')}",
            follow_ups=follow_ups,
        )

    async def _complete_maintenance(self, name: str, action: model.RequestMaintenance, on_event: OnEvent) -> None:
        """Wait until a maintenance is approved, wait for its duration, and withdraw the request."""
        try:
            while (await self._get_machine(name, action)).labels.get(MAINTENANCE) != APPROVED:
                await self._clock.sleep(_POLL_INTERVAL)
            await self._clock.sleep(action.for_)
            await self._set_maintenance_label(name, action, None)
        except NotFound:
            on_event(f"Machine {name} of {action.cluster} is gone before it was maintained")
            return
        on_event(
            f"Machine {name} of {action.cluster} was maintained for "
            f"{format_short(action.for_)}: the request is withdrawn"
        )

    async def _break_connection(self, action: model.ClusterOutage, _: Random) -> ActionResult:
        workload_cluster, outage = self._workload_cluster(action), Outage(action.how)
        workload_cluster.break_connection(outage)

        async def heal() -> str:
            workload_cluster.heal_connection()
            return f"cluster {action.cluster} can be reached again"

        return ActionResult(
            f"cluster {action.cluster} {_OUTAGES[outage]} for {format_short(action.for_)}", action.for_, heal
        )

    async def _rotate_kubeconfig(self, action: model.WorkloadClusterAction, _: Random) -> ActionResult:
        key = _cluster_key(action)
        await self._clusters.kubeconfigs.rotate(key)
        return ActionResult(f"the kubeconfig of cluster {key} is another: the token before is refused from now on")

    def _workload_cluster(self, action: model.WorkloadClusterAction) -> RegisteredCluster:
        workload_cluster = self._clusters.registry.get(_cluster_key(action))
        if workload_cluster is None:
            raise KeyError(f"there is no workload cluster {action.cluster}")
        return workload_cluster

    async def _select_machines(self, action: model.MachineSelector, random: Random, *, without: str = "") -> list[str]:
        """Return Machines that have a node and are not being deleted."""
        key = _cluster_key(action)
        machines = (await self._client.list(_RESOURCES.machines, namespace=key.namespace)).items
        eligible = (
            machine
            for machine in machines
            if machine.cluster_key == key
            and machine.node
            and not machine.is_being_deleted
            and without not in machine.labels
        )
        names = [machine.name for machine in eligible if action.pool in (None, machine.labels.get(DEPLOYMENT_NAME))]
        return random_sample(names, action.count, random)

    async def _get_machine(self, name: str, action: model.WorkloadClusterAction) -> Machine:
        return await self._client.get(_RESOURCES.machines, name, namespace=_cluster_key(action).namespace)

    async def _set_maintenance_label(self, name: str, action: model.WorkloadClusterAction, value: str | None) -> None:
        patch = merge_patch({"metadata": {"labels": {MAINTENANCE: value}}})
        await self._client.patch(_RESOURCES.machines, name, patch, namespace=_cluster_key(action).namespace)


def _cluster_key(action: model.WorkloadClusterAction) -> ClusterKey:
    namespace, _, name = action.cluster.partition("/")
    return ClusterKey(namespace, name)


def _next_version(version: str) -> str:
    prefix, _, patch = version.rpartition(".")
    return f"{prefix}.{int(patch) + 1}" if patch.isdecimal() else f"{version}.1"
