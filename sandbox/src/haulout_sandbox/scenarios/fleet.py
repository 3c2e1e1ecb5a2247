"""The machines of a scenario, pool by pool, and the instances of clouds that they are.

A machine of a pool with a cloud is an instance there. Its node has the cloud's providerID for it, and the labels by
which people find such nodes. Machines of OpenShift are brought in by the Machine API, which launches their instances
here. A machine of a pool with ESX hosts is a virtual machine on one of them.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from haulout.errors import KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.resources import NODES
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.azure import AzureCloud
from haulout_sandbox.clouds.gcp import GcpCloud
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.vsphere import VsphereCloud
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.nodes import Machine
from haulout_sandbox.scenarios import model, plan
from haulout_sandbox.scenarios.esx import ALARM, EsxHosts
from haulout_sandbox.scenarios.providers import Aws, Azure, Gcp, Oci, Provider


@dataclass(frozen=True, slots=True)
class Member:
    """A machine of a cloud."""

    node: str
    pool: str
    cloud: model.Cloud
    instance: str


class Fleet:
    """Brings machines in, and takes them away."""

    def __init__(self, cluster: Cluster, client: Client, pools: Sequence[model.Pool]) -> None:
        self.oci, self.aws = Oci(cluster.clock), Aws(cluster.clock, realm=str(cluster.seed))
        self.azure, self.gcp = Azure(cluster.clock, realm=str(cluster.seed)), Gcp(cluster.clock)
        self.esx = EsxHosts(cluster.clock, cluster.kubelets)
        self._kubelets = cluster.kubelets
        self._client = client
        self._pools = {pool.name: pool for pool in pools}
        self._before = dict(zip(self._pools, plan.counts_before(pools), strict=True))
        self._numbers = dict.fromkeys(self._pools, 0)
        self._members: dict[str, Member] = {}

    @property
    def clouds(self) -> frozenset[model.Cloud]:
        """The clouds that have machines here."""
        return frozenset(pool.cloud for pool in self._pools.values() if pool.cloud)

    @property
    def oci_model(self) -> OciCloud:
        """What answers for Oracle Cloud Infrastructure."""
        return self.oci.cloud

    @property
    def aws_model(self) -> AwsCloud:
        """What answers for AWS."""
        return self.aws.cloud

    @property
    def azure_model(self) -> AzureCloud:
        """What answers for Azure."""
        return self.azure.cloud

    @property
    def gcp_model(self) -> GcpCloud:
        """What answers for Google Cloud."""
        return self.gcp.cloud

    @property
    def vcenters(self) -> Mapping[str, VsphereCloud]:
        """What answers for the vCenter of each zone."""
        return self.esx.clouds

    @property
    def esx_alarms(self) -> frozenset[str]:
        """The alarms that an ESX host may raise."""
        return frozenset({ALARM})

    def provider(self, cloud: model.Cloud) -> Provider:
        """Return a cloud."""
        by_name: dict[model.Cloud, Provider] = {
            "oci": self.oci,
            "aws": self.aws,
            "azure": self.azure,
            "gcp": self.gcp,
        }
        return by_name[cloud]

    @property
    def of_machines(self) -> tuple[model.Pool, ...]:
        """The pools whose nodes are Machines of OpenShift: others bring them in, and replace them."""
        return tuple(pool for pool in self._pools.values() if pool.machines)

    def fill(self) -> None:
        """Bring in the machines that the scenario has from the beginning."""
        for pool in self._pools.values():
            if pool.machines:
                continue
            for _ in range(pool.count):
                self.bring(pool.name)

    def bring(self, pool: str) -> str:
        """Bring in the next machine of a pool; return its name."""
        machine = self.launch(pool)
        self._kubelets.add(machine)
        return machine.name

    def launch(self, pool: str, *, zone: str = "") -> Machine:
        """Return the next machine of a pool, which is an instance of its cloud but no node yet."""
        self._numbers[pool] += 1
        wanted = self._pools[pool]
        machine = plan.machine(wanted, self._numbers[pool], before=self._before[pool], zone=zone)
        if wanted.esx_hosts:
            return self.esx.place(machine, pool=pool, hosts=wanted.esx_hosts)
        if not wanted.cloud:
            return machine
        instance = self.provider(wanted.cloud).launch(machine.name, pool=pool, zone=machine.zone)
        self._members[machine.name] = Member(machine.name, pool, wanted.cloud, instance.called)
        installed = {} if wanted.machines else instance.labels  # those of another installer
        return replace(
            machine,
            provider_id=instance.provider_id,
            labels={**installed, **machine.labels},
            annotations={**instance.annotations, **machine.annotations},
        )

    async def remove(self, name: str) -> None:
        """Take a machine away for good, and its node with it."""
        self.terminate(name)
        with suppress(KubeError):  # the kubelets' line may be down; ours is not
            await self._kubelets.remove(name)
        with suppress(NotFound):
            await self._client.delete(NODES, name)

    def terminate(self, name: str) -> None:
        """End the instance of a machine, if a cloud has it."""
        self.esx.drop(name)
        member = self._members.pop(name, None)
        if member is not None:
            self.provider(member.cloud).terminate(member.instance)

    def member(self, node: str) -> Member | None:
        """Return the instance that a node is, if a cloud has it."""
        return self._members.get(node)
