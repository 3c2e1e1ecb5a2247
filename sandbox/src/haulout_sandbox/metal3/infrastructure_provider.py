"""BareMetalHosts as infrastructure of Machines: claims an available host, provisions it, and releases it at the end."""

from datetime import datetime, timedelta

from haulout.api.objects import RawObject
from haulout.errors import Conflict
from haulout.kube.client import Client
from haulout_sandbox.clusterapi.infrastructure_provider import HostFactory, default_host, join_cluster
from haulout_sandbox.clusterapi.objects import METAL3_MACHINE_KIND, Machine
from haulout_sandbox.clusterapi.workload_clusters import WorkloadClusterRegistry
from haulout_sandbox.controllers import object_control
from haulout_sandbox.metal3.objects import AVAILABLE, BARE_METAL_HOSTS, PROVISIONED, BareMetalHost
from haulout_sandbox.metal3.rack import Rack

_RETRY_INTERVAL = timedelta(seconds=2)
_IMAGE = {"url": "https://images.sandbox/node.qcow2", "checksum": "https://images.sandbox/node.sha256"}


class Metal3InfrastructureProvider:
    """BareMetalHosts in the namespace of a Machine, for `haulout_sandbox.clusterapi`."""

    def __init__(
        self, client: Client, registry: WorkloadClusterRegistry, rack: Rack, *, host_factory: HostFactory | None = None
    ) -> None:
        self._client = client
        self._registry = registry
        self._rack = rack
        self._host_factory = host_factory or default_host

    async def provision(self, machine: Machine) -> str | datetime:
        """Return the providerID of a Machine's host, or when to ask again."""
        hosts = await self._hosts(machine)
        host = next((candidate for candidate in hosts if candidate.consumer == machine.key), None)
        if host is None:
            available = next(
                (
                    candidate
                    for candidate in hosts
                    if candidate.provisioning_state == AVAILABLE and not candidate.consumer
                ),
                None,
            )
            if available is not None:
                await self._patch_spec(
                    available, {"consumerRef": _consumer_reference(machine), "image": _IMAGE, "online": True}
                )
        elif host.provisioning_state == PROVISIONED:
            return f"metal3://{machine.namespace}/{host.name}/{machine.name}"
        return self._retry_at()

    async def boot(self, machine: Machine) -> datetime | None:
        """Start the node of a host while the host has power."""
        host = next((candidate for candidate in await self._hosts(machine) if candidate.consumer == machine.key), None)
        workload_cluster = self._registry.get(machine.cluster_key)
        if host is None or workload_cluster is None or not self._rack.is_on(host.key):
            return self._retry_at()
        join_cluster(self._registry, machine, self._host_factory(machine))
        self._rack.install_node(host.key, workload_cluster.cluster.kubelets, machine.name)
        return None

    async def terminate(self, machine: Machine) -> datetime | None:
        """Release the host."""
        host = next((candidate for candidate in await self._hosts(machine) if candidate.consumer == machine.key), None)
        if host is None:
            return None
        if host.spec.image is not None:
            await self._patch_spec(host, {"image": None, "online": False})
            return self._retry_at()
        if host.provisioning_state != AVAILABLE:
            return self._retry_at()
        self._rack.remove_node(host.key)
        return None if await self._patch_spec(host, {"consumerRef": None}) else self._retry_at()

    async def _hosts(self, machine: Machine) -> list[BareMetalHost]:
        page = await self._client.list(BARE_METAL_HOSTS, namespace=machine.namespace)
        return sorted(page.items, key=lambda host: host.name)

    async def _patch_spec(self, host: BareMetalHost, spec: RawObject) -> bool:
        """Patch a host; return False if another Machine has claimed it or it has changed."""
        try:
            await object_control.patch(self._client, BARE_METAL_HOSTS, host, {"spec": spec})
        except Conflict:
            return False
        return True

    def _retry_at(self) -> datetime:
        return self._client.clock.now() + _RETRY_INTERVAL


def _consumer_reference(machine: Machine) -> RawObject:
    api_version = "infrastructure.cluster.x-k8s.io/v1beta1"
    return {
        "apiVersion": api_version,
        "kind": METAL3_MACHINE_KIND,
        "name": machine.name,
        "namespace": machine.namespace,
    }
