"""The lease of a node, which allows one maintenance at a time.

Other remediation systems respect the same lease (medik8s' node-healthcheck-operator), so its name, namespace and holder
are theirs. It is held from before the first change of the node until after its release, and renewed long before it
expires.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.objects import Lease, Node, OwnerReference, object_key
from haulout.kube.leases import Claim, LockState, claim

HOLDER = "node-maintenance"
NAMESPACE = "medik8s-leases"
DURATION = timedelta(hours=1)
RENEW_BEFORE_EXPIRY = DURATION / 2


def lease_name(node: str) -> str:
    return f"node-{node}".lower()


def lease_key(node: str, *, namespace: str) -> str:
    """Return namespace and name of a node's lease as a key."""
    return object_key(lease_name(node), namespace)


def owner_reference(node: Node) -> OwnerReference:
    """Return the owner reference by which the lease is garbage-collected with the node."""
    # A namespaced object may have a cluster-scoped owner
    # (https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/).
    return OwnerReference(api_version="v1", kind="Node", name=node.name, uid=node.uid)


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The state of a node's lease at one moment: whose it is, and when to renew it."""

    claim: Claim
    renew_at: datetime  # now or in the past: renew at once

    @property
    def is_held_by_us(self) -> bool:
        """Whether we hold the lease and it has not expired."""
        return self.claim.state is LockState.OURS and self.claim.until is not None

    @property
    def is_held_by_other(self) -> bool:
        return self.claim.state is LockState.HELD

    @property
    def holder(self) -> str:
        return self.claim.holder or "unknown"


def lease_state(lease: Lease | None, *, now: datetime) -> LeaseState:
    current_claim = claim(lease, holder=HOLDER, now=now, duration=DURATION)
    is_held_by_us = current_claim.state is LockState.OURS and current_claim.until is not None
    return LeaseState(
        current_claim, current_claim.until - RENEW_BEFORE_EXPIRY if is_held_by_us and current_claim.until else now
    )
