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

from haulout_sandbox.openshift.instance_provider import InstanceProvider
from haulout_sandbox.openshift.manager import MachineApi, MachineApiDelays
from haulout_sandbox.openshift.objects import (
    CONTROL_PLANE_MACHINE_SETS,
    INFRASTRUCTURES,
    MACHINE_SETS,
    MACHINES,
    MachineTemplateOptions,
    a_control_plane_machine_set,
    a_machine_set,
    an_infrastructure,
    custom_resource_definitions,
)

__all__ = [
    "CONTROL_PLANE_MACHINE_SETS",
    "INFRASTRUCTURES",
    "MACHINES",
    "MACHINE_SETS",
    "InstanceProvider",
    "MachineApi",
    "MachineApiDelays",
    "MachineTemplateOptions",
    "a_control_plane_machine_set",
    "a_machine_set",
    "an_infrastructure",
    "custom_resource_definitions",
]
