"""Taking what a transition needs before it may happen: slots of budgets and leases, each by compare-and-swap.

Whoever was quicker has it. What was taken for a transition that then does not happen is given back by proof (slots) or
runs out (leases), and whoever took it finds that it has it already.
"""

import logging
from collections.abc import Callable, Sequence

from haulout.errors import AlreadyExists, Conflict, Forbidden, NotFound
from haulout.kube import leases
from haulout.kube.access import Permission
from haulout.kube.cache import revision
from haulout.kube.client import Client
from haulout.kube.ledger import LEDGERS, Ledger, Limit, Slot, ledger_name
from haulout.kube.objects import LeaseSpec, Node
from haulout.kube.resources import NODES
from haulout.profiles import begun
from haulout.profiles.plugin import STATE_LABEL, LeaseClaim, SlotClaim, State

log = logging.getLogger(__name__)

BUDGET = "nodes-in-maintenance"  # one for all limits: see `haulout.profiles.scopes`


def permissions(home: str) -> tuple[Permission, ...]:
    """Return what it takes to take slots and to give them back, in the operator's namespace."""
    why, names = "keep budgets", (ledger_name(BUDGET),)
    return (
        # A name cannot restrict this, as there is no object yet to have one.
        Permission(("create",), LEDGERS.group, LEDGERS.plural, home, why),
        Permission(("get", "patch"), LEDGERS.group, LEDGERS.plural, home, why, names=names),
    )


class Claims:
    """Takes claims for nodes; `limit` tells what a claim means for the ledger."""

    def __init__(self, client: Client, *, namespace: str, limit: Callable[[SlotClaim, Node], Limit]) -> None:
        self._client = client
        self._ledger = Ledger(client, namespace=namespace)
        self._limit = limit

    async def take_slot(self, claims: Sequence[SlotClaim], node: Node) -> bool:
        """Take a slot for a node, if all claims agree; return whether it is the node's."""
        slot = Slot(uid=node.uid, name=node.name, since=self._client.clock.now(), version=node.resource_version)
        limits = [self._limit(claim, node) for claim in claims]
        return await self._ledger.take(BUDGET, slot, limits=limits, is_held=self._is_held)

    async def give_back(self, uid: str) -> None:
        """Give the slot of a node back."""
        try:
            await self._ledger.give_back(BUDGET, uid)
        except Forbidden as error:  # no limit is configured; and a slot is dropped by whoever needs it next
            log.debug("the slot of node %s is not given back: %s", uid, error)

    async def take_lease(self, claim: LeaseClaim) -> bool:
        """Take a lease; return whether it is ours."""
        now = self._client.clock.now()
        spec = LeaseSpec(
            holder_identity=claim.holder,
            lease_duration_seconds=int(claim.duration.total_seconds()),
            acquire_time=now,
            renew_time=now,
            lease_transitions=claim.transitions,
        )
        try:
            await leases.write(self._client, claim.name, spec, namespace=claim.namespace, version=claim.version)
        except (Conflict, AlreadyExists, NotFound):
            return False
        return True

    async def _is_held(self, slot: Slot) -> bool:
        """Ask the server whether a node that has a slot is in maintenance, or may still come there by it."""
        try:
            node = await self._client.get(NODES, slot.name)
        except NotFound:
            return False
        if node.uid != slot.uid:
            return False
        is_there = node.metadata.labels.get(STATE_LABEL) == State.IN_MAINTENANCE
        is_on_the_way = begun.ANNOTATION in node.metadata.annotations
        may_be_written = revision(node.resource_version) <= revision(slot.version)
        return is_there or is_on_the_way or may_be_written
