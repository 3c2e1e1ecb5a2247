"""The machines of a scenario by pool, and their cloud instances.

A machine of a pool with a cloud is an instance of that cloud. Its node has the cloud's providerID and the usual labels.
For machines of OpenShift, the Machine API launches the instances through this module. A machine of a pool with ESX
hosts is a virtual machine on one of them.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from haulout.api.resources import NODES
from haulout.errors import KubeError, NotFound
from haulout.kube.client import Client
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.azure import AzureCloud
from haulout_sandbox.clouds.gcp import GcpCloud
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.vsphere import VsphereCloud
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.nodes import Machine
from haulout_sandbox.scenarios import expansion, model
from haulout_sandbox.scenarios.cloud_providers import (
    AwsProvider,
    AzureProvider,
    CloudProvider,
    GcpProvider,
    OciProvider,
)
from haulout_sandbox.scenarios.esx import ALARM_NAME, EsxHosts


@dataclass(frozen=True, slots=True)
class FleetMember:
    node: str
    pool: str
    cloud: model.Cloud
    instance: str


class Fleet:
    def __init__(self, cluster: Cluster, client: Client, pools: Sequence[model.Pool]) -> None:
        self.oci, self.aws = OciProvider(cluster.clock), AwsProvider(cluster.clock, realm=str(cluster.seed))
        self.azure, self.gcp = AzureProvider(cluster.clock, realm=str(cluster.seed)), GcpProvider(cluster.clock)
        self.esx = EsxHosts(cluster.clock, cluster.kubelets)
        self._kubelets = cluster.kubelets
        self._client = client
        self._pools = {pool.name: pool for pool in pools}
        self._machines_before = dict(zip(self._pools, expansion.machines_before(pools), strict=True))
        self._last_numbers = dict.fromkeys(self._pools, 0)
        self._members: dict[str, FleetMember] = {}

    @property
    def clouds(self) -> frozenset[model.Cloud]:
        """Return the clouds with machines in this fleet."""
        return frozenset(pool.cloud for pool in self._pools.values() if pool.cloud)

    @property
    def oci_model(self) -> OciCloud:
        return self.oci.cloud

    @property
    def aws_model(self) -> AwsCloud:
        return self.aws.cloud

    @property
    def azure_model(self) -> AzureCloud:
        return self.azure.cloud

    @property
    def gcp_model(self) -> GcpCloud:
        return self.gcp.cloud

    @property
    def vcenters(self) -> Mapping[str, VsphereCloud]:
        return self.esx.vcenters

    @property
    def vcenter_alarms(self) -> frozenset[str]:
        return frozenset({ALARM_NAME})

    def provider(self, cloud: model.Cloud) -> CloudProvider:
        by_name: dict[model.Cloud, CloudProvider] = {
            "oci": self.oci,
            "aws": self.aws,
            "azure": self.azure,
            "gcp": self.gcp,
        }
        return by_name[cloud]

    @property
    def openshift_pools(self) -> tuple[model.Pool, ...]:
        """Return the pools whose nodes are OpenShift Machines; the Machine API adds and replaces these."""
        return tuple(pool for pool in self._pools.values() if pool.machines)

    def add_initial_machines(self) -> None:
        for pool in self._pools.values():
            if pool.machines:
                continue
            for _ in range(pool.count):
                self.add_machine(pool.name)

    def add_machine(self, pool: str) -> str:
        """Add the next machine of a pool; return its name."""
        machine = self.launch_machine(pool)
        self._kubelets.add(machine)
        return machine.name

    def launch_machine(self, pool: str, *, zone: str = "") -> Machine:
        """Return the next machine of a pool with a launched instance, but without a node."""
        self._last_numbers[pool] += 1
        pool_spec = self._pools[pool]
        machine = expansion.new_machine(
            pool_spec, self._last_numbers[pool], machines_before=self._machines_before[pool], zone=zone
        )
        if pool_spec.esx_hosts:
            return self.esx.place_machine(machine, pool=pool, hosts=pool_spec.esx_hosts)
        if not pool_spec.cloud:
            return machine
        instance = self.provider(pool_spec.cloud).launch_instance(machine.name, pool=pool, zone=machine.zone)
        self._members[machine.name] = FleetMember(machine.name, pool, pool_spec.cloud, instance.instance_id)
        cloud_labels = {} if pool_spec.machines else instance.labels  # OpenShift nodes have other labels
        return replace(
            machine,
            provider_id=instance.provider_id,
            labels={**cloud_labels, **machine.labels},
            annotations={**instance.annotations, **machine.annotations},
        )

    async def remove_machine(self, name: str) -> None:
        """Remove a machine and its node for good."""
        self.terminate_instance(name)
        with suppress(KubeError):  # the kubelets' connection may be cut; this one is not
            await self._kubelets.remove(name)
        with suppress(NotFound):
            await self._client.delete(NODES, name)

    def terminate_instance(self, name: str) -> None:
        """Terminate the cloud instance of a machine, if it has one."""
        self.esx.remove_machine(name)
        member = self._members.pop(name, None)
        if member is not None:
            self.provider(member.cloud).terminate_instance(member.instance)

    def member(self, node: str) -> FleetMember | None:
        """Return the instance of a node, if it has one."""
        return self._members.get(node)
