"""Find and delete servers in Nova. A failure is a value with the time of the next attempt."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.controllers.kubernikus.decision import ServerLookup
from haulout.controllers.kubernikus.labels import SERVER_ANNOTATION, is_deletion_ordered
from haulout.controllers.kubernikus.nova import Nova, Server
from haulout.core.backoff import Backoff
from haulout.core.retry import Retry
from haulout.core.timeouts import await_with_timeout
from haulout.errors import ExternalError, ObservationStale
from haulout.kube.client import Client
from haulout.kube.mutation_cache import MutationCache

_TIMEOUT = timedelta(seconds=90)  # longer than the timeout of a single response
_RETRY_BACKOFF = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=5), jitter=0.1)
_MAX_RETRY_AFTER = timedelta(minutes=30)  # Nova asks for long pauses when a quota is used up


@dataclass(slots=True)
class _CachedServer:
    """The last result for a node's server, and how long it is valid."""

    uid: str  # uid of the node
    retry: Retry  # not reset by a lookup that succeeds: a deletion that fails again and again needs one each time
    lookup: ServerLookup | None = None
    deleted_server: str = ""
    valid_until: datetime | None = None


class Servers:
    """The servers of nodes. Results are cached, so that frequent reconciles do not query Nova more often."""

    def __init__(self, client: Client, nova: Nova, nodes: MutationCache[Node]) -> None:
        self._client = client
        self._nova = nova
        self._nodes = nodes
        self._entries: dict[str, _CachedServer] = {}  # by node

    def deleted_server(self, node: Node) -> str:
        """Return the server whose deletion was requested recently; empty if none was."""
        entry = self._entry(node)
        return entry.deleted_server if self._is_valid(entry) else ""

    def lookup(self, node: Node) -> ServerLookup | None:
        """Return what Nova returned for a node, or why it did not; None if that is outdated."""
        entry = self._entry(node)
        return entry.lookup if self._is_valid(entry) else None

    async def find(self, node: Node, *, valid_for: timedelta) -> None:
        """Query the servers that may be the node's, for `lookup`."""
        entry = self._entry(node)
        try:
            found = await await_with_timeout(
                self._nova.servers(node.name), doing=f"asking Nova for server {node.name}", within=_TIMEOUT
            )
        except ExternalError as error:
            self._record_failure(entry, error)
            return
        entry.lookup, entry.deleted_server = ServerLookup(servers=tuple(map(Server.from_document, found))), ""
        entry.valid_until = self._client.clock.now() + valid_for

    async def delete(self, node: Node, server: str, *, valid_for: timedelta) -> bool:
        """Delete a server, after confirming the order in the API server; return whether Nova has accepted it.

        Raise `ObservationStale` if the node no longer has the order for this server: a stale cache must not delete a
        server.
        """
        current = self._nodes.record_write(await self._client.get(NODES, node.name))
        if (
            current.uid != node.uid
            or not is_deletion_ordered(current)
            or current.metadata.annotations.get(SERVER_ANNOTATION) != server
        ):
            raise ObservationStale(f"node {node.name} has changed: its server {server} is no longer to be deleted")
        entry = self._entry(node)
        try:
            await await_with_timeout(self._nova.delete(server), doing=f"deleting server {server}", within=_TIMEOUT)
        except ExternalError as error:
            self._record_failure(entry, error)
            return False
        entry.lookup, entry.deleted_server = None, server
        entry.retry.reset()
        entry.valid_until = self._client.clock.now() + valid_for
        return True

    def forget(self, name: str) -> None:
        self._entries.pop(name, None)

    def _entry(self, node: Node) -> _CachedServer:
        entry = self._entries.get(node.name)
        if entry is None or entry.uid != node.uid:
            entry = self._entries[node.name] = _CachedServer(
                node.uid,
                Retry(self._client.clock, self._client.random, _RETRY_BACKOFF, max_retry_after=_MAX_RETRY_AFTER),
            )
        return entry

    def _is_valid(self, entry: _CachedServer) -> bool:
        return entry.valid_until is not None and self._client.clock.now() < entry.valid_until

    def _record_failure(self, entry: _CachedServer, error: ExternalError) -> None:
        entry.valid_until = self._client.clock.now() + entry.retry.delay(error)
        entry.lookup = ServerLookup(problem=str(error), retry_at=entry.valid_until)
