"""Leave to take a node out of service: a slot in the one ledger of the cluster, given back with proof.

    slots = Slots(client, namespace="haulout", cause=Cause.ORDERS)
    refused = await slots.take(node, limits)            # None: the node may be written, at this version of it
    await slots.give_back(node)                         # as it is after it was let go

There is one ledger for all causes and all limits (`haulout.kube.slot_ledger`). Whoever takes a node out of service
first adds a slot for it, by compare-and-swap. With the ledger as it was read for that, each limit must hold: of the
other nodes that have a slot or are seen out of service, it counts fewer than it allows. If the swap fails somebody
else was quicker, and the ledger is read again. As a node has its slot before it is touched, an old copy of the cluster
can hide that a node is back in service, never that one was taken.

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

from haulout.api.objects import Node, RawObject
from haulout.api.resources import NODES
from haulout.budget.unavailable_nodes import MaintenanceCause, is_under_maintenance_by
from haulout.errors import Conflict, Forbidden, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.informer import revision
from haulout.kube.patches import node_patch
from haulout.kube.rbac import Permission
from haulout.kube.slot_ledger import CONFIG_MAPS, Slot, SlotLedger, SlotLimit, ledger_name
from haulout.kube.timestamps import whole_seconds

log = logging.getLogger(__name__)

LEDGER = "nodes-in-maintenance"
SLOT_WITHDRAWN_ANNOTATION = "haulout.dev/slot-withdrawn"  # an annotation, for a moment
UNUSED_AFTER = timedelta(seconds=15)  # as long as a leader's lease: then its owner is probably dead
_RETRY_AFTER = timedelta(seconds=2)


def permissions(home: str) -> tuple[Permission, ...]:
    """Return what it takes to take slots and to give them back, in the operator's namespace."""
    why, names = "keep budgets", (ledger_name(LEDGER),)
    return (
        # A name cannot restrict this, as there is no object yet to have one.
        Permission(("create",), CONFIG_MAPS.group, CONFIG_MAPS.plural, home, why),
        Permission(("get", "patch"), CONFIG_MAPS.group, CONFIG_MAPS.plural, home, why, names=names),
    )


@dataclass(frozen=True, slots=True)
class SlotUnavailable:
    """There was no room."""

    slots: tuple[Slot, ...]  # that are in use
    requeue_at: datetime | None  # when to try again though nothing happens: some slots may prove to be unused


class BudgetSlots:
    """The slots that one controller takes and gives back."""

    def __init__(self, client: Client, *, namespace: str, cause: MaintenanceCause) -> None:
        self._client = client
        self._ledger = SlotLedger(client, namespace=namespace)
        self._cause = cause
        self._owner_id = ""

    async def acquire(self, node: Node, limits: Sequence[SlotLimit]) -> SlotUnavailable | None:
        """Take a slot for a write to this version of a node; return why there is none, None if there is."""
        now = self._client.clock.now()
        slot = Slot(uid=node.uid, name=node.name, since=now, version=node.resource_version, by=self._slot_owner())
        verifier = _SlotVerifier(self._client)
        refusal = await self._ledger.acquire(LEDGER, slot, limits=limits, is_held=verifier.is_held)
        if refusal is None:
            return None
        is_undecided = verifier.is_undecided or not refusal.slots
        return SlotUnavailable(refusal.slots, now + _RETRY_AFTER if is_undecided else None)

    async def release(self, node: Node) -> None:
        """Give back the slots for a node that our cause has let go, as the server has answered."""
        if is_under_maintenance_by(self._cause, node):
            return
        released_at = revision(node.resource_version)
        await self._release_if(
            lambda slot: (
                slot.uid == node.uid and cause_of(slot) is self._cause and revision(slot.version) < released_at
            ),
            node,
        )

    async def release_unused(self, node: Node) -> None:
        """Give back a slot that was taken for this version of a node, and of which no use was made nor will be."""
        key = node.uid, self._slot_owner()
        await self._release_if(lambda slot: slot.key == key and slot.version == node.resource_version, node)

    async def _release_if(self, is_releasable: Callable[[Slot], bool], node: Node) -> None:
        try:
            await self._ledger.release(LEDGER, is_releasable)
        except Forbidden as error:  # no limit is configured, so there is none
            log.debug("the slot of node %s is not given back: %s", node.name, error)
        except KubeError as error:
            log.warning("the slot of node %s is given back by the next who needs it: %s", node.name, error)

    def _slot_owner(self) -> str:
        """Return what tells this controller, in this life of its process, from all others."""
        self._owner_id = self._owner_id or f"{self._cause}/{self._client.random.getrandbits(64):016x}"
        return self._owner_id


def cause_of(slot: Slot) -> MaintenanceCause:
    """Return who has taken a slot; profiles have it without a word."""
    return (
        MaintenanceCause.NODE_MAINTENANCES
        if slot.by.startswith(f"{MaintenanceCause.NODE_MAINTENANCES}/")
        else MaintenanceCause.PROFILES
    )


class _SlotVerifier:
    """Asks the server whether slots are in use."""

    def __init__(self, client: Client) -> None:
        self.is_undecided = False  # of some slot it could not be told yet
        self._client = client

    async def is_held(self, slot: Slot) -> bool:
        try:
            node = await self._client.get(NODES, slot.name)
        except NotFound:
            return False
        if node.uid != slot.uid:
            return False
        if is_under_maintenance_by(cause_of(slot), node):
            return True
        if revision(node.resource_version) > revision(slot.version):
            return False
        is_unused = node.resource_version == slot.version and abs(self._client.clock.now() - slot.since) > UNUSED_AFTER
        if is_unused and await self._invalidate(node):
            return False
        self.is_undecided = True
        return True

    async def _invalidate(self, node: Node) -> bool:
        """Make a node's version a later one, so that no write is possible any more that was bound to this one."""
        timestamp = whole_seconds(self._client.clock.now())
        preconditions = {"uid": node.uid, "resourceVersion": node.resource_version}
        try:
            changed = await self._annotate(
                node, preconditions | {"annotations": {SLOT_WITHDRAWN_ANNOTATION: timestamp}}
            )
            await self._annotate(node, {"uid": node.uid, "annotations": {SLOT_WITHDRAWN_ANNOTATION: None}})
        except (Conflict, NotFound):
            return False  # it has changed by itself, and is looked at again
        return revision(changed.resource_version) > revision(node.resource_version)

    async def _annotate(self, node: Node, metadata: RawObject) -> Node:
        return await self._client.patch(NODES, node.name, node_patch({"metadata": metadata}))
