"""Records beside the protocol's labels that tell an approval of this request from an older one.

On a Node, written in the same patch as the request: its Machine, and when it was requested. On a Machine: which request
was approved, and that its deletion is no longer held.
"""

from datetime import UTC, datetime

import msgspec

from haulout.api.clusterapi import Machine
from haulout.api.objects import Base, Node

DELETION_REQUEST = "haulout.dev/machine-deletion-ask"  # annotation of a Node
MAINTENANCE_REQUEST = "haulout.dev/machine-maintenance-ask"  # annotation of a Node
APPROVED_REQUEST = "haulout.dev/machine-maintenance-approved"  # annotation of a Machine: the approved request
DELETION_RELEASED = "haulout.dev/machine-deletion-released"  # annotation of a Machine: why its deletion is not held


class NodeRequest(Base, frozen=True):
    """A request to prepare a node."""

    machine: str  # its uid
    since: datetime

    @property
    def annotation_value(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def identity(self) -> str:
        """Identifies this request among those for the same Machine."""
        return self.since.astimezone(UTC).isoformat()


def read_request(node: Node, key: str) -> NodeRequest | None:
    """Return the request in an annotation of a node; None if it is absent or invalid."""
    value = node.metadata.annotations.get(key)
    if not value:
        return None
    try:
        request = msgspec.json.decode(value, type=NodeRequest)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
    return request if request.since.tzinfo is not None else None


def request_for(node: Node, key: str, machine: Machine) -> NodeRequest | None:
    """Return the request for this Machine; None if it is absent, invalid or for another Machine."""
    request = read_request(node, key)
    return request if request is not None and request.machine == machine.uid else None
