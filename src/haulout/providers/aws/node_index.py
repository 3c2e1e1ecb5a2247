"""An index of nodes by EC2 instance, and whether a node is empty.

Nodes without a provider ID are found by the private DNS name or address of an instance, once EC2 has returned those
(`NetworkIdentities`).
"""

from collections.abc import Collection
from dataclasses import dataclass

from haulout.api.objects import Node
from haulout.api.resources import PODS
from haulout.controllers.notices.node_lookup import NodeLookup
from haulout.controllers.notices.remaining_pods import must_leave, node_condition
from haulout.kube.client import Client
from haulout.providers.aws.instance_events import parse_instance_id

_MAX_IDENTITIES = 10_000


@dataclass(frozen=True, slots=True)
class NetworkIdentity:
    """The private DNS name and address of an instance; empty if it has none."""

    name: str = ""
    address: str = ""


class NodeIndex:
    """Indexes nodes on EC2 instances; other nodes are ignored."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, Node]] = {}
        self._without_provider_id: set[str] = set()  # names of nodes without a provider ID
        self._lookup = NodeLookup()
        self._identities: dict[str, NetworkIdentity] = {}

    def update(self, old: Node | None, new: Node | None) -> None:
        """Apply a watch event to the index."""
        self._lookup.update(old, new)
        if old is not None:
            self._without_provider_id.discard(old.name)
        if new is not None and not new.spec.provider_id:
            self._without_provider_id.add(new.name)
        if old is not None and (instance := parse_instance_id(old.spec.provider_id)):
            nodes = self._nodes.get(instance, {})
            nodes.pop(old.name, None)
            if not nodes:
                self._nodes.pop(instance, None)
        if new is not None and (instance := parse_instance_id(new.spec.provider_id)):
            self._nodes.setdefault(instance, {})[new.name] = new

    def instances(self) -> list[str]:
        """Return all instances that are nodes."""
        return list(self._nodes)

    def nodes(self, instance: str) -> Collection[Node]:
        """Return the nodes with an instance in their provider ID: none, one, or, if one of them is wrong, several.

        If there are none, return those without a provider ID that have its DNS name or address.
        """
        found = self._nodes.get(instance, {}).values()
        identity = self._identities.get(instance)
        return found if found or identity is None else self._lookup.find_by_alias(identity.name, identity.address)[2]

    def set_identity(self, instance: str, identity: "NetworkIdentity") -> None:
        """Set the identity of an instance; an empty one removes it, since addresses are reused after a termination."""
        self._identities.pop(instance, None)
        if len(self._identities) >= _MAX_IDENTITIES:
            self._identities.clear()
        if identity != NetworkIdentity():
            self._identities[instance] = identity

    def may_have_unidentified_node(self, instance: str) -> bool:
        """Return whether a node without a provider ID may run on the instance."""
        return bool(self._without_provider_id) and not self._nodes.get(instance)

    def node_of(self, instance: str) -> str:
        """Return the name of the only node with this instance in its provider ID; empty if there is none or several."""
        found = tuple(self._nodes.get(instance, {}))
        return found[0] if len(found) == 1 else ""


def is_ready(node: Node) -> bool:
    ready = node_condition(node, "Ready")
    return ready is not None and ready.status == "True"


async def is_empty(client: Client, node: Node) -> bool:
    """Return whether no pods remain that a drain would evict; an uncordoned node is not empty."""
    if not node.spec.unschedulable:
        return False
    pods = (await client.list(PODS, fields=f"spec.nodeName={node.name}")).items
    return not any(map(must_leave, pods))
