"""The nodes of the cluster, by the EC2 instances that they run on, and whether they are empty.

Nodes without a providerID are found by the private DNS name or the private address of an instance, once EC2 has said
what those are (`Identities`).
"""

from collections.abc import Collection
from dataclasses import dataclass

from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.kube.resources import PODS
from haulout.notices.finding import Nodes
from haulout.notices.occupancy import condition_of, is_to_leave
from haulout.notices.sources.aws.readings import instance_of

_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Identity:
    """What EC2 calls an instance in its network; empty: it has none."""

    name: str = ""
    address: str = ""


class Fleet:
    """Follows nodes; those that are no instances of EC2 are none of it."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, Node]] = {}
        self._without: set[str] = set()  # names of nodes without a providerID
        self._all = Nodes()
        self._identities: dict[str, Identity] = {}

    def follow(self, old: Node | None, new: Node | None) -> None:
        """Take what a watch told."""
        self._all.follow(old, new)
        if old is not None:
            self._without.discard(old.name)
        if new is not None and not new.spec.provider_id:
            self._without.add(new.name)
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
        """Return the nodes that say that they run on an instance: none, one, or, if one of them is wrong, more.

        If there are none, return those without a providerID that have its DNS name or address.
        """
        found = self._nodes.get(instance, {}).values()
        identity = self._identities.get(instance)
        return found if found or identity is None else self._all.called(identity.name, identity.address)[2]

    def identify(self, instance: str, identity: "Identity") -> None:
        """Note what an instance is called; one that is gone is called nothing, and others get its address."""
        self._identities.pop(instance, None)
        if len(self._identities) >= _REMEMBERED:
            self._identities.clear()
        if identity != Identity():
            self._identities[instance] = identity

    def is_doubtful(self, instance: str) -> bool:
        """Tell whether a node without a providerID may run on an instance."""
        return bool(self._without) and not self._nodes.get(instance)

    def node_of(self, instance: str) -> str:
        """Return the name of the only node that says that it runs on an instance; empty if there is no such."""
        found = tuple(self._nodes.get(instance, {}))
        return found[0] if len(found) == 1 else ""


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
