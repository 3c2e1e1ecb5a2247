"""A stand-in for Cluster API: Machines of a management cluster that become Nodes of workload clusters.

    for definition in definitions():
        management.api.put(definition)
    workloads = Workloads(clock)
    workloads.add(ClusterKey("team-a", "prod"), Cluster(clock))
    async with management.running(), prod.running():
        management.host(ClusterApi(management.client("cluster-api"), workloads, random=Random(1)).run(), name=…)

Workload clusters are clusters of their own in the same process, on the same clock. Their kubeconfigs are in Secrets, as
Cluster API has them, and `Workloads.connect` makes a client of one. Machines run on `Infrastructure`: instances of no
cloud in particular, or hosts of `haulout_sandbox.metal3`.
"""

from haulout_sandbox.clusterapi.api import ClusterApi
from haulout_sandbox.clusterapi.clusters import Kubeconfigs
from haulout_sandbox.clusterapi.infrastructure import Hosts, Infrastructure, Instances, Paces
from haulout_sandbox.clusterapi.machines import ANY
from haulout_sandbox.clusterapi.objects import METAL3, a_cluster, a_machine_deployment, definitions, kinds
from haulout_sandbox.clusterapi.workloads import Outage, Workload, Workloads

__all__ = [
    "ANY",
    "METAL3",
    "ClusterApi",
    "Hosts",
    "Infrastructure",
    "Instances",
    "Kubeconfigs",
    "Outage",
    "Paces",
    "Workload",
    "Workloads",
    "a_cluster",
    "a_machine_deployment",
    "definitions",
    "kinds",
]
