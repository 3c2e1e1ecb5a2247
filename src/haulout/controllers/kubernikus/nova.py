"""Nova, the compute service of OpenStack: the interface to list and delete servers, and the match to nodes. Pure.

Nova treats a name in a query as a pattern: `node-1` also returns `node-10`. So names are compared here. A node's server
is the only one with exactly its name and, if the node has a providerID, with that ID. In every other case nothing is
deleted, and the mismatch is reported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from haulout.api.objects import Node, machine_key
from haulout.api.reasons import KubernikusEventReason
from haulout.errors import HauloutError

_SCHEME = "openstack://"
_DELETING = "deleting"
_DELETED = ("DELETED", "SOFT_DELETED")
_TASK = "OS-EXT-STS:task_state"

ServerDocument = Mapping[str, Any]  # a server as Nova's API returns it


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server in Nova."""

    id: str
    name: str
    status: str = ""
    task: str = ""  # the running task

    @classmethod
    def from_document(cls, document: ServerDocument) -> "Server":
        values = {key: str(document.get(key) or "") for key in ("id", "name", "status", _TASK)}
        return cls(id=values["id"], name=values["name"], status=values["status"], task=values[_TASK])

    @property
    def is_being_deleted(self) -> bool:
        """Whether its deletion was requested or is done."""
        return self.task == _DELETING or self.status in _DELETED


class Nova(Protocol):
    """One project in one region. Every failure is an `ExternalError`."""

    async def servers(self, name: str) -> Sequence[ServerDocument]:
        """Return the servers whose name contains `name`."""
        ...

    async def delete(self, server: str) -> None:
        """Delete a server by ID; succeed if it does not exist."""
        ...


class ServerMismatch(HauloutError):
    """The node's server cannot be determined; `reason` is the CamelCase reason."""

    def __init__(self, problem: str, *, reason: str) -> None:
        self.reason = reason
        super().__init__(problem)


def is_outside_openstack(node: Node) -> bool:
    """Return whether the provider ID of a node is not one of OpenStack."""
    return bool(node.spec.provider_id) and not node.spec.provider_id.lower().startswith(_SCHEME)


def find_server(node: Node, servers: Sequence[Server]) -> Server | None:
    """Return the node's server; None if no server has its name. Raise `ServerMismatch` if it is ambiguous."""
    same_name = [candidate for candidate in servers if candidate.name == node.name]
    if len(same_name) > 1:
        ids = ", ".join(sorted(candidate.id for candidate in same_name))
        raise ServerMismatch(
            f"{len(same_name)} servers of the project are called {node.name}, so it is unknown which to delete: {ids}",
            reason=KubernikusEventReason.SERVER_AMBIGUOUS,
        )
    if not same_name:
        return None
    (server,) = same_name
    provider_server_id = machine_key(node.spec.provider_id)
    if provider_server_id and provider_server_id.lower() != server.id.lower():
        raise ServerMismatch(
            f"the server called {node.name} is {server.id}, and the "
            f"node is server {provider_server_id} by its providerID",
            reason=KubernikusEventReason.SERVER_ID_MISMATCH,
        )
    return server
