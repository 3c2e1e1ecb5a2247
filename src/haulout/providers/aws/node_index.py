"""Nodes by EC2 instance, whether a node is empty, and which instances are managed.

Nodes without a provider ID are found by the private DNS name or address of an instance, once EC2 has returned those
(`NetworkIdentities`). EC2 is asked only about instances that are no node's provider ID, and only while there are nodes
without one. Instances are managed if they have a tag (`InstanceTags`), since several clusters may share a queue.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.notice_reports import NoticeReport
from haulout.api.objects import Node
from haulout.api.resources import PODS
from haulout.controllers.notices.node_lookup import MACHINE_ADDRESS, NodeLookup
from haulout.controllers.notices.remaining_pods import must_leave
from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.kube.client import Client
from haulout.providers.aws.api import Document, Ec2, is_unknown_instance
from haulout.providers.aws.instance_events import SOURCE, parse_instance_id
from haulout.providers.cloud_calls import CloudCaller

_MAX_IDENTITIES = 10_000

_MAX_NAME = 255

_CACHE_TTL = timedelta(minutes=5)
_MAX_CACHED = 10_000


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
            # A cache: what is dropped is read again when an event needs it.
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


async def is_empty(client: Client, node: Node) -> bool:
    """Return whether no pods remain that a drain would evict; an uncordoned node is not empty."""
    # Pods may still be scheduled to it, so the list would be outdated at once.
    if not node.spec.unschedulable:
        return False
    pods = (await client.list(PODS, fields=f"spec.nodeName={node.name}")).items
    return not any(map(must_leave, pods))


class NetworkIdentities:
    """Reads identities from EC2, and adds them to the node index."""

    def __init__(self, ec2: Ec2, *, node_index: NodeIndex, caller: CloudCaller) -> None:
        self._ec2 = ec2
        self._node_index = node_index
        self._caller = caller

    async def resolve(self, instance: str, notice: MaintenanceNotice | None = None) -> NetworkIdentity:
        """Return the identity of an instance, if it matters; raise `CloudError` if EC2 does not answer.

        If the notice has the identity already, EC2 is not asked.
        """
        if not self._node_index.may_have_unidentified_node(instance):
            return NetworkIdentity()
        identity = (None if notice is None else _known_identity(notice)) or await self._describe_instance(instance)
        self._node_index.set_identity(instance, identity)
        return identity

    async def _describe_instance(self, instance: str) -> NetworkIdentity:
        doing = f"asking EC2 for the DNS name of {instance}"
        try:
            found = await self._caller.call(lambda: self._ec2.instances([instance]), doing=doing)
        except CloudError as error:
            if is_unknown_instance(error):
                return NetworkIdentity()
            raise
        return next((_identity(document) for document in found), NetworkIdentity())


def identity_report(notice: MaintenanceNotice, identity: NetworkIdentity, *, at: datetime) -> NoticeReport:
    """Return the report that adds the identity to a notice."""
    return NoticeReport(
        source=SOURCE,
        notice_id=notice.spec.notice_id,
        at=at,
        machine_name=identity.name,
        notes={MACHINE_ADDRESS: identity.address} if identity.address else {},
    )


def _known_identity(notice: MaintenanceNotice) -> NetworkIdentity | None:
    name, address = notice.spec.machine_name, notice.metadata.annotations.get(MACHINE_ADDRESS, "")
    return NetworkIdentity(name, address) if name or address else None


def _identity(found: Document) -> NetworkIdentity:
    name, address = (str(found.get(field) or "") for field in ("PrivateDnsName", "PrivateIpAddress"))
    return NetworkIdentity(name if len(name) <= _MAX_NAME else "", address)


class InstanceTags:
    """Reads the tags of instances from EC2; without a tag to check every instance is managed."""

    def __init__(self, ec2: Ec2, *, tag: str, clock: Clock, caller: CloudCaller) -> None:
        self._ec2 = ec2
        self._tag = tag
        self._clock = clock
        self._caller = caller
        self._cached: dict[str, tuple[bool, float]] = {}

    async def filter_managed(self, instances: Collection[str]) -> set[str]:
        """Return the managed ones of these instances; raise `CloudError` if that is unknown."""
        if not self._tag:
            return set(instances)
        return {instance for instance in instances if await self._is_managed(instance)}

    async def _is_managed(self, instance: str) -> bool:
        now = self._clock.monotonic()
        is_managed, until = self._cached.get(instance, (False, 0.0))
        if now < until:
            return is_managed
        is_managed = await self._has_tag(instance)
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[instance] = is_managed, now + _CACHE_TTL.total_seconds()
        return is_managed

    async def _has_tag(self, instance: str) -> bool:
        try:
            found = await self._caller.call(lambda: self._ec2.instances([instance]), doing="asking EC2 for tags")
        except CloudError as error:
            if is_unknown_instance(error):
                return False
            raise
        tags = [tag.get("Key") for instance_document in found for tag in instance_document.get("Tags") or ()]
        return self._tag in tags
