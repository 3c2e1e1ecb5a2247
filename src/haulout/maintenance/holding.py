"""What a NodeMaintenance does to a node, in whose name, and how it is taken back: the next step of that, step by step.

A node that the object does not name any more, since somebody changed it, is given back like one whose maintenance is
over. What the Node Maintenance Operator has begun is taken over as if we had begun it.
"""

from collections.abc import Iterable

from haulout.budget import away
from haulout.drain import cordon
from haulout.drain.cordon import Wishes
from haulout.drain.lifecycle import Stage, published
from haulout.kube.objects import Lease, Node, Taint
from haulout.maintenance.lease import HOLDER
from haulout.maintenance.resource import NodeMaintenance
from haulout.maintenance.seen import Decision, Seen
from haulout.maintenance.steps import Hold, Publish, Release, ReleaseLease, StopDrain

OWNER_PREFIX = away.ORDER_PREFIX
DRAIN_TAINT = away.DRAIN_TAINT
EXCLUDE_LABEL = "remediation.medik8s.io/exclude-from-remediation"
WISHES = Wishes(
    taints=(Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"), DRAIN_TAINT),
    labels={EXCLUDE_LABEL: "true"},
)
_LONGEST_REASON = 256


def owner_name(maintenance: NodeMaintenance) -> str:
    """Return the name by which a maintenance keeps a node cordoned."""
    return f"{OWNER_PREFIX}{maintenance.name}"


def is_adoptable(maintenance: NodeMaintenance, node: Node) -> bool:
    """Tell whether the Node Maintenance Operator, which leaves no mark, has put this node into this maintenance."""
    status = maintenance.status
    if cordon.MARK in node.metadata.annotations or not status.phase or status.conditions:
        return False
    return any((it.key, it.effect) == (DRAIN_TAINT.key, DRAIN_TAINT.effect) for it in node.spec.taints)


def adopted(seen: Seen, node: Node) -> Decision:
    """Put our mark on a node that the Node Maintenance Operator has taken for the same maintenance."""
    change = cordon.acquire(node, owner_name(seen.maintenance), WISHES, now=seen.now, adopting=True)
    if change is None:
        raise RuntimeError(f"node {node.name} is to be adopted, and has a mark")
    return Decision(step=Hold(change, is_first=True))


def let_go(seen: Seen, node: Node) -> Decision | None:
    """Return the next step on the way to a node that is not ours any more; None if there is none left."""
    owner = owner_name(seen.maintenance)
    is_shared = _others(node, owner) or is_wanted_by(seen.rivals)
    if not is_shared and (decision := publish(seen, node, Stage.OVER)):
        return decision
    change = cordon.release(node, owner)
    return None if change is None else Decision(step=Release(node.name, change))


def let_go_of_strays(seen: Seen) -> Decision | None:
    """Give back a node that the object has named before. Its mark is what tells of it, so that goes last."""
    owner = owner_name(seen.maintenance)
    for stray in seen.strays:
        node = stray.node
        if seen.drain is not None and seen.drain.node_uid == node.uid:
            return Decision(step=StopDrain())
        if owner in owners(node) and not _others(node, owner):
            if decision := publish(seen, node, Stage.OVER):
                return decision
            if stray.lease is not None and is_ours_to_release(stray.lease):
                return Decision(step=ReleaseLease(stray.lease))
        change = cordon.release(node, owner)
        if change is not None:
            return Decision(step=Release(node.name, change))
    return None


def is_ours_to_release(lease: Lease) -> bool:
    """Tell whether a lease is in our name, or in nobody's; one of another's that ran out is theirs to clear away."""
    return lease.spec.holder_identity in (None, "", HOLDER)


def owners(node: Node) -> tuple[str, ...]:
    """Return in whose names a node is kept cordoned."""
    mark = cordon.cordon_of(node)
    return () if mark is None else tuple(mark.owners)


def _others(node: Node, owner: str) -> bool:
    """Tell whether another maintenance has the node; profiles may have it, too, but know nothing of its conditions."""
    return any(it != owner and it.startswith(OWNER_PREFIX) for it in owners(node))


def publish(seen: Seen, node: Node, stage: Stage) -> Decision | None:
    """Return the step that makes the node's conditions say how far we are; None if they do."""
    is_last = stage is Stage.OVER
    if not seen.may_publish and not is_last:
        return None
    what = owner_name(seen.maintenance).replace("/", " ")
    reason = shortened(seen.maintenance.spec.reason)
    change = published(node, stage, f"{what}: {reason}" if reason else what, now=seen.now)
    return None if change is None else Decision(step=Publish(node.name, change, is_last))


def is_wanted_by(rivals: Iterable[NodeMaintenance]) -> bool:
    """Tell whether the node stays in maintenance for another's sake."""
    return any(not it.is_leaving for it in rivals)


def shortened(text: str) -> str:
    """Return what people wrote as one line that can be shown elsewhere."""
    line = " ".join(text[: 4 * _LONGEST_REASON].split())
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 1]}…"
