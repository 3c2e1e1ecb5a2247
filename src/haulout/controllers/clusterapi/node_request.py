"""What the hub notes down beside its labels, so that an approval can be told from one that was given before.

On a Node, in the very patch that asks for something: which Machine is meant, and when it was asked for. On a Machine:
which of these was approved, and that its deletion is not held any more.
"""

from datetime import UTC, datetime

import msgspec

from haulout.api.clusterapi import Machine
from haulout.api.objects import Base, Node

DELETION_REQUEST = "haulout.dev/machine-deletion-ask"  # annotation of a Node
MAINTENANCE_REQUEST = "haulout.dev/machine-maintenance-ask"  # the same
APPROVED_REQUEST = "haulout.dev/machine-maintenance-approved"  # annotation of a Machine: when that was asked for
DELETION_RELEASED = "haulout.dev/machine-deletion-released"  # the same: why its deletion is not held


class NodeRequest(Base, frozen=True):
    """Somebody is asked to prepare a node."""

    machine: str  # its uid
    since: datetime

    @property
    def annotation_value(self) -> str:
        """The value of the annotation."""
        return msgspec.json.encode(self).decode()

    @property
    def identity(self) -> str:
        """What tells it from another for the same Machine."""
        return self.since.astimezone(UTC).isoformat()


def read_request(node: Node, key: str) -> NodeRequest | None:
    """Return what is asked for in an annotation of a node; None if it is nothing or makes no sense."""
    value = node.metadata.annotations.get(key)
    if not value:
        return None
    try:
        request = msgspec.json.decode(value, type=NodeRequest)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
    return request if request.since.tzinfo is not None else None


def request_for(node: Node, key: str, machine: Machine) -> NodeRequest | None:
    """Return what is asked for on behalf of a Machine; None if it is nothing, of another or makes no sense."""
    request = read_request(node, key)
    return request if request is not None and request.machine == machine.uid else None
