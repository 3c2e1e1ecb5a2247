"""The trigger `replaceMachine`: OpenShift makes another node in place of this one.

It asks by a MachineMaintenance, and whoever sees to these replaces the Machine. So all that holds for Machines which
the cloud takes away holds here, too.
"""

from dataclasses import dataclass

from haulout.api.machinemaintenance import MACHINE_MAINTENANCES, NAMESPACE
from haulout.api.objects import Node
from haulout.api.openshift import MACHINE_NAMESPACE, MACHINE_OF_NODE
from haulout.api.provider_id import machine_key
from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Action, PluginContext, ReplaceMachine, Trigger
from haulout.errors import HauloutError
from haulout.kube.rbac import Permission


class NoMachine(HauloutError):
    """There is no Machine that could be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceMachineTrigger(Trigger):
    """Has the node's Machine replaced, on OpenShift: the node goes, and another one comes.

    It asks for that by a MachineMaintenance in the namespace `machine-maintenance-operator`, once for each Machine, and
    the chain goes on. When the Machine goes, and whether it may, is said there: one Machine of a MachineSet at a time,
    those of the control plane only when all are well, none that nobody would make another one for, and not outside of
    the windows that are set for Machines. The Machine API empties the node, with a drain of its own; put an `eviction`
    before this trigger to have it emptied as your drain policy says.

    The Machine is the one that the annotation `machine.openshift.io/machine` of the node names. The trigger fails, and
    is tried again, if there is none, or if the MachineMaintenance was called off or is refused.
    """

    type = "replaceMachine"
    example = "surge: true"

    required: bool = option("Whether it fails for a node without a Machine. If not, such a node is left.", default=True)
    surge: bool | None = option(
        "Whether another Machine is made first. Without it, as the operator is told to by its environment.",
        default=None,
    )

    def actions(self, context: PluginContext) -> tuple[Action, ...]:
        """Return the one request; raises `NoMachine`."""
        node = context.node
        found = node.metadata.annotations.get(MACHINE_OF_NODE, "")
        if not found and not self.required:
            return ()
        return (ReplaceMachine(machine=_machine_name(node, found), instance=_instance_id(node), surge=self.surge),)

    def permissions(self, namespace: str) -> tuple[Permission, ...]:
        """Return what it takes to ask."""
        del namespace
        reason, resource = "have Machines replaced", MACHINE_MAINTENANCES
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
        raise NoMachine(f"node {node.name} has no providerID, so nobody can tell which instance is to go")
    return instance
