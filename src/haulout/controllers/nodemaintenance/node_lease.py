"""The lease of a node: who may take it out of service.

Other systems that repair nodes respect the same lease (medik8s' node-healthcheck-operator), so its name, place and
holder are theirs. It is held from before the node is touched until it was given back, and renewed long before it ends.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.objects import Lease, Node, OwnerReference, object_key
from haulout.kube.lease_lock import Claim, LockState, claim

HOLDER = "node-maintenance"
NAMESPACE = "medik8s-leases"
DURATION = timedelta(hours=1)
RENEW_BEFORE_EXPIRY = DURATION / 2


def lease_name(node: str) -> str:
    """Return the name of a node's lease."""
    return f"node-{node}".lower()


def lease_key(node: str, *, namespace: str) -> str:
    """Return where a node's lease is."""
    return object_key(lease_name(node), namespace)


def owner_reference(node: Node) -> OwnerReference:
    """Return whose the lease is: it goes with the node."""
    return OwnerReference(api_version="v1", kind="Node", name=node.name, uid=node.uid)


@dataclass(frozen=True, slots=True)
class LeaseState:
    """How it stands with a node's lease."""

    claim: Claim
    renew_at: datetime  # in the past: now

    @property
    def is_held_by_us(self) -> bool:
        """Tell whether we hold it, so that it is in force."""
        return self.claim.state is LockState.OURS and self.claim.until is not None

    @property
    def is_held_by_other(self) -> bool:
        """Tell whether somebody else holds it."""
        return self.claim.state is LockState.HELD

    @property
    def holder(self) -> str:
        """Who holds it."""
        return self.claim.holder or "unknown"


def lease_state(lease: Lease | None, *, now: datetime) -> LeaseState:
    """Return how it stands with a lease."""
    current_claim = claim(lease, holder=HOLDER, now=now, duration=DURATION)
    is_held_by_us = current_claim.state is LockState.OURS and current_claim.until is not None
    return LeaseState(
        current_claim, current_claim.until - RENEW_BEFORE_EXPIRY if is_held_by_us and current_claim.until else now
    )
