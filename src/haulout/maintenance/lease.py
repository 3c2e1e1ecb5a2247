"""The lease of a node: who may take it out of service.

Other systems that repair nodes respect the same lease (medik8s' node-healthcheck-operator), so its name, place and
holder are theirs. It is held from before the node is touched until it was given back, and renewed long before it ends.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.kube.locks import Claim, Standing, claim
from haulout.kube.objects import Lease, Node, OwnerReference, object_key

HOLDER = "node-maintenance"
NAMESPACE = "medik8s-leases"
DURATION = timedelta(hours=1)
RENEWED_BEFORE_END = DURATION / 2


def name_of(node: str) -> str:
    """Return the name of a node's lease."""
    return f"node-{node}".lower()


def key_of(node: str, *, namespace: str) -> str:
    """Return where a node's lease is."""
    return object_key(name_of(node), namespace)


def owner_of(node: Node) -> OwnerReference:
    """Return whose the lease is: it goes with the node."""
    return OwnerReference(api_version="v1", kind="Node", name=node.name, uid=node.uid)


@dataclass(frozen=True, slots=True)
class Tenure:
    """How it stands with a node's lease."""

    claim: Claim
    renew_at: datetime  # in the past: now

    @property
    def is_ours(self) -> bool:
        """Tell whether we hold it, so that it is in force."""
        return self.claim.standing is Standing.OURS and self.claim.until is not None

    @property
    def is_others(self) -> bool:
        """Tell whether somebody else holds it."""
        return self.claim.standing is Standing.HELD

    @property
    def holder(self) -> str:
        """Who holds it."""
        return self.claim.holder or "unknown"


def tenure(lease: Lease | None, *, now: datetime) -> Tenure:
    """Return how it stands with a lease."""
    found = claim(lease, holder=HOLDER, now=now, duration=DURATION)
    ours = found.standing is Standing.OURS and found.until is not None
    return Tenure(found, found.until - RENEWED_BEFORE_END if ours and found.until else now)
