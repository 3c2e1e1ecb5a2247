"""What happens between a management cluster and its workload clusters: to Machines, and to the way between."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from random import Random

from haulout.core.duration import short
from haulout.errors import NotFound
from haulout.kinds.clusterapi import APPROVED, MAINTENANCE, REQUESTED, ClusterKey
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout_sandbox.clusterapi import Outage, Workload, kinds
from haulout_sandbox.clusterapi.objects import DEPLOYMENT_NAME, Machine
from haulout_sandbox.scenarios import model
from haulout_sandbox.scenarios.deeds import Deed, Does, Say, chosen, listed
from haulout_sandbox.scenarios.workload_clusters import WorkloadClusters

_LOOKS_EVERY = timedelta(seconds=2)
_KINDS = kinds()
_DEPLOYMENTS = _KINDS.deployments.of(RawObject)
_OUTAGES = {
    Outage.HANG: "does not answer its management cluster",
    Outage.REFUSE: "cannot be reached by its management cluster",
    Outage.SLOW: "answers its management cluster slowly",
}


class HubDeeds:
    """Does what happens to Machines and to the way between clusters."""

    def __init__(self, client: Client, clusters: WorkloadClusters) -> None:
        self._client = client
        self._clock = client.clock
        self._clusters = clusters
        self.all: Mapping[str, Does] = {
            "rollOut": self._roll_out,
            "deleteMachines": self._delete,
            "maintain": self._maintain,
            "cutOff": self._cut_off,
            "rotateKubeconfig": self._rotate,
        }

    async def _roll_out(self, action: model.RollOut, _: Random) -> Deed:
        key = _key(action)
        found = await self._client.get(_DEPLOYMENTS, action.pool, namespace=key.namespace)
        version = _next(found["spec"]["template"]["spec"].get("version", ""))
        patch = merge_patch({"spec": {"template": {"spec": {"version": version}}}})
        await self._client.patch(_DEPLOYMENTS, action.pool, patch, namespace=key.namespace)
        return Deed(f"rollout: MachineDeployment {key.namespace}/{action.pool} of {key} goes to {version}")

    async def _delete(self, action: model.MachineChoice, random: Random) -> Deed:
        names = await self._chosen(action, random)
        for name in names:
            await self._client.delete(_KINDS.machines, name, namespace=_key(action).namespace)
        return Deed(f"deleted of {action.cluster}: {listed(names, 'no Machine fits')}")

    async def _maintain(self, action: model.Maintain, random: Random) -> Deed:
        names = await self._chosen(action, random, without=MAINTENANCE)
        for name in names:
            await self._label(name, action, REQUESTED)
        stories = tuple(partial(self._see_through, name, action) for name in names)
        return Deed(f"maintenance requested of {action.cluster}: {listed(names, 'no Machine fits')}", follows=stories)

    async def _see_through(self, name: str, action: model.Maintain, say: Say) -> None:
        """Wait until a maintenance is approved, do it, and withdraw the request."""
        try:
            while (await self._machine(name, action)).labels.get(MAINTENANCE) != APPROVED:
                await self._clock.sleep(_LOOKS_EVERY)
            await self._clock.sleep(action.for_)
            await self._label(name, action, None)
        except NotFound:
            say(f"Machine {name} of {action.cluster} is gone before it was maintained")
            return
        say(f"Machine {name} of {action.cluster} was maintained for {short(action.for_)}: the request is withdrawn")

    async def _cut_off(self, action: model.CutOff, _: Random) -> Deed:
        workload, outage = self._workload(action), Outage(action.how)
        workload.fail(outage)

        async def mend() -> str:
            workload.mend()
            return f"cluster {action.cluster} can be reached again"

        return Deed(f"cluster {action.cluster} {_OUTAGES[outage]} for {short(action.for_)}", action.for_, mend)

    async def _rotate(self, action: model.OfCluster, _: Random) -> Deed:
        key = _key(action)
        await self._clusters.kubeconfigs.rotate(key)
        return Deed(f"the kubeconfig of cluster {key} is another: the token before is refused from now on")

    def _workload(self, action: model.OfCluster) -> Workload:
        found = self._clusters.workloads.get(_key(action))
        if found is None:
            raise KeyError(f"there is no workload cluster {action.cluster}")
        return found

    async def _chosen(self, action: model.MachineChoice, random: Random, *, without: str = "") -> list[str]:
        """Return Machines that are nodes and stay."""
        key = _key(action)
        found = (await self._client.list(_KINDS.machines, namespace=key.namespace)).items
        here = (it for it in found if it.cluster == key and it.node and not it.deleting and without not in it.labels)
        names = [it.name for it in here if action.pool in (None, it.labels.get(DEPLOYMENT_NAME))]
        return chosen(names, action.count, random)

    async def _machine(self, name: str, action: model.OfCluster) -> Machine:
        return await self._client.get(_KINDS.machines, name, namespace=_key(action).namespace)

    async def _label(self, name: str, action: model.OfCluster, value: str | None) -> None:
        patch = merge_patch({"metadata": {"labels": {MAINTENANCE: value}}})
        await self._client.patch(_KINDS.machines, name, patch, namespace=_key(action).namespace)


def _key(action: model.OfCluster) -> ClusterKey:
    namespace, _, name = action.cluster.partition("/")
    return ClusterKey(namespace, name)


def _next(version: str) -> str:
    """Return the version after this one."""
    before, _, last = version.rpartition(".")
    return f"{before}.{int(last) + 1}" if last.isdecimal() else f"{version}.1"
