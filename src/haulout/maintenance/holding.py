"""What a NodeMaintenance does to a node, in whose name, and how it is taken back: the next step of that, step by step.

A node that the object does not name any more, since somebody changed it, is given back like one whose maintenance is
over. What the Node Maintenance Operator has begun is taken over as if we had begun it.

How the node was before is kept in two places: in the mark on the node, and in the status of the NodeMaintenance. The
status is written first. It follows the mark. If somebody removes the maintenance from the mark, the node still carries
its taint or its label, and the status says how the node was.
"""

from collections.abc import Iterable

from haulout.budget import away
from haulout.drain import cordon
from haulout.drain.cordon import BadMark, Before, Wishes
from haulout.drain.lifecycle import Stage, published
from haulout.kube.objects import Lease, Node, Taint
from haulout.maintenance import recovery
from haulout.maintenance.lease import HOLDER
from haulout.maintenance.resource import ConditionType, NodeBefore, NodeMaintenance
from haulout.maintenance.seen import Decision, Seen
from haulout.maintenance.steps import EndRecovery, Hold, Publish, Release, ReleaseLease, StopDrain

OWNER_PREFIX = away.ORDER_PREFIX
DRAIN_TAINT = away.DRAIN_TAINT
EXCLUDE_LABEL = cordon.EXCLUDE_LABEL
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
    marks = {cordon.MARK, cordon.BACKUP} & node.metadata.annotations.keys()
    if marks or not status.phase or status.conditions:
        return False
    return cordon.has_drain_taint(node)


def adopted(seen: Seen, node: Node) -> Decision:
    """Put our mark on a node that the Node Maintenance Operator has taken for the same maintenance."""
    change = cordon.acquire(node, owner_name(seen.maintenance), WISHES, now=seen.now, adopting=True)
    if change is None:
        raise RuntimeError(f"node {node.name} is to be adopted, and has a mark")
    return Decision(step=Hold(change, is_first=True))


def node_before(seen: Seen) -> NodeBefore | None:
    """Return what the status is to say of how the node was before."""
    said, node = seen.maintenance.status.node_before, seen.node
    if node is None or counts_copy(seen.maintenance, node):
        return said
    try:
        before = cordon.before_of(node, WISHES)
    except BadMark:
        return said
    taints = tuple(sorted(name for name, was_there in before.taints.items() if was_there))
    labels = {key: value for key, value in before.labels.items() if value is not None}
    return NodeBefore(uid=node.uid, unschedulable=before.unschedulable, taints=taints, labels=labels)


def is_mark_lost(maintenance: NodeMaintenance, node: Node) -> bool:
    """Tell whether somebody has removed this maintenance from the mark on a node that it holds.

    The status says that it has held the node, and what it has put onto the node says that it did not let go since.
    """
    copy = maintenance.status.node_before
    if not _was_cordoned(maintenance) or (copy is not None and copy.uid != node.uid) or _has_orders(node):
        return False
    is_labelled = EXCLUDE_LABEL in node.metadata.labels and copy is not None and EXCLUDE_LABEL not in copy.labels
    return node.spec.unschedulable and (cordon.has_drain_taint(node) or is_labelled)


def counts_copy(maintenance: NodeMaintenance, node: Node) -> bool:
    """Tell whether the status says better than the node how that was before: it may have lost its mark."""
    copy = maintenance.status.node_before
    if copy is None or copy.uid != node.uid or _has_orders(node):
        return False
    return _was_cordoned(maintenance) or (node.spec.unschedulable and cordon.has_drain_taint(node))


def _was_cordoned(maintenance: NodeMaintenance) -> bool:
    cordoned = maintenance.status.condition(ConditionType.CORDONED)
    return cordoned is not None and cordoned.status == "True"


def _has_orders(node: Node) -> bool:
    """Tell whether any maintenance has the node by the mark on it."""
    try:
        return any(it.startswith(OWNER_PREFIX) for it in owners(node))
    except BadMark:
        return False


def kept_before(maintenance: NodeMaintenance) -> Before:
    """Return how the node was by the status; without a copy there, our taint tells that all that we set is ours."""
    copy, ours = maintenance.status.node_before, cordon.untouched(WISHES)
    if copy is None:
        return ours
    return Before(
        unschedulable=copy.unschedulable,
        taints={name: name in copy.taints for name in ours.taints},
        labels={key: copy.labels.get(key) for key in ours.labels},
    )


def let_go(seen: Seen, node: Node, *, recovering: bool = False) -> Decision | None:
    """Return the next step on the way to a node that is not ours any more; None if there is none left.

    With `recovering`, the node still counts for budgets afterwards, until its workloads have recovered.
    """
    owner, is_lost = owner_name(seen.maintenance), _is_unmarked(seen, node)
    is_shared = (not is_lost and _others(node, owner)) or is_wanted_by(seen.rivals)
    if not is_shared and (decision := publish(seen, node, Stage.OVER)):
        return decision
    before = kept_before(seen.maintenance) if is_lost else None
    change = cordon.release(node, owner, wishes=WISHES, before=before, others=seen.other_holds)
    if change is None:
        return None
    if recovering:
        annotations = {**change["metadata"].get("annotations", {}), **recovery.marked(node, seen.maintenance.name)}
        change = {**change, "metadata": {**change["metadata"], "annotations": annotations}}
    return Decision(step=Release(node.name, change, cordon.damage(node)))


def _is_unmarked(seen: Seen, node: Node) -> bool:
    """Tell whether a node is to be restored though its mark does not name this maintenance.

    The mark is lost, perhaps before the status could say that the node was held; or nobody else can be meant by our
    taint, as there is no other maintenance of the node.
    """
    if is_mark_lost(seen.maintenance, node):
        return True
    is_tainted = node.spec.unschedulable and cordon.has_drain_taint(node)
    return is_tainted and not seen.rivals and counts_copy(seen.maintenance, node)


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
        if seen.maintenance.name in away.recovering_of(node):
            return Decision(step=EndRecovery(node.name, recovery.unmarked(node, seen.maintenance.name)))
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
