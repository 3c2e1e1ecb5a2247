"""Taking what a transition needs before it may happen: slots of budgets and leases, each by compare-and-swap.

Whoever was quicker has it. What was taken for a transition that then does not happen is given back by proof (slots) or
runs out (leases), and whoever took it finds that it has it already.
"""

from collections.abc import Callable, Sequence

from haulout.budget.away import Cause
from haulout.budget.slots import Refused, Slots
from haulout.errors import AlreadyExists, Conflict, NotFound
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.kube.ledger import Limit
from haulout.kube.objects import LeaseSpec, Node
from haulout.profiles.plugin import BudgetClaim, LeaseClaim, SlotClaim

LimitClaim = SlotClaim | BudgetClaim


class Claims:
    """Takes claims for nodes; `limits` tells what a claim means for the ledger."""

    def __init__(self, client: Client, *, namespace: str, limits: Callable[[LimitClaim, Node], list[Limit]]) -> None:
        self._client = client
        self._slots = Slots(client, namespace=namespace, cause=Cause.PROFILES)
        self._limits = limits

    async def take_slot(self, claims: Sequence[LimitClaim], node: Node) -> Refused | None:
        """Take a slot for a node, if all claims agree; return why it is not the node's, None if it is."""
        return await self._slots.take(node, [limit for claim in claims for limit in self._limits(claim, node)])

    async def give_back(self, node: Node) -> None:
        """Give the slot of a node back that profiles have let go, as it is now."""
        await self._slots.give_back(node)

    async def withdraw(self, node: Node) -> None:
        """Give a slot back that was taken for this version of a node, and is not used."""
        await self._slots.withdraw(node)

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
