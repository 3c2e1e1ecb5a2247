"""What the hub notes down beside its labels, so that an approval can be told from one that was given before.

On a Node, in the very patch that asks for something: which Machine is meant, and when it was asked for. On a Machine:
which of these was approved, and that its deletion is not held any more.
"""

from datetime import UTC, datetime

import msgspec

from haulout.kinds.clusterapi import Machine
from haulout.kube.objects import Base, Node

DELETION_ASK = "haulout.dev/machine-deletion-ask"  # annotation of a Node
MAINTENANCE_ASK = "haulout.dev/machine-maintenance-ask"  # the same
APPROVED_ASK = "haulout.dev/machine-maintenance-approved"  # annotation of a Machine: when that was asked for
RELEASED = "haulout.dev/machine-deletion-released"  # the same: why its deletion is not held


class Ask(Base, frozen=True):
    """Somebody is asked to prepare a node."""

    machine: str  # its uid
    since: datetime

    @property
    def written(self) -> str:
        """The value of the annotation."""
        return msgspec.json.encode(self).decode()

    @property
    def instant(self) -> str:
        """What tells it from another for the same Machine."""
        return self.since.astimezone(UTC).isoformat()


def ask_in(node: Node, key: str) -> Ask | None:
    """Return what is asked for in an annotation of a node; None if it is nothing or makes no sense."""
    text = node.metadata.annotations.get(key)
    if not text:
        return None
    try:
        ask = msgspec.json.decode(text, type=Ask)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
    return ask if ask.since.tzinfo is not None else None


def ask_on(node: Node, key: str, machine: Machine) -> Ask | None:
    """Return what is asked for on behalf of a Machine; None if it is nothing, of another or makes no sense."""
    ask = ask_in(node, key)
    return ask if ask is not None and ask.machine == machine.uid else None
