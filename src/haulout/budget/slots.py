"""Budget slots: the permission to make a node unavailable, held in one ledger for the whole cluster.

    refused = await slots.acquire(node, limits)         # None: the node may be written, at this resourceVersion
    await slots.release(node)                           # with the node as it is after its release

One ledger (`haulout.kube.slot_ledger`) serves all causes and all limits. A controller adds a slot by compare-and-swap
before it makes a node unavailable. Each limit must hold for the ledger that was read for the swap: the number of other
nodes that have a slot or are unavailable must be less than the limit allows. If the swap fails, another controller was
faster, and the ledger is read again. Since a node has its slot before it is changed, a stale cache can hide that a node
is available again, but never that one was taken.

A slot holds the resourceVersion to which its owner's write is bound. A slot is void, and any controller may remove it,
when the API server has the node at a later resourceVersion and not under maintenance by the slot's cause: either the
write was never made and never can be, or the node was taken and released. A slot of a deleted node is void, too. No
rule depends on time or on leader election.

A release names the resourceVersion at which the node was seen free; slots for that or a later version belong to another
owner. A slot whose owner died before the write would stay until the node changes. A controller that needs the slot
therefore changes the node without effect (an annotation that is set and removed): the node has a later resourceVersion,
and the slot is void.

A node that was taken before a budget existed has no slot; it counts as soon as it is observed. A node that is down has
no slot either, since no controller decided that; it counts as soon as it is observed.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api import annotations
from haulout.api.objects import Node, RawObject
from haulout.api.resources import NODES
from haulout.budget.unavailable_nodes import MaintenanceCause, is_under_maintenance_by
from haulout.core.timestamps import whole_seconds
from haulout.errors import Conflict, Forbidden, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.informer import revision
from haulout.kube.patches import node_patch
from haulout.kube.rbac import Permission
from haulout.kube.slot_ledger import CONFIG_MAPS, Slot, SlotLedger, SlotLimit, ledger_name

log = logging.getLogger(__name__)

LEDGER = "nodes-in-maintenance"
SLOT_WITHDRAWN_ANNOTATION = annotations.SLOT_WITHDRAWN  # set and removed at once
UNUSED_AFTER = timedelta(seconds=15)  # as long as a leader's lease: after that the owner is probably dead
# No event tells when an owner has made its write or has died.
_RETRY_AFTER = timedelta(seconds=2)


def permissions(home: str) -> tuple[Permission, ...]:
    """Return the permissions to acquire and release slots, in the operator's namespace."""
    why, names = "store budget slots", (ledger_name(LEDGER),)
    return (
        # RBAC cannot restrict `create` by name, because the object has none yet.
        Permission(("create",), CONFIG_MAPS.group, CONFIG_MAPS.plural, home, why),
        Permission(("get", "patch"), CONFIG_MAPS.group, CONFIG_MAPS.plural, home, why, names=names),
    )


@dataclass(frozen=True, slots=True)
class SlotUnavailable:
    """No slot was free for the node, or it is not known yet whether one is."""

    slots: tuple[Slot, ...]  # the slots in use
    requeue_at: datetime | None  # when to try again without an event: some slots may turn out to be void


class BudgetSlots:
    """Acquires and releases slots for one controller."""

    def __init__(self, client: Client, *, namespace: str, cause: MaintenanceCause) -> None:
        self._client = client
        self._ledger = SlotLedger(client, namespace=namespace)
        self._cause = cause
        self._owner_id = ""

    async def acquire(self, node: Node, limits: Sequence[SlotLimit]) -> SlotUnavailable | None:
        """Acquire a slot for a write to this version of the node. Return None if granted, and why not otherwise."""
        now = self._client.clock.now()
        slot = Slot(uid=node.uid, name=node.name, since=now, version=node.resource_version, by=self._slot_owner())
        verifier = _SlotVerifier(self._client)
        refusal = await self._ledger.acquire(LEDGER, slot, limits=limits, is_held=verifier.is_held)
        if refusal is None:
            return None
        is_undecided = verifier.is_undecided or not refusal.slots
        return SlotUnavailable(refusal.slots, now + _RETRY_AFTER if is_undecided else None)

    async def release(self, node: Node) -> None:
        """Release the slots of a node that our cause has released. `node` is the API server's answer to that write."""
        if is_under_maintenance_by(self._cause, node):
            return
        released_at = revision(node.resource_version)
        await self._release_if(
            lambda slot: (
                # A slot for this or a later version belongs to somebody who takes the node again.
                slot.uid == node.uid and cause_of(slot) is self._cause and revision(slot.version) < released_at
            ),
            node,
        )

    async def release_unused(self, node: Node) -> None:
        """Release a slot for this version of a node whose write was not made and will not be."""
        key = node.uid, self._slot_owner()
        await self._release_if(lambda slot: slot.key == key and slot.version == node.resource_version, node)

    async def _release_if(self, is_releasable: Callable[[Slot], bool], node: Node) -> None:
        try:
            await self._ledger.release(LEDGER, is_releasable)
        except Forbidden as error:  # without the permission no limit is configured
            log.debug("the budget slot of node %s is not released: %s", node.name, error)
        except KubeError as error:
            log.warning(
                "cannot release the budget slot of node %s, the next maintenance that needs it will: %s",
                node.name,
                error,
            )

    def _slot_owner(self) -> str:
        """Return an identity that no other controller and no other run of this process has."""
        self._owner_id = self._owner_id or f"{self._cause}/{self._client.random.getrandbits(64):016x}"
        return self._owner_id


def cause_of(slot: Slot) -> MaintenanceCause:
    """Return the cause of a slot. A slot without a prefix belongs to profiles."""
    return (
        MaintenanceCause.NODE_MAINTENANCES
        if slot.by.startswith(f"{MaintenanceCause.NODE_MAINTENANCES}/")
        else MaintenanceCause.PROFILES
    )


class _SlotVerifier:
    """Checks at the API server whether slots are in use."""

    def __init__(self, client: Client) -> None:
        self.is_undecided = False  # some slot could not be decided yet
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
        # The clock decides only when to look closer: `_invalidate` proves that the write is impossible. `abs`, because
        # the owner's clock may be ahead.
        is_unused = node.resource_version == slot.version and abs(self._client.clock.now() - slot.since) > UNUSED_AFTER
        if is_unused and await self._invalidate(node):
            return False
        self.is_undecided = True
        return True

    async def _invalidate(self, node: Node) -> bool:
        """Raise the node's resourceVersion, so that a write bound to the current one is impossible."""
        timestamp = whole_seconds(self._client.clock.now())
        try:
            changed = await self._annotate(
                node, node.preconditions | {"annotations": {SLOT_WITHDRAWN_ANNOTATION: timestamp}}
            )
            # Without the resourceVersion: the annotation must go, whatever has happened to the node since.
            await self._annotate(node, {"uid": node.uid, "annotations": {SLOT_WITHDRAWN_ANNOTATION: None}})
        except (Conflict, NotFound):
            return False  # the node has changed by itself; the next attempt reads it again
        # A patch without effect does not raise the resourceVersion: the annotation of this second may still be there.
        return revision(changed.resource_version) > revision(node.resource_version)

    async def _annotate(self, node: Node, metadata: RawObject) -> Node:
        return await self._client.patch(NODES, node.name, node_patch({"metadata": metadata}))
