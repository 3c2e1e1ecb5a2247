"""Taking what a transition needs before it may happen: slots of budgets and leases, each by compare-and-swap.

Whoever was quicker has it. What was taken for a transition that then does not happen is given back by proof (slots) or
runs out (leases), and whoever took it finds that it has it already.
"""

from collections.abc import Callable, Collection

from haulout.errors import AlreadyExists, Conflict, NotFound
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.kube.ledger import Ledger, Slot
from haulout.kube.objects import LeaseSpec, Node
from haulout.kube.resources import NODES
from haulout.profiles.plugin import STATE_LABEL, Claim, LeaseClaim, SlotClaim, State

PENDING_ANNOTATION = "haulout.dev/transitions"


class Claims:
    """Takes claims for nodes; `counted` tells whose nodes count for a budget though they may have no slot."""

    def __init__(
        self, client: Client, *, namespace: str, counted: Callable[[SlotClaim, Node], Collection[str]]
    ) -> None:
        self._client = client
        self._ledger = Ledger(client, namespace=namespace)
        self._counted = counted

    async def take(self, claim: Claim, node: Node) -> bool:
        """Take a claim for a node; return whether it is the node's."""
        if isinstance(claim, LeaseClaim):
            return await self._take_lease(claim)
        slot = Slot(uid=node.uid, name=node.name, since=self._client.clock.now())
        others = set(self._counted(claim, node)) - {node.uid}
        return await self._ledger.take(
            budget_name(claim), slot, limit=claim.limit, others=others, is_held=self._is_held
        )

    async def give_back(self, budget: str, uid: str) -> None:
        """Give a slot back."""
        await self._ledger.give_back(budget, uid)

    async def _take_lease(self, claim: LeaseClaim) -> bool:
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
        """Ask the server whether a node that has a slot is in maintenance, or on its way there."""
        try:
            node = await self._client.get(NODES, slot.name)
        except NotFound:
            return False
        is_the_same = node.uid == slot.uid
        is_there = node.metadata.labels.get(STATE_LABEL) == State.IN_MAINTENANCE
        is_on_the_way = PENDING_ANNOTATION in node.metadata.annotations
        return is_the_same and (is_there or is_on_the_way)


def budget_name(claim: SlotClaim) -> str:
    """Return the name of the ledger of a budget, or of one of its groups."""
    return f"{claim.budget}/{claim.group}" if claim.group else claim.budget
