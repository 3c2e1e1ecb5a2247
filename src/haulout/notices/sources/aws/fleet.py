"""The nodes of the cluster, by the EC2 instances that they run on, and whether they are empty."""

from collections.abc import Collection

from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.kube.resources import PODS
from haulout.notices.occupancy import condition_of, is_to_leave
from haulout.notices.sources.aws.readings import instance_of


class Fleet:
    """Follows nodes; those that are no instances of EC2 are none of it."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, Node]] = {}

    def follow(self, old: Node | None, new: Node | None) -> None:
        """Take what a watch told."""
        if old is not None and (instance := instance_of(old.spec.provider_id)):
            nodes = self._nodes.get(instance, {})
            nodes.pop(old.name, None)
            if not nodes:
                self._nodes.pop(instance, None)
        if new is not None and (instance := instance_of(new.spec.provider_id)):
            self._nodes.setdefault(instance, {})[new.name] = new

    def instances(self) -> list[str]:
        """Return all instances that are nodes."""
        return list(self._nodes)

    def nodes(self, instance: str) -> Collection[Node]:
        """Return the nodes that say that they run on an instance: none, one, or, if one of them is wrong, more."""
        return self._nodes.get(instance, {}).values()


def is_ready(node: Node) -> bool:
    """Tell whether a node can serve."""
    ready = condition_of(node, "Ready")
    return ready is not None and ready.status == "True"


async def is_empty(client: Client, node: Node) -> bool:
    """Tell whether nothing is left on a node that a drain would make leave; one that takes new pods is not empty."""
    if not node.spec.unschedulable:
        return False
    pods = (await client.list(PODS, fields=f"spec.nodeName={node.name}")).items
    return not any(map(is_to_leave, pods))
