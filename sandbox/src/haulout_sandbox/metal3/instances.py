"""Hosts as what Machines run on: one that is available is taken, provisioned, and given back when its Machine goes."""

from datetime import datetime, timedelta

from haulout.errors import Conflict
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout_sandbox.clusterapi.infrastructure import Hosts, plain, plug_in
from haulout_sandbox.clusterapi.objects import METAL3, Machine
from haulout_sandbox.clusterapi.workloads import Workloads
from haulout_sandbox.controllers import edge
from haulout_sandbox.metal3.objects import AVAILABLE, HOSTS, PROVISIONED, Host
from haulout_sandbox.metal3.rack import Rack

_LOOKS_AGAIN = timedelta(seconds=2)
_IMAGE = {"url": "https://images.sandbox/node.qcow2", "checksum": "https://images.sandbox/node.sha256"}


class HostInstances:
    """BareMetalHosts in the namespace of a Machine, as `haulout_sandbox.clusterapi` uses them."""

    def __init__(self, client: Client, workloads: Workloads, rack: Rack, *, host: Hosts | None = None) -> None:
        self._client = client
        self._workloads = workloads
        self._rack = rack
        self._host = host or plain

    async def provisioned(self, machine: Machine) -> str | datetime:
        """Return the providerID of the host of a Machine."""
        found = await self._all(machine)
        host = next((it for it in found if it.consumer == machine.key), None)
        if host is None:
            free = next((it for it in found if it.state == AVAILABLE and not it.consumer), None)
            if free is not None:
                await self._change(free, {"consumerRef": _reference(machine), "image": _IMAGE, "online": True})
        elif host.state == PROVISIONED:
            return f"metal3://{machine.namespace}/{host.name}/{machine.name}"
        return self._again()

    async def boot(self, machine: Machine) -> datetime | None:
        """Have a host become a node: as soon as it has power, and for as long as it has."""
        host = next((it for it in await self._all(machine) if it.consumer == machine.key), None)
        workload = self._workloads.get(machine.cluster)
        if host is None or workload is None or not self._rack.is_on(host.key):
            return self._again()
        plug_in(self._workloads, machine, self._host(machine))
        self._rack.install(host.key, workload.cluster.kubelets, machine.name)
        return None

    async def ended(self, machine: Machine) -> datetime | None:
        """Give the host back."""
        host = next((it for it in await self._all(machine) if it.consumer == machine.key), None)
        if host is None:
            return None
        if host.spec.image is not None:
            await self._change(host, {"image": None, "online": False})
            return self._again()
        if host.state != AVAILABLE:
            return self._again()
        self._rack.wipe(host.key)
        return None if await self._change(host, {"consumerRef": None}) else self._again()

    async def _all(self, machine: Machine) -> list[Host]:
        found = await self._client.list(HOSTS, namespace=machine.namespace)
        return sorted(found.items, key=lambda it: it.name)

    async def _change(self, host: Host, spec: RawObject) -> bool:
        """Change a host, unless another Machine took it, or something else changed; tell which."""
        try:
            await edge.change(self._client, HOSTS, host, {"spec": spec})
        except Conflict:
            return False
        return True

    def _again(self) -> datetime:
        return self._client.clock.now() + _LOOKS_AGAIN


def _reference(machine: Machine) -> RawObject:
    api_version = "infrastructure.cluster.x-k8s.io/v1beta1"
    return {"apiVersion": api_version, "kind": METAL3, "name": machine.name, "namespace": machine.namespace}
