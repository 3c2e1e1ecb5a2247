"""Asks Nova, and has it delete servers: what it does not do is an answer, with the instant to try again."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.core.answering import answered
from haulout.core.backoff import Backoff
from haulout.errors import HauloutError, OutsideError
from haulout.kube.client import Client
from haulout.kube.fresh import Fresh
from haulout.kube.objects import Node
from haulout.kube.resources import NODES
from haulout.kubernikus.decision import Found
from haulout.kubernikus.keys import SERVER, is_ordered
from haulout.kubernikus.nova import Nova, Server

_WITHIN = timedelta(seconds=90)  # longer than any single answer may take
_ASKED_AGAIN = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=5), jitter=0.1)


class NotAsItWas(HauloutError):
    """The node itself says something else than our copy of it."""


@dataclass(slots=True)
class _Known:
    """What is known of the server of a node, and until when that is believed."""

    uid: str  # of the node
    found: Found | None = None
    deleted: str = ""
    until: datetime | None = None
    refusals: int = 0  # in a row


class Servers:
    """The servers of nodes. Nova is not asked again before it is time, whatever wakes us."""

    def __init__(self, client: Client, nova: Nova, nodes: Fresh[Node]) -> None:
        self._client = client
        self._nova = nova
        self._nodes = nodes
        self._known: dict[str, _Known] = {}  # by node

    def deleted(self, node: Node) -> str:
        """Return the server of a node that was told to go just now."""
        known = self._of(node)
        return known.deleted if self._is_believed(known) else ""

    async def find(self, node: Node, *, believed_for: timedelta) -> Found:
        """Return the servers that may be the node's."""
        known = self._of(node)
        if known.found is not None and self._is_believed(known):
            return known.found
        try:
            found = await answered(
                self._nova.servers(node.name), doing=f"asking Nova for server {node.name}", within=_WITHIN
            )
        except OutsideError as error:
            return self._refused(known, error)
        known.found, known.deleted = Found(servers=tuple(map(Server.read, found))), ""
        known.until = self._client.clock.now() + believed_for
        return known.found

    async def delete(self, node: Node, server: str, *, believed_for: timedelta) -> Found | None:
        """Delete a server, if the node itself still says so; return why that did not work."""
        current = self._nodes.note(await self._client.get(NODES, node.name))
        if current.uid != node.uid or not is_ordered(current) or current.metadata.annotations.get(SERVER) != server:
            raise NotAsItWas(f"node {node.name} is not the one any more whose server {server} is to be deleted")
        known = self._of(node)
        try:
            await answered(self._nova.delete(server), doing=f"deleting server {server}", within=_WITHIN)
        except OutsideError as error:
            return self._refused(known, error)
        known.found, known.deleted, known.refusals = None, server, 0
        known.until = self._client.clock.now() + believed_for
        return None

    def forget(self, name: str) -> None:
        """Forget a node."""
        self._known.pop(name, None)

    def _of(self, node: Node) -> _Known:
        known = self._known.get(node.name)
        if known is None or known.uid != node.uid:
            known = self._known[node.name] = _Known(node.uid)
        return known

    def _is_believed(self, known: _Known) -> bool:
        return known.until is not None and self._client.clock.now() < known.until

    def _refused(self, known: _Known, error: OutsideError) -> Found:
        known.refusals += 1
        asked_for = getattr(error, "retry_after", None) or timedelta()
        pause = max(_ASKED_AGAIN.delay(known.refusals, self._client.random), asked_for)
        known.until = self._client.clock.now() + pause
        known.found = Found(problem=str(error), again_at=known.until)
        return known.found
