"""The trigger `replaceMachine`: has the Machine of a node replaced on OpenShift.

It creates a MachineMaintenance, and the controller of these replaces the Machine. So the same rules apply as for
Machines that the cloud is going to terminate.
"""

from dataclasses import dataclass

from haulout.api.machinemaintenance import MACHINE_MAINTENANCES, NAMESPACE
from haulout.api.objects import Node, machine_key
from haulout.api.openshift import MACHINE_NAMESPACE, MACHINE_OF_NODE
from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Action, PluginContext, ReplaceMachine, Trigger
from haulout.errors import HauloutError
from haulout.kube.rbac import Permission


class NoMachine(HauloutError):
    """Raised if the node has no Machine that can be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceMachineTrigger(Trigger):
    """Requests the replacement of the node's Machine on OpenShift: the node is deleted, and another one joins.

    It creates a MachineMaintenance in the namespace `machine-maintenance-operator`, once for each Machine, and the
    chain continues. The machine maintenance operator decides when the Machine is deleted, and whether it may be: one
    Machine of a MachineSet at a time, Machines of the control plane only when all of them are healthy, no Machine that
    nothing would recreate, and only inside the time windows that are set for Machines. The Machine API drains the node
    with a drain of its own; put an `eviction` before this trigger to drain the node with your drain policy.

    The Machine is named by the annotation `machine.openshift.io/machine` of the node. The trigger fails and is retried
    if there is none, or if the MachineMaintenance was cancelled or refused.
    """

    type = "replaceMachine"
    example = "surge: true"

    required: bool = option(
        "Whether it fails for a node without a Machine. Otherwise it does nothing for such a node.", default=True
    )
    surge: bool | None = option(
        "Whether a new Machine is created first. Default: what the environment of the operator sets.",
        default=None,
    )

    def actions(self, context: PluginContext) -> tuple[Action, ...]:
        """Return the request. Raise `NoMachine` if the node has no Machine that can be replaced."""
        node = context.node
        found = node.metadata.annotations.get(MACHINE_OF_NODE, "")
        if not found and not self.required:
            return ()
        return (ReplaceMachine(machine=_machine_name(node, found), instance=_instance_id(node), surge=self.surge),)

    def permissions(self, namespace: str) -> tuple[Permission, ...]:
        """Return the permissions to create and get MachineMaintenances."""
        del namespace
        reason, resource = "replace Machines", MACHINE_MAINTENANCES
        return (Permission(("create", "get"), resource.group, resource.plural, NAMESPACE, reason),)


def _machine_name(node: Node, found: str) -> str:
    namespace, _, name = found.rpartition("/")
    if not name:
        raise NoMachine(f"node {node.name} has no Machine: it has no annotation {MACHINE_OF_NODE}")
    if namespace != MACHINE_NAMESPACE:
        raise NoMachine(f"node {node.name} has Machine {found}, expected one in {MACHINE_NAMESPACE}")
    return name


def _instance_id(node: Node) -> str:
    instance = machine_key(node.spec.provider_id or "")
    if not instance:
        raise NoMachine(f"node {node.name} has no providerID, so the instance to replace is unknown")
    return instance
