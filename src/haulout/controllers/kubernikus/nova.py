"""Nova, the compute service of OpenStack, as far as servers are deleted; and which server a node is. Pure.

Nova matches the name that it is asked for as a pattern: who asks for `node-1` hears of `node-10`, too. So names are
compared here. A node's server is the only one with exactly its name and, if the node has a providerID, with that id:
in all other cases nothing is deleted, and a person is told what is odd.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from haulout.api.objects import Node
from haulout.api.provider_id import machine_key
from haulout.errors import HauloutError

_SCHEME = "openstack://"
_DELETING = "deleting"
_DELETED = ("DELETED", "SOFT_DELETED")
_TASK = "OS-EXT-STS:task_state"

ServerDocument = Mapping[str, Any]  # a server, with the keys that Nova has for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server."""

    id: str
    name: str
    status: str = ""
    task: str = ""  # what is being done with it

    @classmethod
    def from_document(cls, document: ServerDocument) -> "Server":
        """Return what a document says."""
        values = {key: str(document.get(key) or "") for key in ("id", "name", "status", _TASK)}
        return cls(id=values["id"], name=values["name"], status=values["status"], task=values[_TASK])

    @property
    def is_being_deleted(self) -> bool:
        """Tell whether it was told to go."""
        return self.task == _DELETING or self.status in _DELETED


class Nova(Protocol):
    """One project in one region. Whatever goes wrong is an `OutsideError`."""

    async def servers(self, name: str) -> Sequence[ServerDocument]:
        """Return the servers whose name has this in it."""
        ...

    async def delete(self, server: str) -> None:
        """Delete a server by its id; one that is gone is deleted."""
        ...


class ServerMismatch(HauloutError):
    """It cannot be told which server a node is; `reason` is a word for it."""

    def __init__(self, problem: str, *, reason: str) -> None:
        self.reason = reason
        super().__init__(problem)


def is_outside_openstack(node: Node) -> bool:
    """Tell whether a node says that it is no server of OpenStack."""
    return bool(node.spec.provider_id) and not node.spec.provider_id.lower().startswith(_SCHEME)


def find_server(node: Node, servers: Sequence[Server]) -> Server | None:
    """Return the server of a node among those that Nova found; None if none has its name. Raises `ServerMismatch`."""
    same_name = [candidate for candidate in servers if candidate.name == node.name]
    if len(same_name) > 1:
        ids = ", ".join(sorted(candidate.id for candidate in same_name))
        raise ServerMismatch(
            f"{len(same_name)} servers of the project are called {node.name}, so nobody knows which to delete: {ids}",
            reason="ServerAmbiguous",
        )
    if not same_name:
        return None
    (server,) = same_name
    provider_server_id = machine_key(node.spec.provider_id)
    if provider_server_id and provider_server_id.lower() != server.id.lower():
        raise ServerMismatch(
            f"the server called {node.name} is {server.id}, and the "
            f"node is server {provider_server_id} by its providerID",
            reason="ServerDiffers",
        )
    return server
