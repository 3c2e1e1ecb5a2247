"""A simulation of Cluster API: Machines of a management cluster that become Nodes of workload clusters.

    for definition in custom_resource_definitions():
        management.api.put(definition)
    workloads = WorkloadClusterRegistry(clock)
    workloads.add(ClusterKey("team-a", "prod"), prod)
    async with management.running(), prod.running():
        manager = ClusterApi(management.client("cluster-api"), workloads, random=Random(1))
        management.start_program(manager.run(), name=…)

Workload clusters are simulated clusters in the same process and on the same clock. Their kubeconfigs are in Secrets, as
with the real Cluster API, and `WorkloadClusterRegistry.connect` creates a client from one. Machines run on an
`InfrastructureProvider`: instances without a cloud model, or hosts of `haulout_sandbox.metal3`.
"""
