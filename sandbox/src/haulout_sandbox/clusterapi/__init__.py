"""A stand-in for Cluster API: Machines of a management cluster that become Nodes of workload clusters.

    for definition in definitions():
        management.api.put(definition)
    workloads = Workloads(clock)
    workloads.add(ClusterKey("team-a", "prod"), Cluster(clock))
    async with management.running(), prod.running():
        management.host(ClusterApi(management.client("cluster-api"), workloads, random=Random(1)).run(), name=…)

Workload clusters are clusters of their own in the same process, on the same clock. Their kubeconfigs are in Secrets, as
Cluster API has them, and `WorkloadClusterRegistry.connect` makes a client of one. Machines run on
`InfrastructureProvider`: instances of no cloud in particular, or hosts of `haulout_sandbox.metal3`.
"""

from haulout_sandbox.clusterapi.cluster import KubeconfigSecrets
from haulout_sandbox.clusterapi.infrastructure_provider import (
    ClusterApiDelays,
    HostFactory,
    InfrastructureProvider,
    SimulatedInstances,
)
from haulout_sandbox.clusterapi.machine import ANY_INFRASTRUCTURE
from haulout_sandbox.clusterapi.manager import ClusterApi
from haulout_sandbox.clusterapi.objects import (
    METAL3_MACHINE_KIND,
    a_cluster,
    a_machine_deployment,
    custom_resource_definitions,
    resources_of,
)
from haulout_sandbox.clusterapi.workload_clusters import Outage, RegisteredCluster, WorkloadClusterRegistry

__all__ = [
    "ANY_INFRASTRUCTURE",
    "METAL3_MACHINE_KIND",
    "ClusterApi",
    "ClusterApiDelays",
    "HostFactory",
    "InfrastructureProvider",
    "KubeconfigSecrets",
    "Outage",
    "RegisteredCluster",
    "SimulatedInstances",
    "WorkloadClusterRegistry",
    "a_cluster",
    "a_machine_deployment",
    "custom_resource_definitions",
    "resources_of",
]
