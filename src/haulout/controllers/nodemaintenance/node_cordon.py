"""What a NodeMaintenance changes on a node, as a cordon owner, and how that is undone: the next action of each.

A node that `spec.nodeName` does not name any more is released like one whose maintenance is over. What the Node
Maintenance Operator began is adopted as if we had begun it.

The state of the node before the maintenance is stored in the cordon annotation on the node and in the status of the
NodeMaintenance. The status is written first, and follows the annotation. If somebody removes the maintenance from the
annotation, the node still has its taint or label, and the status tells the state before.
"""

from collections.abc import Iterable

from haulout.api.nodemaintenance import NodeBefore, NodeMaintenance, NodeMaintenanceConditionType
from haulout.api.objects import Lease, Node, Taint
from haulout.budget import unavailable_nodes
from haulout.controllers.nodemaintenance import recovery
from haulout.controllers.nodemaintenance.actions import (
    CordonNode,
    EndRecovery,
    PublishConditions,
    ReleaseLease,
    ReleaseNode,
    StopDrain,
)
from haulout.controllers.nodemaintenance.node_lease import HOLDER
from haulout.controllers.nodemaintenance.observation import NodeMaintenanceDecision, Observation
from haulout.drain import cordon
from haulout.drain.cordon import CordonRequest, InvalidCordonAnnotation, StateBeforeCordon
from haulout.drain.node_conditions import LifecycleState, conditions_patch

OWNER_PREFIX = unavailable_nodes.NODE_MAINTENANCE_OWNER_PREFIX
DRAIN_TAINT = unavailable_nodes.DRAIN_TAINT
EXCLUDE_LABEL = cordon.EXCLUDE_LABEL
# The taints are those of the Node Maintenance Operator. The first is also set by the node lifecycle controller; with it
# in the same patch, no pod is scheduled in between.
CORDON_REQUEST = CordonRequest(
    taints=(Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"), DRAIN_TAINT),
    labels={EXCLUDE_LABEL: "true"},
)
_MAX_REASON_LENGTH = 256


def owner_name(maintenance: NodeMaintenance) -> str:
    """Return the cordon owner of a maintenance."""
    return f"{OWNER_PREFIX}{maintenance.name}"


def is_adoptable(maintenance: NodeMaintenance, node: Node) -> bool:
    """Return whether the Node Maintenance Operator, which writes no annotation, holds the node for this maintenance."""
    status = maintenance.status
    annotations = {cordon.CORDON_ANNOTATION, cordon.CORDON_BACKUP_ANNOTATION} & node.metadata.annotations.keys()
    if annotations or not status.phase or status.conditions:
        return False
    return cordon.has_drain_taint(node)


def adopt(observation: Observation, node: Node) -> NodeMaintenanceDecision:
    """Add our cordon annotation to a node that the Node Maintenance Operator holds for the same maintenance."""
    change = cordon.acquire(
        node, owner_name(observation.maintenance), CORDON_REQUEST, now=observation.now, adopting=True
    )
    if change is None:
        raise RuntimeError(f"node {node.name} already has the cordon annotation that its adoption should add")
    return NodeMaintenanceDecision(action=CordonNode(change, is_first=True))


def node_before(observation: Observation) -> NodeBefore | None:
    """Return the node's state before maintenance, for the status."""
    reported, node = observation.maintenance.status.node_before, observation.node
    if node is None or uses_status_copy(observation.maintenance, node):
        return reported
    try:
        before = cordon.state_before(node, CORDON_REQUEST)
    except InvalidCordonAnnotation:
        return reported
    taints = tuple(sorted(name for name, was_there in before.taints.items() if was_there))
    labels = {key: value for key, value in before.labels.items() if value is not None}
    return NodeBefore(uid=node.uid, unschedulable=before.unschedulable, taints=taints, labels=labels)


def is_cordon_annotation_lost(maintenance: NodeMaintenance, node: Node) -> bool:
    """Return whether somebody removed the maintenance from the cordon annotation of a node that it holds.

    Condition Cordoned proves that it held the node, and its taint or label on the node proves that it did not release
    it.
    """
    copy = maintenance.status.node_before
    if not _was_cordoned(maintenance) or (copy is not None and copy.uid != node.uid) or _has_maintenance_owner(node):
        return False
    is_labelled = EXCLUDE_LABEL in node.metadata.labels and copy is not None and EXCLUDE_LABEL not in copy.labels
    return node.spec.unschedulable and (cordon.has_drain_taint(node) or is_labelled)


def uses_status_copy(maintenance: NodeMaintenance, node: Node) -> bool:
    """Return whether the status is the better source of the node's prior state, because the annotation may be lost."""
    copy = maintenance.status.node_before
    if copy is None or copy.uid != node.uid or _has_maintenance_owner(node):
        return False
    return _was_cordoned(maintenance) or (node.spec.unschedulable and cordon.has_drain_taint(node))


def _was_cordoned(maintenance: NodeMaintenance) -> bool:
    cordoned = maintenance.status.condition(NodeMaintenanceConditionType.CORDONED)
    return cordoned is not None and cordoned.status == "True"


def _has_maintenance_owner(node: Node) -> bool:
    """Return whether any maintenance is an owner in the cordon annotation."""
    try:
        return any(owner.startswith(OWNER_PREFIX) for owner in cordon_owners(node))
    except InvalidCordonAnnotation:
        return False


def state_before_from_status(maintenance: NodeMaintenance) -> StateBeforeCordon:
    """Return the node's prior state by the status.

    Without a copy there, our taint proves that all we requested is ours.
    """
    copy, unmodified = maintenance.status.node_before, cordon.unmodified_state(CORDON_REQUEST)
    if copy is None:
        return unmodified
    return StateBeforeCordon(
        unschedulable=copy.unschedulable,
        taints={name: name in copy.taints for name in unmodified.taints},
        labels={key: copy.labels.get(key) for key in unmodified.labels},
    )


def release_node(observation: Observation, node: Node, *, recovering: bool = False) -> NodeMaintenanceDecision | None:
    """Return the next action that releases the node; None if it is released.

    With `recovering`, the node counts as unavailable for budgets until its workloads have recovered.
    """
    owner, is_lost = owner_name(observation.maintenance), _needs_restore_without_annotation(observation, node)
    is_shared = (not is_lost and _has_other_maintenance(node, owner)) or is_needed_by_rival(observation.rivals)
    if not is_shared and (decision := publish_conditions(observation, node, LifecycleState.OVER)):
        return decision
    before = state_before_from_status(observation.maintenance) if is_lost else None
    change = cordon.release(
        node, owner, requested=CORDON_REQUEST, before=before, others=observation.other_cordon_owners
    )
    if change is None:
        return None
    if recovering:
        annotations = {
            **change["metadata"].get("annotations", {}),
            **recovery.recovering_annotation(node, observation.maintenance.name),
        }
        change = {**change, "metadata": {**change["metadata"], "annotations": annotations}}
    return NodeMaintenanceDecision(action=ReleaseNode(node.name, change, cordon.describe_annotation_damage(node)))


def _needs_restore_without_annotation(observation: Observation, node: Node) -> bool:
    """Return whether to restore the node although its annotation does not name this maintenance.

    Either the annotation is lost, perhaps before the status recorded the cordon; or our taint can belong to no other
    maintenance, because the node has no other.
    """
    if is_cordon_annotation_lost(observation.maintenance, node):
        return True
    is_tainted = node.spec.unschedulable and cordon.has_drain_taint(node)
    return is_tainted and not observation.rivals and uses_status_copy(observation.maintenance, node)


def release_stray_nodes(observation: Observation) -> NodeMaintenanceDecision | None:
    """Release a node that the spec named before. The annotation goes last, because it identifies the node."""
    owner = owner_name(observation.maintenance)
    for stray_node in observation.stray_nodes:
        node = stray_node.node
        if observation.drain is not None and observation.drain.node_uid == node.uid:
            return NodeMaintenanceDecision(action=StopDrain())
        if owner in cordon_owners(node) and not _has_other_maintenance(node, owner):
            if decision := publish_conditions(observation, node, LifecycleState.OVER):
                return decision
            if stray_node.lease is not None and may_release_lease(stray_node.lease):
                return NodeMaintenanceDecision(action=ReleaseLease(stray_node.lease))
        change = cordon.release(node, owner)
        if change is not None:
            return NodeMaintenanceDecision(action=ReleaseNode(node.name, change))
        if observation.maintenance.name in unavailable_nodes.recovering_node_maintenances_of(node):
            return NodeMaintenanceDecision(
                action=EndRecovery(node.name, recovery.remove_recovering_patch(node, observation.maintenance.name))
            )
    return None


def may_release_lease(lease: Lease) -> bool:
    """Return whether the lease is ours or has no holder. An expired lease of another holder is theirs to delete."""
    return lease.spec.holder_identity in (None, "", HOLDER)


def cordon_owners(node: Node) -> tuple[str, ...]:
    found = cordon.cordon_of(node)
    return () if found is None else tuple(found.owners)


def _has_other_maintenance(node: Node, owner: str) -> bool:
    """Return whether another maintenance holds the node.

    Profiles do not count, since they do not use its conditions.
    """
    return any(other != owner and other.startswith(OWNER_PREFIX) for other in cordon_owners(node))


def publish_conditions(observation: Observation, node: Node, state: LifecycleState) -> NodeMaintenanceDecision | None:
    """Return the action that updates the node's conditions to this state; None if they are up to date."""
    is_last = state is LifecycleState.OVER
    if not observation.may_publish_conditions and not is_last:
        return None
    owner = owner_name(observation.maintenance).replace("/", " ")
    reason = shorten(observation.maintenance.spec.reason)
    change = conditions_patch(node, state, f"{owner}: {reason}" if reason else owner, now=observation.now)
    return None if change is None else NodeMaintenanceDecision(action=PublishConditions(node.name, change, is_last))


def is_needed_by_rival(rivals: Iterable[NodeMaintenance]) -> bool:
    """Return whether another maintenance keeps the node in maintenance."""
    return any(not rival.is_being_deleted for rival in rivals)


def shorten(text: str) -> str:
    """Return user text as a single line of bounded length."""
    line = " ".join(text[: 4 * _MAX_REASON_LENGTH].split())
    return line if len(line) <= _MAX_REASON_LENGTH else f"{line[: _MAX_REASON_LENGTH - 1]}…"
