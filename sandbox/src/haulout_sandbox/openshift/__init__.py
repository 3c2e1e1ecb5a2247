"""A simulation of OpenShift's Machine API and its cloud.

    for definition in custom_resource_definitions():
        cluster.api.put(definition)
    async with cluster.running():
        cluster.start_program(MachineApi(cluster.client("machine-api"), instances, random=Random(1)).run(), name=…)

Machines become instances and then nodes after some minutes. A deleted Machine is drained, its instance terminated and
its Node deleted. MachineSets and the ControlPlaneMachineSet replace deleted Machines. It accesses the cluster only
through `haulout.kube`, and machines only through an `InstanceProvider`, so it runs against a real kube-apiserver as
well.
"""
