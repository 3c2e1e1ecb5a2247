"""A node's tile: its state at a glance. Pure."""

from haulout.api.hold import active_hold
from haulout.dashboard.api.nodes.observation import NodeObservation
from haulout.dashboard.api.nodes.state import NodeAssessment, assess_node
from haulout.dashboard.api.nodes.topology import pool_of, zone_of
from haulout.dashboard.api.types import NodeState, NodeSummary


def tile_of(observation: NodeObservation) -> tuple[NodeSummary, NodeAssessment]:
    """Return the tile of a node, and its assessment."""
    assessment, node = assess_node(observation), observation.node
    labels = node.metadata.labels
    tile = NodeSummary(
        name=node.name,
        state=assessment.state,
        since=assessment.since,
        message=assessment.why,
        next_at=assessment.at,
        progress=assessment.progress,
        zone=zone_of(labels),
        pool=pool_of(labels),
        is_ready=observation.is_ready,
        is_cordoned=node.spec.unschedulable,
        profiles={name: entry.current for name, entry in observation.entries.items()},
        notices=len(observation.notices),
        maintenance=next((maintenance.name for maintenance in observation.orders), ""),
        hold="" if (held := active_hold(node, now=observation.now)) is None else str(held),
        labels={} if observation.info is None else dict(observation.info.labels),
    )
    return tile, assessment


def broken_tile(name: str, problem: str) -> NodeSummary:
    """Return the tile of a node whose assessment failed with a bug."""
    return NodeSummary(name=name, state=NodeState.BLOCKED, message=f"internal error in the operator: {problem}")
