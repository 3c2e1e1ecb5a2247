"""Nova, the compute service of OpenStack, as far as servers are deleted; and which server a node is. Pure.

Nova matches the name that it is asked for as a pattern: who asks for `node-1` hears of `node-10`, too. So names are
compared here. A node's server is the only one with exactly its name and, if the node has a providerID, with that id:
in all other cases nothing is deleted, and a person is told what is odd.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from haulout.errors import HauloutError
from haulout.kinds.machines import machine_key
from haulout.kube.objects import Node

_SCHEME = "openstack://"
_DELETING = "deleting"
_DELETED = ("DELETED", "SOFT_DELETED")
_TASK = "OS-EXT-STS:task_state"

Document = Mapping[str, Any]  # a server, with the keys that Nova has for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server."""

    id: str
    name: str
    status: str = ""
    task: str = ""  # what is being done with it

    @classmethod
    def read(cls, document: Document) -> "Server":
        """Return what a document says."""
        said = {key: str(document.get(key) or "") for key in ("id", "name", "status", _TASK)}
        return cls(id=said["id"], name=said["name"], status=said["status"], task=said[_TASK])

    @property
    def is_leaving(self) -> bool:
        """Tell whether it was told to go."""
        return self.task == _DELETING or self.status in _DELETED


class Nova(Protocol):
    """One project in one region. Whatever goes wrong is an `OutsideError`."""

    async def servers(self, name: str) -> Sequence[Document]:
        """Return the servers whose name has this in it."""
        ...

    async def delete(self, server: str) -> None:
        """Delete a server by its id; one that is gone is deleted."""
        ...


class NotTheServer(HauloutError):
    """It cannot be told which server a node is; `reason` is a word for it."""

    def __init__(self, problem: str, *, reason: str) -> None:
        self.reason = reason
        super().__init__(problem)


def is_elsewhere(node: Node) -> bool:
    """Tell whether a node says that it is no server of OpenStack."""
    return bool(node.spec.provider_id) and not node.spec.provider_id.lower().startswith(_SCHEME)


def server_of(node: Node, servers: Sequence[Server]) -> Server | None:
    """Return the server of a node among those that Nova found; None if none has its name. Raises `NotTheServer`."""
    named = [it for it in servers if it.name == node.name]
    if len(named) > 1:
        ids = ", ".join(sorted(it.id for it in named))
        raise NotTheServer(
            f"{len(named)} servers of the project are called {node.name}, so nobody knows which to delete: {ids}",
            reason="ServerAmbiguous",
        )
    if not named:
        return None
    (server,) = named
    known = machine_key(node.spec.provider_id)
    if known and known.lower() != server.id.lower():
        raise NotTheServer(
            f"the server called {node.name} is {server.id}, and the node is server {known} by its providerID",
            reason="ServerDiffers",
        )
    return server
