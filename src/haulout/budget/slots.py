"""Leave to take a node out of service: a slot in the one ledger of the cluster, given back with proof.

    slots = Slots(client, namespace="haulout", cause=Cause.ORDERS)
    refused = await slots.take(node, limits)            # None: the node may be written, at this version of it
    await slots.give_back(node)                         # as it is after it was let go

There is one ledger for all causes and all limits (`haulout.kube.ledger`). Whoever takes a node out of service first
adds a slot for it, by compare-and-swap. With the ledger as it was read for that, each limit must hold: of the other
nodes that have a slot or are seen out of service, it counts fewer than it allows. If the swap fails somebody else was
quicker, and the ledger is read again. As a node has its slot before it is touched, an old copy of the cluster can hide
that a node is back in service, never that one was taken.

A slot holds the version of the node that its owner's write is bound to. It is void, and anybody may remove it, when the
server has the node at a later version and not in the hands of the slot's cause: then that write either was never made
and never can be, or the node was taken and has been let go; or when the node is gone. Nothing depends on time, or on
who leads.

So whoever gives a slot back names the version at which the node was seen free: what was taken for that or a later one
is another's. A slot of which nobody makes use, since its owner died in between, would stay until the node changes. Who
needs the room changes the node then, in a way that means nothing: it is at a later version, and the slot is void.

A node that was taken before there was any limit has no slot; it counts as soon as it is seen. That a node is down is
nobody's decision and stands in no ledger: it counts as soon as it is seen, too.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.budget.away import Cause, is_taken_by
from haulout.errors import Conflict, Forbidden, KubeError, NotFound
from haulout.kube.access import Permission
from haulout.kube.cache import revision
from haulout.kube.client import Client
from haulout.kube.ledger import LEDGERS, Ledger, Limit, Slot, ledger_name
from haulout.kube.objects import Node, RawObject
from haulout.kube.patches import node_patch
from haulout.kube.resources import NODES
from haulout.kube.timestamps import whole_seconds

log = logging.getLogger(__name__)

LEDGER = "nodes-in-maintenance"
WITHDRAWN = "haulout.dev/slot-withdrawn"  # an annotation, for a moment
UNUSED_AFTER = timedelta(seconds=15)  # as long as a leader's lease: then its owner is probably dead
_LOOKS_AGAIN_AFTER = timedelta(seconds=2)


def permissions(home: str) -> tuple[Permission, ...]:
    """Return what it takes to take slots and to give them back, in the operator's namespace."""
    why, names = "keep budgets", (ledger_name(LEDGER),)
    return (
        # A name cannot restrict this, as there is no object yet to have one.
        Permission(("create",), LEDGERS.group, LEDGERS.plural, home, why),
        Permission(("get", "patch"), LEDGERS.group, LEDGERS.plural, home, why, names=names),
    )


@dataclass(frozen=True, slots=True)
class Refused:
    """There was no room."""

    slots: tuple[Slot, ...]  # that are in use
    again_at: datetime | None  # when to try again though nothing happens: some slots may prove to be unused


class Slots:
    """The slots that one controller takes and gives back."""

    def __init__(self, client: Client, *, namespace: str, cause: Cause) -> None:
        self._client = client
        self._ledger = Ledger(client, namespace=namespace)
        self._cause = cause
        self._by = ""

    async def take(self, node: Node, limits: Sequence[Limit]) -> Refused | None:
        """Take a slot for a write to this version of a node; return why there is none, None if there is."""
        now = self._client.clock.now()
        slot = Slot(uid=node.uid, name=node.name, since=now, version=node.resource_version, by=self._owner())
        proof = _Proof(self._client)
        refusal = await self._ledger.take(LEDGER, slot, limits=limits, is_held=proof.is_held)
        if refusal is None:
            return None
        is_open = proof.is_open or not refusal.slots
        return Refused(refusal.slots, now + _LOOKS_AGAIN_AFTER if is_open else None)

    async def give_back(self, node: Node) -> None:
        """Give back the slots for a node that our cause has let go, as the server has answered."""
        if is_taken_by(self._cause, node):
            return
        at = revision(node.resource_version)
        await self._drop(
            lambda it: it.uid == node.uid and cause_of(it) is self._cause and revision(it.version) < at, node
        )

    async def withdraw(self, node: Node) -> None:
        """Give back a slot that was taken for this version of a node, and of which no use was made nor will be."""
        own = node.uid, self._owner()
        await self._drop(lambda it: it.key == own and it.version == node.resource_version, node)

    async def _drop(self, is_free: Callable[[Slot], bool], node: Node) -> None:
        try:
            await self._ledger.give_back(LEDGER, is_free)
        except Forbidden as error:  # no limit is configured, so there is none
            log.debug("the slot of node %s is not given back: %s", node.name, error)
        except KubeError as error:
            log.warning("the slot of node %s is given back by the next who needs it: %s", node.name, error)

    def _owner(self) -> str:
        """Return what tells this controller, in this life of its process, from all others."""
        self._by = self._by or f"{self._cause}/{self._client.random.getrandbits(64):016x}"
        return self._by


def cause_of(slot: Slot) -> Cause:
    """Return who has taken a slot; profiles have it without a word."""
    return Cause.ORDERS if slot.by.startswith(f"{Cause.ORDERS}/") else Cause.PROFILES


class _Proof:
    """Asks the server whether slots are in use."""

    def __init__(self, client: Client) -> None:
        self.is_open = False  # of some slot it could not be told yet
        self._client = client

    async def is_held(self, slot: Slot) -> bool:
        try:
            node = await self._client.get(NODES, slot.name)
        except NotFound:
            return False
        if node.uid != slot.uid:
            return False
        if is_taken_by(cause_of(slot), node):
            return True
        if revision(node.resource_version) > revision(slot.version):
            return False
        is_unused = node.resource_version == slot.version and abs(self._client.clock.now() - slot.since) > UNUSED_AFTER
        if is_unused and await self._is_withdrawn(node):
            return False
        self.is_open = True
        return True

    async def _is_withdrawn(self, node: Node) -> bool:
        """Make a node's version a later one, so that no write is possible any more that was bound to this one."""
        stamp = whole_seconds(self._client.clock.now())
        basis = {"uid": node.uid, "resourceVersion": node.resource_version}
        try:
            changed = await self._annotate(node, basis | {"annotations": {WITHDRAWN: stamp}})
            await self._annotate(node, {"uid": node.uid, "annotations": {WITHDRAWN: None}})
        except (Conflict, NotFound):
            return False  # it has changed by itself, and is looked at again
        return revision(changed.resource_version) > revision(node.resource_version)

    async def _annotate(self, node: Node, metadata: RawObject) -> Node:
        return await self._client.patch(NODES, node.name, node_patch({"metadata": metadata}))
