"""The nodes on ESX hosts: as they were last known, their drains, and writes to them.

A copy may be old. Writes carry the version of the node that they rest on, and before anything is done to a machine the
server itself is asked whether the node is still in our hands: a vCenter does not know who leads.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from haulout.budget.cordon_copies import CordonCopies
from haulout.drain import lasting
from haulout.drain.evictionrequests import Owner
from haulout.drain.keeper import Drains, Kept
from haulout.drain.ladder import Rung
from haulout.drain.machine_rules import honoured
from haulout.drain.policy import Policy
from haulout.drain.tallies import Meter
from haulout.errors import Conflict
from haulout.esx.decision import is_approved
from haulout.esx.keys import HOST, OWNER, TRUE, ZONE
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.fresh import Fresh
from haulout.kube.objects import Node, Pod, RawObject
from haulout.kube.patches import node_patch
from haulout.kube.resources import NODES

_AT_ONCE = 8  # writes: a thousand nodes may get their first label in one round


def zone_of(node: Node) -> str:
    """Return the letter of the zone that a node is in; empty if it is on no host that we could know."""
    labels = node.metadata.labels
    return labels.get(ZONE, "")[-1:] if labels.get(HOST) else ""


class Nodes:
    """Sees to nodes; `drained` hears of those that are empty, `before_drain` of those to be emptied, and may raise.

    `asked` hears of each pod that is made to leave.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache[Node],
        *,
        namespace: str,
        drained: Callable[[str], object],
        before_drain: Callable[[str], object],
        asked: Callable[[Node, Pod, Rung], object],
        meter: Meter | None = None,
    ) -> None:
        self.cordon_copies = CordonCopies(client, namespace=namespace, controller="esx", owns=OWNER.__eq__)
        self._client = client
        self._fresh = Fresh(cache)
        self._drained = drained
        self._before_drain = before_drain
        self._drains = Drains(client, changed=self._note_drain, asked=self._note_asked, meter=meter)
        self._asked = asked
        self._writing = asyncio.Semaphore(_AT_ONCE)
        self._uids: dict[str, str] = {}  # of nodes that have a drain

    async def run(self) -> None:
        """Let drains run, until cancelled."""
        await self._drains.run()

    def all(self) -> Iterable[Node]:
        """Return all nodes."""
        return self._fresh.cache.all()

    def of(self, zone: str) -> Iterator[Node]:
        """Yield the nodes of a zone."""
        for it in list(self._fresh.cache.all()):
            if zone_of(it) == zone:
                yield it

    def zones(self) -> set[str]:
        """Return the letters of all zones that have nodes on hosts."""
        return {zone for it in self._fresh.cache.all() if (zone := zone_of(it))}

    def get(self, name: str) -> Node | None:
        """Return a node as it was last known."""
        return self._fresh.get(name)

    async def patch(self, node: Node, change: RawObject) -> Node:
        """Change a node, if it still is as we know it."""
        async with self._writing:
            changed = self._fresh.note(await self._client.patch(NODES, node.name, node_patch(change)))
        await self.cordon_copies.follow(changed)
        return changed

    async def confirm(self, node: Node, mark: str) -> None:
        """Ask the server whether a node is still the one that we know, and marked; raises `Conflict` if not."""
        found = self._fresh.note(await self._client.get(NODES, node.name))
        if found.uid != node.uid or found.metadata.annotations.get(mark) != TRUE:
            raise Conflict(f"node {node.name} is not in our hands any more", code=409)
        if found.metadata.labels != node.metadata.labels:
            raise Conflict(f"the labels of node {node.name} are others by now", code=409)

    # Drains

    async def see_to_drain(self, node: Node, policy: Policy | None) -> None:
        """Have a node drained by a policy, or not at all."""
        name = node.name
        if policy is None or self._uids.get(name, node.uid) != node.uid:
            await self.forget(name)
        if policy is None:
            return
        policy, kept = honoured(policy, node), self._drains.seen(name)
        if kept is None:
            self._before_drain(name)
            self._uids[name] = node.uid
            self._drains.start(name, node, policy, owner=Owner(name=f"{name}.{OWNER.lower()}"), lasting=True)
        elif kept.policy != policy:
            self._drains.change(name, policy)

    async def tidy(self) -> None:
        """End drains that nobody wants any more, whether vCenters answer or not."""
        for name in list(self._uids):
            node = self.get(name)
            if node is None or not zone_of(node) or not is_approved(node):
                await self.forget(name)

    async def forget(self, name: str) -> None:
        """Drain a node no more."""
        if self._uids.pop(name, None) is not None:
            await self._drains.stop(name)

    def is_drained(self, node: Node) -> bool:
        """Tell whether a node is empty right now."""
        kept = self.drain(node)
        return kept is not None and kept.outcome is not None and kept.outcome.is_drained

    def blocked(self, node: Node, *, now: datetime) -> tuple[str, datetime | None]:
        """Return what has kept a node from being empty for long, in words; if nothing has, when something will have."""
        kept = self.drain(node)
        if kept is None:
            return "", None
        if kept.outcome is None:
            return lasting.blocked(kept.progress, now=now)
        return "" if kept.outcome.is_drained else kept.outcome.why, None

    def drain(self, node: Node) -> Kept | None:
        """Return how it stands with the drain of a node."""
        return self._drains.glance(node.name) if self._uids.get(node.name) == node.uid else None

    def _note_asked(self, name: str, pod: Pod, rung: Rung) -> None:
        node = self.get(name)
        if node is not None:
            self._asked(node, pod, rung)

    def _note_drain(self, name: str) -> None:
        if self._drains.has_ended(name):
            self._drained(name)
